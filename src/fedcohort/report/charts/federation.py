"""What the federation looks like: clients × classes, sizes, shares of classes, wrong labels, speed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from fedcohort.arrays import Indices
from fedcohort.record import Portrait
from fedcohort.report.figure import Figure, Panel, View
from fedcohort.report.gather import blocks
from fedcohort.report.look import Look, short, tick

__all__ = ["Clients", "federation"]

SHOWN = 60
"""Clients that are drawn one by one at most; more are averaged over groups of neighbours in size."""

SLICES = 9
"""Classes with a colour of their own; the rest is one more slice."""

PIES = 24
"""Clients with a pie of their own at most."""


@dataclass(frozen=True)
class Clients:
    """What is known of the clients.

    Attributes:
        seed: of the federation, since every seed draws its own.
        classes: names, cut for charts.
        facts: as in :class:`fedcohort.record.Portrait`.
        whole: whether all clients are known, or only those that were selected at some time.
    """

    seed: int
    classes: list[str]
    facts: dict[str, np.ndarray]
    whole: bool = True

    @staticmethod
    def of(portrait: Portrait, seed: int) -> "Clients | None":
        """From a run's record."""
        if not portrait.facts:
            return None
        return Clients(seed, short(portrait.classes, 16), dict(portrait.facts))

    @property
    def number(self) -> int:
        """m."""
        return len(self.facts["samples"])


def federation(clients: Clients, look: Look) -> list[Figure]:
    """All figures of a federation."""
    groups, labels = _groups(clients)
    found = [_heat(clients, groups, labels, look), _shares(clients, groups, labels, look), _sizes(clients, look)]
    found += [
        _speed(clients, groups, labels, look),
        _noise(clients, groups, labels, look),
        _presence(clients, groups, labels, look),
    ]
    return [figure for figure in found if figure is not None]


def _groups(clients: Clients) -> tuple[Indices, list[str]]:
    """The group of each client, int64 [m], and the groups' names: each client its own, or neighbours in size together."""
    m = clients.number
    if m <= SHOWN:
        return np.arange(m), [str(i) for i in range(m)]
    order = np.argsort(clients.facts["samples"], kind="stable")
    rank = np.empty(m, dtype=np.int64)
    rank[order] = np.arange(m)
    group = blocks(m, SHOWN)[rank]
    number = int(group.max()) + 1
    return group, [f"{100 * i / number:.0f}–{100 * (i + 1) / number:.0f} %" for i in range(number)]


def _grouped(clients: Clients) -> str:
    m = clients.number
    if m <= SHOWN:
        return ""
    return (
        f" {m:,} clients in {-(-m // -(-m // SHOWN))} groups of up to {-(-m // SHOWN)}, from the smallest "
        "to the largest; means of the groups."
    )


def _mean(values: np.ndarray, groups: Indices) -> np.ndarray:
    number = int(groups.max()) + 1
    size = np.bincount(groups, minlength=number)
    if values.ndim == 1:
        return np.bincount(groups, weights=values, minlength=number) / size
    return (
        np.stack([np.bincount(groups, weights=column, minlength=number) for column in values.T], axis=1) / size[:, None]
    )


