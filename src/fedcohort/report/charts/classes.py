"""Draw the classes that clients hold: clients × classes, and the shares of classes per client."""

from collections.abc import Iterable

import altair as alt
import numpy as np
import pandas as pd

from fedcohort.core import formatted_values
from fedcohort.core.arrays import Indices
from fedcohort.report.chart_style import WIDTHS, Look
from fedcohort.report.charts.axes_and_legends import number_tooltip, sized, text_tooltip, with_texts
from fedcohort.report.charts.layers import decided, layered, with_properties
from fedcohort.report.charts.shown_clients import Clients, axis_title, client_axis, paper_height, sample_note
from fedcohort.report.figure import Drawing, Figure, Panel, View

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
    labels, classes = list(map(str, drawn)), clients.classes
    frame = _long(labels, classes, counts[drawn]).drop(columns="position")
    frame = with_texts(frame, {"share": formatted_values.part})
    each = max(1, -(-len(classes) // 40))
    axis = alt.Axis(values=classes[::each], labelLimit=90, domain=False)
    y = alt.Y("class:N", sort=list(classes), title="class", axis=axis)
    x = client_axis(labels, look, axis_title(clients))
    tooltip = [
        alt.Tooltip("client:N"),
        alt.Tooltip("class:N"),
        number_tooltip("samples", "count"),
        text_tooltip("share", "share of the client"),
    ]
    height = min((22 if len(classes) <= 20 else 13) * len(classes), 620)
    views: list[View] = []
    for name, field, number in (("samples", "samples", ",.0f"), ("share of the client", "share", ".0%")):
        scale = alt.Scale(domainMin=0, range=[0.04, 1])
        legend = _shade_legend(name, number, look, _whole_levels(frame["samples"]) if field == "samples" else None)
        shade = alt.Opacity(f"{field}:Q", scale=scale, legend=legend)
        base = alt.Chart(alt.NamedData(name="class_counts")).mark_rect(color=look.heat)
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
        f"{labels_of}, seed {clients.seed}. An empty cell is a class that the client does not have."
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


def _whole_levels(samples: Iterable[int], most: int = 5) -> list[int] | None:
    """Whole numbers for the legend of a few samples, where ticks between them would be written as the same number twice.

    >>> _whole_levels([1, 2, 2])
    [0, 1, 2]
    """
    highest = max(samples, default=0)
    return list(range(int(highest) + 1)) if highest < most else None


def _shade_legend(title: str, number: str, look: Look, values: list[int] | None) -> alt.Legend:
    return alt.Legend(
        title=title,
        format=number,
        values=alt.Undefined if values is None else values,
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
    labels, names = list(map(str, drawn)), list(clients.classes)
    total, counts = counts.sum(axis=0), counts[drawn]
    pooled = len(names) > SLICES + 1
    if pooled:
        largest = np.sort(np.argsort(-total, kind="stable")[:SLICES])
        rest = np.setdiff1d(np.arange(len(names)), largest)
        counts = np.concatenate([counts[:, largest], counts[:, rest].sum(axis=1, keepdims=True)], axis=1)
        names = [names[i] for i in largest] + [f"{len(rest)} others"]
    shares = _Shares(names, look)
    data = {"class_shares": with_texts(_long(labels, names, counts), {"share": formatted_values.part})}
    bars = sized(shares.bars(client_axis(labels, look, axis_title(clients))), look, 240, paper_height(240))
    views = [View("bars", [Panel(bars)])]
    if clients.number <= PIES:
        sizes = clients.facts["samples"].tolist()
        pies = [
            Panel(shares.pie(label), f"client {label} · {formatted_values.count(size)}")
            for label, size in zip(labels, sizes, strict=True)
        ]
        views.append(View("pies", [*pies, Panel(shares.key(), "class")]))
        data["class_key"] = shares.key_rows()
    note = f"The classes of each client's samples, seed {clients.seed}.{sample_note(clients, drawn)}"
    return Figure("class-shares", "Class shares per client", note, views, data)


class _Shares:
    """Charts of class shares that have their colors in common."""

    def __init__(self, names: list[str], look: Look) -> None:
        self.look, self.names = look, names
        self.radius = 44 if look.page else 30
        self.key_columns = 2 if len(names) > KEY_ROWS and max(map(len, names)) <= SHORT else 1
        self.base = alt.Chart(alt.NamedData(name="class_shares"))
        columns = 10 if look.page else 5
        legend = alt.Legend(title="class", orient="bottom", columns=columns, symbolType="square", symbolStrokeWidth=0)
        self.color = alt.Color("class:N", scale=alt.Scale(domain=names, range=self._colors()), legend=legend)
        self.order = alt.Order("position:Q")
        self.tooltip = [
            alt.Tooltip("client:N"),
            alt.Tooltip("class:N"),
            text_tooltip("share", "share of the client"),
            number_tooltip("samples", "count"),
        ]

    def _colors(self) -> list[str]:
        """A color for each class; the last color, gray, is that of the tenth class or of all others."""
        own = len(self.names) - (len(self.names) > SLICES)
        return [self.look.classes[i] for i in range(own)] + [self.look.classes[-1]] * (len(self.names) - own)

    def bars(self, x: alt.X) -> Drawing:
        """A bar for each client."""
        y = alt.Y(
            "share:Q",
            stack="zero",
            title="share of samples",
            axis=alt.Axis(format=".0%"),
            scale=alt.Scale(domain=[0, 1]),
        )
        bars = self.base.mark_bar(stroke=self.look.ground, strokeWidth=0.6)
        chart: Drawing = bars.encode(x, y, self.color, order=self.order, tooltip=self.tooltip)
        return chart

    def pie(self, client: str) -> Drawing:
        """The pie of one client."""
        pie = self.base.transform_filter(alt.FieldEqualPredicate(field="client", equal=client)).mark_arc(
            stroke=self.look.ground, strokeWidth=0.8, outerRadius=self.radius
        )
        theta = alt.Theta("share:Q", stack=True)
        slices = pie.encode(theta=theta, color=self.color.legend(None), order=self.order, tooltip=self.tooltip)
        chart: Drawing = with_properties(slices, width=2 * self.radius + 8, height=2 * self.radius + 8)
        return chart

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
