"""Cohorts, reasons, scores and updates of strategies that are not what they must be: one line names them."""

import dataclasses
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fedcohort import UsageError
from fedcohort.rounds.ledger import Ledger
from fedcohort.selection import Cohort, LocalLoss, Round, Selector, Why, choose
from fedcohort.selection.cohort_checks import admitted
from tests.selection.fakes import a_round

TWO, ONES = np.array([0, 1]), np.ones(2)
COMPLEX: Any = ONES * 1j
EMPTY: Any = np.zeros(0)


class Odd(Selector):
    """Returns what it is given."""

    def __init__(self, returned: Any = None) -> None:
        self.returned = returned

    def select(self, round: Round) -> Cohort:
        return self.returned()

    def admit(self, updates: Any) -> Iterator[Any]:
        return self.returned(updates)


COHORTS: dict[str, tuple[Callable[[], Any], str]] = {
    "no clients": (lambda: Cohort(None), r"Cohort\.clients is None, with shape \[\]; must be an array \[n\]$"),  # type: ignore[arg-type]
    "one number": (lambda: Cohort(np.int64(1)), r"Cohort\.clients is .*1.*, with shape \[\]"),  # type: ignore[arg-type]
    "a set": (lambda: Cohort({0, 1}), r"Cohort\.clients is \{0, 1\}, with shape \[\]"),  # type: ignore[arg-type]
    "a table": (lambda: Cohort(np.array([[0, 1]])), r"with shape \[1, 2\]"),
    "ragged": (lambda: Cohort([[0], [1, 2]]), r"which is no array \(ValueError\)$"),  # type: ignore[arg-type]
    "epochs": (
        lambda: Cohort(TWO, epochs=np.array([1, 2**40])),
        r"Cohort\.epochs of client 1 is 1099511627776; must be finite and at most 2147483648$",
    ),
    "weights": (
        lambda: Cohort(TWO, weights=np.array(["a", "b"])),
        r"Cohort\.weights is \['a', 'b'\], <U1; must be real numbers$",
    ),
    "stop": (lambda: Cohort(TWO, stop=5), r"Cohort\.stop is 5; give a dictionary such as"),  # type: ignore[arg-type]
    "why": (lambda: Cohort(TWO, why="x"), r"Cohort\.why is 'x'; give a Why\("),  # type: ignore[arg-type]
    "unknown candidate": (
        lambda: Cohort(TWO, why=Why(np.array([0, 9]), ONES)),
        r"Why\.candidates has the client 9; clients are 0 to 4$",
    ),
    "negative candidate": (lambda: Cohort(TWO, why=Why(np.array([-5, 0]), ONES)), r"the client -5;"),
    "complex scores": (
        lambda: Cohort(TWO, why=Why(TWO, COMPLEX)),
        r"Why\.scores is .*complex128; must be real numbers$",
    ),
    "scores of objects": (lambda: Cohort(TWO, why=Why(TWO, [None, "a"])), r"Why\.scores is \[None, 'a'\], object"),  # type: ignore[arg-type]
    "terms": (lambda: Cohort(TWO, why=Why(TWO, ONES, 5)), r"Why\.terms is 5; give a dictionary"),  # type: ignore[arg-type]
    "short term": (
        lambda: Cohort(TWO, why=Why(TWO, ONES, {"a": ONES[:1]})),
        r"Why\.terms\['a'\] has 1 entries for 2 candidates",
    ),
    "a column's name": (
        lambda: Cohort(TWO, why=Why(TWO, ONES, {"client": ONES})),
        r"Why\.terms has the name 'client'; give another",
    ),
    "no name": (lambda: Cohort(TWO, why=Why(TWO, ONES, {5: ONES})), r"Why\.terms has the name 5"),  # type: ignore[dict-item]
    "long note": (
        lambda: Cohort(TWO, why=Why(TWO, ONES, note="x" * 1001)),
        r"Why\.note is 'x.*; give Unicode text of at most 1000",
    ),
}


@pytest.mark.parametrize("kind", COHORTS)
def test_a_cohort_that_cannot_be_used_is_refused(kind: str) -> None:
    returned, message = COHORTS[kind]
    with pytest.raises(UsageError, match=rf"^Odd\.select in round 1: .*{message}"):
        choose(Odd(returned), a_round(k=2, available=5))


GIVEN: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "lists": (list, list),
    "tuples": (tuple, tuple),
    "tensors": (torch.tensor, torch.tensor),
    "other types": (lambda values: np.array(values, np.int32), lambda values: np.array(values, np.float32)),
}
"""How integers and floats are given."""


@pytest.mark.parametrize("kind", GIVEN)
def test_lists_and_tensors_become_arrays(kind: str) -> None:
    def integers() -> Any:
        return GIVEN[kind][0]([1, 2])

    def floats() -> Any:
        return GIVEN[kind][1]([0.5, 1.0])

    why = Why(integers(), floats(), {"term": floats()})
    returned = Cohort(integers(), integers(), floats(), floats(), integers(), floats(), why=why)
    cohort = choose(Odd(lambda: returned), a_round(2, 5))
    assert cohort.why is not None
    for found in (cohort.clients, cohort.multiplicity, cohort.epochs, cohort.why.candidates):
        assert isinstance(found, np.ndarray)
        assert found.dtype == np.int64
        assert found.tolist() == [1, 2]
    for numbers in (cohort.inclusion, cohort.weights, cohort.share, cohort.why.scores, cohort.why.terms["term"]):
        assert isinstance(numbers, np.ndarray)
        assert numbers.dtype == np.float64
        assert numbers.tolist() == [0.5, 1.0]


