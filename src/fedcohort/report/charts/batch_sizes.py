"""Draw mini-batch sizes side by side: time, throughput, memory, accuracy, and each client's measurements."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import altair as alt
import numpy as np
import pandas as pd

from fedcohort.core.words import formatted_values
from fedcohort.core.words.score_style import score_style
from fedcohort.report.charts.axes_and_legends import sized, text_tooltip, with_texts
from fedcohort.report.charts.means_and_bands import thinned
from fedcohort.report.figures.chart_style import Look, tick
from fedcohort.report.figures.figure import Drawing, Figure, Panel, View
from fedcohort.report.figures.layers import decided, layered

if TYPE_CHECKING:
    from fedcohort.study.profile.batch_size_profile import Profile

__all__ = ["profiles"]

MB = 1e6

NUMBERED = 16
"""With up to this many clients, the cells on the page contain their numbers."""

BAR = 0.6
"""Width of a bar, as a share of its place."""


def _megabytes(value: float) -> str:
    return formatted_values.size(MB * value)


def _ends(frame: pd.DataFrame) -> str:
    """What is said of lines that would go below 0, with a comma before it; empty without such lines."""
    return ", at least 0" if (frame["sd"] > frame["ms"]).any() else ""


def profiles(profile: "Profile", look: Look) -> list[Figure]:
    """All figures of a profile."""
    frame = _table(profile)
    order = frame["size"].tolist()
    figures = [
        _half(
            "batch-time",
            "Time per mini-batch",
            f"Lines: ± one standard deviation of single mini-batches{_ends(frame)}.",
            [View("Time of a mini-batch", [Panel(_bars("ms", "milliseconds", ".3~g", order, look, "low", "high"))])],
            frame,
        ),
        _half(
            "throughput",
            "Throughput",
            "Lines: 95% interval over passes.",
            [View("Throughput", [Panel(_bars("throughput", "samples per second", "~s", order, look, "slow", "fast"))])],
            frame,
        ),
        _memory(profile, frame, order, look),
        _half(
            "deviation",
            "Standard deviation",
            "Time: of single mini-batches. Memory: of the peaks of the clients.",
            [
                View("time", [Panel(_bars("sd", "milliseconds", ".3~g", order, look))]),
                View("time, share of the mean", [Panel(_bars("sd_share", "share of the mean", ".0%", order, look))]),
                View("memory", [Panel(_bars("memory_sd", "MB", ".3~g", order, look))]),
            ],
            frame,
        ),
    ]
    if np.isfinite(frame["accuracy"]).any():
        score = score_style([profile.labels])
        number = "~g" if score.numeric else ".0%"
        on_clients = _bars("client_accuracy", f"{score.of_client} on the client's data", number, order, look)
        views = [
            View("test set", [Panel(_bars("accuracy", f"test {score.name}", number, order, look))]),
            View("clients", [Panel(on_clients)]),
        ]
        figures.append(_half("profile-accuracy", score.title, profile.about_accuracy, views, frame))
    over_batches = _batch_accuracy(profile, order, look)
    figures += [over_batches] if over_batches is not None else []
    figures.append(_clients(profile, order, look))
    return figures


def _half(key: str, title: str, note: str, views: list[View], frame: pd.DataFrame) -> Figure:
    return Figure(key, title, note, views, {"profile": frame}, wide=False)


def _table(profile: "Profile") -> pd.DataFrame:
    """A row for each batch size; times in milliseconds, memory in MB."""
    frame = pd.DataFrame(
        {
            "size": [str(batch.batch_size) for batch in profile.sizes],
            "ms": [1e3 * batch.batch_seconds for batch in profile.sizes],
            "sd": [1e3 * batch.batch_seconds_sd for batch in profile.sizes],
            "sd_share": [batch.batch_seconds_sd / batch.batch_seconds for batch in profile.sizes],
            "throughput": [batch.samples_per_second for batch in profile.sizes],
            "slow": [batch.samples_per_second * (1 - min(batch.precision, 1)) for batch in profile.sizes],
            "fast": [batch.samples_per_second * (1 + min(batch.precision, 1)) for batch in profile.sizes],
            "memory": [batch.memory / MB for batch in profile.sizes],
            "memory_mean": [np.mean([row["memory"] for row in batch.clients]) / MB for batch in profile.sizes],
            "memory_sd": [batch.memory_sd / MB for batch in profile.sizes],
            "before": [batch.memory_before / MB for batch in profile.sizes],
            "accuracy": [batch.accuracy for batch in profile.sizes],
            "client_accuracy": [batch.client_accuracy for batch in profile.sizes],
        }
    )
    spread = frame["memory_sd"].fillna(0)
    grown = frame["memory_mean"] - frame["before"]
    frame = frame.assign(
        low=(frame["ms"] - frame["sd"]).clip(lower=0),
        high=frame["ms"] + frame["sd"],
        least=frame["memory_mean"] - spread,
        most=frame["memory_mean"] + spread,
        grown=grown,
        grown_least=grown - spread,
        grown_most=grown + spread,
    )
    formats: dict[str, Callable[..., str]] = {
        "ms": _milliseconds,
        "sd": _milliseconds,
        "sd_share": formatted_values.share,
        "throughput": formatted_values.count,
        **dict.fromkeys(("memory", "memory_mean", "memory_sd", "before", "grown"), _megabytes),
        **dict.fromkeys(("accuracy", "client_accuracy"), score_style([profile.labels]).with_unit),
    }
    return with_texts(frame, formats)


def _milliseconds(value: float) -> str:
    return formatted_values.number(value, 3)


def _x(order: list[str]) -> alt.X:
    return alt.X("size:N", sort=order, title="batch size", axis=alt.Axis(labelAngle=0))


def _bars(field: str, title: str, number: str, order: list[str], look: Look, low: str = "", high: str = "") -> Drawing:
    """A bar for each batch size, with error lines from ``low`` to ``high`` if these columns are given."""
    base = alt.Chart(alt.NamedData(name="profile"))
    y = alt.Y(f"{field}:Q", title=title, axis=alt.Axis(**tick(number), tickCount=5), scale=alt.Scale(zero=True))
    tooltip = [alt.Tooltip("size:N", title="batch size"), text_tooltip(field, title)]
    bars = base.mark_bar(color=look.heat, width=alt.RelativeBandSize(band=BAR)).encode(_x(order), y, tooltip=tooltip)
    if not low:
        return sized(bars, look, 200, 110)
    error = base.mark_rule(color=look.cold, strokeWidth=2).encode(_x(order), alt.Y(f"{low}:Q"), y2=alt.Y2(f"{high}:Q"))
    return sized(layered(bars, error), look, 200, 110)


def _batch_accuracy(profile: "Profile", order: list[str], look: Look) -> Figure | None:
    """The training accuracy of each mini-batch, a line for each batch size; None if it was not recorded."""
    frames = []
    for batch in profile.sizes:
        values = pd.DataFrame(
            {"batch": np.arange(1.0, len(batch.batch_accuracy) + 1), "accuracy": batch.batch_accuracy}
        )
        values["samples"] = values["batch"] * batch.batch_size
        frames.append(thinned(values, 150).assign(size=str(batch.batch_size)))
    frame = pd.concat(frames, ignore_index=True)
    if frame.empty:
        return None
    number = len(order)
    legend = alt.Legend(title="batch size", orient="top", symbolType="stroke", columns=4)
    base = alt.Chart(alt.NamedData(name="batch_accuracy")).mark_line(point=alt.OverlayMarkDef(size=14))
    colors = alt.Color("size:N", scale=alt.Scale(domain=order, range=look.colors(number)), legend=legend)
    dashes = alt.StrokeDash("size:N", scale=alt.Scale(domain=order, range=look.dashes(number)), legend=legend)
    y = alt.Y(
        "accuracy:Q", title="accuracy of the mini-batch", axis=alt.Axis(format=".0%"), scale=alt.Scale(domain=[0, 1])
    )
    tooltip = [
        alt.Tooltip("size:N", title="batch size"),
        text_tooltip("batch", "mini-batch"),
        text_tooltip("accuracy", "accuracy"),
    ]
    views = []
    for field, title in (
        ("batch", "mini-batches of a client, all rounds"),
        ("samples", "samples of a client, all rounds"),
    ):
        x = alt.X(f"{field}:Q", title=title, axis=alt.Axis(tickCount=6))
        chart = base.encode(x, y, colors, dashes, tooltip=tooltip)
        views.append(
            View(f"by {'mini-batch' if field == 'batch' else 'sample'}", [Panel(sized(chart, look, 240, 130))])
        )
    note = (
        f"Training accuracy of each mini-batch before its step, mean over the clients of a round, {profile.rounds} "
        f"round{'s' * (profile.rounds > 1)}. Clients have different numbers of mini-batches, so that later ones are means of fewer."
    )
    if "averaged" in frame:
        note += f" Lines of many mini-batches have means of up to {frame['averaged'].max():.0f} of them as points."
    texts: dict[str, Callable[..., str]] = {
        "batch": formatted_values.count,
        "accuracy": score_style([profile.labels]).with_unit,
    }
    data = {"batch_accuracy": with_texts(frame, texts)}
    return Figure("batch-accuracy", "Accuracy per mini-batch", note, views, data)


def _memory(profile: "Profile", frame: pd.DataFrame, order: list[str], look: Look) -> Figure:
    where = "allocated on the device" if profile.sizes[0].where == "device" else "resident in a fresh process"
    note = f"Peak memory {where}: mean over clients; lines: ± one standard deviation. The light part was in use before training."
    grown = _bars("grown", "MB more than before training", "~g", order, look, "grown_least", "grown_most")
    views = [View("whole", [Panel(_memory_chart(order, look))]), View("of training", [Panel(grown)])]
    return _half("memory", "Peak memory", note, views, frame)


def _memory_chart(order: list[str], look: Look) -> Drawing:
    base = alt.Chart(alt.NamedData(name="profile"))
    tooltip = [
        alt.Tooltip("size:N", title="batch size"),
        text_tooltip("memory", "highest peak"),
        text_tooltip("memory_mean", "mean peak of the clients"),
        text_tooltip("memory_sd", "standard deviation"),
        text_tooltip("before", "before training"),
    ]
    width = alt.RelativeBandSize(band=BAR)
    y = alt.Y("memory_mean:Q", title="MB", axis=alt.Axis(tickCount=5))
    whole = base.mark_bar(color=look.heat, width=width).encode(_x(order), y, tooltip=tooltip)
    before = base.mark_bar(color=look.ground, opacity=0.55, width=width).encode(
        _x(order), alt.Y("before:Q"), tooltip=tooltip
    )
    spread = base.mark_rule(color=look.cold, strokeWidth=2).encode(_x(order), alt.Y("least:Q"), y2=alt.Y2("most:Q"))
    return sized(layered(whole, before, spread), look, 200, 110)


def _clients(profile: "Profile", order: list[str], look: Look) -> Figure:
    """Clients × batch sizes: one view for each measurement."""
    rows = [
        {
            "size": str(batch.batch_size),
            "client": str(int(row["client"])),
            "ms": 1e3 * row["batch_seconds"],
            "throughput": row["samples_per_second"],
            "memory": row["memory"] / MB,
            "accuracy": row["accuracy"],
        }
        for batch in profile.sizes
        for row in batch.clients
    ]
    score = score_style([profile.labels])
    formats = {
        "ms": _milliseconds,
        "throughput": formatted_values.count,
        "memory": _megabytes,
        "accuracy": score.with_unit,
    }
    frame = with_texts(pd.DataFrame(rows), formats)
    clients = list(dict.fromkeys(frame["client"]))
    x = alt.X(
        "client:N", sort=clients, title="client", axis=alt.Axis(labelAngle=0, labelOverlap=True, labelFlush=False)
    )
    views = []
    for field, title in (
        ("ms", "ms a mini-batch"),
        ("throughput", "samples per second"),
        ("memory", "memory, MB"),
        ("accuracy", score.of_client),
    ):
        if not np.isfinite(frame[field]).any():
            continue
        shade = alt.Opacity(f"{field}:Q", legend=None, scale=alt.Scale(zero=False, range=[0.08, 1]))
        tooltip = [alt.Tooltip("client:N"), alt.Tooltip("size:N", title="batch size"), text_tooltip(field, title)]
        base = alt.Chart(alt.NamedData(name="profile_clients"))
        y = alt.Y("size:N", sort=order, title="batch size")
        cells: alt.Chart = base.mark_rect(color=look.heat).encode(x, y, opacity=shade, tooltip=tooltip)
        chart: Drawing = cells
        if look.page and len(clients) <= NUMBERED:
            low, high = float(frame[field].min()), float(frame[field].max())
            dark = f"datum.{field} > {low + 0.5 * (high - low)}"
            ink = decided(alt.ColorValue, dark, look.ground, look.ink)
            numbers = base.mark_text(fontSize=look.size - 1).encode(x, y, text=alt.Text(f"{field}_text:N"), color=ink)
            chart = layered(cells, numbers)
        views.append(View(title, [Panel(sized(chart, look, 32 * len(order), 18 * len(order)))]))
    note = "Full color is the highest value. Clients were measured one at a time, on one thread."
    return Figure("profile-clients", "Single clients", note, views, {"profile_clients": frame})
