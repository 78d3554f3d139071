"""Choose the rows that get a panel, if there are too many rows for a panel of each."""

import math
from collections.abc import Collection, Sequence

from fedcohort.report.notes.unranked_rows import in_own_seeds, unranked
from fedcohort.report.screen_words import HIGHLIGHT
from fedcohort.study.comparison import Comparison

__all__ = [
    "FRONT",
    "LINES",
    "NAMES",
    "OWN_COLORS",
    "PANELS",
    "SWEEP_PANELS",
    "about_colors",
    "about_gray_panels",
    "about_lines",
    "about_panels",
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


def about_lines(compared: Comparison | None, score: str) -> str:
    """A sentence about which lines are named; empty if all are, or a legend names them."""
    if compared is None or not rows_with_name(compared):
        return ""
    return (
        f"With more than {LINES} rows, charts of lines draw the reference and the rows with the highest test "
        f"{in_own_seeds(score, compared)} stronger than the others, and name them where there is room.{HIGHLIGHT}"
    )


def about_colors(score: str, compared: Comparison | None, *, filled: bool = False) -> str:
    """A sentence about which of many rows are colored in papers."""
    filled = filled and not (compared is not None and len(unranked(compared)) == len(compared.rows))
    front = f", and the rows that are filled, at most the {FRONT} best of them" if filled else ""
    comma = "," if filled else " and"
    highest = f"the {NAMES - 1} rows with the highest test {in_own_seeds(score, compared)}"
    return f"Colored: the reference{comma} {highest}{front}. The other rows are gray."


def about_gray_panels(score: str, compared: Comparison | None) -> str:
    """Sentences for papers: which panels are colored, and which are gray."""
    return (
        f"Colored panels: those of the reference and of the {NAMES - 1} rows with the highest test "
        f"{in_own_seeds(score, compared)}, if they have one, in the colors that they have in all figures. "
        "Gray panels: rows that figures of lines do not name."
    )


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


def about_panels(compared: Comparison | None, panels: int, score: str, finished: bool) -> str:
    """How many rows have a panel, and which; empty if all have one."""
    if compared is None or len(compared.rows) <= panels:
        return ""
    points = len(compared.groups)
    where = f" at the first {SWEEP_PANELS} points" if points > SWEEP_PANELS else " at each point" if points > 1 else ""
    where = where and f"{where} of the sweep"
    one = points > 1 and SWEEP_PANELS // points < 2
    if finished:
        which = (
            f"the reference{'' if one else f' and those with the highest test {in_own_seeds(score, compared)}'}{where}"
        )
    else:
        which = f"the first {'one' if one else 'ones'}{where} until all runs are finished"
    return f"{panels} of {len(compared.rows)} rows, {which}"
