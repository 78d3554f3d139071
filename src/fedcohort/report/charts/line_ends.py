"""Place the names of strategies at the ends of their lines."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from fedcohort.report.charts.axes_and_legends import NAMED
from fedcohort.report.charts.line_axes import Axes
from fedcohort.report.figures.chart_style import Look

__all__ = ["BESIDE", "apart", "name_positions", "names_at_ends"]


BESIDE = 0.03
"""Largest distance between the end of a line and the right edge, as a share of the axis, at which its name stands there. Names of
lines that end before would stand beside the lines of other rows."""


def names_at_ends(
    frame: pd.DataFrame,
    labels: Sequence[str],
    look: Look,
    axes: Axes,
    log: Sequence[float] | None = None,
    lost: Collection[str] = (),
) -> pd.DataFrame | None:
    """Where names stand at the ends of lines, at each point of a sweep; None if no line has its name there.

    Args:
        frame: the lines.
        labels: all strategies, in order.
        look: how charts look.
        axes: the axes.
        log: the range of the y axis if readers make it logarithmic; None if they cannot. Columns that end in ``_log`` are the
            places and names there.
        lost: strategies whose lines end because there is no further value; names of those without any value stand at the top.

    Returns:
        a row for each name, with ``group``, the number of its point of the sweep, and ``early``, whether its line ends before the
        right edge: such names are drawn beside the ends of their lines.
    """
    groups = look.rows.groups or (tuple(labels),)
    few = max(map(len, groups)) <= NAMED or look.rows.named
    if not (look.page and len(labels) > 1 and few and len(frame)):
        return None
    named = look.rows.named or set(labels)
    ends, right = [], float(frame["x"].max())
    edge = right - BESIDE * (right - float(frame["x"].min()))
    for number, group in enumerate(groups):
        shown = named.intersection(group)
        own = frame[frame["strategy"].isin(shown)]
        without = [label for label in lost if label in shown and not own["strategy"].eq(label).any()]
        own = pd.concat([own, pd.DataFrame({"strategy": without, "x": right, "mean": np.inf})], ignore_index=True)
        known = own[np.isfinite(own["mean"].to_numpy(np.float64)) | own["strategy"].isin(without)]
        before = own["strategy"].map(known.groupby("strategy", sort=False)["x"].max() < edge)
        for early, together in own.groupby(before):
            places = _on_both_axes(together, look, axes, log, lost)
            ends.append(places.assign(x=right, group=number, early=early))
    return pd.concat(ends, ignore_index=True) if ends else None


def _on_both_axes(
    frame: pd.DataFrame, look: Look, axes: Axes, log: Sequence[float] | None, lost: Collection[str]
) -> pd.DataFrame:
    """The places of names as :func:`name_positions` finds them, and those on a logarithmic axis if readers can have it."""
    places = name_positions(frame, axes, look, lost)
    if log is not None:
        other = name_positions(frame, replace(axes, span=log, log=True), look, lost).set_index("strategy")
        for column in ("y", "name", "end", "moved"):
            places[f"{column}_log"] = places["strategy"].map(other[column])
    return places


def name_positions(frame: pd.DataFrame, axes: Axes, look: Look, lost: Collection[str] = ()) -> pd.DataFrame:
    """Where the names at the ends of lines are placed: at the last value, moved apart until no name covers another.

    Names of lines that leave the chart have an arrow, and those of ``lost`` strategies a cross.
    """
    known = np.isfinite(frame["mean"].to_numpy(np.float64)) | frame["strategy"].isin(list(lost)).to_numpy()
    last = frame[known].groupby("strategy", sort=False).tail(1)
    last, span = last.sort_values("mean"), np.asarray(axes.span, np.float64)
    arrows = ["" if span[0] <= mean <= span[1] else " ↑" if mean > span[1] else " ↓" for mean in last["mean"]]
    heights = last["mean"].to_numpy(np.float64).clip(*span)
    if axes.log:
        heights, span = np.log10(heights), np.log10(span)
    gap = 1.25 * look.size * (span[1] - span[0]) / look.height
    places = apart(heights, gap, span.tolist())
    moved = np.abs(places - heights) > 0.35 * gap
    if axes.log:
        places, heights = 10**places, 10**heights
    arrows = [" ×" if label in lost else arrow for label, arrow in zip(last["strategy"], arrows, strict=True)]
    names = [look.rows.names.get(label, label) + arrow for label, arrow in zip(last["strategy"], arrows, strict=True)]
    return pd.DataFrame(
        {
            "strategy": last["strategy"],
            "x": frame["x"].max(),
            "y": places,
            "end": heights,
            "moved": moved,
            "name": names,
        }
    )


def apart(heights: np.ndarray, gap: float, span: Sequence[float]) -> np.ndarray:
    """Ascending heights of names, moved until they are at least ``gap`` apart, and into the range of the axis if they fit."""
    places = heights.copy()
    for _ in range(60):
        moved = False
        for i in range(len(places) - 1):
            overlap = gap - (places[i + 1] - places[i])
            if overlap > 1e-9:
                places[i], places[i + 1], moved = places[i] - overlap / 2, places[i + 1] + overlap / 2, True
        if not moved:
            break
    if len(places):
        places += max(0.0, span[0] - places[0]) - max(0.0, places[-1] - span[1])
    return places
