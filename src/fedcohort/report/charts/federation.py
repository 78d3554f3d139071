"""What the federation looks like: clients × classes, sizes, shares of classes, wrong labels, speed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from fedcohort.core.arrays import Indices
from fedcohort.record import Portrait
from fedcohort.report.figure import Figure, Panel, View
from fedcohort.report.look import Look, short, tick

__all__ = ["Clients", "federation"]

SHOWN = 100
"""Federations of up to so many clients are drawn client by client, all of them; of larger ones ..."""

SAMPLE = 60
"""... so many single clients are drawn where a client needs a column of classes ..."""

CURVE = 200
"""... and so many where it needs one bar: all clients are put in order, and the first and the last are among those drawn."""

WHOLE: dict[str, Any] = {"labelExpr": "datum.value % 1 ? '' : format(datum.value, '~s')"}
"""Axes of things that are counted: no label between two whole numbers."""

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
        facts: as in :class:`fedcohort.record.rows.Portrait`.
        whole: whether all clients are known, or only those that were selected at some time.
        deadline: time after which the server waits no longer; None waits for everybody.
    """

    seed: int
    classes: list[str]
    facts: dict[str, np.ndarray]
    whole: bool = True
    deadline: float | None = None

    @staticmethod
    def of(portrait: Portrait, seed: int, deadline: float | None = None) -> "Clients | None":
        """From a run's record."""
        if not portrait.facts:
            return None
        return Clients(seed, short(portrait.classes, 16), dict(portrait.facts), deadline=deadline)

    @property
    def number(self) -> int:
        """m."""
        return len(self.facts["samples"])


def federation(clients: Clients, look: Look) -> list[Figure]:
    """All figures of a federation."""
    shown = _shown(clients)
    found = [_heat(clients, shown, look), _shares(clients, shown, look), _sizes(clients, look)]
    found += [_speed(clients, look), _noise(clients, look), _presence(clients, look)]
    return [figure for figure in found if figure is not None]


def _shown(clients: Clients) -> Indices:
    """Clients that are drawn one by one, int64: everybody, or a sample spread evenly over the order of size.

    Nothing is averaged over clients: means of neighbours are clients that nobody has, less skewed than any.
    """
    if clients.number <= SHOWN:
        return np.arange(clients.number)
    return _evenly(np.argsort(clients.facts["samples"], kind="stable"), SAMPLE)


def _evenly(order: Indices, most: int) -> Indices:
    """``most`` of the clients at most, evenly over their order, with its first and its last."""
    positions = np.linspace(0, len(order) - 1, min(len(order), most)).round().astype(np.int64)
    chosen: Indices = order[positions]
    return chosen


def _sampled(clients: Clients, shown: Indices) -> str:
    if len(shown) == clients.number:
        return ""
    return (
        f" {len(shown)} of {clients.number:,} clients, evenly over the order of size, from the smallest to the largest."
    )


