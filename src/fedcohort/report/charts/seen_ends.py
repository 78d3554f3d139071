"""Find where readers last see a line: at its last point, or where it leaves the axis."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedcohort.core.arrays import Values

__all__ = ["Edges", "any_seen", "is_seen", "seen_end", "under_each_other"]

APART = 13
"""Distance of marks that would cover each other at the edge of a chart, in pixels."""

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
    across, up = _scaled(log=edges.log_x), _scaled(log=edges.log_y)
    start, end = across(x[last : last + 2]).tolist()
    bottom, top, crossed = up(np.array([means[last], means[last + 1], edge])).tolist()
    at = start + (end - start) * (crossed - bottom) / (top - bottom)
    if not np.isfinite(at):
        at = start
    return float(10**at if edges.log_x else at), float(edge)


def under_each_other(places: pd.DataFrame, edges: Edges, size: tuple[float, float]) -> pd.DataFrame:
    """The places with those at the upper edge under each other that would cover each other.

    Args:
        places: ``x`` and ``y`` of marks.
        edges: the axes.
        size: width and height of the chart in pixels.
    """
    across, up = _scaled(log=edges.log_x), _scaled(log=edges.log_y)
    near = APART * float(np.ptp(across(np.asarray(edges.x, np.float64)))) / size[0]
    step = APART * float(np.ptp(up(np.asarray(edges.y, np.float64)))) / size[1]
    top = places[places["y"] >= edges.y[1]].sort_values("x", kind="stable")
    at, below, last = across(top["x"].to_numpy(np.float64)), 0, -np.inf
    heights = pd.Series(up(places["y"].to_numpy(np.float64)), places.index)
    for row, own in zip(top.index, at.tolist(), strict=True):
        below = below + 1 if own - last < near else 0
        last = own
        heights[row] -= below * step
    return places.assign(y=10**heights if edges.log_y else heights)


def _scaled(*, log: bool) -> Scaled:
    """From a number to its place on an axis."""

    def place(values: Values) -> Values:
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Values = np.log10(values) if log else values
        return found

    return place
