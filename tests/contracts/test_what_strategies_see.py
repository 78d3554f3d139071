"""No strategy reads anything but its Round, Census and Outcome: they are replaced by objects that fail on anything else."""

import builtins
import dataclasses
import sys
import time
from collections.abc import Callable
from typing import Any, ClassVar, cast

import numpy as np
import pytest

from fedcohort.parameters import parameters
from fedcohort.selection import STRATEGIES
from fedcohort.selection.base import Card, Census, Cohort, Outcome, Question, Round, Selector, Values, Why, choose
from fedcohort.streams import rng
from tests.selection.fakes import an_outcome

M, K, CLASSES = 12, 3, 3

ALLOWED: dict[type, set[str]] = {
    cls: {field.name for field in dataclasses.fields(cls)}
    | {
        name
        for name, value in vars(cls).items()
        if not name.startswith("_") and (callable(value) or isinstance(value, property))
    }
    for cls in (Census, Round, Outcome)
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


def play(selector: Selector, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Six rounds, in which nothing else can be read; returns what was."""
    log: set[str] = set()
    sizes = rng(0, "sizes").integers(10, 60, M)
    histogram = rng(0, "histogram").multinomial(sizes, np.full(CLASSES, 1 / CLASSES))
    known = frozen(histogram) if "histogram" in selector.needs else None
    selector.setup(cast(Census, Only(Census(frozen(sizes), CLASSES, K, known), log)))
    for t in range(1, 7):
        available = frozen([i for i in range(M) if (i + t) % 5])

        def ask(question: Question, clients: Any, t: int = t) -> Values:
            answers = rng(0, question.kind, t).uniform(0.1, 3, (M, question.numbers))[clients]
            return cast(Values, frozen(answers[:, 0] if question.numbers == 1 else answers))

        times = frozen(rng(0, "times", t).uniform(1, 9, M))
        seen = Round(
            t, K, available, rng(0, "select", t), 10.0 * t, times, ask, frozen(0.8 * times), frozen(0.2 * times)
        )
        with monkeypatch.context() as patch:
            for owner, name in FORBIDDEN:
                patch.setattr(owner, name, forbidden(owner, name))
            cohort = choose(selector, cast(Round, Only(seen, log)))
            selector.observe(cast(Outcome, Only(outcome(selector, t, cohort), log)))
    return log


def outcome(selector: Selector, t: int, cohort: Cohort) -> Outcome:
    """Everybody trained and was admitted."""
    names = [
        "loss",
        "square_loss",
        "samples",
        "steps",
        "accuracy",
        "quantile",
        "set_size",
        "calibration",
        "update_norm",
    ]
    draw = rng(0, "outcome", t)
    reports: dict[str, Values] = {name: draw.uniform(1, 5, M)[cohort.clients] for name in names}
    if "update" in selector.needs:
        reports["update"] = draw.normal(size=(M, 7))[cohort.clients]
    return an_outcome(cohort, t=t, accuracy=0.5, class_accuracy=[0.4, 0.5, 0.6], reports=reports)


@pytest.mark.parametrize("name", list(STRATEGIES.builtin))
def test_nothing_else_is_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log = play(STRATEGIES.find(name, "selection.name")(), monkeypatch)
    assert "Round.available" in log


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


class DrawsByItself(Fine):
    def select(self, round: Round) -> Cohort:
        return Cohort(np.random.default_rng().choice(round.available, round.k, replace=False))


@pytest.mark.parametrize(
    ("selector", "complaint"),
    [
        (ReadsTheEngine, r"reads Round\.engine"),
        (ReadsTheAsker, r"reads Round\.__dict__"),
        (ReadsTheModel, r"reads Outcome\.model"),
        (ReadsTheData, r"reads Census\.labels"),
        (Writes, r"writes accuracy"),
        (ReadsTheClock, r"uses time\.time"),
        (ReadsFiles, r"uses builtins\.open"),
        (DrawsByItself, r"uses numpy\.random\.default_rng"),
    ],
)
def test_the_check_notices(selector: type[Selector], complaint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert play(Fine(), monkeypatch) >= {"Round.available", "Round.k", "Round.sample"}
    with pytest.raises(AssertionError, match=complaint):
        play(selector(), monkeypatch)
