"""What a strategy needs of clients and of the server, found by playing it.

A strategy declares what it needs of data (``needs``), but not what it asks and which reports it reads. Both are found by a rehearsal:
a copy of the strategy plays rounds with made-up answers, and everything that it asks, reads and tells clients to do is noted.
"""

import copy
import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.core.random_streams import rng
from fedcohort.flower.answering import keyword_of
from fedcohort.flower.wire import Introduction
from fedcohort.selection import Census, Cohort, Outcome, Question, Round, Selector, choose

__all__ = ["Requirements", "check", "refusals", "requirements"]

ROUNDS = 100
"""Largest number of rounds of a rehearsal; a run with fewer is rehearsed as long as it is."""
DERIVED = frozenset({"update", "update_norm"})
"""Reports that the server computes from the updates."""

WIDTH = 5
"""Length of the updates of a rehearsal, whatever the model is."""


@dataclass(frozen=True)
class Requirements:
    """What a strategy needs.

    Attributes:
        questions: kinds of the questions that it asks.
        reports: names of the reports that it reads and that clients must send.
        instructions: what it tells clients to do in their training.
        needs: the strategy's ``needs``.
    """

    questions: frozenset[str]
    reports: frozenset[str]
    instructions: frozenset[str]
    needs: frozenset[str]

    @property
    def keywords(self) -> list[str]:
        """The keywords of :func:`fedcohort.flower.answers` that a client must give, beside ``num_samples``."""
        words = [keyword_of(kind) for kind in sorted(self.questions)]
        words += ["histogram"] * ("histogram" in self.needs)
        words += [f"reports={sorted(self.reports)}"] * bool(self.reports)
        return words + [f"follows={sorted(self.instructions)}"] * bool(self.instructions)


def requirements(selector: Selector, census: Census | None = None) -> Requirements:
    """Find out what a strategy needs, by a rehearsal on a copy of it: all rounds of the run, at most :data:`ROUNDS`.

    Args:
        selector: the strategy, with its settings.
        census: the clients; by default 20 clients, of which 4 are selected in a round.
    """
    selector = copy.deepcopy(selector)
    census = _census(selector, census)
    selector.setup(census)
    noted, durations = _Noted(), np.full(census.num_clients, np.nan)
    for t in range(1, min(census.rounds or ROUNDS, ROUNDS) + 1):
        _play(selector, census, t, durations, noted)
    return Requirements(
        frozenset(noted.questions), frozenset(noted.reports) - DERIVED, frozenset(noted.instructions), selector.needs
    )


def refusals(strategy: str, needed: Requirements, clients: Sequence[Introduction], *, validates: bool) -> list[str]:
    """Why a strategy cannot run with these clients; empty if it can."""
    reasons = []
    if "validation" in needed.needs and not validates:
        reasons.append(f"{strategy} learns from a validation set on the server: give Selecting(…, validate=…)")
    if "LossChange" in needed.questions:
        reasons.append(
            f"{strategy} asks for a trial round of training that is thrown away, which a Flower strategy cannot undo"
        )
    if "histogram" in needed.needs and (without := [c.name for c in clients if not c.histogram]):
        reasons.append(
            f"{strategy} needs the label counts of all clients, but {_some(without)} does not disclose them; give "
            "answers(…, histogram=…)"
        )
    asked = sorted(needed.questions - {"LossChange"} - frozenset[str]().union(*(client.answers for client in clients)))
    if asked:
        given = ", ".join(f"{keyword_of(kind)}=…" for kind in asked)
        reasons.append(
            f"{strategy} asks clients for {' and '.join(asked)}, which no client answers; give answers(…, {given})"
        )
    read = sorted(needed.reports - frozenset[str]().union(*(client.reports for client in clients)))
    if read:
        reasons.append(
            f"{strategy} reads metrics of the training replies that no client reports; give answers(…, reports={read})"
        )
    followed = frozenset.intersection(*(client.follows for client in clients)) if clients else frozenset[str]()
    told = sorted(needed.instructions - followed)
    if told:
        without = [client.name for client in clients if not client.follows.issuperset(told)]
        reasons.append(
            f"{strategy} sets the clients' training, which {_some(without)} does not follow; give answers(…, follows={told})"
        )
    return reasons


def _some(names: Iterable[str]) -> str:
    """The first of some clients, in words."""
    first, *others = names
    return f"client {first!r}" + (f" (and {len(others)} others)" if others else "")


