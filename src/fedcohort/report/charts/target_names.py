"""Find where the name of a target stands on its line, so that it covers as little as possible."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

__all__ = ["FreePlaces"]

LINE, TRIANGLE, BAND = 10.0, 3.0, 1.0
"""How much it counts that a name covers a line, a triangle, or a band, as long as the name."""

HALF = 5
"""About half the width of a triangle on the line of a target, in pixels."""


@dataclass(frozen=True)
class FreePlaces:
    """What stands in a chart of lines.

    Attributes:
        frame: the lines and bands, as in :func:`~fedcohort.report.charts.strategy_lines.lines`.
        ends: range of the x axis.
        span: range of the y axis.
        size: about the width of the chart, and its height, in pixels.
        reached: the triangles below the lines of targets, from :func:`~fedcohort.report.charts.target_marks.when_reached`.
    """

    frame: pd.DataFrame
    ends: Sequence[float]
    span: Sequence[float]
    size: tuple[float, float]
    reached: pd.DataFrame | None = None

    def place(self, own: Sequence[str], level: float, width: float, height: float) -> tuple[bool, bool]:
        """Where a name of this width and height in pixels covers least of some strategies: below the line of its level, and at the
        right end. A name stays inside the chart.
        """
        low, high = self.span
        tall, (start, end) = height * (high - low) / self.size[1], self.ends
        wide = (end - start) * min(1.0, width / self.size[0])
        places = {}
        for below, right in itertools.product((False, True), repeat=2):
            bottom, left = level - tall * below, end - wide if right else start
            inside = low <= bottom and bottom + tall <= high
            covered = self._lines(own, left, left + wide, bottom, bottom + tall)
            covered += TRIANGLE * self._triangles(own, left, left + wide) * below
            places[below, right] = (not inside, covered)
        return min(places, key=lambda place: places[place])

    def _lines(self, strategies: Sequence[str], left: float, right: float, bottom: float, top: float) -> float:
        """How much of a rectangle lines and bands cover."""
        total = 0.0
        for _, own in self.frame[self.frame["strategy"].isin(strategies)].groupby("strategy", sort=False):
            x = np.linspace(left, right, 20)
            mean, lower, upper = (np.interp(x, own["x"], own[name]) for name in ("mean", "low", "high"))
            total += LINE * float(((mean >= bottom) & (mean <= top)).mean())
            total += BAND * float(((lower <= top) & (upper >= bottom)).mean())
        return total

    def _triangles(self, strategies: Sequence[str], left: float, right: float) -> int:
        """How many triangles lie at least in part between two x."""
        if self.reached is None or self.reached.empty:
            return 0
        half = HALF / self.size[0] * (self.ends[1] - self.ends[0])
        x = self.reached["x"][self.reached["strategy"].isin(strategies)]
        return int(((left - half <= x) & (x <= right + half)).sum())
