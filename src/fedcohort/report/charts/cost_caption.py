"""The caption of accuracy and cost: which points are filled, which rows are named, and what intervals are."""

from math import sqrt

import numpy as np
import pandas as pd

from fedcohort import measures
from fedcohort.core.words.formatted_values import count, first_in_words
from fedcohort.report.data.report_data import Story
from fedcohort.report.figures.chart_style import Look
from fedcohort.report.figures.screen_words import POINT_AT_ROW
from fedcohort.report.notes.failed_training import about_failed
from fedcohort.report.notes.seed_notes import counted, mean_over
from fedcohort.report.notes.unranked_rows import about_different_seeds, unranked, why_unranked
from fedcohort.study.comparison import Comparison
from fedcohort.study.verdicts import FEWEST

__all__ = ["ALL_NAMED", "FRONT_NAMED", "caption"]

ALL_NAMED = 12
"""With more rows at a point, names and intervals of all of them would cover each other."""

FRONT_NAMED = 6
"""Then, the largest number of rows on the front with a name: names of more would stand far from their points."""

MOST_NAMED = 6
"""Largest number of rows without an interval that the caption names."""


def caption(story: Story, compared: Comparison, frame: pd.DataFrame, look: Look, *, dodged: bool) -> str:
    """What is filled, named, moved and drawn.

    Args:
        story: the runs.
        compared: their comparison.
        frame: the rows of the chart, with ``strategy``, ``accuracy``, ``low`` and ``high``.
        look: page or paper.
        dodged: whether rows with the same cost are drawn side by side.
    """
    over = mean_over(counted(story))
    note = f"{over[0].upper()}{over[1:]}{',' if over != 'mean over seeds' else ''} {compared.when}.{_about_front(compared, look)}"
    if seeds := about_different_seeds(compared):
        note += f" {seeds}"
    if _most(compared) > ALL_NAMED and look.page:
        filled = f", and at most the {FRONT_NAMED} best of the rows that are filled while all are shown"
        named = f"the reference{filled if len(unranked(compared)) < len(compared.rows) else ''}"
        note += f" Names: {named}, where a name covers no other name or row{POINT_AT_ROW}."
    if dodged:
        note += " Rows with the same cost are drawn side by side."
    if frame["low"].notna().any():
        note += (
            f" Vertical line: 95% interval of the mean (Student's t){_ends(compared, frame)}."
            f"{_without_interval(compared, frame)}"
        )
    elif _some_have_two(compared, frame):
        note += f" Without intervals: {_of_two_seeds()}."
    failed = about_failed(compared, "Hollow, and not on the front", unfinished=bool(story.unfinished))
    return f"{note} {failed}" if failed else note


def _about_front(compared: Comparison, look: Look) -> str:
    """What filled and hollow points are, in sentences with a space before them."""
    hollow = unranked(compared)
    several = f" {why_unranked(compared)}, so that {'they' if compared.uneven else 'their means'} are not compared."
    if len(hollow) == len(compared.rows):
        return f" Rows{several} All points are hollow."
    no_other = "none of the other rows that are shown" if look.page else "no other row"
    front = (
        f" Filled: {no_other} has at least this {compared.score.name} for less, or more for at most this cost. Hollow: another "
        "row has, or training failed."
    )
    return f"{front} Some rows{several} Their points are hollow." if hollow else front


def _without_interval(compared: Comparison, frame: pd.DataFrame) -> str:
    """Sentences, with a space before them, that name the rows without an interval if others have one; empty if all have it."""
    without = frame[np.isfinite(frame["accuracy"]) & frame["low"].isna()]
    names = [f"'{label}'" for label in without["strategy"]]
    if not names:
        return ""
    why = f" ({_of_two_seeds()})" if _some_have_two(compared, without) else ""
    return (
        f" Without an interval, with fewer than {FEWEST} seeds{why}: {first_in_words(names, MOST_NAMED)}. Lines of other rows have "
        "a gap at these points."
    )


def _some_have_two(compared: Comparison, frame: pd.DataFrame) -> bool:
    """Whether some rows have an interval that the chart leaves out: two seeds have one."""
    return any(1 < len(compared.rows[i].runs) < FEWEST for i in frame.index)


def _of_two_seeds() -> str:
    """Why two seeds have an interval in the table of differences, and none in the chart."""
    from scipy.special import stdtrit

    long = float(stdtrit(1, 0.975)) / sqrt(2)
    return f"that of two seeds is {count(long)} standard deviations long on each side, and would flatten the chart"


def _ends(compared: Comparison, frame: pd.DataFrame) -> str:
    """Where intervals are cut at the possible range, in words with a comma before them; empty if none is."""
    low, high = compared.score.limits
    cut = frame[[measures.is_cut(*ends) for ends in frame[["accuracy", "low", "high"]].itertuples(index=False)]]
    limits = [limit for limit, column in ((low, "low"), (high, "high")) if (cut[column] == limit).any()]
    if not limits:
        return ""
    return f", which ends at {' and at '.join(map(compared.score.target, limits))}, where the possible range ends"


def _most(compared: Comparison) -> int:
    """The largest number of rows at a point."""
    return max(len(group.rows) for group in compared.groups)
