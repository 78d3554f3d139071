"""Draw what a strategy costs: messages, bytes and client passes by kind of exchange, and the simulator's wall time."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from fedcohort.core.words import formatted_values
from fedcohort.core.words.report_names import exchange_in_words
from fedcohort.report.charts.axes_and_legends import (
    hideable,
    legend_columns,
    paper_rows_height,
    rows_height,
    sized,
    strategy_axis,
    text_tooltip,
    ticks_beside,
    whole_ticks,
    with_texts,
)
from fedcohort.report.charts.means_and_bands import to_ticks
from fedcohort.report.data.report_data import Story
from fedcohort.report.figures.chart_style import Look, tick
from fedcohort.report.figures.figure import Drawing, Figure, Panel, View
from fedcohort.report.notes.cost_notes import PASSES
from fedcohort.report.notes.seed_notes import counted, mean_over

__all__ = ["OVERLAPPING", "WALL", "cost", "ledger", "of_server", "wall", "whole_runs"]

WALL = ("training", "selection", "aggregation", "evaluation")
"""Parts of a round that follow each other."""

OVERLAPPING = "recording"
"""The part of a round that happens while clients train, so that it is not part of the total."""


@lru_cache(maxsize=1)  # it takes as long as a chart, and four parts of a page need it
def ledger(story: Story) -> pd.DataFrame:
    """The costs of whole runs, means over seeds: one row for each strategy and kind of exchange."""
    frames = []
    for label, readings in counted(story):
        parts = []
        for reading in readings:
            columns = ["messages", "bytes_down", "bytes_up", "passes", "seconds"]
            total = reading.ledger.groupby("kind")[columns].sum()
            sent = reading.ledger["discloses"].where(reading.ledger["messages"] > 0, "")
            total["discloses"] = sent.groupby(reading.ledger["kind"]).agg(_most)
            parts.append(total.reset_index())
        together = pd.concat(parts, ignore_index=True)
        means = together.groupby("kind").sum(numeric_only=True) / len(readings)
        means["discloses"] = together.groupby("kind")["discloses"].agg(_most)
        frames.append(means.reset_index().assign(strategy=label))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def _most(texts: "pd.Series[str]") -> str:
    """What clients disclose in a whole run: the longest text, since they do not disclose all in a round in which few train."""
    return max(texts, key=len)


ABOUT_COSTS = {
    "bytes": "Bytes are uncompressed payload.",
    "passes": PASSES,
}
"""What captions say about a column of the ledger."""

LONG = 16
"""Number of characters from which names of parts need a line of the legend each."""


def cost(story: Story, look: Look) -> Figure | None:
    """Bytes in both directions, client passes, and messages: bars of the kinds of exchange."""
    frame = ledger(story)
    if frame.empty:
        return None
    labels, kinds = story.in_order, list(dict.fromkeys(frame["kind"]))
    kinds.sort(key=lambda kind: (kind != "training", kind))
    frame = frame.assign(
        bytes=frame["bytes_down"] + frame["bytes_up"], exchange=frame["kind"].map(exchange_in_words)
    ).drop(columns="discloses")
    exchanges = [exchange_in_words(kind) for kind in kinds]
    formats: dict[str, Callable[..., str]] = {
        **dict.fromkeys(("bytes", "bytes_down", "bytes_up"), formatted_values.size),
        **dict.fromkeys(("passes", "messages"), formatted_values.count),
    }
    directions = [text_tooltip("bytes_down", "to clients"), text_tooltip("bytes_up", "to the server")]
    views: list[View] = []
    for field, title, number in (
        ("bytes", "bytes", "~s"),
        ("passes", "client passes", ",.0f"),
        ("messages", "messages", "~s"),
    ):
        tooltip = [alt.Tooltip("strategy:N"), alt.Tooltip("exchange:N"), text_tooltip(field, title)]
        tooltip += directions if field == "bytes" else []
        x = _stacked(field, title, number, frame, look)
        chart = _bars("ledger", x, "exchange", exchanges, labels, look, tooltip)
        views.append(View(title, [Panel(chart)], ABOUT_COSTS.get(field, "")))
    note = f"{whole_runs(story)}, {mean_over(counted(story))}."
    data = {"ledger": with_texts(frame, formats)}
    return Figure("cost", "Bytes, client passes and messages", note, views, data, wide=False)


def whole_runs(story: Story) -> str:
    """What costs are those of, in words."""
    return "Whole runs" if all(reading.ended for reading in story.everything) else "All rounds so far"


def of_server(story: Story) -> bool:
    """Whether all runs were played on real machines, so that their wall times are those of a server and not of the simulator."""
    return all(reading.run.clock == "wall" for reading in story.everything)


def wall(story: Story, look: Look) -> Figure | None:
    """Wall time of the simulator or the server by part of a round."""
    frames = []
    for label, readings in counted(story):
        total = np.mean([reading.wall[list(WALL)].sum().to_numpy(np.float64) for reading in readings], axis=0)
        frames.append(pd.DataFrame({"strategy": label, "part": WALL, "seconds": total}))
    if not frames:
        return None
    frame, labels = pd.concat(frames, ignore_index=True), story.in_order
    tooltip = [alt.Tooltip("strategy:N"), alt.Tooltip("part:N"), text_tooltip("seconds", "wall time")]
    x = _stacked("seconds", "seconds", "~g", frame, look)
    chart = _bars("wall", x, "part", list(WALL), labels, look, tooltip)
    note = f"Wall time of the server, {mean_over(counted(story))}."
    if not of_server(story):
        recorded = "Rounds are recorded while clients train" + "; the table above shows how long that takes" * look.page
        note = (
            f"Wall time of the simulator on this machine, {mean_over(counted(story))}. It does not depend on the simulated speed of "
            f"clients. {recorded}."
        )
    data = {"wall": with_texts(frame, {"seconds": _seconds})}
    return Figure("wall", "Wall time", note, [View("wall", [Panel(chart)])], data, wide=False)


def _seconds(wall: float) -> str:
    """A time with its unit; of a part of a second, three digits, since parts of short runs would all be 0.0 s."""
    return f"{formatted_values.magnitude(wall)} s" if wall < 1 else formatted_values.duration(wall)


def _stacked(field: str, title: str, number: str, frame: pd.DataFrame, look: Look) -> alt.X:
    """The axis of stacked bars; in papers, it ends at a tick."""
    ticks = ticks_beside(frame["strategy"].unique().tolist(), look, 5)
    top = float(frame.groupby("strategy")[field].sum().max())
    whole: dict[str, Any] = {"tickCount": ticks}
    if field in ("passes", "messages"):
        whole = whole_ticks(math.ceil(top) if top > 0 else 1, ticks)
    ends: dict[str, Any] = (
        {}
        if look.page or not top > 0
        else {"scale": alt.Scale(domain=to_ticks([0.0, top], whole["tickCount"]), nice=False)}
    )
    return alt.X(f"{field}:Q", title=title, stack="zero", axis=alt.Axis(**tick(number), grid=True, **whole), **ends)


def _bars(
    name: str,
    x: alt.X,
    part: str,
    parts: Sequence[str],
    labels: Sequence[str],
    look: Look,
    tooltip: list[alt.Tooltip],
) -> Drawing:
    """A bar for each strategy, stacked from ``parts`` in their order: the values of the column ``part``."""
    columns = 1 if max(map(len, parts), default=0) > LONG else 3
    if look.width is not None:  # the legend begins where the bars do, after the names
        names = round(0.56 * look.size * max(map(len, labels))) + 10
        columns = legend_columns(list(parts), replace(look, width=max(60, look.width - names)))
    legend = alt.Legend(
        title=None, orient="bottom", columns=columns, labelLimit=0, symbolType="square", symbolStrokeWidth=0
    )
    ranks = json.dumps({value: i for i, value in enumerate(parts)})
    base = hideable(alt.Chart(alt.NamedData(name=name)), look)
    chart = (
        base.transform_calculate(rank=f"{ranks}[datum.{part}]")
        .mark_bar(stroke=look.ground, strokeWidth=0.6)
        .encode(
            x,
            strategy_axis(labels, look),
            alt.Color(f"{part}:N", scale=alt.Scale(domain=list(parts), range=look.parts(len(parts))), legend=legend),
            order=alt.Order("rank:Q"),
            tooltip=tooltip,
        )
    )
    return sized(chart, look, rows_height(30, labels, look), paper_rows_height(16, labels, look))
