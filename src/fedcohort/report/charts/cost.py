"""What it cost: bytes and passes by kind of exchange, and where the simulator's time went."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from fedcohort.report.charts import lines
from fedcohort.report.figure import Figure, Panel, View
from fedcohort.report.gather import Story
from fedcohort.report.look import Look, tick

__all__ = ["cost", "ledger", "wall"]

WALL = ("training", "selection", "aggregation", "evaluation", "recording")


def ledger(story: Story) -> pd.DataFrame:
    """Means over seeds, of whole runs: one row for each strategy and kind of exchange."""
    frames = []
    for label, readings in story.played:
        parts = []
        for one in readings:
            columns = ["messages", "bytes_down", "bytes_up", "passes", "seconds"]
            total = one.ledger.groupby("kind")[columns].sum()
            total["discloses"] = one.ledger.groupby("kind")["discloses"].last()
            parts.append(total.reset_index())
        together = pd.concat(parts, ignore_index=True)
        means = together.groupby("kind").sum(numeric_only=True) / len(readings)
        means["discloses"] = together.groupby("kind")["discloses"].last()
        frames.append(means.reset_index().assign(strategy=label))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def cost(story: Story, look: Look) -> Figure | None:
    """Bytes down and up, client passes, messages: bars of the kinds of exchange."""
    frame = ledger(story)
    if frame.empty:
        return None
    labels, kinds = [label for label, _ in story.played], list(dict.fromkeys(frame["kind"]))
    kinds.sort(key=lambda kind: (kind != "training", kind))
    frame = frame.assign(bytes=frame["bytes_down"] + frame["bytes_up"]).drop(columns="discloses")
    views: list[View] = []
    for field, title, number in (
        ("bytes", "bytes", "~s"),
        ("passes", "client passes", ",.0f"),
        ("messages", "messages", "~s"),
    ):
        tooltip = [
            alt.Tooltip("strategy:N"),
            alt.Tooltip("kind:N"),
            alt.Tooltip(f"{field}:Q", title=title, format=",.4~s" if number == "~s" else number),
        ]
        if field == "bytes":
            tooltip += [alt.Tooltip(f"bytes_{way}:Q", title=way, format=",.4~s") for way in ("down", "up")]
        views.append(View(title, [Panel(_bars("ledger", field, title, number, "kind", kinds, labels, look, tooltip))]))
    note = (
        "Whole runs, mean over seeds. Bytes are uncompressed payload; a client pass is one pass "
        "over a client's training data."
    )
    return Figure("cost", "Messages, bytes, passes", note, views, {"ledger": frame}, wide=False)


def wall(story: Story, look: Look) -> Figure | None:
    """Wall time of the simulator by part of a round."""
    frames = []
    for label, readings in story.played:
        total = np.mean([one.wall[list(WALL)].sum().to_numpy(np.float64) for one in readings], axis=0)
        frames.append(pd.DataFrame({"strategy": label, "part": WALL, "seconds": total}))
    if not frames:
        return None
    frame, labels = pd.concat(frames, ignore_index=True), [label for label, _ in story.played]
    tooltip = [alt.Tooltip("strategy:N"), alt.Tooltip("part:N"), alt.Tooltip("seconds:Q", format=",.2f")]
    chart = _bars("wall", "seconds", "seconds", "~g", "part", list(WALL), labels, look, tooltip)
    note = "Of the simulator on this machine, mean over seeds; it says nothing about the time of real clients."
    return Figure("wall", "Wall time", note, [View("wall", [Panel(chart)])], {"wall": frame}, wide=False)


def _bars(
    name: str,
    field: str,
    title: str,
    number: str,
    part: str,
    parts: Sequence[str],
    labels: Sequence[str],
    look: Look,
    tooltip: Any,
) -> Any:
    columns = 3 if look.width is None or look.width > 300 else 2
    rank = {kind: i for i, kind in enumerate(parts)}
    base = lines.hideable(alt.Chart(alt.NamedData(name=name)), look)
    chart = (
        base.transform_calculate(rank=f"{{{', '.join(f'{_quoted(k)}: {i}' for k, i in rank.items())}}}[datum.{part}]")
        .mark_bar(stroke=look.ground, strokeWidth=0.6)
        .encode(
            alt.X(f"{field}:Q", title=title, stack="zero", axis=alt.Axis(**tick(number), grid=True, tickCount=5)),
            alt.Y("strategy:N", sort=list(labels), title=None, axis=alt.Axis(labelColor=look.ink, labelLimit=150)),
            alt.Color(
                f"{part}:N",
                scale=alt.Scale(domain=list(parts), range=look.parts(len(parts))),
                legend=alt.Legend(
                    title=None, orient="bottom", columns=columns, symbolType="square", symbolStrokeWidth=0
                ),
            ),
            order=alt.Order("rank:Q"),
            tooltip=tooltip,
        )
    )
    return chart.properties(
        width="container" if look.width is None else look.width, height=(30 if look.page else 16) * len(labels)
    )


def _quoted(text: str) -> str:
    import json

    return json.dumps(text)
