"""Find the scores that are so low that axes end above them: R² of models that diverge has no lower limit."""

import math
from collections.abc import Mapping, Sequence

import altair as alt
import numpy as np
import pandas as pd

from fedcohort.core.words import formatted_values
from fedcohort.core.words.score_style import ScoreStyle
from fedcohort.report.charts.lost_losses import LISTED

__all__ = ["LOWEST", "about_far_below", "far_below", "held_within", "only_within", "without_the_worst"]

LOWEST = -1.0
"""Where the axis of R² ends if most values are above it and others far below. At 0, a model is as good as the mean of the labels."""

FAR = 3 * LOWEST
"""From here down, a value would flatten those above :data:`LOWEST`."""


def far_below(differences: Mapping[str, float], score: ScoreStyle) -> list[str]:
    """The rows whose difference to the reference is so low that it is left off the axis. There are none if scores have a lower limit,
    such as accuracies, or if the differences of most rows are low. The reference counts as a row with the difference 0.

    >>> from fedcohort.core.words.score_style import R_SQUARED
    >>> far_below({"a": 0.1, "b": -1e9}, R_SQUARED), far_below({"a": 0.1, "b": -1e9, "c": -1e9}, R_SQUARED)
    (['b'], [])
    """
    known = [0.0, *(mean for mean in differences.values() if math.isfinite(mean))]
    if not score.numeric or float(np.median(known)) <= LOWEST:
        return []
    return [label for label, mean in differences.items() if mean < FAR]


def about_far_below(rows: Mapping[str, str], names: Mapping[str, str]) -> str:
    """A sentence about the rows below an axis of differences, with a space before it; empty without any.

    Args:
        rows: the difference of each, as text.
        names: the full names of rows.
    """
    if not rows:
        return ""
    below = [f"'{names.get(label, label)}' ({difference})" for label, difference in rows.items()]
    verb = "is" if len(below) == 1 else "are"
    return f" The axis is that of the other differences: {formatted_values.first_in_words(below, LISTED)} {verb} far below it."


def held_within(chart: alt.Chart, span: Sequence[float], *columns: str) -> alt.Chart:
    """The chart with numbers beyond the ends of an axis drawn at these ends. Programs that draw SVG would leave out marks with huge
    coordinates.

    The table behind the chart, and tooltips, keep the numbers.
    """
    held = {
        column: f"isValid(datum.{column}) ? clamp(datum.{column}, {span[0]}, {span[1]}) : null" for column in columns
    }
    within: alt.Chart = chart.transform_calculate(**held)
    return within


def only_within(chart: alt.Chart, span: Sequence[float], column: str) -> alt.Chart:
    """The chart without the rows of its table whose value in ``column`` is beyond the ends of an axis."""
    within: alt.Chart = chart.transform_filter(f"inrange(datum.{column}, {list(span)})")
    return within


def without_the_worst(
    frame: pd.DataFrame, span: list[float], names: Mapping[str, str], score: ScoreStyle, more: str = ""
) -> tuple[list[float], str]:
    """The range of the axis of R², cut if low values would flatten the others, and a sentence about it with a space before it.

    Args:
        frame: the values that are drawn, with ``strategy`` and ``mean``.
        span: the range that has room for all of them.
        names: the full names of rows.
        score: the score; accuracies are never cut.
        more: a further sentence, if the axis is cut.
    """
    known = frame[np.isfinite(frame["mean"].to_numpy(np.float64))]
    values = known["mean"].to_numpy(np.float64)
    if not score.numeric or span[0] >= FAR or float(np.median(values)) <= LOWEST:
        return span, ""
    lowest, label = formatted_values.magnitude(float(values.min())), str(known["strategy"].iloc[int(values.argmin())])
    about = f" The axis ends at −1: the lowest mean is {lowest}, of '{names.get(label, label)}'.{more}"
    return [LOWEST, span[1]], about
