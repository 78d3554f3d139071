"""Draw lines of strategies over rounds, time or bytes: mean and band over seeds, names at the ends, values at the pointer."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import altair as alt
import pandas as pd

from fedcohort.core.words.score_style import ACCURACY, R_SQUARED
from fedcohort.report.charts.axes_and_legends import (
    color,
    crowded,
    dash,
    hideable,
    in_order,
    outlined,
    pale,
    sized,
)
from fedcohort.report.charts.empty_axes import words_without_lines
from fedcohort.report.charts.line_axes import ROUNDS, Axes, ending_at_ticks, log_ticks, whole_axis
from fedcohort.report.charts.line_ends import names_at_ends
from fedcohort.report.charts.lost_losses import Lost, crosses, last_points
from fedcohort.report.charts.means_and_bands import has_band, log_range, to_ticks
from fedcohort.report.charts.names_beside_ends import names_beside_ends, names_inside
from fedcohort.report.charts.seen_ends import NARROW, Edges
from fedcohort.report.charts.target_marks import tips, triangles
from fedcohort.report.charts.target_names import FreePlaces
from fedcohort.report.figures.chart_style import REST, Look, tick
from fedcohort.report.figures.figure import Drawing
from fedcohort.report.figures.layers import constant, layered, with_properties
from fedcohort.study.targets import Target

__all__ = ["Axes", "lines", "log_ticks"]


WIDTH = 700
"""About the width of a chart on a wide page, in pixels."""

LEADER = 12
"""Width of a line from the end of a row's line to its name, in pixels."""

WIDE = 400
"""Charts from this width in points on have room for long names."""


def lines(
    name: str,
    frame: pd.DataFrame,
    labels: Sequence[str],
    look: Look,
    axes: Axes,
    *,
    reference: bool = False,
    targets: Mapping[tuple[str, ...], Target] | None = None,
    reached: pd.DataFrame | None = None,
    lost: Mapping[str, Lost] | None = None,
) -> tuple[Drawing, dict[str, pd.DataFrame]]:
    """Mean lines with bands.

    Args:
        name: name of the table.
        frame: the table, from :func:`~fedcohort.report.charts.means_and_bands.by_round` or
            :func:`~fedcohort.report.charts.means_and_bands.on_grid`. If it has a column ``x_text``, tooltips show it in
            place of ``x``. If it has a column ``playing``, lines are thin where some runs have ended.
        labels: all strategies, in order.
        look: how charts look.
        axes: the axes.
        reference: whether the caller adds a table ``<name>_reference``, drawn in gray behind the lines: the curves of single points of
            a sweep, each with a ``strategy`` of its point.
        targets: levels that are marked if they are within the range of the y axis, each by the strategies that it is for. Papers
            show them only if there is one.
        reached: marks on these levels, from :func:`~fedcohort.report.charts.target_marks.when_reached`.
        lost: the strategies whose lines end with a cross.

    Returns:
        the chart, and its tables by name.
    """
    axes = axes if look.page else ending_at_ticks(axes)
    chart = _Lines(name, frame, labels, look, axes, reached)
    layers: list[alt.Chart] = chart.reference() if reference else []
    layers += chart.means_and_targets(targets or {})
    few = bool(len(frame)) and frame.groupby("strategy", sort=False).size().max() <= 2
    if few:
        layers += chart.points()
    if look.page:
        layers += chart.pointer()
    data = {name: frame}
    if reached is not None and len(reached):
        data[f"{name}_reached"] = tips(reached, look, chart.edges()[""], chart.size)
        layers.append(chart.triangles())
    if lost:
        data[f"{name}_lost"] = last_points(frame, lost, chart.edges(), chart.groups, chart.size)
        layers += chart.crosses()
    layers += words_without_lines(frame, chart.groups, chart.edges(), axes.y, look)
    ends = names_at_ends(frame, labels, look, axes, chart.log_axes().get("y"), list(lost or ()))
    if ends is not None:
        data[f"{name}_ends"] = ends
        layers += chart.names()
        data |= chart.add_names_inside(layers, ends)
    whole = layered(*layers)
    if look.page:
        tip = {
            "table": name,
            "x": axes.x,
            "y": axes.y,
            "kind": "percent" if axes.percent else "number",
        }
        whole = with_properties(whole, usermeta={"tip": tip, "log": chart.log_axes()})
    return sized(whole, look, look.height, look.height), data


