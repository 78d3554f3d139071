"""Many settings at once: final accuracies as bars, curves over one swept number, heat maps over two and their difference."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from fedcohort.measures import conformal
from fedcohort.report.charts import lines
from fedcohort.report.figure import Figure, Panel, View
from fedcohort.report.gather import Story
from fedcohort.report.look import Look, short, tick

__all__ = ["bars", "score_functions", "studies", "swept"]


@dataclass(frozen=True)
class Swept:
    """Rows of a comparison by the numbers that a sweep set.

    Attributes:
        keys: the settings, such as ``selection.k``.
        frame: one row a row of the comparison: ``strategy``, a column for each key, ``accuracy``, ``sd``, ``seeds``.
    """

    keys: list[str]
    frame: pd.DataFrame


def swept(story: Story) -> Swept | None:
    """The numbers that differ between rows, where the rows are those of a sweep; None without one."""
    compared = story.comparison
    if compared is None or len(compared.rows) < 3:
        return None
    flat = [_flat(row.experiment.to_dict()) for row in compared.rows]
    words = [re.findall(r", ([^,=]+)=([^,]+)", row.label) for row in compared.rows]
    named = {key for found in words for key, _ in found}
    keys = [
        key
        for key in flat[0]
        if key.rpartition(".")[2] in named
        and all(isinstance(one.get(key), int | float) for one in flat)
        and len({one[key] for one in flat}) > 1
    ]
    if not keys:
        return None
    last = {key.rpartition(".")[2] for key in keys}
    names = [re.sub(r", ([^,=]+)=[^,]+", lambda m: "" if m[1] in last else m[0], row.label) for row in compared.rows]
    known = dict(zip(dict.fromkeys(names), short(list(dict.fromkeys(names))), strict=True))
    table = compared.table
    frame = pd.DataFrame({"strategy": [known[name] for name in names]})
    for key in keys:
        frame[key] = [float(one[key]) for one in flat]
    frame["accuracy"], frame["sd"], frame["seeds"] = table["accuracy"], table["accuracy_sd"], table["seeds"]
    return Swept(keys, frame)


def _flat(values: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{where}{key}.")
        else:
            found[f"{where}{key}"] = value
    return {key: value for key, value in found.items() if not isinstance(value, bool)}


def studies(story: Story, look: Look) -> list[Figure]:
    """Curves for a sweep of one number, heat maps for a sweep of two."""
    found = swept(story)
    if found is None:
        return []
    if len(found.keys) == 1:
        return [_levels(found, look)]
    return [_heat(found, found.keys[0], found.keys[1], look)]


def _levels(found: Swept, look: Look) -> Figure:
    key, frame = found.keys[0], found.frame.rename(columns={found.keys[0]: "x", "accuracy": "mean"})
    frame = frame.sort_values(["strategy", "x"], kind="stable")
    frame = frame.assign(low=frame["mean"] - frame["sd"], high=frame["mean"] + frame["sd"])
    labels = list(dict.fromkeys(found.frame["strategy"]))
    span = lines.domain(frame["mean"], frame["low"], frame["high"], floor=0.0, ceiling=1.0)
    points = sorted(set(frame["x"].tolist()))
    ticks = alt.Axis(values=points, format="~g") if len(points) <= 8 else alt.Axis(tickCount=6)
    x = alt.X("x:Q", title=key, scale=alt.Scale(zero=False, nice=False, padding=12), axis=ticks)
    y = alt.Y(
        "mean:Q",
        title="test accuracy",
        scale=alt.Scale(domain=span, nice=False),
        axis=alt.Axis(**tick(".0%"), tickCount=5),
    )
    base = lines.hideable(alt.Chart(alt.NamedData(name="levels")), look)
    tooltip = [
        alt.Tooltip("strategy:N"),
        alt.Tooltip("x:Q", title=key),
        alt.Tooltip("mean:Q", format=".1%"),
        alt.Tooltip("sd:Q", format=".1%"),
    ]
    small: dict[str, Any] = {"title": None, "symbolSize": 50, "symbolStrokeWidth": 1}
    legend = (
        alt.Legend(**small, orient="top")
        if look.page
        else alt.Legend(**small, columns=lines.legend_columns(labels, look))
    )
    colour = alt.Color("strategy:N", scale=alt.Scale(domain=labels, range=look.colours(len(labels))), legend=legend)
    shape = alt.Shape("strategy:N", scale=alt.Scale(domain=labels, range=look.symbols(len(labels))), legend=legend)
    bars = base.mark_rule(opacity=0.7).encode(
        x, alt.Y("low:Q", scale=alt.Scale(domain=span)), colour, y2=alt.Y2("high:Q")
    )
    line = base.mark_line().encode(x, y, colour, lines.dash(labels, look))
    dots = base.mark_point(opacity=1, size=50 if look.page else 24).encode(x, y, colour, shape, tooltip=tooltip)
    chart = alt.layer(bars, line, dots).properties(
        width="container" if look.width is None else look.width, height=look.height
    )
    note = f"After the last round, mean over seeds, for each value of {key}; bars are ± one standard deviation."
    return Figure("levels", f"Test accuracy over {key}", note, [View("levels", [Panel(chart)])], {"levels": frame})


def _heat(found: Swept, across: str, up: str, look: Look) -> Figure:
    means = found.frame.groupby(["strategy", across, up], sort=False)["accuracy"].mean().reset_index()
    frame = means.rename(columns={across: "x", up: "y"})
    frame["text"] = [f"{100 * value:.1f}" for value in frame["accuracy"]]
    labels = list(dict.fromkeys(frame["strategy"]))
    low, high = float(frame["accuracy"].min()), float(frame["accuracy"].max())
    panels = [Panel(_cells("heat", label, "accuracy", [low, high], across, up, look), label) for label in labels]
    views, data = [View("accuracy", panels)], {"heat": frame}
    if len(labels) > 1:
        wide = frame.pivot(index=["x", "y"], columns="strategy", values="accuracy")
        parts = [
            (wide[label] - wide[labels[0]]).rename("accuracy").reset_index().assign(strategy=label)
            for label in labels[1:]
        ]
        gaps = pd.concat(parts, ignore_index=True).dropna()
        gaps["text"] = [f"{100 * value:+.1f}".replace("-", "−") for value in gaps["accuracy"]]
        gaps["size"] = gaps["accuracy"].abs()
        most = max(float(gaps["size"].max()), 1e-9)
        panels = [
            Panel(
                _cells("heat_difference", label, "size", [0, most], across, up, look, signed=True),
                f"{label} − {labels[0]}",
            )
            for label in labels[1:]
        ]
        views.append(View("difference", panels))
        data["heat_difference"] = gaps
    note = (
        f"In % after the last round, mean over seeds, for {across} × {up}. Difference: in points; orange is below zero."
    )
    return Figure("heat", f"Test accuracy over {across} and {up}", note, views, data)


def _cells(
    name: str, label: str, shade: str, span: Sequence[float], across: str, up: str, look: Look, *, signed: bool = False
) -> Any:
    base = alt.Chart(alt.NamedData(name=name)).transform_filter(alt.FieldEqualPredicate(field="strategy", equal=label))
    x = alt.X("x:O", title=across, axis=alt.Axis(labelAngle=0))
    y = alt.Y("y:O", title=up, sort="descending")
    opacity = alt.Opacity(f"{shade}:Q", scale=alt.Scale(domain=list(span), range=[0.05, 0.6]), legend=None)
    colour = (
        alt.condition("datum.accuracy < 0", alt.value(look.cold), alt.value(look.heat))
        if signed
        else alt.value(look.heat)
    )
    cells = base.mark_rect().encode(
        x,
        y,
        opacity=opacity,
        color=colour,
        tooltip=[
            alt.Tooltip("strategy:N"),
            alt.Tooltip("x:O"),
            alt.Tooltip("y:O"),
            alt.Tooltip("text:N", title="accuracy"),
        ],
    )
    words = base.mark_text(fontSize=look.size - (0 if look.page else 1)).encode(x, y, text=alt.Text("text:N"))
    size: dict[str, Any] = {
        "width": "container" if look.width is None else look.width,
        "height": 180 if look.page else 110,
    }
    return alt.layer(cells, words).properties(**size)


def bars(story: Story, look: Look) -> Figure | None:
    """Final accuracy of every row, with its deviation: for ablations."""
    compared = story.comparison
    if compared is None:
        return None
    labels = [label for label, _ in story.played]
    table = compared.table
    frame = pd.DataFrame({"strategy": labels, "mean": table["accuracy"], "sd": table["accuracy_sd"]})
    frame = frame.assign(
        low=(frame["mean"] - frame["sd"]).clip(lower=0), high=(frame["mean"] + frame["sd"]).clip(upper=1)
    )
    top = float(np.nanmax(frame[["mean", "high"]].to_numpy(np.float64)))
    scale = alt.Scale(domain=[0, min(1.0, 1.05 * top)], nice=False)
    base = lines.hideable(alt.Chart(alt.NamedData(name="bars")), look)
    y = alt.Y("strategy:N", sort=labels, title=None, axis=alt.Axis(labelColor=look.ink, labelLimit=150))
    axis = alt.Axis(**tick(".0%"), grid=True, tickCount=5)
    tooltip = [alt.Tooltip("strategy:N"), alt.Tooltip("mean:Q", format=".1%"), alt.Tooltip("sd:Q", format=".1%")]
    drawn = base.mark_bar(height=alt.RelativeBandSize(band=0.66)).encode(
        alt.X("mean:Q", title="test accuracy", scale=scale, axis=axis),
        y,
        lines.colour(labels, look, legend=False),
        tooltip=tooltip,
    )
    error = base.mark_rule(color=look.ink, strokeWidth=1.2).encode(alt.X("low:Q", scale=scale), y, x2=alt.X2("high:Q"))
    chart = alt.layer(drawn, error).properties(
        width="container" if look.width is None else look.width, height=(30 if look.page else 16) * len(labels)
    )
    note = "Test accuracy after the last round: mean over seeds ± one standard deviation."
    return Figure("bars", "Final accuracy", note, [View("bars", [Panel(chart)])], {"bars": frame})


def score_functions(look: Look, threshold: float = 0.25) -> Figure:
    """The conformal scores of a probability, and where each meets the threshold."""
    f = np.linspace(0, 1, 101)
    kinds: list[conformal.Score] = ["s1", "s2", "s3"]
    parts = [pd.DataFrame({"strategy": kind, "f": f, "score": conformal.scores(f, kind)}) for kind in kinds]
    frame: pd.DataFrame = pd.concat(parts, ignore_index=True)
    meets = pd.DataFrame(
        {"strategy": kinds, "f": [conformal.probability_at(threshold, kind) for kind in kinds], "score": threshold}
    )
    x = alt.X("f:Q", title="softmax probability of the right class", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("score:Q", title="score", scale=alt.Scale(domain=[0, 1]))
    legend = alt.Legend(title=None, orient="top-right", columns=1)
    colour = alt.Color("strategy:N", scale=alt.Scale(domain=list(kinds), range=look.colours(3)), legend=legend)
    dash = alt.StrokeDash("strategy:N", scale=alt.Scale(domain=list(kinds), range=look.dashes(3)), legend=legend)
    line = alt.Chart(alt.NamedData(name="scores")).mark_line().encode(x, y, colour, dash)
    level = alt.Chart(alt.NamedData(name="scores_met"))
    rule = level.mark_rule(strokeDash=[1, 3], color=look.soft).encode(y)
    dots = level.mark_point(opacity=1, size=40 if look.page else 24).encode(
        x, y, colour, tooltip=[alt.Tooltip("strategy:N"), alt.Tooltip("f:Q")]
    )
    chart = alt.layer(rule, line, dots).properties(
        width="container" if look.width is None else look.width, height=look.height
    )
    note = f"A client takes part once its quantile is at most the threshold, here {threshold:g}: the dots show at what probability."
    return Figure(
        "score-functions",
        "Conformal scores",
        note,
        [View("scores", [Panel(chart)])],
        {"scores": frame, "scores_met": meets},
    )
