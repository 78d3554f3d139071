"""Batch sizes side by side: time, throughput, memory, accuracy, and each client's time."""

from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np
import pandas as pd

from fedcohort.report.figure import Figure, Panel, View
from fedcohort.report.look import Look, tick

if TYPE_CHECKING:
    from fedcohort.study.profiling import Profile

__all__ = ["profiles"]


def profiles(found: "Profile", look: Look) -> list[Figure]:
    """All figures of a profile."""
    frame = pd.DataFrame(
        {
            "size": [str(one.batch_size) for one in found.sizes],
            "ms": [1e3 * one.batch_seconds for one in found.sizes],
            "sd": [1e3 * one.batch_seconds_sd for one in found.sizes],
            "throughput": [one.samples_per_second for one in found.sizes],
            "slow": [one.samples_per_second * (1 - min(one.precision, 1)) for one in found.sizes],
            "fast": [one.samples_per_second * (1 + min(one.precision, 1)) for one in found.sizes],
            "memory": [one.memory / 1e6 for one in found.sizes],
            "memory_mean": [np.mean([row["memory"] for row in one.clients]) / 1e6 for one in found.sizes],
            "memory_sd": [one.memory_sd / 1e6 for one in found.sizes],
            "before": [one.memory_before / 1e6 for one in found.sizes],
            "accuracy": [one.accuracy for one in found.sizes],
            "client_accuracy": [one.client_accuracy for one in found.sizes],
        }
    )
    frame = frame.assign(low=(frame["ms"] - frame["sd"]).clip(lower=0), high=frame["ms"] + frame["sd"])
    spread = frame["memory_sd"].fillna(0)
    frame = frame.assign(least=frame["memory_mean"] - spread, most=frame["memory_mean"] + spread)
    order = frame["size"].tolist()
    time = _bars("ms", "ms", ".3~g", order, look, "low", "high")
    throughput = _bars("throughput", "samples per second", "~s", order, look, "slow", "fast")
    where = "Allocated on the device" if found.sizes[0].where == "device" else "Resident, of a fresh process"
    peak = f"{where}: mean of the clients' peaks, lines ± one standard deviation; the light part was there before training."

    frame = frame.assign(grown=frame["memory_mean"] - frame["before"])
    frame = frame.assign(grown_least=frame["grown"] - spread, grown_most=frame["grown"] + spread)
    grown = _bars("grown", "MB more than before training", "~g", order, look, "grown_least", "grown_most")
    memories = [View("whole", [Panel(_memory(order, look))]), View("of training", [Panel(grown)])]

    def half(key: str, title: str, note: str, chart: Any) -> Figure:
        return Figure(key, title, note, [View(title, [Panel(chart)])], {"profile": frame}, wide=False)

    figures = [
        half("batch-time", "Time of a mini-batch", "Lines: ± one standard deviation of single mini-batches.", time),
        half("throughput", "Throughput", "Lines: the 95 % interval over passes.", throughput),
        Figure("memory", "Peak memory", peak, memories, {"profile": frame}, wide=False),
    ]
    if np.isfinite(frame["accuracy"]).any():
        views = [
            View("test set", [Panel(_bars("accuracy", "test accuracy", ".0%", order, look))]),
            View("clients", [Panel(_bars("client_accuracy", "accuracy on own data", ".0%", order, look))]),
        ]
        note = f"After {found.rounds} rounds with each size."
        figures.append(Figure("profile-accuracy", "Accuracy", note, views, {"profile": frame}, wide=False))
    figures.append(_clients(found, order, look))
    return figures


def _x(order: list[str]) -> alt.X:
    return alt.X("size:N", sort=order, title="batch size", axis=alt.Axis(labelAngle=0))


def _sized(chart: Any, look: Look) -> Any:
    return chart.properties(width="container" if look.width is None else look.width, height=200 if look.page else 110)


