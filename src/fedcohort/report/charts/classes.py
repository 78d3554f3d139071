"""Draw the classes that clients hold: clients × classes, and the shares of classes per client."""

import json
import math
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from fedcohort.core.arrays import Indices
from fedcohort.core.words import formatted_values
from fedcohort.report.charts.axes_and_legends import legend_columns, number_tooltip, sized, text_tooltip, with_texts
from fedcohort.report.charts.means_and_bands import tick_step
from fedcohort.report.charts.shown_clients import (
    CLASS_LABEL,
    Clients,
    axis_title,
    client_axis,
    client_tooltips,
    names_for_charts,
    paper_height,
    sample_note,
    with_names,
)
from fedcohort.report.figures.chart_style import WIDTHS, Look
from fedcohort.report.figures.figure import Drawing, Figure, Panel, View
from fedcohort.report.figures.layers import decided, layered

__all__ = ["class_counts", "class_shares"]

SLICES = 9
"""Largest number of classes with a color of their own; all others share a color."""

COUNTED = (24, 20)
"""With up to this many clients and classes, the cells on the page contain their numbers."""

KEY_ROWS, SHORT = 5, 3
"""A legend of pies with more classes than :data:`KEY_ROWS` has two columns if no name is longer than :data:`SHORT` letters."""

PIES = 24
"""Largest number of clients that can be shown as pies."""


