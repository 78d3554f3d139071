"""No strategy reads anything but its Round, Census and Outcome: they are replaced by objects that fail on anything else."""

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
from fedcohort.core.streams import rng
from fedcohort.selection import STRATEGIES, Card, Census, Cohort, Outcome, Question, Round, Selector, Why, choose
from tests.contracts.test_selectors import SETTINGS

M, K, CLASSES, ROUNDS = 12, 3, 3, 8


@dataclasses.dataclass(frozen=True)
class Reply:
    """All that a strategy may see of an update when it decides who is admitted."""

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
"""The fields, properties and methods that the contract names."""


class Only:
    """Passes on what the contract names of one object, read-only; everything else is an error."""

    def __init__(self, thing: Any, log: set[str]) -> None:
        object.__setattr__(self, "_thing", thing)
        object.__setattr__(self, "_log", log)

    def __getattribute__(self, name: str) -> Any:
        thing = object.__getattribute__(self, "_thing")
        if name not in ALLOWED[type(thing)]:
            raise AssertionError(f"a strategy reads {type(thing).__name__}.{name}")
        object.__getattribute__(self, "_log").add(f"{type(thing).__name__}.{name}")
        return getattr(thing, name)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AssertionError(f"a strategy writes {name}")


def frozen(values: Any) -> Any:
    array = np.array(values)
    array.setflags(write=False)
    return array


def forbidden(owner: Any, name: str) -> Callable[..., Any]:
    """``owner.name``, which only libraries may call: what they do inside is their own affair."""
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


def play(selector: Selector, monkeypatch: pytest.MonkeyPatch) -> tuple[set[str], list[str]]:
    """A few rounds, in which nothing else can be read; returns what was, and what kind of choice each round's was."""
    log, notes = set[str](), list[str]()
    sizes = rng(0, "sizes").integers(10, 60, M)
    histogram = rng(0, "histogram").multinomial(sizes, np.full(CLASSES, 1 / CLASSES))
    known = frozen(histogram) if "histogram" in selector.needs else None
    with monkeypatch.context() as patch:
        for owner, name in FORBIDDEN:
            patch.setattr(owner, name, forbidden(owner, name))
        selector.setup(cast(Census, Only(Census(frozen(sizes), CLASSES, K, known), log)))
        for t in range(1, ROUNDS + 1):
            cohort = choose(selector, cast(Round, Only(a_round(t), log)))
            notes.append(cohort.why.note if cohort.why else "")
            trained, reports = replies(selector, t, cohort)
            admitted = trained
            if type(selector).admit is not Selector.admit:
                arrived = (Only(Reply(client, report), log) for client, report in updates(cohort, trained, reports))
                admitted = np.isin(cohort.clients, [update.client for update in selector.admit(arrived)])
            seen = outcome(t, cohort, trained, admitted, reports)
            selector.observe(cast(Outcome, Only(seen, log)))
    return log, notes


def a_round(t: int) -> Round:
    """A round in which some clients are away, everybody who is asked answers, and every time is known."""

    def ask(question: Question, clients: Any) -> Values:
        answers = rng(0, question.kind, t).uniform(0.1, 3, (M, question.numbers))[clients]
        return cast(Values, frozen(answers[:, 0] if question.numbers == 1 else answers))

    available = frozen([i for i in range(M) if (i + t) % 5])
    times = frozen(rng(0, "times", t).uniform(1, 9, M))
    return Round(t, K, available, rng(0, "select", t), 10.0 * t, times, ask, frozen(0.8 * times), frozen(0.2 * times))


def replies(selector: Selector, t: int, cohort: Cohort) -> tuple[Any, dict[str, Values]]:
    """Who of the cohort came back, which client 5 never does, and what they report."""
    names = ["loss", "square_loss", "samples", "steps", "accuracy", "set_size", "calibration", "update_norm"]
    draw = rng(0, "outcome", t)
    reports: dict[str, Values] = {name: draw.uniform(1, 5, M)[cohort.clients] for name in names}
    if "update" in selector.needs:
        reports["update"] = draw.normal(size=(M, 7))[cohort.clients]
    if cohort.stop is not None:
        quantiles = draw.uniform(0, 1, M)[cohort.clients]
        reports |= {"q_hat": quantiles, "done": (quantiles < 0.3 * (t % 2)).astype(np.float64)}  # nobody in even rounds
        reports |= {name: draw.uniform(1, 5, M)[cohort.clients] for name in ("training_loss", "held_out_loss")}
    trained = cohort.clients != 5
    for values in reports.values():
        values[~trained] = np.nan
    return frozen(trained), {name: frozen(values) for name, values in reports.items()}


