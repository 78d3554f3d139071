"""The axes of line charts: their ranges and ticks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import altair as alt

from fedcohort.report.charts.means_and_bands import to_ticks

__all__ = ["ROUNDS", "Axes", "ending_at_ticks", "log_ticks", "whole_axis"]

ROUNDS = ",.0f"
"""d3 format of axes of rounds, which end at the last round."""


@dataclass(frozen=True)
class Axes:
    """The axes of a line chart.

    Attributes:
        x, y: titles.
        span: range of the y axis.
        percent: whether values are fractions, written in percent.
        x_format: d3 format of the x axis.
        whole: whether values are whole numbers, so that the y axis has no ticks between them.
        log: whether the y axis is logarithmic.
        cut: whether lines leave the chart at the end of the y axis.
        linear: whether the y axis stays linear when readers choose logarithmic axes: that of scores and indices.
    """

    x: str
    y: str
    span: Sequence[float]
    percent: bool = False
    x_format: str = ROUNDS
    whole: bool = False
    log: bool = False
    cut: bool = False
    linear: bool = False


def ending_at_ticks(axes: Axes) -> Axes:
    """The axes with a y axis that begins and ends at a tick, unless lines leave it."""
    if axes.log or axes.cut or not axes.span[0] < axes.span[1]:
        return axes
    count = max(1, min(5, int(axes.span[1] - axes.span[0]))) if axes.whole else 5
    return replace(axes, span=to_ticks(axes.span, count))


def log_ticks(low: float, high: float) -> list[float]:
    """Ticks of a logarithmic axis: at most about seven, at equal steps of decades, or at 1, 2 and 5 or 1 and 3 times powers of ten.

    >>> log_ticks(0.4, 130.0)
    [1.0, 3.0, 10.0, 30.0, 100.0]
    >>> log_ticks(0.3, 4.0)
    [0.5, 1.0, 2.0]
    >>> log_ticks(0.1, 2e30)
    [1.0, 100000.0, 10000000000.0, 1000000000000000.0, 1e+20, 1e+25, 1e+30]
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    decades = math.log10(high / low)
    inside = (1.0, 2.0, 5.0) if decades < 1.7 else (1.0, 3.0) if decades < 3.2 else (1.0,)
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100) if decades / step <= 7)
    powers = [exponent for exponent in range(first, last + 1) if exponent % step == 0]
    return [
        tick for tick in (float(f"{times:g}e{power}") for power in powers for times in inside) if low <= tick <= high
    ]


def whole_axis(most: int, span: Sequence[float]) -> alt.Axis:
    """An axis of whole numbers: at most about ``most`` ticks, and no labels between whole numbers when readers zoom in."""
    whole = "abs(datum.value - round(datum.value)) < 1e-6"
    count = max(1, min(most, int(span[1] - span[0])))
    return alt.Axis(tickCount=count, labelExpr=f"{whole} ? format(datum.value, ',.0f') : ''")
