"""What each row of a race did: its scores, its state, and the cost of its runs."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import numpy as np

from fedcohort.core.words import formatted_values
from fedcohort.core.words.formatted_values import counted, in_words, simulated_time
from fedcohort.record import Run

__all__ = ["BEST", "DROPPED", "FRONT", "NOT_BETTER", "UNDECIDED", "Cost", "RacedRow"]

BEST, DROPPED, NOT_BETTER, UNDECIDED, FRONT = "best", "dropped", "not better", "undecided", "on the front"


@dataclass(frozen=True)
class Cost:
    """What some runs cost.

    Attributes:
        runs: their number.
        bytes: bytes sent and received.
        client_passes: forward passes over a client's training data, summed over clients.
        simulated_time: simulated time.
        wall_seconds: wall time of the simulator.
    """

    runs: float = 0.0
    bytes: float = 0.0
    client_passes: float = 0.0
    simulated_time: float = 0.0
    wall_seconds: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*(a + b for a, b in zip(asdict(self).values(), asdict(other).values(), strict=True)))

    def times(self, factor: float) -> "Cost":
        """The cost of this many times as many runs."""
        return Cost(*(factor * each for each in asdict(self).values()))

    @property
    def words(self) -> str:
        """The cost without the number of runs, in words."""
        parts = [
            formatted_values.size(self.bytes),
            counted(self.client_passes, "client pass", "client passes"),
            f"a simulated time of {simulated_time(self.simulated_time)}",
            f"{formatted_values.duration(self.wall_seconds)} of wall time",
        ]
        return in_words(parts)


@dataclass(frozen=True)
class RacedRow:
    """One row of a race.

    Attributes:
        label: its label.
        runs: its runs by seed.
        scores: its scores by objective and seed, float64 [objectives, seeds]; see :meth:`Objective.score`.
        state: ``best``, ``on the front`` (of two objectives), ``dropped``, ``not better`` (than the recommended row by more
            than the margin), or ``undecided``.
        dropped_by, dropped_after: the row that is clearly better, and the number of seeds after which this was clear; empty and 0 for
            rows that are not dropped.
        difference, low, high: mean difference of scores to the recommended row in the first objective, over the seeds that both have
            (without the first one, if there are more than three rows), and its interval, which is valid at any time; NaN for the
            recommended row and with two objectives. The interval ends where no larger difference is possible. With the confidence of
            the race, that of the best row does not end too low. A lower end holds for its pair alone.
        cost: the cost of its runs.
        reached: number of runs that reached the targets of all objectives; all of them without a target.
        unspent: number of runs that ended although the limit of an accuracy had room for another round.
        untested: number of runs that spent the limit of an accuracy before their first model was tested, and count as 0.
        needed: about how many seeds would decide between it and the recommended row, or with two objectives between it and all
            others, if mean differences and their spread stay as they are; 0 if that is decided, or not known, and infinite if it is
            too many to be advised.
        failure: why its training failed, and what to try, in sentences; empty if it did not, or if the row is dropped.
    """

    label: str
    runs: Mapping[int, Run]
    scores: tuple[tuple[float, ...], ...]
    state: str
    dropped_by: str = ""
    dropped_after: int = 0
    difference: float = math.nan
    low: float = math.nan
    high: float = math.nan
    cost: Cost = field(default_factory=Cost)
    reached: int = 0
    unspent: int = 0
    untested: int = 0
    needed: float = 0
    failure: str = ""

    @property
    def seeds(self) -> int:
        """Number of seeds that it played."""
        return len(self.runs)

    @property
    def means(self) -> list[float]:
        """Its mean scores by objective."""
        return [float(np.mean(scores)) for scores in self.scores]

    @property
    def words(self) -> str:
        """Its state in words."""
        if self.state != DROPPED:
            return self.state
        return f"dropped after {counted(self.dropped_after, 'seed')} by {self.dropped_by!r}"
