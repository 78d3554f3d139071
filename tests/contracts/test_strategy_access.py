"""Strategies read only the fields of Round, Census and Outcome that the contract names; guards raise an error on any other access."""

import builtins
import dataclasses
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, cast

import numpy as np
import pytest

from fedcohort.core.arrays import Values
from fedcohort.core.parameters import make, parameters
from fedcohort.core.random_streams import rng
from fedcohort.selection import STRATEGIES, Card, Census, Cohort, Outcome, Question, Round, Selector, Why, choose
from tests.contracts.test_selectors import SETTINGS

M, K, CLASSES, ROUNDS = 12, 3, 3, 8


@dataclasses.dataclass(frozen=True)
class Reply:
    """The part of an update that a strategy may read when it decides which clients are admitted."""

    client: int
    report: Mapping[str, float]


ALLOWED: dict[type, set[str]] = {
    cls: {field.name for field in dataclasses.fields(cls) if not field.name.startswith("_")}
    | {
        name
        for name, value in vars(cls).items()
        if not name.startswith("_") and (callable(value) or isinstance(value, property))
    }
    for cls in (Census, Round, Outcome, Reply)
}
"""The public fields, properties and methods of each class."""


class Guard:
    """Gives read-only access to the allowed attributes of one object and logs their names; any other access is an error."""

    def __init__(self, thing: Any, accessed: set[str]) -> None:
        object.__setattr__(self, "_thing", thing)
        object.__setattr__(self, "_log", accessed)

    def __getattribute__(self, name: str) -> Any:
        thing = object.__getattribute__(self, "_thing")
        if name not in ALLOWED[type(thing)]:
            raise AssertionError(f"a strategy reads {type(thing).__name__}.{name}")
        object.__getattribute__(self, "_log").add(f"{type(thing).__name__}.{name}")
        return getattr(thing, name)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AssertionError(f"a strategy writes {name}")


def read_only(values: Any) -> Any:
    array = np.array(values)
    array.setflags(write=False)
    return array