def _bars(field: str, title: str, number: str, order: list[str], look: Look, low: str = "", high: str = "") -> Any:
    base = alt.Chart(alt.NamedData(name="profile"))
    y = alt.Y(f"{field}:Q", title=title, axis=alt.Axis(**tick(number), tickCount=5), scale=alt.Scale(zero=True))
    tooltip = [
        alt.Tooltip("size:N", title="batch size"),
        alt.Tooltip(f"{field}:Q", title=title, format=number if number != "~s" else ",.4~s"),
    ]
    bars = base.mark_bar(color=look.heat, width=alt.RelativeBandSize(band=0.6)).encode(_x(order), y, tooltip=tooltip)
    if not low:
        return _sized(bars, look)
    error = base.mark_rule(color=look.cold, strokeWidth=2).encode(_x(order), alt.Y(f"{low}:Q"), y2=alt.Y2(f"{high}:Q"))
    return _sized(alt.layer(bars, error), look)


def _memory(order: list[str], look: Look) -> Any:
    base = alt.Chart(alt.NamedData(name="profile"))
    tooltip = [alt.Tooltip("size:N", title="batch size"), alt.Tooltip("memory:Q", title="peak, MB", format=",.0f"),
               alt.Tooltip("memory_mean:Q", title="mean of clients, MB", format=",.1f"),
               alt.Tooltip("memory_sd:Q", title="their deviation, MB", format=",.2f"),
               alt.Tooltip("before:Q", title="before training, MB", format=",.0f")]  # fmt: skip
    width = alt.RelativeBandSize(band=0.6)
    y = alt.Y("memory_mean:Q", title="MB", axis=alt.Axis(tickCount=5))
    whole = base.mark_bar(color=look.heat, width=width).encode(_x(order), y, tooltip=tooltip)
    before = base.mark_bar(color=look.ground, opacity=0.55, width=width).encode(
        _x(order), alt.Y("before:Q"), tooltip=tooltip
    )
    spread = base.mark_rule(color=look.cold, strokeWidth=2).encode(_x(order), alt.Y("least:Q"), y2=alt.Y2("most:Q"))
    return _sized(alt.layer(whole, before, spread), look)


def _clients(found: "Profile", order: list[str], look: Look) -> Figure:
    rows = []
    for one in found.sizes:
        for row in one.clients:
            facts = {
                "ms": 1e3 * row["batch_seconds"],
                "throughput": row["samples_per_second"],
                "memory": row["memory"] / 1e6,
                "accuracy": row["accuracy"],
            }
            rows.append({"size": str(one.batch_size), "client": str(int(row["client"])), **facts})
    frame = pd.DataFrame(rows)
    clients = list(dict.fromkeys(frame["client"]))
    views = []
    fields = [
        ("ms", "ms a mini-batch", ",.3~g"),
        ("throughput", "samples per second", ",.4~s"),
        ("memory", "memory, MB", ",.1f"),
        ("accuracy", "accuracy", ".1%"),
    ]
    for field, title, number in fields:
        if not np.isfinite(frame[field]).any():
            continue
        opacity = alt.Opacity(f"{field}:Q", legend=None, scale=alt.Scale(zero=False, range=[0.08, 1]))
        x = alt.X("client:N", sort=clients, title="client", axis=alt.Axis(labelAngle=0, labelOverlap=True))
        tooltip = [
            alt.Tooltip("client:N"),
            alt.Tooltip("size:N", title="batch size"),
            alt.Tooltip(f"{field}:Q", title=title, format=number),
        ]
        cells = alt.Chart(alt.NamedData(name="profile_clients")).mark_rect(color=look.heat).encode(
            x, alt.Y("size:N", sort=order, title="batch size"), opacity=opacity, tooltip=tooltip
        )  # fmt: skip
        size: dict[str, Any] = {
            "width": "container" if look.width is None else look.width,
            "height": 32 * len(order) if look.page else 18 * len(order),
        }
        views.append(View(title, [Panel(cells.properties(**size))]))
    note = "Full colour is more; one client at a time, on one thread."
    return Figure("profile-clients", "Client by client", note, views, {"profile_clients": frame})