def updates(cohort: Cohort, trained: Any, reports: Mapping[str, Values]) -> Iterator[tuple[int, Mapping[str, float]]]:
    """The clients that came back, each with the numbers that it reports."""
    for i in np.flatnonzero(trained):
        report = {name: float(values[i]) for name, values in reports.items() if values.ndim == 1}
        yield int(cohort.clients[i]), MappingProxyType(report)


def outcome(t: int, cohort: Cohort, trained: Any, admitted: Any, reports: Mapping[str, Values]) -> Outcome:
    """What became of the round; the server has a validation set."""
    draw = rng(0, "server", t)
    times = frozen(np.where(trained, draw.uniform(1, 9, len(cohort)), np.nan))
    losses = frozen(draw.uniform(0.1, 2, 6))
    return Outcome(
        t,
        cohort,
        trained,
        frozen(admitted),
        reports,
        times,
        9.0,
        0.5,
        frozen([0.4, 0.5, 0.6]),
        validation_losses=losses,
    )


CASES = [(name, values) for name in STRATEGIES.builtin for values in [{}, *SETTINGS.get(name, [])]]


@pytest.mark.parametrize(("name", "values"), CASES, ids=[f"{name}-{values}" for name, values in CASES])
def test_nothing_else_is_read(name: str, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = play(make(STRATEGIES.find(name, "selection.name"), values, "selection"), monkeypatch)
    assert "Round.available" in log
    if name == "conformal":
        assert "Reply.report" in log


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
def test_it_is_the_choice_itself_that_is_watched(
    name: str, values: dict[str, Any], note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only the random rounds with which some strategies begin."""
    _, notes = play(make(STRATEGIES.find(name, "selection.name"), values, "selection"), monkeypatch)
    assert any(re.match(note, one) for one in notes), notes


CARD = Card(source="a test", status="ours")


@parameters
class Fine(Selector):
    """Uniform."""

    card: ClassVar[Card] = CARD

    def select(self, round: Round) -> Cohort:
        return Cohort(round.sample(round.k), why=Why(round.available, np.zeros(len(round.available)), note="random"))


class ReadsTheEngine(Fine):
    def select(self, round: Round) -> Cohort:
        return Cohort(round.engine.best(round.k))  # type: ignore[attr-defined]


class ReadsTheAsker(Fine):
    def select(self, round: Round) -> Cohort:
        return Cohort(np.array(round.__dict__["ask"].__closure__))


class ReadsTheModel(Fine):
    def observe(self, outcome: Outcome) -> None:
        self.seen = outcome.model  # type: ignore[attr-defined]


class ReadsReportsForFree(Fine):
    def observe(self, outcome: Outcome) -> None:
        self.seen = outcome.reports  # type: ignore[attr-defined]


class ReadsThePrivateReports(Fine):
    def observe(self, outcome: Outcome) -> None:
        self.seen = outcome._reports


class ReadsTheData(Fine):
    def setup(self, census: Census) -> None:
        self.labels = census.labels  # type: ignore[attr-defined]


class Writes(Fine):
    def observe(self, outcome: Outcome) -> None:
        outcome.accuracy = 1.0  # type: ignore[misc]


class ReadsTheClock(Fine):
    def select(self, round: Round) -> Cohort:
        return Cohort(round.available[: round.k + int(time.time()) * 0])


class ReadsFiles(Fine):
    def observe(self, outcome: Outcome) -> None:
        open("/dev/null").close()  # noqa: PTH123


class AdmitsByTheModel(Fine):
    def admit(self, updates: Any) -> Any:
        return (update for update in updates if update.state)


class WritesReports(Fine):
    def admit(self, updates: Any) -> Any:
        for update in updates:
            update.report["loss"] = 0.0
            yield update


class DrawsByItself(Fine):
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
def test_the_check_notices(selector: type[Selector], complaint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert play(Fine(), monkeypatch)[0] >= {"Round.available", "Round.k", "Round.sample"}
    with pytest.raises(AssertionError, match=complaint):
        play(selector(), monkeypatch)


def test_reports_are_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match="does not support item assignment"):
        play(WritesReports(), monkeypatch)
