"""Estimate how far the runs of a live page are, and the time that is left."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from fedcohort.core import formatted_values
from fedcohort.record import Run

__all__ = ["Pace"]


class Pace:
    """The progress of runs since the page was first made.

    Args:
        name: the experiment whose number of rounds is known in advance.
        expected: number of rounds of its runs together; None if it is not known.
        at_most: whether ``expected`` is a limit, which a race that is decided earlier does not reach.
        clock: the wall clock in seconds.
    """

    def __init__(
        self,
        name: str | None,
        expected: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        at_most: bool = False,
    ) -> None:
        self.name, self.expected, self._clock, self._at_most = name, expected, clock, at_most
        self._first: dict[
            str, tuple[float, int]
        ] = {}  # by experiment: when it was first seen, and the rounds at that time

    def overall(self, name: str, runs: Sequence[Run]) -> dict[str, Any]:
        """Rounds ``done``, the ``total``, and both with the estimated time left in ``words``; empty once all are done."""
        done = sum(run.last_round for run in runs)
        total = sum(int(run.described.rounds) for run in runs)
        known = self.expected is not None and name == self.name
        if known:
            total = max(total, self.expected or 0)
        now = self._clock()
        start, before = self._first.setdefault(name, (now, done))
        if not runs or done >= total:
            return {}
        of = "all runs" if known else f"the {len(runs)} runs that have begun" if runs[1:] else "the run that has begun"
        limit = "at most " if known and self._at_most else ""
        words = f"{formatted_values.count(done)} of {limit}{formatted_values.count(total)} rounds of {of}"
        if done > before and now > start:
            left = formatted_values.clock((now - start) / (done - before) * (total - done))
            words += f", {limit}{left} left at this pace"
        return {"done": done, "total": total, "words": f"{words}."}
