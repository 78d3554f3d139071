"""The axis of costs: its range, and where rows with the same cost are drawn."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from fedcohort.report.charts.means_and_bands import domain, log_range
from fedcohort.study.comparison import Comparison

__all__ = ["MARGIN", "across", "log_x_range", "side_by_side", "x_range"]

MARGIN = 0.04
"""Room after the largest cost, as a share of it."""

APART, SPREAD = 0.012, 0.024
"""Distance of neighbors among the rows with one cost, and the largest distance between the first and the last of them, as shares of
the axis."""

BESIDE, FARTHEST = 10.0, 0.12
"""In papers, that distance in points, so that symbols cover little of each other, and the largest distance as a share: their axes
are short, and have no tooltips with the costs."""


def side_by_side(
    compared: Comparison, costs: "pd.Series[float]", low: float, high: float, width: int | None = None
) -> tuple["pd.Series[float]", bool]:
    """Where rows are drawn along the axis of costs, from ``low`` to the largest cost, ``high``; and whether any is moved.

    Rows of a point with almost the same cost are moved apart, so that their intervals can be told apart, by at most
    :data:`SPREAD`, or in papers, which are ``width`` points wide, by :data:`FARTHEST`. Rows are drawn in the order of their costs.
    """
    whole = max(high - low, 1e-9)
    apart, spread = (APART, SPREAD) if width is None else (BESIDE / width, FARTHEST)
    places, moved = costs.astype(float).copy(), False
    for group in compared.groups:
        own = costs[costs.index.isin(group.rows)].sort_values(kind="stable")
        last = low
        for cluster in _same_costs(own, APART / 2 * whole):
            each = min(apart, spread / max(1, len(cluster) - 1)) * whole
            first = max(last, own[cluster[0]] - each * (len(cluster) - 1) / 2)
            for i, member in enumerate(cluster):
                places[member] = min(first + each * i, own[member] + spread * whole)
            if len(cluster) > 1:
                last, moved = float(places[cluster[-1]]) + each, True
    return places, moved


def _same_costs(costs: "pd.Series[float]", distance: float) -> list[list[int]]:
    """Divide rows, in ascending order of their costs, into groups: no cost is more than ``distance`` above the first of its group."""
    clusters: list[list[int]] = []
    for row, cost in costs.items():
        if not clusters or cost - costs[clusters[-1][0]] > distance:
            clusters.append([])
        clusters[-1].append(int(str(row)))
    return clusters


def across(costs: "pd.Series[Any]") -> list[Callable[[float], float]]:
    """From a cost to its share of the width: of a linear axis, and of a logarithmic one if the chart can have it."""
    low, high = x_range(costs)
    log = log_x_range(costs)
    found: list[Callable[[float], float]] = [lambda cost: (cost - low) / (high - low)]
    if log is not None:
        first, last = np.log(log)
        found.append(lambda cost: float((np.log(cost) - first) / (last - first)) if cost > 0 else math.nan)
    return found


def x_range(costs: "pd.Series[Any]") -> tuple[float, float]:
    """The range of the axis of costs: from 0, so that small differences of costs look small, with room for the last point."""
    return 0.0, (1 + MARGIN) * domain(costs, [0.0])[1]


def log_x_range(costs: "pd.Series[Any]") -> list[float] | None:
    """The range of the axis of costs if readers make it logarithmic; None if they cannot."""
    found = log_range(costs, 3)
    if found is None:
        return None
    low, high = found
    return [low / 1.1, high * (high / low) ** 0.05]