def forbidden(owner: Any, name: str) -> Callable[..., Any]:
    """``owner.name``, which libraries may call internally, but strategies may not."""
    original = getattr(owner, name)

    def refuse(*args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if caller.startswith(("fedcohort.selection", "tests.")):
            raise AssertionError(f"a strategy uses {owner.__name__}.{name}")
        return original(*args, **kwargs)

    return refuse


FORBIDDEN = [
    (builtins, "open"),
    *((time, name) for name in ("time", "perf_counter", "monotonic", "process_time")),
    *(
        (np.random, name)
        for name in ("random", "rand", "randn", "randint", "choice", "permutation", "shuffle", "default_rng")
    ),
]


def play_rounds(selector: Selector, monkeypatch: pytest.MonkeyPatch) -> tuple[set[str], list[str]]:
    """Play some rounds with guarded objects; returns the attributes that were read and the note of each round's choice."""
    accessed, notes = set[str](), list[str]()
    sizes = rng(0, "sizes").integers(10, 60, M)
    histogram = rng(0, "histogram").multinomial(sizes, np.full(CLASSES, 1 / CLASSES))
    known = read_only(histogram) if "histogram" in selector.needs else None
    with monkeypatch.context() as patch:
        for owner, name in FORBIDDEN:
            patch.setattr(owner, name, forbidden(owner, name))
        selector.setup(cast(Census, Guard(Census(read_only(sizes), CLASSES, K, known), accessed)))
        for t in range(1, ROUNDS + 1):
            cohort = choose(selector, cast(Round, Guard(a_round(t), accessed)))
            notes.append(cohort.why.note if cohort.why else "")
            trained, reports = replies(selector, t, cohort)
            admitted = trained
            if type(selector).admit is not Selector.admit:
                guarded_updates = (
                    Guard(Reply(client, report), accessed) for client, report in updates(cohort, trained, reports)
                )
                admitted = np.isin(cohort.clients, [update.client for update in selector.admit(guarded_updates)])
            seen = outcome(t, cohort, trained, admitted, reports)
            selector.observe(cast(Outcome, Guard(seen, accessed)))
    return accessed, notes


def a_round(t: int) -> Round:
    """A round in which some clients are not available, all asked clients answer, and all times are known."""

    def ask(question: Question, clients: Any) -> Values:
        answers = rng(0, question.kind, t).uniform(0.1, 3, (M, question.numbers))[clients]
        return cast(Values, read_only(answers[:, 0] if question.numbers == 1 else answers))

    available = read_only([i for i in range(M) if (i + t) % 5])
    times = read_only(rng(0, "times", t).uniform(1, 9, M))
    return Round(
        t, K, available, rng(0, "select", t), 10.0 * t, times, ask, read_only(0.8 * times), read_only(0.2 * times)
    )


def replies(selector: Selector, t: int, cohort: Cohort) -> tuple[Any, dict[str, Values]]:
    """Which clients of the cohort return an update (client 5 never does), and their reports."""
    names = ["loss", "square_loss", "samples", "steps", "accuracy", "set_size", "calibration", "update_norm"]
    draw = rng(0, "outcome", t)
    reports: dict[str, Values] = {name: draw.uniform(1, 5, M)[cohort.clients] for name in names}
    if "update" in selector.needs:
        reports["update"] = draw.normal(size=(M, 7))[cohort.clients]
    if cohort.stop is not None:
        quantiles = draw.uniform(0, 1, M)[cohort.clients]
        reports |= {
            "q_hat": quantiles,
            "done": (quantiles < 0.3 * (t % 2)).astype(np.float64),
        }  # no client is done in even rounds
        reports |= {name: draw.uniform(1, 5, M)[cohort.clients] for name in ("training_loss", "held_out_loss")}
    trained = cohort.clients != 5
    for values in reports.values():
        values[~trained] = np.nan
    return read_only(trained), {name: read_only(values) for name, values in reports.items()}


def updates(cohort: Cohort, trained: Any, reports: Mapping[str, Values]) -> Iterator[tuple[int, Mapping[str, float]]]:
    """The clients that return an update, each with the numbers that it reports."""
    for i in np.flatnonzero(trained):
        report = {name: float(values[i]) for name, values in reports.items() if values.ndim == 1}
        yield int(cohort.clients[i]), MappingProxyType(report)


def outcome(t: int, cohort: Cohort, trained: Any, admitted: Any, reports: Mapping[str, Values]) -> Outcome:
    """The outcome of the round; the server has a validation set."""
    draw = rng(0, "server", t)
    times = read_only(np.where(trained, draw.uniform(1, 9, len(cohort)), np.nan))
    losses = read_only(draw.uniform(0.1, 2, 6))
    return Outcome(
        t,
        cohort,
        trained,
        read_only(admitted),
        reports,
        times,
        9.0,
        0.5,
        read_only([0.4, 0.5, 0.6]),
        validation_losses=losses,
    )


CASES = [(name, values) for name in STRATEGIES.builtin for values in [{}, *SETTINGS.get(name, [])]]


@pytest.mark.parametrize(("name", "values"), CASES, ids=[f"{name}-{values}" for name, values in CASES])
def test_strategies_read_only_what_the_contract_names(
    name: str, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    accessed, _ = play_rounds(make(STRATEGIES.find(name, "selection.name"), values, "selection"), monkeypatch)
    assert "Round.available" in accessed
    if name == "conformal":
        assert "Reply.report" in accessed


@pytest.mark.parametrize(
    ("name", "values", "note"),
    [
        ("fedcor", {"warmup": 2, "interval": 2, "first_steps": 5, "steps": 2}, "largest expected fall"),
        ("fedcor", {"warmup": 2, "interval": 2, "first_steps": 5, "steps": 2, "kernel": "se"}, "largest expected fall"),
        ("restless", {"exploration": 0.0}, "highest expected reward"),
        ("ucb", {"initial_rounds": 2, "epsilon": 0.0}, "highest UCB"),
        ("divfl", {}, "[0-2] without an update, [1-3] that represent"),
        ("rizk", {}, "successive draws by size × norm"),
    ],
)
def test_the_rounds_played_include_choices_by_score(
    name: str, values: dict[str, Any], note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this, only the random first rounds of some strategies might be checked."""
    _, notes = play_rounds(make(STRATEGIES.find(name, "selection.name"), values, "selection"), monkeypatch)
    assert any(re.match(note, one) for one in notes), notes


VALID_CARD = Card(source="a test", status="ours")


@parameters
class Uniform(Selector):
    """Uniform selection, which reads only what the contract names."""

    card: ClassVar[Card] = VALID_CARD

    def select(self, round: Round) -> Cohort:
        return Cohort(round.sample(round.k), why=Why(round.available, np.zeros(len(round.available)), note="random"))


class ReadsTheEngine(Uniform):
    def select(self, round: Round) -> Cohort:
        return Cohort(round.engine.best(round.k))  # type: ignore[attr-defined]


class ReadsTheAsker(Uniform):
    def select(self, round: Round) -> Cohort:
        return Cohort(np.array(round.__dict__["ask"].__closure__))


class ReadsTheModel(Uniform):
    def observe(self, outcome: Outcome) -> None:
        self.seen = outcome.model  # type: ignore[attr-defined]


class ReadsReportsForFree(Uniform):
    def observe(self, outcome: Outcome) -> None:
        self.seen = outcome.reports  # type: ignore[attr-defined]


class ReadsThePrivateReports(Uniform):
    def observe(self, outcome: Outcome) -> None:
        self.seen = outcome._reports


class ReadsTheData(Uniform):
    def setup(self, census: Census) -> None:
        self.labels = census.labels  # type: ignore[attr-defined]


class Writes(Uniform):
    def observe(self, outcome: Outcome) -> None:
        outcome.accuracy = 1.0  # type: ignore[misc]


class ReadsTheClock(Uniform):
    def select(self, round: Round) -> Cohort:
        return Cohort(round.available[: round.k + int(time.time()) * 0])


class ReadsFiles(Uniform):
    def observe(self, outcome: Outcome) -> None:
        open("/dev/null").close()  # noqa: PTH123


class AdmitsByTheModel(Uniform):
    def admit(self, updates: Any) -> Any:
        return (update for update in updates if update.state)


class WritesReports(Uniform):
    def admit(self, updates: Any) -> Any:
        for update in updates:
            update.report["loss"] = 0.0
            yield update


class DrawsByItself(Uniform):
    def select(self, round: Round) -> Cohort:
        return Cohort(np.random.default_rng().choice(round.available, round.k, replace=False))


@pytest.mark.parametrize(
    ("selector", "complaint"),
    [
        (ReadsTheEngine, r"reads Round\.engine"),
        (ReadsTheAsker, r"reads Round\.__dict__"),
        (ReadsTheModel, r"reads Outcome\.model"),
        (ReadsReportsForFree, r"reads Outcome\.reports"),
        (ReadsThePrivateReports, r"reads Outcome\._reports"),
        (ReadsTheData, r"reads Census\.labels"),
        (Writes, r"writes accuracy"),
        (AdmitsByTheModel, r"reads Reply\.state"),
        (ReadsTheClock, r"uses time\.time"),
        (ReadsFiles, r"uses builtins\.open"),
        (DrawsByItself, r"uses numpy\.random\.default_rng"),
    ],
)
def test_forbidden_access_is_detected(
    selector: type[Selector], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert play_rounds(Uniform(), monkeypatch)[0] >= {"Round.available", "Round.k", "Round.sample"}
    with pytest.raises(AssertionError, match=complaint):
        play_rounds(selector(), monkeypatch)


def test_reports_of_updates_are_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match="does not support item assignment"):
        play_rounds(WritesReports(), monkeypatch)
