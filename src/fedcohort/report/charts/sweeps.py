"""Draw the results of a sweep: curves over one swept number, heat maps over two numbers."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import altair as alt
import pandas as pd

from fedcohort.core.formatted_values import by_dotted_key
from fedcohort.core.score_style import ScoreStyle
from fedcohort.report.chart_style import Look, tick
from fedcohort.report.charts.axes_and_legends import (
    LISTED,
    NAME_WIDTH,
    hideable,
    legend_columns,
    of_strategy,
    sized,
    with_texts,
)
from fedcohort.report.charts.final_accuracy import mean_and_deviation
from fedcohort.report.charts.layers import constant, decided, layered
from fedcohort.report.charts.means_and_bands import domain
from fedcohort.report.figure import Drawing, Figure, Panel, View
from fedcohort.report.report_data import Story
from fedcohort.report.shortened_names import short

__all__ = ["studies", "swept"]

ABOUT_WIDE = 800
"""About the width of a chart on a wide page, in pixels."""

SETTING = re.compile(r", ([^,=]+)=([^,]+)")
"""A setting in the label of a row: ``, k=3``."""


@dataclass(frozen=True)
class Swept:
    """Rows of a comparison by the numbers that a sweep set.

    Attributes:
        keys: the settings, such as ``selection.k``.
        frame: a row for each row of the comparison: ``strategy``, its full ``name``, a column for each key, ``accuracy``, ``sd``,
            ``seeds``.
        labels: the strategies, the reference first.
    """

    keys: list[str]
    frame: pd.DataFrame
    labels: list[str]


def swept(story: Story) -> Swept | None:
    """The numbers that a sweep set differently in different rows; None if the rows are not those of a sweep."""
    compared = story.comparison
    if compared is None or len(compared.rows) < 3:
        return None
    settings = [_numbers(row.experiment.to_dict()) for row in compared.rows]
    labels = [row.label for row in compared.rows]
    keys = _swept_keys(settings, labels)
    if not keys:
        return None
    names = _without_settings(labels, {_last(key) for key in keys})
    distinct = list(dict.fromkeys(names))
    reference = names[compared.groups[0].reference]
    distinct.sort(key=lambda name: name != reference)  # differences are taken to the first
    cut = dict(zip(distinct, short(distinct), strict=True))
    table = compared.table
    frame = pd.DataFrame({"strategy": [cut[name] for name in names], "name": names})
    for key in keys:
        frame[key] = [values[key] for values in settings]
    frame["accuracy"], frame["sd"], frame["seeds"] = table["accuracy"], table["accuracy_sd"], table["seeds"]
    return Swept(keys, frame, [cut[name] for name in distinct])


def _swept_keys(settings: Sequence[Mapping[str, float]], labels: Sequence[str]) -> list[str]:
    """Numbers that labels name, that all rows have, and that differ between rows."""
    in_labels = {name for label in labels for name, _ in SETTING.findall(label)}
    return [
        key
        for key in settings[0]
        if _last(key) in in_labels
        and all(key in values for values in settings)
        and len({values[key] for values in settings}) > 1
    ]


def _numbers(values: Mapping[str, object]) -> dict[str, float]:
    """The settings that are numbers, by their whole key."""
    return {
        key: float(value)
        for key, value in by_dotted_key(values).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _last(key: str) -> str:
    """The last part of a key: ``k`` of ``selection.k``."""
    return key.rpartition(".")[2]


def _without_settings(labels: Sequence[str], settings: set[str]) -> list[str]:
    """Labels without the settings that a sweep set: the names of strategies."""
    return [SETTING.sub(lambda m: "" if m[1] in settings else m[0], label) for label in labels]


def studies(story: Story, look: Look) -> list[Figure]:
    """Curves for a sweep of one number, heat maps for a sweep of two."""
    sweep = swept(story)
    if sweep is None:
        return []
    if len(sweep.keys) == 1:
        return [_curves(sweep, look, story.score)]
    return [_heat(sweep, sweep.keys[0], sweep.keys[1], look, story.score)]


def _curves(sweep: Swept, look: Look, score: ScoreStyle) -> Figure:
    key, frame = sweep.keys[0], sweep.frame.rename(columns={sweep.keys[0]: "x", "accuracy": "mean"})
    frame = frame.sort_values(["strategy", "x"], kind="stable")
    low = (frame["mean"] - frame["sd"]).clip(lower=score.limits[0])
    high = (frame["mean"] + frame["sd"]).clip(upper=1)
    frame = frame.assign(low=low, high=high)
    labels = sweep.labels
    span = domain(frame["mean"], frame["low"], frame["high"], floor=None if score.numeric else 0.0, ceiling=1.0)
    points = sorted(set(frame["x"].tolist()))
    ticks = alt.Axis(values=points, format="~g") if len(points) <= 8 else alt.Axis(tickCount=6)
    x = alt.X("x:Q", title=key, scale=alt.Scale(zero=False, nice=False, padding=12), axis=ticks)
    y_axis = alt.Axis(**tick("~g" if score.numeric else ".0%"), tickCount=5)
    y = alt.Y("mean:Q", title=f"test {score.name}", scale=alt.Scale(domain=span, nice=False), axis=y_axis)
    tooltip = [alt.Tooltip("name:N", title="strategy"), alt.Tooltip("x:Q", title=key), *mean_and_deviation(score)]
    colors, shapes, dashes = _legend_encodings(labels, look)
    base = hideable(alt.Chart(alt.NamedData(name="levels")), look)
    errors = base.mark_rule(opacity=0.7).encode(
        x, alt.Y("low:Q", scale=alt.Scale(domain=span)), colors, y2=alt.Y2("high:Q")
    )
    line = base.mark_line().encode(x, y, colors, dashes)
    dots = base.mark_point(opacity=1, size=50 if look.page else 24).encode(x, y, colors, shapes, tooltip=tooltip)
    chart = sized(layered(errors, line, dots), look, look.height, look.height)
    note = f"Test {score.name} after the last round for each value of {key}: mean over seeds ± one standard deviation."
    if look.page and len(labels) > LISTED:
        note += f" There is no legend for more than {LISTED} lines: point at a mark for its name."
    data = {"levels": with_texts(frame, {"mean": score.value, "sd": score.value})}
    return Figure("levels", f"Test {score.name} over {key}", note, [View("levels", [Panel(chart)])], data)


def _legend_encodings(labels: list[str], look: Look) -> tuple[alt.Color, alt.Shape, alt.StrokeDash]:
    """Color, symbol and dash of each strategy, with a legend on the page, too: sweeps have rows that the page's list does not name."""
    small: dict[str, Any] = {"title": None, "symbolSize": 50, "symbolStrokeWidth": 1}
    place: dict[str, Any] = (
        {
            "orient": "top",
            "labelLimit": NAME_WIDTH,
            "columns": legend_columns(labels, replace(look, width=look.width or ABOUT_WIDE)),
        }
        if look.page
        else {"columns": legend_columns(labels, look)}
    )
    many = look.page and len(labels) > LISTED  # names of more would fill the chart, and be cut
    legend, number = None if many else alt.Legend(**small, **place), len(labels)
    return (
        alt.Color("strategy:N", scale=alt.Scale(domain=labels, range=look.colors(number)), legend=legend),
        alt.Shape("strategy:N", scale=alt.Scale(domain=labels, range=look.symbols(number)), legend=legend),
        alt.StrokeDash("strategy:N", scale=alt.Scale(domain=labels, range=look.dashes(number)), legend=legend),
    )