def _client_axis(labels: Sequence[str], look: Look, title: str = "client") -> Any:
    """Client numbers, as many as have room."""
    each = max(1, -(-len(labels) // (30 if look.page else 15)))
    axis = alt.Axis(
        values=list(labels)[::each],
        labelAngle=0 if max(map(len, labels)) <= 3 else -90,
        labelOverlap="greedy",
        labelSeparation=3,
    )
    return alt.X("client:N", sort=list(labels), title=title, axis=axis)


def _titled(clients: Clients) -> str:
    return "client" if clients.number <= SHOWN else "single clients, by size"


def _size(look: Look, height: int) -> dict[str, Any]:
    return {
        "width": "container" if look.width is None else look.width,
        "height": height if look.page else round(height * 0.45),
    }


def _heat(clients: Clients, shown: Indices, look: Look) -> Figure | None:
    counts = clients.facts.get("counts")
    if counts is None:
        return None
    labels, counts, classes = list(map(str, shown)), counts[shown], clients.classes
    frame = pd.DataFrame(
        {
            "client": np.repeat(labels, len(classes)),
            "class": np.tile(classes, len(labels)),
            "samples": counts.ravel(),
            "share": (counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)).ravel(),
        }
    )
    frame = frame[frame["samples"] > 0]
    sort, each = list(classes), max(1, -(-len(classes) // 40))
    y = alt.Y("class:N", sort=sort, title="class", axis=alt.Axis(values=classes[::each], labelLimit=90, domain=False))
    x = _client_axis(labels, look, _titled(clients))
    tooltip = [
        alt.Tooltip("client:N"),
        alt.Tooltip("class:N"),
        alt.Tooltip("samples:Q", format=",.0f"),
        alt.Tooltip("share:Q", format=".0%", title="of the client"),
    ]
    views: list[View] = []
    for name, field, number in (("samples", "samples", "~s"), ("share of the client", "share", ".0%")):
        chart = (
            alt.Chart(alt.NamedData(name="class_counts"))
            .mark_rect(color=look.heat)
            .encode(
                x,
                y,
                opacity=alt.Opacity(
                    f"{field}:Q", scale=alt.Scale(domainMin=0, range=[0.04, 1]), legend=_swatches(name, number, look)
                ),
                tooltip=tooltip,
            )
        )
        step = 22 if len(classes) <= 20 else 13
        views.append(View(name, [Panel(chart.properties(**_size(look, min(step * len(classes), 620))))]))
    note = (
        f"The labels that clients train on, seed {clients.seed}; an empty cell is a class that "
        f"the client does not have.{_sampled(clients, shown)}"
    )
    return Figure("classes-of-clients", "Clients × classes", note, views, {"class_counts": frame})


def _swatches(title: str, number: str, look: Look) -> alt.Legend:
    """What shades mean."""
    return alt.Legend(
        title=title,
        format=number,
        orient="bottom",
        columns=10 if look.page else 5,
        symbolType="square",
        symbolSize=140 if look.page else 60,
        symbolFillColor=look.heat,
        symbolStrokeWidth=0,
    )


def _shares(clients: Clients, shown: Indices, look: Look) -> Figure | None:
    counts = clients.facts.get("counts")
    if counts is None:
        return None
    labels, names = list(map(str, shown)), list(clients.classes)
    everybody, counts = counts.sum(axis=0), counts[shown]
    if len(names) > SLICES + 1:
        largest = np.sort(np.argsort(-everybody, kind="stable")[:SLICES])
        rest = np.setdiff1d(np.arange(len(names)), largest)
        counts = np.concatenate([counts[:, largest], counts[:, rest].sum(axis=1, keepdims=True)], axis=1)
        names = [names[i] for i in largest] + [f"{len(rest)} others"]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    frame = pd.DataFrame(
        {
            "client": np.repeat(labels, len(names)),
            "class": np.tile(names, len(labels)),
            "position": np.tile(np.arange(len(names)), len(labels)),
            "samples": counts.ravel(),
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
    tooltip = [
        alt.Tooltip("client:N"),
        alt.Tooltip("class:N"),
        alt.Tooltip("share:Q", format=".1%"),
        alt.Tooltip("samples:Q", format=",.0f"),
    ]
    base = alt.Chart(alt.NamedData(name="class_shares"))
    bars = base.mark_bar(stroke=look.ground, strokeWidth=0.6).encode(
        _client_axis(labels, look, _titled(clients)),
        alt.Y(
            "share:Q",
            stack="zero",
            title="share of samples",
            axis=alt.Axis(format=".0%"),
            scale=alt.Scale(domain=[0, 1]),
        ),
        colour,
        order=alt.Order("position:Q"),
        tooltip=tooltip,
    )
    data = {"class_shares": frame}
    views = [View("bars", [Panel(bars.properties(**_size(look, 240)))])]
    if clients.number <= PIES:
        pies = []
        for label, size in zip(labels, clients.facts["samples"].tolist(), strict=True):
            radius = 44 if look.page else 26
            pie = (
                base.transform_filter(alt.FieldEqualPredicate(field="client", equal=label))
                .mark_arc(stroke=look.ground, strokeWidth=0.8, outerRadius=radius)
                .encode(
                    theta=alt.Theta("share:Q", stack=True),
                    color=colour.legend(None),
                    order=alt.Order("position:Q"),
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
        letters = look.size - (2 if look.page else 1)
        texts = words.mark_text(align="left", fontSize=letters).encode(row, x=alt.value(14), text=alt.Text("class:N"))
        height = max(2 * radius + 8, round((letters + 2) * len(names)))
        pies.append(Panel(alt.layer(squares, texts).properties(width=2 * radius + 8, height=height), "class"))
        views.append(View("pies", pies))
        data["class_key"] = key
    note = f"What each client's samples consist of, seed {clients.seed}.{_sampled(clients, shown)}"
    return Figure("class-shares", "Class shares per client", note, views, data)


def _sizes(clients: Clients, look: Look) -> Figure:
    sizes = clients.facts["samples"]
    most_bars = min(40, max(12, round(np.sqrt(len(sizes)) * 2)))
    width = max(1, -(-int(sizes.max() + 1) // most_bars))
    edges = np.arange(0, sizes.max() + width + 1, width)  # whole numbers from 0: equal clients are one bar, not a range
    counts, edges = np.histogram(sizes, bins=edges)
    frame = pd.DataFrame({"from": edges[:-1], "to": edges[1:], "clients": counts})
    frame, span = frame[frame["clients"] > 0], alt.Scale(domain=[0, int(frame["to"].max())], nice=False)
    chart = (
        alt.Chart(alt.NamedData(name="sizes"))
        .mark_bar(color=look.heat, stroke=look.ground)
        .encode(
            alt.X(
                "from:Q",
                title="samples of a client",
                bin="binned",
                scale=span,
                axis=alt.Axis(tickCount=6, **WHOLE),
            ),
            alt.X2("to:Q"),
            alt.Y("clients:Q", title="clients", axis=alt.Axis(tickCount=4, **WHOLE)),
            tooltip=[
                alt.Tooltip("from:Q", format=","),
                alt.Tooltip("to:Q", title="to below", format=","),
                alt.Tooltip("clients:Q"),
            ],
        )
        .properties(**_size(look, 200))
    )
    median, least, most = np.median(sizes), sizes.min(), sizes.max()
    note = (
        f"{clients.number:,} clients{'' if clients.whole else ' that were selected at some time'}, "
        f"seed {clients.seed}: {least:,} to {most:,} samples, median {median:,.0f}."
    )
    return Figure("sizes", "Sizes", note, [View("sizes", [Panel(chart)])], {"sizes": frame}, wide=False)


def _one_by_one(
    name: str,
    clients: Clients,
    values: np.ndarray,
    parts: dict[str, np.ndarray],
    look: Look,
    words: Sequence[str],
    number: str,
) -> tuple[Any, pd.DataFrame, str]:
    """A bar a client, of one part or several on top of each other: by number, or in order of ``values`` where there are many.

    Args:
        name: of the data.
        clients: all of them.
        values: to put clients in order by, float64 [m]; those where it is not finite are left out.
        parts: of each bar, by name.
        look: how charts look.
        words: what bars are, and what the order is, from the first to the last.
        number: how bars are written.

    Returns:
        the chart, its data, and words about who is drawn.
    """
    title, order = words
    if clients.number <= SHOWN:
        who, about = np.arange(clients.number), ""
        labels = list(map(str, who))
        x: list[Any] = [_client_axis(labels, look)]
    else:
        known = np.flatnonzero(np.isfinite(values))
        who = _evenly(known[np.argsort(values[known], kind="stable")], CURVE)
        about = f" All clients in order; {len(who)} of {clients.number:,} are drawn, the first and the last among them."
        about = about if len(who) < len(known) else f" All {len(known):,} clients in order."
        labels = list(map(str, who))
        whole = alt.Scale(domain=[0, 1], nice=False)
        axis = alt.Axis(format=".0%", tickCount=5)
        x = [alt.X("from:Q", bin="binned", title=f"clients, {order}", scale=whole, axis=axis), alt.X2("to:Q")]
    places = np.arange(len(who)) / max(len(who), 1)
    frame = pd.concat(
        [
            pd.DataFrame(
                {
                    "client": labels,
                    "from": places,
                    "to": places + 1 / max(len(who), 1),
                    "part": part,
                    "rank": i,
                    "value": v[who],
                }
            )
            for i, (part, v) in enumerate(parts.items())
        ],
        ignore_index=True,
    )
    legend = alt.Legend(title=None, orient="top", columns=2, symbolType="square", symbolStrokeWidth=0)
    colours = alt.Scale(domain=list(parts), range=[look.heat, look.cold][: len(parts)])
    chart = (
        alt.Chart(alt.NamedData(name=name))
        .mark_bar(binSpacing=0, strokeWidth=0 if clients.number <= SHOWN else 0.7)
        .encode(
            *x,
            alt.Y("value:Q", title=title, stack="zero", axis=alt.Axis(**tick(number), tickCount=4)),
            alt.Color("part:N", scale=colours, legend=legend if len(parts) > 1 else None),
            alt.Stroke("part:N", scale=colours, legend=legend if len(parts) > 1 else None),
            order=alt.Order("rank:Q"),
            tooltip=[alt.Tooltip("client:N"), *([alt.Tooltip("part:N")] if len(parts) > 1 else []),
                     alt.Tooltip("value:Q", title=title, format=number if number != "~s" else ",.4~s")],
        )
    )  # fmt: skip
    return chart, frame, about


def _plain(time: float) -> str:
    """A time without an exponent."""
    return f"{time:,.0f}" if abs(time) >= 1000 else f"{time:.4g}"


def _speed(clients: Clients, look: Look) -> Figure | None:
    time = clients.facts.get("time")
    if time is None or not np.isfinite(time).any():
        return None
    known = np.isfinite(time) & (clients.facts["samples"] > 0)
    title = "simulated time of a round"
    sending = clients.facts.get("sending", np.zeros(clients.number))
    parts = {"computing": time - sending, "sending": sending}
    words = (title, "from the fastest to the slowest")
    ordered = np.where(known, time, np.nan)
    chart, frame, about = _one_by_one("speed", clients, ordered, parts, look, words, "~s")
    data, layers = {"speed": frame}, [chart]
    median, slowest = np.median(time[known]), time[known].max()
    note = (
        "Time for nominal work and a model down and up, in round 1; 1 is one pass over one sample. "
        f"Median {_plain(median)}, slowest {_plain(slowest)}."
    )
    if clients.deadline is not None:
        late = int((time[known] > clients.deadline).sum())
        note += f" {late:,} of {known.sum():,} clients need longer than the deadline, {_plain(clients.deadline)}."
        data["deadline_key"] = pd.DataFrame({"deadline": [clients.deadline], "words": ["deadline"]})
        line = alt.Chart(alt.NamedData(name="deadline_key")).encode(alt.Y("deadline:Q", title=title))
        layers.append(line.mark_rule(color=look.ink, strokeDash=[5, 3]))
        layers.append(
            line.mark_text(align="left", baseline="bottom", dx=2, dy=-2).encode(
                x=alt.value(0), text=alt.Text("words:N")
            )
        )
    drawn = alt.layer(*layers).properties(**_size(look, 200))
    return Figure("speed", "Speed", f"{note}{about}", [View("speed", [Panel(drawn)])], data, wide=False)


def _noise(clients: Clients, look: Look) -> Figure | None:
    wrong = clients.facts.get("wrong_labels", np.zeros(1))
    if not wrong.any():
        return None
    words = ("wrong labels", "by their share of wrong labels")
    chart, frame, about = _one_by_one("noise", clients, wrong, {"wrong labels": wrong}, look, words, ".0%")
    note = (
        f"Share of the labels that label noise changed, seed {clients.seed}: {np.count_nonzero(wrong):,} of "
        f"{clients.number:,} clients have wrong labels, up to {wrong.max():.0%}.{about}"
    )
    views = [View("noise", [Panel(chart.properties(**_size(look, 200)))])]
    return Figure("noise", "Label noise", note, views, {"noise": frame}, wide=False)


def _presence(clients: Clients, look: Look) -> Figure | None:
    there = clients.facts.get("presence", np.ones(1))
    if (there == 1).all():
        return None
    words = ("share of rounds", "by presence")
    chart, frame, about = _one_by_one("presence", clients, there, {"presence": there}, look, words, ".0%")
    note = f"Share of the first rounds in which the client was available.{about}"
    views = [View("presence", [Panel(chart.properties(**_size(look, 200)))])]
    return Figure("presence", "Presence", note, views, {"presence": frame}, wide=False)