class _Lines:
    """The layers of a line chart."""

    def __init__(
        self,
        name: str,
        frame: pd.DataFrame,
        labels: Sequence[str],
        look: Look,
        axes: Axes,
        reached: pd.DataFrame | None = None,
    ) -> None:
        self.name, self.frame, self.labels, self.look, self.axes = name, frame, labels, look, axes
        self.reached = reached
        ends = [float(frame["x"].min()), float(frame["x"].max())] if len(frame) else [0.0, 1.0]
        if not look.page and axes.x_format != ROUNDS and ends[0] < ends[1]:
            ends = to_ticks(ends, 6)
        self.ends = ends
        self.x_scale = alt.Scale(nice=False, zero=False, domain=ends)
        kind: dict[str, Any] = {"type": "log", "clamp": not axes.cut} if axes.log else {"zero": False}
        self.y_scale = alt.Scale(domain=list(axes.span), nice=False, **kind)
        axis = whole_axis(6, ends) if axes.x_format == ROUNDS else alt.Axis(**tick(axes.x_format), tickCount=6)
        self.x = alt.X("x:Q", title=axes.x, scale=self.x_scale, axis=axis)
        self.color = color(labels, look)
        self.base = hideable(alt.Chart(alt.NamedData(name=name)), look)
        self.groups = look.rows.groups if look.page else ()
        self.size = (float(look.width or NARROW), float(look.height))

    def y(self, field: str) -> alt.Y:
        """The y axis, of one column of the table."""
        ticks = tick("~%" if self.axes.percent else "~g")
        if self.axes.log:
            ticks["values"] = log_ticks(*self.axes.span)
        axis = whole_axis(5, self.axes.span) if self.axes.whole else alt.Axis(**ticks, tickCount=5)
        title = f"{self.axes.y} (log)" if self.axes.log else self.axes.y
        return alt.Y(f"{field}:Q", title=title, scale=self.y_scale, axis=axis)

    def log_axes(self) -> dict[str, list[float]]:
        """The axes that readers can make logarithmic, with their ranges: those of positive numbers that differ several times."""
        own = {"x": log_range(self.frame["x"], 8)}
        values = log_range(self.frame["mean"], 3)
        linear = self.axes.percent or self.axes.whole or self.axes.log or self.axes.linear
        if values is not None and not linear:
            own["y"] = [values[0] / 1.2, values[1] * 1.2]
        return {axis: span for axis, span in own.items() if span is not None}

    def reference(self) -> list[alt.Chart]:
        """A gray line with its band."""
        gray, soft = alt.Chart(alt.NamedData(name=f"{self.name}_reference")), self.look.soft
        if self.look.page and self.look.rows.groups:
            gray = gray.transform_filter("indexof(away, datum.strategy) < 0")
        return [
            gray.mark_area(opacity=0.14, color=soft, aria=False).encode(self.x, self.y("low"), y2=alt.Y2("high:Q")),
            gray.mark_line(color=soft, strokeWidth=1, strokeDash=[2, 2]).encode(self.x, self.y("mean")),
        ]

    def means_and_targets(self, targets: Mapping[tuple[str, ...], Target]) -> list[alt.Chart]:
        """The lines of the strategies over those of the targets within the range of the y axis, and the names of the targets."""
        low, high = self.axes.span
        inside = {own: target for own, target in targets.items() if low < target.accuracy <= high}
        if not inside or (len(targets) > 1 and not self.look.page):
            return self.means()
        rule, *names = self.levels(inside)
        return [rule, *self.means(), *names]

    def levels(self, targets: Mapping[tuple[str, ...], Target]) -> list[alt.Chart]:
        """A horizontal line at each target accuracy, with its name and where it comes from; the page shows those of one point."""
        soft, size = self.look.soft, self.look.size - 1
        free = FreePlaces(
            self.frame, self.ends, self.axes.span, (self.look.width or WIDTH, self.look.height), self.reached
        )
        places: dict[tuple[bool, bool], list[dict[str, Any]]] = {}
        for own, target in targets.items():
            text = self._name_of(target)
            place = free.place(own, target.accuracy, 0.55 * size * len(text), 1.4 * size)
            anyone = len(own) == len(self.labels)  # a target of all points is shown at all of them
            row = {"level": target.accuracy, "name": text, "strategy": "" if anyone else own[0]}
            if self.look.page:
                row["narrow"] = self._without_origin(target)  # the page's script takes it on phones
            places.setdefault(place, []).append(row)
        rule = self._of_point([row for rows in places.values() for row in rows])
        layers = [rule.mark_rule(strokeDash=[1, 3], strokeWidth=1, color=soft).encode(self.y("level"))]
        for (below, right), rows in places.items():
            beside: dict[str, Any] = {"baseline": "top", "dy": 3} if below else {"baseline": "bottom", "dy": -2}
            beside |= {"align": "right", "dx": -3} if right else {"align": "left", "dx": 3}
            name = self._of_point(rows).mark_text(color=soft, fontSize=size, **beside)
            placed = name.encode(
                self.y("level"), x=constant(alt.XValue, "width" if right else 0), text=alt.Text("name:N")
            )
            layers += [outlined(placed, self.look, 5), placed]
        return layers

    def _name_of(self, target: Target) -> str:
        """The words beside the line of a target."""
        narrow = self.look.width is not None and self.look.width < WIDE  # lines would cross a long name
        origin = " (taken from the results)" if target.from_results and not narrow else ""
        return f"{self._without_origin(target)}{origin}"

    def _without_origin(self, target: Target) -> str:
        style = ACCURACY if self.axes.percent else R_SQUARED
        return f"target {style.target(target.accuracy)}"

    def _of_point(self, rows: list[dict[str, Any]]) -> alt.Chart:
        """A chart of rows that each belong to a point of a sweep, if there are several."""
        chart = alt.Chart(alt.InlineData(values=rows))
        several = self.look.page and len(self.look.rows.groups) > 1
        return chart.transform_filter("indexof(away, datum.strategy) < 0") if several else chart

    def means(self) -> list[alt.Chart]:
        """The lines, over their bands."""
        layers = []
        if has_band(self.frame) and not crowded(self.labels, self.look.rows.groups):
            area = self.base.mark_area(opacity=0.13, clip=True, aria=False)
            layers.append(area.encode(self.x, self.y("low"), alt.Y2("high:Q"), self.color))
        *rest, named = in_order(self.base, self.look.strong(self.labels))
        for others in rest:
            gray = others.mark_line(clip=True, strokeWidth=0.7)
            layers.append(gray.encode(self.x, self.y("mean"), alt.Detail("strategy:N"), color=alt.value(REST)))
        encoded = (self.x, self.y("mean"), self.color, dash(self.labels, self.look))
        if "playing" in self.frame and (self.frame["playing"] < self.frame["seeds"]).any():
            layers.append(named.mark_line(clip=True, strokeWidth=0.8).encode(*encoded, **pale(self.look)))
            named = named.transform_filter("datum.playing >= datum.seeds")
        line = named.mark_line(clip=True).encode(*encoded, **pale(self.look))
        return [*layers, line.add_params(_zoom()) if self.look.page else line]

    def triangles(self) -> alt.Chart:
        """Marks on the levels of targets."""
        base = hideable(alt.Chart(alt.NamedData(name=f"{self.name}_reached")), self.look)
        marks: alt.Chart = triangles(base, self.labels, self.look, self.axes.x).encode(
            alt.X("x:Q", scale=self.x_scale), alt.Y("tip:Q", scale=self.y_scale), self.color
        )
        return marks

    def crosses(self) -> list[alt.Chart]:
        """Crosses at the ends of lines."""
        base = hideable(alt.Chart(alt.NamedData(name=f"{self.name}_lost")), self.look)
        at, end = alt.X("edge:Q", scale=self.x_scale), alt.Y("end:Q", scale=self.y_scale)
        behind, marks = crosses(base, self.look)
        return [behind.encode(at, end), marks.encode(at, end, self.color)]

    def edges(self) -> dict[str, Edges]:
        """The axes, and on the page those that readers can make logarithmic."""
        found = {"": Edges(self.ends, self.axes.span, log_y=self.axes.log)}
        if self.look.page and (log := self.log_axes()):
            up = log.get("y", self.axes.span)
            found["_log"] = Edges(log.get("x", self.ends), up, "x" in log, self.axes.log or "y" in log)
        return found

    def points(self) -> list[alt.Chart]:
        """Points, for lines that are too short to be seen; those beyond the axis are left out, as lines are cut there."""
        low, high = self.axes.span
        base = self.base.transform_filter(f"{low!r} <= datum.mean && datum.mean <= {high!r}")
        parts = in_order(base, self.look.strong(self.labels))
        points = [part.mark_point(size=46 if self.look.page else 22, opacity=1) for part in parts]
        drawn: list[alt.Chart] = [part.encode(self.x, self.y("mean"), self.color) for part in points]
        return drawn

    def pointer(self) -> list[alt.Chart]:
        """A vertical line at the point nearest to the pointer, and points on the lines there.

        The tooltip of the line has only x: the page's script adds the values of all strategies at this x.
        """
        points = self.base.mark_point(size=46).encode(self.x, self.y("mean"), self.color, opacity=_hovered(1))
        line = self.base.mark_rule(color=self.look.soft, strokeWidth=1).encode(
            self.x,
            opacity=_hovered(0.5),
            tooltip=[alt.Tooltip("x:Q", title=self.axes.x, format=".9~r")],
        )
        return [points, line.add_params(_hover())]

    def names(self) -> list[alt.Chart]:
        """The names of strategies at the ends of their lines, and lines to the ends from names that had to be moved away."""
        base = hideable(alt.Chart(alt.NamedData(name=f"{self.name}_ends")), self.look).transform_filter("!datum.early")
        shown = alt.OpacityValue(alt.ExprRef("named ? 1 : 0"))
        leader = base.transform_filter("datum.moved").mark_rule(clip=False, x2Offset=LEADER, strokeWidth=1, aria=False)
        at, end = alt.X("x:Q", scale=self.x_scale), alt.Y("end:Q", scale=self.y_scale)
        to_name = leader.encode(at, end, alt.X2("x:Q"), alt.Y2("y:Q"), self.color, opacity=shown)
        text = base.mark_text(align="left", dx=LEADER + 2, fontWeight=600, fontSize=self.look.size, clip=False)
        y = alt.Y("y:Q", scale=self.y_scale)
        return [to_name, text.encode(at, y, self.color, text=alt.Text("name:N"), opacity=shown)]

    def add_names_inside(self, layers: list[alt.Chart], ends: pd.DataFrame) -> dict[str, pd.DataFrame]:
        """Add the names of strategies whose lines end before the right edge, beside these ends; their table, if there are any."""
        beside, name = names_beside_ends(self.frame, ends, self.edges(), self.look), f"{self.name}_names"
        if beside is None:
            return {}
        base = hideable(alt.Chart(alt.NamedData(name=name)), self.look)
        layers += names_inside(base, self.x_scale, self.y_scale, self.color, self.look)
        return {name: beside}


def _hover() -> alt.Parameter:
    """The point nearest to the pointer."""
    of_x: dict[str, Any] = {"fields": ["x"], "nearest": True, "empty": False}
    return alt.selection_point(name="hover", on="pointerover", clear="pointerout", **of_x)


@cache
def _hovered(opacity: float) -> alt.OpacityValue:
    """What is shown at the point nearest to the pointer only. Altair takes long to make it, therefore once."""
    shown = alt.when(_hover()).then(alt.value(opacity)).otherwise(alt.value(0))
    return alt.OpacityValue.from_dict(dict(shown), validate=False)


def _zoom() -> alt.Parameter:
    """Dragging moves the chart along x, the wheel zooms with Shift (without Shift the page scrolls), a double click resets."""
    return alt.selection_interval(
        bind="scales",
        encodings=["x"],
        name="zoom",
        zoom="wheel![event.shiftKey]",
        translate="[pointerdown, window:pointerup] > window:pointermove!",
    )
