"""Choose the rows that charts name, color, or give a panel, if there are too many for all."""

import math
from collections.abc import Collection, Sequence

from fedcohort.study.comparison import Comparison

__all__ = [
    "FRONT",
    "LINES",
    "NAMES",
    "OWN_COLORS",
    "PANELS",
    "SWEEP_PANELS",
    "rows_with_name",
    "rows_with_panel",
]

PANELS = 12
"""Largest number of panels in charts that have one panel for each strategy."""

SWEEP_PANELS = 36
"""Largest number of such panels for all points of a sweep together; the page shows those of one point at a time."""


LINES = 20
"""Largest number of lines with a legend: that of more would take the room of the chart."""

OWN_COLORS = 12
"""Largest number of rows that figures in papers color and name: each has a color of its own. Colors of more would be used again, and
lines of one color cannot be told apart by their dashes where they cross."""

NAMES = 7
"""Number of lines that are named if there are more."""


FRONT = LINES - NAMES
"""Largest number of rows that figures in papers name besides because no other row is better and cheaper."""


def rows_with_name(compared: Comparison | None, most: int = LINES) -> set[int]:
    """Of more than ``most`` rows at a point of a sweep, those that charts of lines name: as for panels, finished or not."""
    chosen: set[int] = set()
    if compared is not None:
        for group in compared.groups:
            if len(group.rows) > most:
                chosen |= set(_best_first(compared, group.rows)[:NAMES])
    return chosen


def rows_with_panel(compared: Comparison, known: Collection[int], finished: bool) -> set[int]:
    """The positions of the rows that get a panel: at each point of a sweep, the reference and the rows with the highest mean accuracy.

    Args:
        compared: the comparison.
        known: the positions of the rows that have a run for such a panel.
        finished: whether all runs are finished. Otherwise, the first rows are chosen, so that panels do not come and go with every
            round.
    """
    groups = compared.groups[:SWEEP_PANELS]
    number = max(1, min(PANELS, SWEEP_PANELS // len(groups)))
    chosen: set[int] = set()
    for group in groups:
        rows = [i for i in group.rows if i in known]
        chosen |= set((_best_first(compared, rows) if finished and len(rows) > number else rows)[:number])
    return chosen


def _best_first(compared: Comparison, rows: Sequence[int]) -> list[int]:
    """The rows in the order of their mean accuracy, the highest first, after the reference."""
    accuracy = compared.table["accuracy"].tolist()

    def rank(i: int) -> tuple[bool, float]:
        return i != compared.references[i], -accuracy[i] if math.isfinite(accuracy[i]) else math.inf

    return sorted(rows, key=rank)
