"""Draw how clients differ besides their classes: size, speed, label noise and availability."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from fedcohort.core.arrays import Indices
from fedcohort.core.words import formatted_values
from fedcohort.report.charts.axes_and_legends import number_tooltip, sized
from fedcohort.report.charts.shown_clients import (
    SHOWN,
    Clients,
    client_axis,
    client_tooltips,
    evenly,
    names_for_charts,
    paper_height,
    with_names,
)
from fedcohort.report.figures.chart_style import Look, tick
from fedcohort.report.figures.figure import Figure, Panel, View
from fedcohort.report.figures.layers import constant, layered

__all__ = ["noise", "presence", "sizes", "speed"]

CURVE = 200
"""The largest number of clients for which charts draw a bar each, in order, with the first and the last. It holds for federations of
more than :data:`~fedcohort.report.charts.shown_clients.SHOWN` clients."""

WHOLE: dict[str, Any] = {"labelExpr": "datum.value % 1 ? '' : format(datum.value, '~s')"}
"""Settings of axes of counts: labels at whole numbers only."""

HEIGHT = 200


def sizes(clients: Clients, look: Look) -> Figure:
    """A histogram of the clients' numbers of samples."""
    samples = clients.facts["samples"]
    most_bars = min(40, max(12, round(np.sqrt(len(samples)) * 2)))
    width = max(1, -(-int(samples.max() + 1) // most_bars))
    edges = np.arange(0, samples.max() + width + 1, width)  # whole numbers: clients of equal size are in one bar
    counts, edges = np.histogram(samples, bins=edges)
    frame = pd.DataFrame({"from": edges[:-1], "to": edges[1:], "clients": counts})
    frame = frame[frame["clients"] > 0]
    before = 0.5 if width == 1 else 0.0  # the bar of a single number of samples is above this number
    frame = frame.assign(left=frame["from"] - before, right=frame["to"] - before)
    span = alt.Scale(domain=[-before, float(frame["right"].max())], nice=False)
    axis = alt.Axis(tickCount=6, **WHOLE)
    chart = (
        alt.Chart(alt.NamedData(name="sizes"))
        .mark_bar(color=look.heat, stroke=look.ground)
        .encode(
            alt.X("left:Q", title="samples of a client", bin="binned", scale=span, axis=axis),
            alt.X2("right:Q"),
            alt.Y("clients:Q", title="clients", axis=alt.Axis(tickCount=min(4, int(counts.max())), **WHOLE)),
            tooltip=[
                number_tooltip("from", "count"),
                number_tooltip("to", "count", "to below"),
                number_tooltip("clients", "count"),
            ],
        )
    )
    note = (
        f"{formatted_values.counted(clients.number, 'client')}{'' if clients.whole else ' that were selected at least once'}, "
        f"seed {clients.seed}: {_sizes_in_words(samples)}."
    )
    view = View("sizes", [Panel(sized(chart, look, HEIGHT, paper_height(HEIGHT)))])
    return Figure("sizes", "Sizes", note, [view], {"sizes": frame}, wide=False)


def _sizes_in_words(samples: np.ndarray) -> str:
    """The range and the median of the clients' numbers of samples, or the number that all have."""
    low, high = int(samples.min()), int(samples.max())
    if low == high:
        return f"{formatted_values.counted(low, 'sample')}{' each' * (len(samples) > 1)}"
    median = formatted_values.rounds(float(np.median(samples)))
    return f"{formatted_values.count(low)} to {formatted_values.count(high)} samples, median {median}"


def speed(clients: Clients, look: Look) -> Figure | None:
    """The simulated time that each client needs for a round, beside the deadline."""
    time = clients.facts.get("time")
    if time is None or not np.isfinite(time).any():
        return None
    known = np.isfinite(time) & (clients.facts["samples"] > 0)
    sending = clients.facts.get("sending", np.zeros(clients.number))
    parts = {"computing": time - sending, "sending": sending}
    bars = _Bars("speed", "simulated time of a round", "from the fastest to the slowest", parts, "~s", "number")
    chart, frame, about = bars.draw(clients, np.where(known, time, np.nan), look)
    data, layers = {"speed": frame}, [chart]
    note = (
        "Simulated time for nominal work and for sending a model in both directions, in round 1. By default, the fastest "
        f"possible client needs 1 unit per sample. Median {formatted_values.number(float(np.median(time[known])))}, slowest "
        f"{formatted_values.number(float(time[known].max()))}."
    )
    if clients.deadline is not None:
        late = int((time[known] > clients.deadline).sum())
        need = "needs" if late == 1 else "need"
        note += (
            f" {formatted_values.count(late)} of {formatted_values.counted(int(known.sum()), 'client')} {need} longer than the "
            f"deadline, {formatted_values.number(clients.deadline)}."
        )
        data["deadline_key"] = pd.DataFrame({"deadline": [clients.deadline], "words": ["deadline"]})
        layers += _deadline(bars.title, look)
    drawn = sized(layered(*layers), look, HEIGHT, paper_height(HEIGHT))
    return Figure("speed", "Speed", f"{note}{about}", [View("speed", [Panel(drawn)])], data, wide=False)


def _deadline(title: str, look: Look) -> list[alt.Chart]:
    base = alt.Chart(alt.NamedData(name="deadline_key")).encode(alt.Y("deadline:Q", title=title))
    place: dict[str, Any] = {"align": "left", "baseline": "bottom", "dx": 2, "dy": -2}
    text = {"x": constant(alt.XValue, 0), "text": alt.Text("words:N")}
    return [
        base.mark_rule(color=look.ink, strokeDash=[5, 3]),
        base.mark_text(**place, stroke=look.ground, strokeWidth=3).encode(**text),  # a halo: the name is above bars
        base.mark_text(**place).encode(**text),
    ]


def noise(clients: Clients, look: Look) -> Figure | None:
    """The share of wrong labels of each client; None if there are no wrong labels."""
    wrong = clients.facts.get("wrong_labels", np.zeros(1))
    if not wrong.any():
        return None
    bars = _Bars(
        "noise", "share of wrong labels", "ordered by share of wrong labels", {"wrong labels": wrong}, ".0%", "share"
    )
    chart, frame, about = bars.draw(clients, wrong, look)
    note = (
        f"Share of labels that label noise changed, seed {clients.seed}: "
        f"{formatted_values.count(int(np.count_nonzero(wrong)))} of "
        f"{formatted_values.counted(clients.number, 'client')} {'has' if np.count_nonzero(wrong) == 1 else 'have'} wrong labels, "
        f"up to {formatted_values.share(float(wrong.max()))}.{about}"
    )
    view = View("noise", [Panel(sized(chart, look, HEIGHT, paper_height(HEIGHT)))])
    return Figure("noise", "Label noise", note, [view], {"noise": frame}, wide=False)


def presence(clients: Clients, look: Look) -> Figure | None:
    """The share of rounds in which each client with data is available; None if all of them always are."""
    empty = clients.facts["samples"] == 0
    available = np.where(empty, np.nan, clients.facts.get("presence", np.ones(clients.number)))
    if (available[~empty] == 1).all():
        return None
    bars = _Bars("presence", "share of rounds", "ordered by availability", {"presence": available}, ".0%", "share")
    chart, frame, about = bars.draw(clients, available, look)
    note = (
        f"Share of rounds in which the client is available, counted from the first round.{_without_data(empty)}{about}"
    )
    view = View("presence", [Panel(sized(chart, look, HEIGHT, paper_height(HEIGHT)))])
    return Figure("presence", "Availability", note, [view], {"presence": frame}, wide=False)


def _without_data(empty: np.ndarray) -> str:
    """A sentence about clients that have no data, with a space before it; empty without any."""
    number = int(np.count_nonzero(empty))
    if not number:
        return ""
    clients, verb = formatted_values.counted(number, "client"), "has" if number == 1 else "have"
    return f" {clients} without data, which cannot be selected, {verb} no bar."


@dataclass(frozen=True)
class _Bars:
    """A chart with a bar for each client, stacked from one or more parts.

    Attributes:
        name: name of the table.
        title: what the bars show.
        order: how clients are ordered if there are many.
        parts: values of the parts by name, float64 [m] each.
        number: d3 format of the axis.
        kind: how tooltips write values, by :data:`fedcohort.core.words.formatted_values.D3_FORMATS`.
    """

    name: str
    title: str
    order: str
    parts: Mapping[str, np.ndarray]
    number: str
    kind: str

    def draw(self, clients: Clients, values: np.ndarray, look: Look) -> tuple[alt.Chart, pd.DataFrame, str]:
        """Draw all clients by number, or up to :data:`CURVE` of many clients ordered by ``values``.

        Args:
            clients: all clients.
            values: what clients are ordered by, float64 [m]; clients without a finite value are left out.
            look: how charts look.

        Returns:
            the chart, its table, and a sentence about which clients are drawn.
        """
        names = names_for_charts(clients.names)
        if clients.number <= SHOWN:
            drawn, about = np.arange(clients.number), ""
            x: list[Any] = [client_axis(list(map(str, drawn)), look, names=names)]
        else:
            known = np.flatnonzero(np.isfinite(values))
            drawn = evenly(known[np.argsort(values[known], kind="stable")], CURVE)
            about = _about(len(drawn), len(known), clients.number)
            x = self._ordered_axis()
        stacked = len(self.parts) > 1
        legend = alt.Legend(title=None, orient="top", columns=2, symbolType="square", symbolStrokeWidth=0)
        colors = alt.Scale(domain=list(self.parts), range=[look.heat, look.cold][: len(self.parts)])
        chart = (
            with_names(alt.Chart(alt.NamedData(name=self.name)), names)
            .mark_bar(binSpacing=0, strokeWidth=0 if clients.number <= SHOWN else 0.7)
            .encode(
                *x,
                alt.Y("value:Q", title=self.title, stack="zero", axis=alt.Axis(**tick(self.number), tickCount=4)),
                alt.Color("part:N", scale=colors, legend=legend if stacked else None),
                alt.Stroke("part:N", scale=colors, legend=legend if stacked else None),
                order=alt.Order("rank:Q"),
                tooltip=[
                    *client_tooltips(names),
                    *([alt.Tooltip("part:N")] if stacked else []),
                    number_tooltip("value", self.kind, self.title),
                ],
            )
        )
        return chart, self._table(drawn), about

    def _ordered_axis(self) -> list[alt.X | alt.X2]:
        axis = alt.Axis(format=".0%", tickCount=5)
        whole = alt.Scale(domain=[0, 1], nice=False)
        return [
            alt.X("from:Q", bin="binned", title=f"clients, {self.order}", scale=whole, axis=axis),
            alt.X2("to:Q"),
        ]

    def _table(self, drawn: Indices) -> pd.DataFrame:
        places, width = np.arange(len(drawn)) / max(len(drawn), 1), 1 / max(len(drawn), 1)
        common = {"client": list(map(str, drawn)), "from": places, "to": places + width}
        return pd.concat(
            [
                pd.DataFrame({**common, "part": part, "rank": i, "value": values[drawn]})
                for i, (part, values) in enumerate(self.parts.items())
            ],
            ignore_index=True,
        )


def _about(drawn: int, known: int, number: int) -> str:
    if drawn == known:
        return f" The chart shows all {formatted_values.count(known)} clients in order."
    return (
        f" The chart shows {drawn} of {formatted_values.count(number)} clients in order, with the first and the last."
    )