class _Noted:
    """What a strategy asked, read and told clients to do."""

    def __init__(self) -> None:
        self.questions: set[str] = set()
        self.reports: set[str] = set()
        self.instructions: set[str] = set()


class _Report(dict[str, float]):
    """The reports of a client; notes the names that are read."""

    def __init__(self, values: dict[str, float], noted: _Noted) -> None:
        super().__init__(values)
        self._noted = noted

    def __getitem__(self, name: str) -> float:
        self._noted.reports.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: object = None) -> Any:
        """As of a dictionary."""
        self._noted.reports.add(name)
        return super().get(name, default)


@dataclass
class _Reply:
    """The part of an update that a strategy may see."""

    client: int
    report: dict[str, float]


def _census(selector: Selector, census: Census | None) -> Census:
    """A census with everything that the strategy needs."""
    if census is None:
        census = Census(rng(0, "rehearsal").integers(20, 90, 20), 4, 4, rounds=ROUNDS)
    if "histogram" in selector.needs and census.histogram is None:
        shares = rng(0, "rehearsal", 1).dirichlet(np.ones(max(census.num_classes, 2)), census.num_clients)
        counts = np.floor(shares * census.num_samples[:, None]).astype(np.int64)
        counts[:, 0] += census.num_samples - counts.sum(axis=1)
        census = dataclasses.replace(census, histogram=counts, num_classes=counts.shape[1])
    return dataclasses.replace(census, num_parameters=WIDTH)


def _play(selector: Selector, census: Census, t: int, durations: Values, noted: _Noted) -> None:
    """A round in which all clients are there and nothing fails; ``durations`` are the known times of the clients, and are updated."""
    m = census.num_clients
    draw, times = rng(0, "rehearsal", t, 1), rng(0, "rehearsal", t, 2).uniform(1, 9, m)

    def ask(question: Question, clients: Indices) -> Values:
        noted.questions.add(question.kind)
        return draw.uniform(0, 2, len(clients) if question.numbers == 1 else (len(clients), question.numbers))

    clients = np.flatnonzero(census.num_samples)
    known = durations.copy()
    seen = Round(
        t, min(census.k, len(clients)), clients, rng(0, "select", t), 10.0 * t, known, ask, 0.8 * known, 0.2 * known
    )
    cohort = choose(selector, seen)
    noted.instructions |= _instructions(cohort)
    n = len(cohort)
    names = ("loss", "square_loss", "accuracy", "samples", "steps", "q_hat", "epochs", "training_loss", "held_out_loss")
    reports = {name: draw.uniform(1, 2, n) for name in names} | {
        "done": np.zeros(n),
        "update_norm": draw.uniform(1, 2, n),
    }
    replies = [
        _Reply(int(client), _Report({name: float(v[i]) for name, v in reports.items()}, noted))
        for i, client in enumerate(cohort.clients)
    ]
    admitted = [reply.client for reply in selector.admit(iter(replies))]
    outcome = Outcome(
        t=t, cohort=cohort, trained=np.ones(n, dtype=bool), admitted=np.isin(cohort.clients, admitted),
        reports=reports | {"update": draw.normal(size=(n, WIDTH))}, durations=times[cohort.clients], duration=9.0,
        accuracy=float(draw.uniform()), class_accuracy=draw.uniform(0, 1, max(census.num_classes, 1)),
        validation_losses=draw.uniform(0, 2, 5),
    )  # fmt: skip
    selector.observe(outcome)
    durations[cohort.clients] = times[cohort.clients]
    noted.reports |= outcome.billed


def _instructions(cohort: Cohort) -> set[str]:
    """The instructions of a cohort that differ from ordinary training."""
    used = {name for name in ("epochs", "stop") if getattr(cohort, name) is not None}
    if cohort.share is not None and (cohort.share < 1).any():
        used |= {"share", "unsent"} if cohort.unsent == "unchanged" else {"share"}
    return used | ({"sampling"} if cohort.sampling != "shuffled" else set())


def check(selector: Selector, census: Census, clients: Sequence[Introduction], *, validates: bool) -> Requirements:
    """What the strategy needs of these clients.

    Raises:
        UsageError: it cannot run with them; the message has all reasons.
    """
    needed = requirements(selector, census)
    if reasons := refusals(type(selector).__name__, needed, clients, validates=validates):
        raise UsageError("; ".join(reasons))
    return needed