def class_counts(clients: Clients, drawn: Indices, look: Look) -> Figure | None:
    """The number of samples of each class of each client, or its share of the client's samples, as shades."""
    counts = clients.facts.get("counts")
    if counts is None:
        return None
    labels, classes, names = list(map(str, drawn)), clients.classes, names_for_charts(clients.names)
    frame = _long(labels, classes, counts[drawn]).drop(columns="position")
    frame = with_texts(frame, {"share": formatted_values.part})
    each = max(1, -(-len(classes) // 40))
    axis = alt.Axis(values=classes[::each], labelLimit=CLASS_LABEL, domain=False)
    y = alt.Y("class:N", sort=list(classes), title="class", axis=axis)
    x = client_axis(labels, look, axis_title(clients), names=names)
    tooltip = [
        *client_tooltips(names),
        alt.Tooltip("class:N"),
        number_tooltip("samples", "count"),
        text_tooltip("share", "share of the client"),
    ]
    height = min((22 if len(classes) <= 20 else 13) * len(classes), 620)
    views: list[View] = []
    for name, field, number in (("samples", "samples", ",.0f"), ("share of the client", "share", ".0%")):
        scale = alt.Scale(domainMin=0, range=[0.04, 1])
        legend = _shade_legend(name, number, look, _levels(float(frame[field].max()), whole=field == "samples"))
        shade = alt.Opacity(f"{field}:Q", scale=scale, legend=legend)
        base = with_names(alt.Chart(alt.NamedData(name="class_counts")), names).mark_rect(color=look.heat)
        cells: alt.Chart = base.encode(x, y, opacity=shade, tooltip=tooltip)
        chart: Drawing = cells
        if look.page and len(drawn) <= COUNTED[0] and len(classes) <= COUNTED[1]:
            chart = layered(cells, _numbers(field, frame, x, y, look))
        chart = sized(chart, look, height, paper_height(height))
        views.append(View(name, [Panel(chart)]))
    labels_of = (
        "The labels of the clients' samples, with those held out"
        if clients.with_held_out
        else "The labels that clients train on"
    )
    note = (
        f"{labels_of}, seed {clients.seed}. An empty cell is a class that the client does not have.{clients.about_ranges}"
        f"{sample_note(clients, drawn)}"
    )
    return Figure("classes-of-clients", "Clients × classes", note, views, {"class_counts": frame})


def _numbers(field: str, frame: pd.DataFrame, x: alt.X, y: alt.Y, look: Look) -> alt.Chart:
    """The numbers in the cells, in the color of the background on dark cells."""
    dark = f"datum.{field} > {0.55 * float(frame[field].max())}"
    text = alt.Text("samples:Q", format=",.0f") if field == "samples" else alt.Text("share_text:N")
    base = alt.Chart(alt.NamedData(name="class_counts")).mark_text(fontSize=look.size - 1)
    numbers: alt.Chart = base.encode(x, y, text=text, color=decided(alt.ColorValue, dark, look.ground, look.ink))
    return numbers


def _long(labels: list[str], classes: list[str], counts: np.ndarray) -> pd.DataFrame:
    """A row for each client and class that it has: ``client``, ``class``, ``position`` of the class, ``samples``, ``share``."""
    frame = pd.DataFrame(
        {
            "client": np.repeat(labels, len(classes)),
            "class": np.tile(classes, len(labels)),
            "position": np.tile(np.arange(len(classes)), len(labels)),
            "samples": counts.ravel(),
            "share": (counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)).ravel(),
        }
    )
    return frame[frame["samples"] > 0]


def _levels(highest: float, *, whole: bool) -> list[float]:
    """The shades of the legend: about six at equal steps, without 0, which is no cell, up to the highest of all cells. Of samples,
    they are whole numbers.

    >>> _levels(138, whole=True), _levels(2, whole=True)
    ([20.0, 40.0, 60.0, 80.0, 100.0, 120.0, 138.0], [1.0, 2.0])
    >>> _levels(0.873, whole=False)
    [0.2, 0.4, 0.6, 0.873]
    """
    if not highest > 0:
        return []
    step = tick_step(0.0, highest, 6)
    step = max(1.0, step) if whole else step
    below = [float(f"{step * i:.12g}") for i in range(1, math.ceil(highest / step))]
    return [*(level for level in below if level < highest - step / 2), float(highest)]


def _shade_legend(title: str, number: str, look: Look, values: list[float]) -> alt.Legend:
    return alt.Legend(
        title=title,
        format=number,
        values=values,
        orient="bottom",
        columns=10 if look.width is None or look.width > WIDTHS[1] else 4,
        symbolType="square",
        symbolSize=140 if look.page else 60,
        symbolFillColor=look.heat,
        symbolStrokeWidth=0,
    )


def class_shares(clients: Clients, drawn: Indices, look: Look) -> Figure | None:
    """The share of each class in each client's samples: as bars, and as pies for small federations."""
    counts = clients.facts.get("counts")
    if counts is None:
        return None
    labels, names, called = list(map(str, drawn)), list(clients.classes), names_for_charts(clients.names)
    total, counts = counts.sum(axis=0), counts[drawn]
    pooled = len(names) > SLICES + 1
    if pooled:
        largest = np.sort(np.argsort(-total, kind="stable")[:SLICES])
        rest = np.setdiff1d(np.arange(len(names)), largest)
        counts = np.concatenate([counts[:, largest], counts[:, rest].sum(axis=1, keepdims=True)], axis=1)
        names = [names[i] for i in largest] + [f"{len(rest)} others"]
    shares = _Shares(names, look, len(labels), called)
    data = {"class_shares": with_texts(_long(labels, names, counts), {"share": formatted_values.part})}
    x, height = client_axis(labels, look, axis_title(clients), names=called), 240
    bars = sized(shares.bars(x, height if look.page else paper_height(height)), look, height, paper_height(height))
    views = [View("bars", [Panel(bars)])]
    if clients.number <= PIES:
        sizes = clients.facts["samples"].tolist()
        pies = [
            Panel(shares.pie(label), f"{title} · {formatted_values.count(size)}")
            for label, title, size in zip(labels, called or [f"client {label}" for label in labels], sizes, strict=True)
        ]
        views.append(View("pies", [*pies, Panel(shares.key(), "class")]))
        data["class_key"] = shares.key_rows()
    note = (
        f"The classes of each client's samples, seed {clients.seed}. Classes follow each other as in the legend, from the bottom of a "
        f"bar or clockwise, and have their names where there is room.{clients.about_ranges}{sample_note(clients, drawn)}"
    )
    return Figure("class-shares", "Class shares per client", note, views, data)


class _Shares:
    """Charts of class shares that have their colors in common."""

    def __init__(self, names: list[str], look: Look, number: int, clients: list[str]) -> None:
        self.look, self.names, self.number = look, names, number
        self.radius = 44 if look.page else 30
        self.key_columns = 2 if len(names) > KEY_ROWS and max(map(len, names)) <= SHORT else 1
        self.base = with_names(alt.Chart(alt.NamedData(name="class_shares")), clients)
        columns = 10 if look.page else min(5, legend_columns(names, look))
        legend = alt.Legend(title="class", orient="bottom", columns=columns, symbolType="square", symbolStrokeWidth=0)
        self.color = alt.Color("class:N", scale=alt.Scale(domain=names, range=self._colors()), legend=legend)
        self.order = alt.Order("position:Q")
        self.tooltip = [
            *client_tooltips(clients),
            alt.Tooltip("class:N"),
            text_tooltip("share", "share of the client"),
            number_tooltip("samples", "count"),
        ]

    def _colors(self) -> list[str]:
        """A color for each class."""
        return [self.look.classes[i] for i in self._places]

    @property
    def _places(self) -> list[int]:
        """The place of the color of each class; the last color, gray, is that of the tenth class or of all others."""
        own = len(self.names) - (len(self.names) > SLICES)
        return [*range(own), *([len(self.look.classes) - 1] * (len(self.names) - own))]

    def _texts(self, base: alt.Chart, room: str, **places: Any) -> alt.Chart:
        """The names of classes on their colors, which cannot be told apart on a gray printer, where ``room`` has space for them."""
        inks = self.look.ink_on_classes(len(self.look.classes))
        own = json.dumps([inks[i] for i in self._places])
        color = alt.ExprRef(f"{own}[indexof({json.dumps(self.names)}, datum.class)]")
        font = self.look.size - 2
        fits = f"{0.6 * font:.3g} * length(datum.class) + 3 <= {room}"
        named = f"{fits} ? datum.class : ''"  # all are stacked, named or not
        texts = base.transform_calculate(named=named).mark_text(
            fontSize=font, color=color, tooltip=None, aria=False, **places
        )
        named_texts: alt.Chart = texts.encode(text=alt.Text("named:N"), order=self.order)
        return named_texts

    def bars(self, x: alt.X, height: float) -> Drawing:
        """A bar for each client, in a chart of this height."""
        y = alt.Y(
            "share:Q",
            stack="zero",
            title="share of samples",
            axis=alt.Axis(format=".0%"),
            scale=alt.Scale(domain=[0, 1]),
        )
        bars = self.base.mark_bar(stroke=self.look.ground, strokeWidth=0.6)
        room = f"(datum.share >= {1.2 * (self.look.size - 2) / height:.3g} ? 0.85 * width / {self.number} : 0)"
        middle = alt.Y("share:Q", stack="zero", bandPosition=0.5)
        texts = self._texts(self.base, room).encode(x, middle)
        return layered(bars.encode(x, y, self.color, order=self.order, tooltip=self.tooltip), texts)

    def pie(self, client: str) -> Drawing:
        """The pie of one client."""
        own = self.base.transform_filter(alt.FieldEqualPredicate(field="client", equal=client))
        pie = own.mark_arc(stroke=self.look.ground, strokeWidth=0.8, outerRadius=self.radius)
        theta = alt.Theta("share:Q", stack=True)
        slices = pie.encode(theta=theta, color=self.color.legend(None), order=self.order, tooltip=self.tooltip)
        middle = 0.52 * self.radius
        to_edge = 2 * (self.radius - middle)  # for a name beside the center, which has the least room
        room = f"min({2 * math.pi * middle:.3g} * datum.share, {to_edge:.3g})"
        texts = self._texts(own, room, radius=middle).encode(theta=theta)
        return layered(slices, texts, width=2 * self.radius + 8, height=2 * self.radius + 8)

    def key_rows(self) -> pd.DataFrame:
        """The entries of the legend, with their rows and columns."""
        positions, rows = np.arange(len(self.names)), -(-len(self.names) // self.key_columns)
        return pd.DataFrame({"class": self.names, "row": positions % rows, "column": positions // rows})

    def key(self) -> Drawing:
        """A legend of the same size as a pie, to be placed after the last one; short names stand in two columns."""
        font, width = self.look.size - (2 if self.look.page else 1), 2 * self.radius + 8
        row = alt.Y("row:O", axis=None)
        scale = alt.Scale(domain=[0, self.key_columns], nice=False)
        x = alt.X("column:Q", axis=None, scale=scale)
        base = alt.Chart(alt.NamedData(name="class_key"))
        squares = base.mark_square(size=40 if self.look.page else 20, opacity=1, xOffset=6)
        texts = base.mark_text(align="left", fontSize=font, xOffset=14)
        height = max(width, round((font + 2) * len(self.names) / self.key_columns))
        return layered(
            squares.encode(row, self.color.legend(None), x=x),
            texts.encode(row, x=x, text=alt.Text("class:N")),
            width=width,
            height=height,
        )
