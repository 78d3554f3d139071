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

SPREAD = 0.06
"""Largest distance between the first and the last of the rows with one cost, as a share of the axis."""


def side_by_side(
    compared: Comparison, costs: "pd.Series[float]", low: float, high: float
) -> tuple["pd.Series[float]", bool]:
    """Where rows are drawn along the axis of costs, which begins at ``low``, if the largest cost is ``high``: rows of a point with
    almost the same cost are moved apart, so that no interval covers another, but not far from their costs; and whether any was."""
    whole = max(high - low, 1e-9)
    step = 0.012 * whole
    places, moved = costs.astype(float).copy(), False
    for group in compared.groups:
        own = costs[costs.index.isin(group.rows)].sort_values(kind="stable")
        cluster: list[int] = []
        for row, cost in [*own.items(), (-1, math.inf)]:
            if cluster and cost - own[cluster[-1]] > step / 2:
                each = min(step, SPREAD * whole / max(1, len(cluster) - 1))
                first = own[cluster[0]]
                inside = max(0.0, each * (len(cluster) - 1) / 2 - (first - low) / 2)  # not before the begin of the axis
                for i, member in enumerate(cluster):
                    places[member] = own[member] + each * (i - (len(cluster) - 1) / 2) + inside
                moved, cluster = moved or len(cluster) > 1, []
            cluster.append(int(str(row)))
    return places, moved


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