def _client_axis(labels: Sequence[str], look: Look) -> Any:
    """Client numbers, as many as have room."""
    each = max(1, -(-len(labels) // (30 if look.page else 15)))
    return alt.X(
        "client:N",
        sort=list(labels),
        title="client" if not labels[0].endswith("%") else "clients by size",
        axis=alt.Axis(
            values=list(labels)[::each], labelAngle=0 if max(map(len, labels)) <= 3 else -40, labelOverlap=True
        ),
    )


def _size(look: Look, height: int) -> dict[str, Any]:
    return {
        "width": "container" if look.width is None else look.width,
        "height": height if look.page else round(height * 0.45),
    }


def _heat(clients: Clients, groups: Indices, labels: list[str], look: Look) -> Figure | None:
    counts = clients.facts.get("counts")
    if counts is None:
        return None
    means = _mean(counts, groups)
    classes = clients.classes
    frame = pd.DataFrame(
        {
            "client": np.repeat(labels, len(classes)),
            "class": np.tile(classes, len(labels)),
            "samples": means.ravel(),
            "share": (means / np.maximum(means.sum(axis=1, keepdims=True), 1e-12)).ravel(),
        }
    )
    frame = frame[frame["samples"] > 0]
    sort, each = list(classes), max(1, -(-len(classes) // 40))
    y = alt.Y("class:N", sort=sort, title="class", axis=alt.Axis(values=classes[::each], labelLimit=90, domain=False))
    x = _client_axis(labels, look)
    tooltip = [
        "client:N",
        "class:N",
        alt.Tooltip("samples:Q", format=",.0f"),
        alt.Tooltip("share:Q", format=".0%", title="of the client"),
    ]
    views: list[View] = []
    for name, field, number in (("samples", "samples", "~s"), ("share of the client", "share", ".0%")):
        legend = alt.Legend(
            title=name, format=number, orient="bottom" if not look.page else "right", gradientLength=120
        )
        chart = (
            alt.Chart(alt.NamedData(name="class_counts"))
            .mark_rect(color=look.heat)
            .encode(
                x,
                y,
                opacity=alt.Opacity(
                    f"{field}:Q", scale=alt.Scale(domainMin=0, range=[0.04, 1]), legend=_swatches(legend, look)
                ),
                tooltip=tooltip,
            )
        )
        step = 22 if len(classes) <= 20 else 13
        views.append(View(name, [Panel(chart.properties(**_size(look, min(step * len(classes), 620))))]))
    note = (
        f"The labels that clients train on, seed {clients.seed}; an empty cell is a class that "
        f"the client does not have.{_grouped(clients)}"
    )
    return Figure("classes-of-clients", "Clients × classes", note, views, {"class_counts": frame})


def _swatches(legend: alt.Legend, look: Look) -> Any:
    """On the page the shade explains itself at the pointer; paper has no pointer."""
    if look.page:
        return None
    return alt.Legend(
        title=legend.title,
        format=legend.format,
        orient="bottom",
        symbolType="square",
        symbolFillColor=look.heat,
        symbolStrokeWidth=0,
    )


def _shares(clients: Clients, groups: Indices, labels: list[str], look: Look) -> Figure | None:
    counts = clients.facts.get("counts")
    if counts is None:
        return None
    means, names = _mean(counts, groups), list(clients.classes)
    if len(names) > SLICES + 1:
        largest = np.sort(np.argsort(-means.sum(axis=0), kind="stable")[:SLICES])
        rest = np.setdiff1d(np.arange(len(names)), largest)
        means = np.concatenate([means[:, largest], means[:, rest].sum(axis=1, keepdims=True)], axis=1)
        names = [names[i] for i in largest] + [f"{len(rest)} others"]
    shares = means / np.maximum(means.sum(axis=1, keepdims=True), 1e-12)
    frame = pd.DataFrame(
        {
            "client": np.repeat(labels, len(names)),
            "class": np.tile(names, len(labels)),
            "position": np.tile(np.arange(len(names)), len(labels)),
            "samples": means.ravel(),
            "share": shares.ravel(),
        }
    )
    frame = frame[frame["samples"] > 0]
    colours = [look.classes[i] for i in range(len(names) - (len(names) > SLICES))] + [look.classes[-1]] * (
        len(names) > SLICES
    )
    legend = alt.Legend(
        title="class", orient="bottom", columns=10 if look.page else 5, symbolType="square", symbolStrokeWidth=0
    )
    colour = alt.Color("class:N", scale=alt.Scale(domain=names, range=colours), legend=legend)
    tooltip = ["client:N", "class:N", alt.Tooltip("share:Q", format=".1%"), alt.Tooltip("samples:Q", format=",.0f")]
    base = alt.Chart(alt.NamedData(name="class_shares"))
    bars = base.mark_bar(stroke=look.ground, strokeWidth=0.6).encode(
        _client_axis(labels, look),
        alt.Y(
            "share:Q",
            stack="zero",
            title="share of samples",
            axis=alt.Axis(format=".0%"),
            scale=alt.Scale(domain=[0, 1]),
        ),
        colour,
        order="position:Q",
        tooltip=tooltip,
    )
    data = {"class_shares": frame}
    views = [View("bars", [Panel(bars.properties(**_size(look, 240)))])]
    if len(labels) <= PIES and clients.number <= SHOWN:
        pies = []
        for label, size in zip(labels, clients.facts["samples"].tolist(), strict=True):
            radius = 44 if look.page else 26
            pie = (
                base.transform_filter(alt.FieldEqualPredicate(field="client", equal=label))
                .mark_arc(stroke=look.ground, strokeWidth=0.8, outerRadius=radius)
                .encode(
                    theta=alt.Theta("share:Q", stack=True),
                    color=colour.legend(None),
                    order="position:Q",
                    tooltip=tooltip,
                )
                .properties(width=2 * radius + 8, height=2 * radius + 8)
            )
            pies.append(Panel(pie, f"client {label} · {size:,}"))
        key = pd.DataFrame({"class": names, "position": np.arange(len(names))})
        row = alt.Y("position:O", axis=None)
        words = alt.Chart(alt.NamedData(name="class_key"))
        squares = words.mark_square(size=40 if look.page else 20, opacity=1).encode(
            row, colour.legend(None), x=alt.value(6)
        )
        texts = words.mark_text(align="left", fontSize=look.size - 2).encode(row, x=alt.value(14), text="class:N")
        pies.append(Panel(alt.layer(squares, texts).properties(width=2 * radius + 8, height=2 * radius + 8), "class"))
        views.append(View("pies", pies))
        data["class_key"] = key
    note = f"What each client's samples consist of, seed {clients.seed}.{_grouped(clients)}"
    return Figure("class-shares", "Class shares per client", note, views, data)


def _sizes(clients: Clients, look: Look) -> Figure:
    sizes = clients.facts["samples"]
    number = min(30, max(5, round(np.sqrt(len(sizes)) * 2)))
    edges = np.histogram_bin_edges(sizes, bins=number)
    edges = (
        np.unique(np.floor(edges)) if sizes.max() - sizes.min() >= number else np.arange(sizes.min(), sizes.max() + 2)
    )
    edges[-1] = max(edges[-1], sizes.max() + 1)
    counts, edges = np.histogram(sizes, bins=edges)
    frame = pd.DataFrame({"from": edges[:-1], "to": edges[1:], "clients": counts})
    frame = frame[frame["clients"] > 0]
    chart = (
        alt.Chart(alt.NamedData(name="sizes"))
        .mark_bar(color=look.heat, stroke=look.ground)
        .encode(
            alt.X("from:Q", title="samples of a client", bin="binned", axis=alt.Axis(tickCount=6, **tick("~s"))),
            alt.X2("to:Q"),
            alt.Y("clients:Q", title="clients", axis=alt.Axis(tickMinStep=1, **tick("~s"), tickCount=4)),
            tooltip=[alt.Tooltip("from:Q", format=","), alt.Tooltip("to:Q", title="to below", format=","), "clients:Q"],
        )
        .properties(**_size(look, 200))
    )
    median, least, most = np.median(sizes), sizes.min(), sizes.max()
    note = (
        f"{clients.number:,} clients{'' if clients.whole else ' that were selected at some time'}, "
        f"seed {clients.seed}: {least:,} to {most:,} samples, median {median:,.0f}."
    )
    return Figure("sizes", "Sizes", note, [View("sizes", [Panel(chart)])], {"sizes": frame}, wide=False)


def _bars(
    name: str, values: np.ndarray, groups: Indices, labels: list[str], look: Look, title: str, number: str
) -> tuple[Any, pd.DataFrame]:
    frame = pd.DataFrame({"client": labels, "value": _mean(values, groups)})
    chart = (
        alt.Chart(alt.NamedData(name=name))
        .mark_bar(color=look.heat)
        .encode(
            _client_axis(labels, look),
            alt.Y("value:Q", title=title, axis=alt.Axis(**tick(number), tickCount=4)),
            tooltip=["client:N", alt.Tooltip("value:Q", title=title, format=number if number != "~s" else ",.4~s")],
        )
        .properties(**_size(look, 200))
    )
    return chart, frame


def _speed(clients: Clients, groups: Indices, labels: list[str], look: Look) -> Figure | None:
    if "time" not in clients.facts or not np.isfinite(clients.facts["time"]).any():
        return None
    sending = clients.facts.get("sending", np.zeros(clients.number))
    parts = {"computing": clients.facts["time"] - sending, "sending": sending}
    frame = pd.concat(
        [
            pd.DataFrame({"client": labels, "part": part, "rank": i, "time": _mean(values, groups)})
            for i, (part, values) in enumerate(parts.items())
        ],
        ignore_index=True,
    )
    scale = alt.Scale(domain=list(parts), range=[look.heat, look.cold])
    chart = (
        alt.Chart(alt.NamedData(name="speed"))
        .mark_bar()
        .encode(
            _client_axis(labels, look),
            alt.Y("time:Q", title="simulated time of a round", axis=alt.Axis(**tick("~s"), tickCount=4)),
            alt.Color(
                "part:N",
                scale=scale,
                legend=alt.Legend(title=None, orient="top", columns=2, symbolType="square", symbolStrokeWidth=0),
            ),
            order="rank:Q",
            tooltip=["client:N", "part:N", alt.Tooltip("time:Q", format=",.4~s")],
        )
        .properties(**_size(look, 200))
    )
    note = (
        f"Time for nominal work and a model down and up, in round 1; 1 is one pass over one sample.{_grouped(clients)}"
    )
    return Figure("speed", "Speed", note, [View("speed", [Panel(chart)])], {"speed": frame}, wide=False)


def _noise(clients: Clients, groups: Indices, labels: list[str], look: Look) -> Figure | None:
    wrong = clients.facts.get("wrong_labels", np.zeros(1))
    if not wrong.any():
        return None
    chart, frame = _bars("noise", wrong, groups, labels, look, "wrong labels", ".0%")
    note = f"Share of the labels that label noise changed, seed {clients.seed}.{_grouped(clients)}"
    return Figure("noise", "Label noise", note, [View("noise", [Panel(chart)])], {"noise": frame}, wide=False)


def _presence(clients: Clients, groups: Indices, labels: list[str], look: Look) -> Figure | None:
    there = clients.facts.get("presence", np.ones(1))
    if (there == 1).all():
        return None
    chart, frame = _bars("presence", there, groups, labels, look, "share of rounds", ".0%")
    note = f"Share of the first rounds in which the client was available.{_grouped(clients)}"
    return Figure("presence", "Presence", note, [View("presence", [Panel(chart)])], {"presence": frame}, wide=False)
