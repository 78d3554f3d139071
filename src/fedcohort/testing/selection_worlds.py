"""Simulated federations for the contract of a selection strategy: which clients are available, and the outcome of a round."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.random_streams import rng
from fedcohort.selection import Census, Cohort, Outcome, Progress, Selector
from fedcohort.testing.base import during, require
from fedcohort.training.client_hooks import ending
from fedcohort.training.stopping_rules import beside_strategy, rules_of

__all__ = ["HALF", "JOINING", "ROUNDS", "WORLDS", "World", "census_of", "frozen", "outcome_of", "reported_by_rule"]

ROUNDS = 12
HALF = ROUNDS // 2
WIDTH = 7
"""Length of the updates."""


@dataclass(frozen=True)
class World:
    """A simulated federation for a strategy. It is a function of the round, so that a resumed run gets the same federation."""

    name: str
    m: int = 12
    k: int = 3
    present: Callable[[int, int], Iterable[int]] = lambda t, m: (i for i in range(m) if (i + t) % 5)
    """The available clients of round t, of m clients."""
    fails: Callable[[int], bool] = lambda _: False
    """Whether a client always fails."""
    silent: bool = False
    """Whether answers, reports and accuracies are NaN or infinite."""
    alike: bool = False
    """Whether all clients and rounds are the same."""
    value: float = 1.0
    """The value of every answer and report if all clients are the same."""
    empty: int = 0
    """Every ``empty``-th client has no samples and is never available (R7); 0 means that all have samples."""
    histogram: bool = True
    """Whether label counts differ between clients; otherwise all samples have one class."""
    late: int = 0
    """The last ``late`` clients have no samples until they join, after half of the rounds."""
    more: int = 0
    """Number of clients to select in every second round, in addition to ``k``."""

    def number_to_select(self, t: int) -> int:
        """The number of clients to select in round ``t``."""
        return self.k + self.more * (t % 2 == 0)


WORLDS = (
    World("an ordinary run"),
    World("few clients available", present=lambda t, m: range(t % 5) if t % 3 else range(m)),
    World("no client answers", silent=True),
    World(
        "no client available until round 4, and in round 7", present=lambda t, m: range(m if t > 3 and t != 7 else 0)
    ),
    World("all clients alike", alike=True),
    World("all answers and reports are 0", alike=True, value=0.0),
    World("clients without samples", empty=4, present=lambda _, m: (i for i in range(m) if i % 4)),
    World("a single class", histogram=False),
    World("client 0 always fails", fails=lambda client: client == 0, present=lambda _, m: range(m)),
    World("every client always fails", fails=lambda _: True),
    World("k changes", more=2, present=lambda _, m: range(m)),
    World("k = m", k=12, present=lambda _, m: range(m)),
    World("k = m - 1", k=11, present=lambda _, m: range(m)),
    World("one client", m=1, k=1, present=lambda _, m: range(m)),
    World("one client of many available", present=lambda t, m: [t % m]),
)
JOINING = World("clients join", late=3, present=lambda t, m: range(m if t > HALF else m - 3))


def frozen(array: np.ndarray) -> np.ndarray:
    """A read-only copy, because a strategy must not change its inputs."""
    array = np.array(array)
    array.setflags(write=False)
    return array


def census_of(selector: Selector, world: World, *, joined: bool) -> Census:
    """The clients of a world, with those that join or without them."""
    sizes = np.full(world.m, 20) if world.alike else rng(0, "contract-sizes").integers(10, 60, world.m)
    if world.empty:
        sizes[:: world.empty] = 0
    if world.late and not joined:
        sizes[-world.late :] = 0
    histogram = np.stack([sizes // 2, sizes - sizes // 2, np.zeros_like(sizes)], axis=1)
    if not world.histogram:
        histogram = np.stack([np.zeros_like(sizes), sizes, np.zeros_like(sizes)], axis=1)
    elif not world.alike:
        histogram[::2] = histogram[::2, ::-1]
    shown = frozen(histogram) if "histogram" in selector.needs else None
    return Census(frozen(sizes), 3, world.k, shown, num_parameters=WIDTH)


class _Reply:
    """The part of an update that a strategy may see."""

    __slots__ = ("client", "report")

    def __init__(self, client: int, report: dict[str, float]) -> None:
        self.client = client
        self.report = report


def outcome_of(selector: Selector, world: World, t: int, cohort: Cohort, where: str, validation: bool) -> Outcome:
    """The result of a round, with validation measures or without."""
    n = len(cohort)
    trained = np.array([not world.fails(int(client)) for client in cohort.clients], dtype=bool)
    draw = rng(0, "contract-outcome", t)
    reports = _reports(selector, world, cohort, trained, draw, where)
    accuracy = 0.5 if world.alike else math.nan if world.silent else float(draw.uniform())
    admitted = _admitted(selector, cohort, trained, reports, where)
    return Outcome(
        t=t,
        cohort=cohort,
        trained=frozen(trained),
        admitted=frozen(np.isin(cohort.clients, admitted)),
        reports={name: frozen(values) for name, values in reports.items()},
        durations=frozen(np.full(n, 5.0) if world.alike else draw.uniform(1, 9, n)),
        duration=9.0,
        accuracy=accuracy if validation else math.nan,
        class_accuracy=frozen(np.array([accuracy, accuracy / 2, np.nan] if validation else [])),
        validation_losses=frozen(np.full(5 if validation else 0, accuracy)),
    )


def _reports(
    selector: Selector, world: World, cohort: Cohort, trained: np.ndarray, draw: np.random.Generator, where: str
) -> dict[str, Values]:
    """What the clients of a cohort report, by name; NaN for those that failed."""
    n = len(cohort)
    if world.silent:
        return {"update": np.full((n, WIDTH), np.nan)} if "update" in selector.needs else {}
    reports = {name: draw.uniform(0, 2, world.m)[cohort.clients] for name in ("loss", "square_loss", "accuracy")}
    reports |= {"samples": np.full(n, 20.0), "steps": np.full(n, 5.0)}
    if "update_norm" in selector.needs:
        reports["update_norm"] = draw.uniform(0, 2, world.m)[cohort.clients]
    if "update" in selector.needs:
        reports["update"] = draw.normal(size=(world.m, WIDTH))[cohort.clients]
    if cohort.stop is not None:
        reports["epochs"] = np.full(n, 2.0)
        of_rule = sorted(reported_by_rule(selector, cohort, where))
        reports |= {name: draw.uniform(0, 2, world.m)[cohort.clients] for name in of_rule}
        if {"q_hat", "done"} <= reports.keys():
            reports["done"] = (reports["q_hat"] < 0.5).astype(np.float64)
    for values in reports.values():
        if world.alike:
            values[:] = world.value
        values[~trained] = np.nan
    return reports


def reported_by_rule(selector: Selector, cohort: Cohort, where: str) -> set[str]:
    """The names of the numbers that the cohort's stopping rule reports in a training of two epochs."""

    def outputs() -> tuple[Values, Indices]:
        return np.array([[0.7, 0.2, 0.1], [0.2, 0.3, 0.5]] * 20), np.array([0, 1] * 20)

    reports: list[dict[str, float]] = []
    with during(f"{where}: Cohort.stop = {cohort.stop}"):
        make_rule = rules_of(beside_strategy(cohort, selector).stop)
        if make_rule is None:
            return set()
        rule = make_rule()
        for epoch in (1, 2):
            progress = Progress(epoch, epoch == 2, 1 / epoch, outputs, tuple(reports), outputs, outputs)
            reports.append(ending(rule, progress)[1])
    return {name for report in reports for name in report}


def _admitted(
    selector: Selector, cohort: Cohort, trained: np.ndarray, reports: dict[str, Values], where: str
) -> list[int]:
    """The clients that the strategy admits, in order."""
    replies = [
        _Reply(int(client), {name: float(v[i]) for name, v in reports.items() if v.ndim == 1 and np.isfinite(v[i])})
        for i, client in enumerate(cohort.clients)
        if trained[i]
    ]
    with during(f"{where}: admit"):
        admitted = list(selector.admit(iter(replies)))
    positions = [next((i for i, reply in enumerate(replies) if reply is passed), -1) for passed in admitted]
    fine = -1 not in positions and positions == sorted(set(positions))
    require(fine, f"{where}: admit must pass on the given updates, in their order")
    return [reply.client for reply in admitted]
