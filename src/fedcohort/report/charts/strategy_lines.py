"""Draw lines of strategies over rounds, time or bytes: mean and band over seeds, names at the ends, values at the pointer."""

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt
import numpy as np
import pandas as pd

from fedcohort.core.score_style import ACCURACY, R_SQUARED
from fedcohort.report.chart_style import Look, tick
from fedcohort.report.charts.axes_and_legends import color, dash, hideable, number_tooltip, sized, text_tooltip
from fedcohort.report.charts.means_and_bands import has_band
from fedcohort.report.figure import Drawing

__all__ = ["Axes", "lines"]


@dataclass(frozen=True)
class Axes:
    """The axes of a line chart.

    Attributes:
        x, y: titles.
        span: range of the y axis.
        percent: whether values are fractions, written in percent.
        x_format: d3 format of the x axis.
    """

    x: str
    y: str
    span: Sequence[float]
    percent: bool = False
    x_format: str = ",.0f"


def lines(
    name: str,
    frame: pd.DataFrame,
    labels: Sequence[str],
    look: Look,
    axes: Axes,
    *,
    reference: bool = False,
    target: float | None = None,
) -> tuple[Drawing, dict[str, pd.DataFrame]]:
    """Mean lines with bands.

    Args:
        name: name of the table.
        frame: the table, from :func:`~fedcohort.report.charts.means_and_bands.by_round` or
            :func:`~fedcohort.report.charts.means_and_bands.on_grid`. If it has a column ``x_text``, tooltips show it in
            place of ``x``.
        labels: all strategies, in order.
        look: how charts look.
        axes: the axes.
        reference: whether the caller adds a table ``<name>_reference``, drawn in gray behind the lines.
        target: a level that is marked, if it is within the range of the y axis.

    Returns:
        the chart, and its tables by name.
    """
    chart = _Lines(name, frame, labels, look, axes)
    layers: list[Drawing] = chart.reference() if reference else []
    if target is not None and axes.span[0] < target < axes.span[1]:
        layers += chart.level(target)
    layers += chart.means()
    few = bool(len(frame)) and frame.groupby("strategy", sort=False).size().max() <= 2
    if look.page or few:
        layers.append(chart.points(always=few))
    data = {name: frame}
    if look.page and 1 < len(labels) <= 8 and len(frame):
        data[f"{name}_ends"] = name_positions(frame, axes.span, look)
        layers.append(chart.names())
    return sized(alt.layer(*layers), look, look.height, look.height), data


