"""Mark on the line of the target when each row reached it: the mean over seeds that the table has, too."""

from collections.abc import Callable, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from fedcohort.core.words import formatted_values
from fedcohort.report.charts.axes_and_legends import text_tooltip
from fedcohort.report.charts.seen_ends import Edges, inside, under_each_other
from fedcohort.report.figures.chart_style import Look
from fedcohort.report.figures.layers import decided
from fedcohort.study.comparison import Comparison

__all__ = ["about_marks", "about_tips", "tips", "triangles", "when_reached"]

WRITTEN: dict[str, Callable[[float, str], str]] = {
    "rounds_to_target": lambda mean, _: formatted_values.rounds(mean),
    "time_to_target": lambda mean, clock: formatted_values.time_on(clock, mean),
    "bytes_to_target": lambda mean, _: formatted_values.size(mean),
}
"""How costs of the target are written, by the columns of a comparison's table; of times, those on the clock of the row."""


def when_reached(compared: Comparison, labels: Sequence[str], cost: str) -> pd.DataFrame:
    """Where marks stand: a row for each strategy that reached its target under a seed.

    Columns: ``strategy``, ``x`` (the mean cost over the seeds that reached it), ``x_text`` (as the table writes it), ``level`` (the
    target), ``all`` (whether all seeds reached it), and ``seeds`` (how many of them did, in words).

    Args:
        compared: the comparison.
        labels: what charts call its rows, in their order.
        cost: the column of the comparison's table, such as ``rounds_to_target``.
    """
    rows = [
        {
            "strategy": label,
            "x": float(row[cost]),
            "x_text": WRITTEN[cost](float(row[cost]), played.clock),
            "level": float(row["target_accuracy"]),
            "all": row["reached"] == row["seeds"],
            "seeds": f"{row['reached']} of {row['seeds']}",
        }
        for label, played, row in zip(labels, compared.rows, compared.table.to_dict("records"), strict=True)
        if row["reached"] > 0
    ]
    return pd.DataFrame(rows, columns=["strategy", "x", "x_text", "level", "all", "seeds"])


APART = {True: 9.0, False: 5.5}
"""Distance of triangles under each other, in pixels: on the page, and in papers."""


def tips(marks: pd.DataFrame, look: Look, edges: Edges, size: tuple[float, float]) -> pd.DataFrame:
    """The marks with a column ``tip``, the height of the tip of each triangle: the target, or under another triangle that it would
    cover.

    Args:
        marks: the table of :func:`when_reached`.
        look: how charts look.
        edges: the axes.
        size: the least width of the chart, and its height, in pixels.
    """
    heights = marks["level"].astype(float).copy()
    for group in (look.page and look.rows.groups) or (tuple(marks["strategy"]),):
        own = marks[marks["strategy"].isin(group)]
        x, y = own["x"].to_numpy(np.float64), own["level"].to_numpy(np.float64)
        heights[own.index] = under_each_other(x, y, edges, size, APART[look.page])
    return marks.assign(tip=heights)


def about_tips(marks: pd.DataFrame) -> str:
    """A sentence about triangles that stand under others, with a space before it; empty if none does."""
    if "tip" not in marks or not (marks["tip"] < marks["level"]).any():
        return ""
    return " Triangles that would cover each other stand under each other."


def about_marks(marks: pd.DataFrame, means: pd.DataFrame) -> str:
    """Sentences about the marks, with a space before them, and about lines that stay below a target which their seeds reach.

    Args:
        marks: the table of :func:`when_reached`.
        means: the lines over rounds.
    """
    if marks.empty:
        return ""
    several = (means["seeds"] > 1).any()
    text = " Triangle: when the row reached the target, as in the table"
    text += ", the mean over the seeds that did" if several else ""
    text += "" if marks["all"].all() else "; hollow if not all seeds did"
    highest = means.groupby("strategy")["mean"].max()
    below = marks["strategy"].map(highest) < marks["level"] - 1e-9
    if below.any():
        text += ". A line of means can stay below the target although seeds reach it, each in another round"
    return f"{text}."


def triangles(base: alt.Chart, labels: Sequence[str], look: Look, cost: str) -> alt.Chart:
    """Triangles that point at the target from below; hollow if not all seeds reached it. The caller adds where they stand.

    Args:
        base: a chart of the table of :func:`tips`.
        labels: all strategies, in order.
        look: how charts look.
        cost: the title of the x axis.
    """
    size, width, below = (48, 1.5, 4.0) if look.page else (20, 0.8, 2.5)
    shape: dict[str, Any] = {
        "shape": "triangle-up",
        "filled": False,
        "size": size,
        "strokeWidth": width,
        "yOffset": below,
    }
    mark = base.mark_point(opacity=1, clip=False, **shape)
    mark = mark.encode(opacity=inside("x")) if look.page else mark
    shades = alt.Scale(domain=list(labels), range=look.of_rows(labels)[0])
    marks: alt.Chart = mark.encode(
        fill=alt.Fill("strategy:N", scale=shades, legend=None),
        fillOpacity=decided(alt.FillOpacityValue, "datum.all", 1, 0),
        tooltip=[
            alt.Tooltip("strategy:N"),
            text_tooltip("x", f"target reached at {cost}"),
            alt.Tooltip("seeds:N", title="seeds that reached it"),
        ],
    )
    return marks