@pytest.mark.parametrize("epochs", [2, 2.5, (n for n in (1, 2))])
def test_fields_are_arrays(epochs: Any) -> None:
    with pytest.raises(ValueError, match=r"^Cohort\.epochs = .*: give an array with one entry for each client$"):
        Cohort(TWO, epochs=epochs)


def test_an_empty_cohort_may_have_any_type_of_array() -> None:
    selector = Odd(lambda: Cohort(EMPTY))
    selector.variable_size = True  # type: ignore[misc]
    assert len(choose(selector, a_round(k=2, available=5))) == 0


@pytest.mark.parametrize("name", ["weights", "epochs", "share"])
def test_a_cohort_with_numbers_is_not_completed(name: str) -> None:
    """Nobody knows how much the clients count or work that the strategy left out."""
    numbers: dict[str, Any] = {name: np.array([1, 1])}
    message = rf"^Odd\.select in round 1 gives Cohort\.{name}, but leaves out client 2; all 3 available clients take part, since"
    with pytest.raises(UsageError, match=message):
        choose(Odd(lambda: Cohort(TWO, **numbers)), a_round(k=4, available=3))


def test_a_completed_cohort_keeps_what_holds_for_all_its_clients() -> None:
    stop: dict[str, object] = {"rule": "conformal"}
    given = Cohort(
        TWO, multiplicity=np.array([2, 1]), unsent="unchanged", sampling="loss", stop=stop, inclusion=ONES / 2
    )
    cohort = choose(Odd(lambda: given), a_round(k=4, available=3))
    assert (cohort.clients.tolist(), cohort.multiplicity) == ([0, 1, 2], None)
    assert cohort.inclusion is not None
    assert cohort.inclusion.tolist() == [1.0, 1.0, 1.0]
    assert (cohort.unsent, cohort.sampling, cohort.stop) == ("unchanged", "loss", stop)


@pytest.mark.parametrize("rule", ["top", "draw"])
def test_scores_of_other_clients_are_refused(rule: str) -> None:
    with pytest.raises(UsageError, match=rf"^round\.{rule}: \w+ with shape \[3\] for 5 clients; give one for each$"):
        getattr(a_round(k=2, available=5), rule)(np.ones(3))


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda updates: None, "returned None; yield the updates"),
        (lambda updates: [True], "yielded True; yield updates that it received"),
        (lambda updates: [*updates, *updates], "yielded the update of client 3 twice"),
    ],
)
def test_admitted_updates_are_updates_of_the_round(returned: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(UsageError, match=rf"^Odd\.admit {message}"):
        list(admitted(Odd(returned), [SimpleNamespace(client=3, report={})]))


@pytest.mark.parametrize(
    ("question", "clients", "message"),
    [
        (LocalLoss, [0], "is no question; give one such as"),
        ("x", [0], "'x' is no question"),
        (LocalLoss(), [0.5], r"clients = \[0\.5\]: must be ids"),
    ],
)
def test_questions_and_asked_clients_are_checked(question: Any, clients: list[float], message: str) -> None:
    with pytest.raises(UsageError, match=rf"^round\.ask: .*{message}"):
        Ledger(4).asking(lambda _, asked: np.zeros(len(asked)))(question, clients)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda round_: round_.top(np.ones(3)), "round.top: scores with shape [3] for 5 clients; give one for each"),
        (lambda round_: round_.ask("loss", round_.available), "round.ask: 'loss' is no question; give one such as"),
    ],
)
def test_mistakes_in_calls_of_the_round_name_the_strategy(ask: Callable[[Round], Any], message: str) -> None:
    plain = a_round(k=2, available=5)
    billed = dataclasses.replace(plain, ask=Ledger(4).asking(lambda _, asked: np.zeros(len(asked))))
    with pytest.raises(UsageError, match=f"^{re.escape(f'Odd.select in round {plain.t}: {message}')}"):
        choose(Odd(lambda: ask(billed)), billed)


def test_declarations_are_sets() -> None:
    with pytest.raises(UsageError, match=r"^Bad\.needs = 'validation': should be a set, such as"):

        class Bad(Selector):
            needs = "validation"  # type: ignore[assignment]

    with pytest.raises(UsageError, match=r"^Worse\.card = 'x': should be a Card"):

        class Worse(Selector):
            card = "x"  # type: ignore[assignment]


def test_declarations_have_valid_names() -> None:
    with pytest.raises(UsageError, match=r"^Bad\.needs: there is no 'histograms'; did you mean 'histogram'\?"):

        class Bad(Selector):
            needs = frozenset({"validation", "histograms"})

    with pytest.raises(UsageError, match=r"^Worse\.gives: there is no 'weight'; did you mean 'weights'\?"):

        class Worse(Selector):
            gives = frozenset({"weight"})

    with pytest.raises(UsageError, match=r"^Odd\.needs: there is no 'updates'; did you mean 'update"):
        Odd().declare(needs=frozenset({"updates"}))


def test_a_strategy_without_select_is_refused() -> None:
    class Incomplete(Selector):
        pass

    with pytest.raises(UsageError, match=r"^Incomplete: defines no select; a strategy is a class with select"):
        choose(Incomplete(), a_round(k=2, available=5))
