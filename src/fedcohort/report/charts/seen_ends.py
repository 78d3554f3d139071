"""Find where readers last see a line: at its last point, or where it leaves the axis."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import altair as alt
import numpy as np
import pandas as pd

from fedcohort.core.arrays import Values

__all__ = ["NARROW", "Edges", "any_seen", "inside", "is_seen", "scaled", "seen_end", "under_each_other"]

NARROW = 300
"""Width of a chart on a phone, in pixels: marks that cover each other there are moved apart."""

Scaled = Callable[[Values], Values]


@dataclass(frozen=True)
class Edges:
    """The axes of a chart of lines: their ranges, and which of them are logarithmic."""

    x: Sequence[float]
    y: Sequence[float]
    log_x: bool = False
    log_y: bool = False


def is_seen(means: Values, edges: Edges) -> np.ndarray:
    """Whether each mean is within the range of the y axis."""
    inside: np.ndarray = (edges.y[0] <= means) & (means <= edges.y[1])
    return inside


def any_seen(frame: pd.DataFrame, labels: Sequence[str], edges: Edges) -> bool:
    """Whether any of some rows has a mean on the axis."""
    own = frame.loc[frame["strategy"].isin(list(labels)), "mean"]
    return bool(is_seen(own.to_numpy(np.float64), edges).any())


def seen_end(x: Values, means: Values, edges: Edges) -> tuple[float, float]:
    """The last point of a line, or the point at the edge of the y axis where it leaves the chart; of a line that is never on the
    axis, its first x at the edge.

    Args:
        x, means: the points of the line, at least one.
        edges: the axes.
    """
    seen = np.flatnonzero(is_seen(means, edges))
    last = int(seen[-1]) if len(seen) else -1
    if last == len(x) - 1:
        return float(x[last]), float(means[last])
    edge = edges.y[0] if means[last + 1] < edges.y[0] else edges.y[1]
    if last < 0:
        return float(x[0]), float(edge)
    across, up = scaled(log=edges.log_x), scaled(log=edges.log_y)
    start, end = across(x[last : last + 2]).tolist()
    bottom, top, crossed = up(np.array([means[last], means[last + 1], edge])).tolist()
    at = start + (end - start) * (crossed - bottom) / (top - bottom)
    if not np.isfinite(at):
        at = start
    return float(10**at if edges.log_x else at), float(edge)


def under_each_other(x: Values, y: Values, edges: Edges, size: tuple[float, float], apart: float) -> Values:
    """The heights of marks, of which those that would cover each other are moved under each other.

    Args:
        x, y: the places of marks that have nearly the same height.
        edges: the axes.
        size: the least width of the chart, and its height, in pixels.
        apart: how far marks must be apart, in pixels.
    """
    across, up = scaled(log=edges.log_x), scaled(log=edges.log_y)
    at, heights = across(np.asarray(x, np.float64)), up(np.asarray(y, np.float64)).copy()
    near = apart * float(np.ptp(across(np.asarray(edges.x, np.float64)))) / size[0]
    step = apart * float(np.ptp(up(np.asarray(edges.y, np.float64)))) / size[1]
    last: list[float] = []  # of each line of marks
    for i in np.argsort(at, kind="stable").tolist():
        below = next((line for line, before in enumerate(last) if at[i] - before >= near), len(last))
        last[below : below + 1] = [at[i]]
        heights[i] -= below * step
    return 10**heights if edges.log_y else heights


@cache
def inside(field: str) -> alt.OpacityValue:
    """The encoding by which marks that are not cut at the edges of a chart are shown within the range of its x axis only: readers can
    move it. Altair takes long to make it, therefore once."""
    shown = alt.condition(f"inrange(datum.{field}, domain('x'))", alt.value(1), alt.value(0))
    return alt.OpacityValue.from_dict(dict(shown), validate=False)


def scaled(*, log: bool) -> Scaled:
    """From a number to its place on an axis."""

    def place(values: Values) -> Values:
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Values = np.log10(values) if log else values
        return found

    return place
