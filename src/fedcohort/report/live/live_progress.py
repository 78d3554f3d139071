"""Estimate how far the runs of a live page are, and the time that is left."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fedcohort.core.words import formatted_values
from fedcohort.record import Run

__all__ = ["Pace", "Planned"]


class Planned(NamedTuple):
    """What the command that started a live page is going to play.

    Attributes:
        rounds: number of rounds of all runs together.
        runs: number of runs.
        comparisons: number of differences to references once all runs are there.
        at_most: whether these numbers of rounds and runs are limits, which a race that is decided earlier does not reach.
    """

    rounds: int
    runs: int
    comparisons: int = 0
    at_most: bool = False


class Pace:
    """The progress of runs since the page was first made.

    Args:
        name: the experiment that ``planned`` is about.
        planned: the runs that are going to be played; None if they are not known.
        clock: the wall clock in seconds.
    """

    def __init__(
        self, name: str | None, planned: Planned | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name, self.planned, self._clock = name, planned, clock
        self._first: dict[
            str, tuple[float, int]
        ] = {}  # by experiment: when it was first seen, and the rounds at that time

    def planned_for(self, name: str) -> Planned | None:
        """The runs of an experiment that are going to be played; None if they are not known."""
        return self.planned if name == self.name else None

    def overall(self, name: str, runs: Sequence[Run]) -> dict[str, Any]:
        """Rounds ``done``, the ``total``, and in ``words`` both, the estimated time left if a plan tells which runs are still to come,
        and how far the runs are; empty once all are done."""
        planned = self.planned_for(name)
        done = sum(run.last_round for run in runs)
        total = sum(int(run.described.rounds) for run in runs)
        if planned is not None:
            total = max(total, planned.rounds)
        now = self._clock()
        start, before = self._first.setdefault(name, (now, done))
        if not runs or done >= total:
            return {}
        limit = "at most " if planned is not None and planned.at_most else ""
        words = (
            f"{formatted_values.count(done)} of {limit}{formatted_values.count(total)} rounds of {_all(runs, planned)}"
        )
        if planned is not None and done > before and now > start:  # others may begin runs that are not known yet
            left = formatted_values.clock((now - start) / (done - before) * (total - done))
            words += f", {limit}{left} left at this pace"
        return {"done": done, "total": total, "words": f"{words}. {_how_far(runs, planned)}"}


def _all(runs: Sequence[Run], planned: Planned | None) -> str:
    """The runs that rounds are counted in, in words."""
    if planned is not None:
        number = max(len(runs), planned.runs)
        return f"{'at most ' if planned.at_most else 'all '}{number} runs" if number > 1 else "the run"
    return f"the {len(runs)} runs that have begun" if runs[1:] else "the run that has begun"


def _how_far(runs: Sequence[Run], planned: Planned | None) -> str:
    """How many runs are finished, under way, and not begun, in a sentence. Without a plan, runs can have been stopped."""
    finished = sum(run.finished for run in runs)
    parts = [f"{finished} finished", f"{len(runs) - finished} {'not finished' if planned is None else 'under way'}"]
    if planned is not None and (left := planned.runs - len(runs)) > 0:
        parts.append(f"{'at most ' * planned.at_most}{left} not begun")
    return f"Runs: {', '.join(parts)}."