class _Lines:
    """The layers of a line chart."""

    def __init__(self, name: str, frame: pd.DataFrame, labels: Sequence[str], look: Look, axes: Axes) -> None:
        self.name, self.frame, self.labels, self.look, self.axes = name, frame, labels, look, axes
        ends = [float(frame["x"].min()), float(frame["x"].max())] if len(frame) else [0, 1]
        self.x_scale = alt.Scale(nice=False, zero=False, domain=ends)
        self.y_scale = alt.Scale(domain=list(axes.span), nice=False, zero=False)
        self.x = alt.X("x:Q", title=axes.x, scale=self.x_scale, axis=alt.Axis(**tick(axes.x_format), tickCount=6))
        self.color = color(labels, look)
        self.base = hideable(alt.Chart(alt.NamedData(name=name)), look)

    def y(self, field: str) -> alt.Y:
        """The y axis, of one column of the table."""
        axis = alt.Axis(**tick("~%" if self.axes.percent else "~g"), tickCount=5)
        return alt.Y(f"{field}:Q", title=self.axes.y, scale=self.y_scale, axis=axis)

    def reference(self) -> list[Drawing]:
        """A gray line with its band."""
        gray, soft = alt.Chart(alt.NamedData(name=f"{self.name}_reference")), self.look.soft
        return [
            gray.mark_area(opacity=0.14, color=soft).encode(self.x, self.y("low"), y2=alt.Y2("high:Q")),
            gray.mark_line(color=soft, strokeWidth=1, strokeDash=[2, 2]).encode(self.x, self.y("mean")),
        ]

    def level(self, target: float) -> list[Drawing]:
        """A horizontal line at the target accuracy, with its name."""
        soft, size = self.look.soft, self.look.size - 1
        values = [{"level": target, "name": f"target {(ACCURACY if self.axes.percent else R_SQUARED).target(target)}"}]
        level = alt.Chart(alt.InlineData(values=values))
        name = level.mark_text(align="left", baseline="bottom", dx=3, dy=-2, color=soft, fontSize=size)
        return [
            level.mark_rule(strokeDash=[1, 3], strokeWidth=1, color=soft).encode(self.y("level")),
            name.encode(self.y("level"), x=alt.value(0), text=alt.Text("name:N")),
        ]

    def means(self) -> list[Drawing]:
        """The lines, over their bands."""
        layers = []
        if has_band(self.frame):
            area = self.base.mark_area(opacity=0.13, clip=True)
            layers.append(area.encode(self.x, self.y("low"), alt.Y2("high:Q"), self.color))
        line = self.base.mark_line(clip=True).encode(self.x, self.y("mean"), self.color, dash(self.labels, self.look))
        return [*layers, line.add_params(_zoom()) if self.look.page else line]

    def points(self, *, always: bool) -> Drawing:
        """Points with tooltips. The page shows the one near the pointer, or all if lines are too short to be seen (``always``)."""
        size = 46 if self.look.page else 22
        points = self.base.mark_point(size=size, opacity=1).encode(
            self.x, self.y("mean"), self.color, tooltip=self._tooltip()
        )
        if not self.look.page:
            always_shown: Drawing = points.encode(opacity=alt.OpacityValue(1))
            return always_shown
        hover = alt.selection_point(
            nearest=True, on="pointerover", clear="pointerout", fields=["x"], empty=False, name="hover"
        )
        opacity = alt.when(hover).then(alt.value(1)).otherwise(alt.value(1 if always else 0))
        chart: Drawing = points.encode(opacity=opacity).add_params(hover)
        return chart

    def _tooltip(self) -> list[alt.Tooltip]:
        kind = "percent" if self.axes.percent else "number"
        has_text = "x_text" in self.frame
        tooltip = [
            alt.Tooltip("strategy:N", title="strategy"),
            text_tooltip("x", self.axes.x) if has_text else number_tooltip("x", "count", self.axes.x),
            number_tooltip("mean", kind, self.axes.y),
        ]
        if self.frame["seeds"].nunique() > 1:
            tooltip.append(number_tooltip("seeds", "number"))
        if has_band(self.frame):
            tooltip.append(number_tooltip("low", kind, "mean − standard deviation"))
            tooltip.append(number_tooltip("high", kind, "mean + standard deviation"))
        return tooltip

    def names(self) -> Drawing:
        """The names of strategies at the ends of their lines."""
        base = hideable(alt.Chart(alt.NamedData(name=f"{self.name}_ends")), self.look)
        text = base.mark_text(align="left", dx=7, fontWeight=600, fontSize=self.look.size, clip=False)
        chart: Drawing = text.encode(
            alt.X("x:Q", scale=self.x_scale),
            alt.Y("y:Q", scale=self.y_scale),
            self.color,
            text=alt.Text("name:N"),
            opacity=alt.OpacityValue(alt.ExprRef("named ? 1 : 0")),
        )
        return chart


def _zoom() -> alt.Parameter:
    """Dragging moves the chart along x, the wheel zooms with Shift (without Shift the page scrolls), a double click resets."""
    return alt.selection_interval(
        bind="scales",
        encodings=["x"],
        name="zoom",
        zoom="wheel![event.shiftKey]",
        translate="[pointerdown, window:pointerup] > window:pointermove!",
    )


def name_positions(frame: pd.DataFrame, span: Sequence[float], look: Look) -> pd.DataFrame:
    """Where the names at the ends of lines are placed: at the last value, moved apart until no name covers another."""
    last = frame.dropna(subset=["mean"]).groupby("strategy", sort=False).tail(1).sort_values("mean")
    gap = 1.25 * look.size * (span[1] - span[0]) / look.height
    places = last["mean"].to_numpy(np.float64).copy()
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
    return pd.DataFrame({"strategy": last["strategy"], "x": frame["x"].max(), "y": places, "name": last["strategy"]})