def _heat(sweep: Swept, across: str, up: str, look: Look, score: ScoreStyle) -> Figure:
    means = sweep.frame.groupby(["strategy", "name", across, up], sort=False)["accuracy"].mean().reset_index()
    frame = means.rename(columns={across: "x", up: "y"})
    frame["text"] = [score.value(value) for value in frame["accuracy"]]
    labels = sweep.labels
    axes = sorted(set(frame["x"])), sorted(set(frame["y"]))
    shade = _Shade("accuracy", float(frame["accuracy"].min()), float(frame["accuracy"].max()), *axes)
    cells = [Panel(_cells("heat", label, shade, across, up, look, score.heading("test")), label) for label in labels]
    views, data = [View(score.name, cells)], {"heat": frame}
    if len(labels) > 1:
        gaps = _differences(frame, labels, score)
        shade = _Shade("size", 0, max(float(gaps["size"].max()), 1e-9), *axes)
        title = f"difference{score.points and ','}{score.points}"
        differences = [
            Panel(
                _cells("heat_difference", label, shade, across, up, look, title, signed=True), f"{label} − {labels[0]}"
            )
            for label in labels[1:]
        ]
        views.append(View("difference", differences))
        data["heat_difference"] = gaps
    note = (
        f"Test {score.name}{score.in_unit} after the last round, mean over seeds, for {across} × {up}. "
        f"{'Negative differences' if score.numeric else 'Differences are in percentage points; negative ones'} are orange."
    )
    return Figure("heat", f"Test {score.name} over {across} and {up}", note, views, data)


def _differences(frame: pd.DataFrame, labels: Sequence[str], score: ScoreStyle) -> pd.DataFrame:
    """Accuracies minus those of the reference with the same settings."""
    wide = frame.pivot(index=["x", "y"], columns="strategy", values="accuracy")
    parts = [
        (wide[label] - wide[labels[0]]).rename("accuracy").reset_index().assign(strategy=label) for label in labels[1:]
    ]
    gaps = pd.concat(parts, ignore_index=True).dropna()
    gaps["name"] = gaps["strategy"].map(frame.groupby("strategy")["name"].first())
    gaps["text"] = [score.signed(value) for value in gaps["accuracy"]]
    gaps["size"] = gaps["accuracy"].abs()
    return gaps


@dataclass(frozen=True)
class _Shade:
    """The column that shades cells, its values for the lightest and the darkest shade, and the values of both axes in all panels."""

    field: str
    low: float
    high: float
    across: list[float]
    up: list[float]


def _cells(
    name: str, label: str, shade: _Shade, across: str, up: str, look: Look, title: str, *, signed: bool = False
) -> Drawing:
    base = of_strategy(name, label)
    x = alt.X("x:O", title=across, axis=alt.Axis(labelAngle=0), scale=alt.Scale(domain=shade.across))
    y = alt.Y("y:O", title=up, scale=alt.Scale(domain=shade.up[::-1]))
    scale = alt.Scale(domain=[shade.low, shade.high], range=[0.05, 0.6])
    negative = decided(alt.ColorValue, "datum.accuracy < 0", look.cold, look.heat)
    cells = base.mark_rect().encode(
        x,
        y,
        opacity=alt.Opacity(f"{shade.field}:Q", scale=scale, legend=None),
        color=negative if signed else constant(alt.ColorValue, look.heat),
        tooltip=[
            alt.Tooltip("name:N", title="strategy"),
            alt.Tooltip("x:O", title=across),
            alt.Tooltip("y:O", title=up),
            alt.Tooltip("text:N", title=title),
        ],
    )
    texts = base.mark_text(fontSize=look.size - (0 if look.page else 1)).encode(x, y, text=alt.Text("text:N"))
    return sized(layered(cells, texts), look, 180, 110)
