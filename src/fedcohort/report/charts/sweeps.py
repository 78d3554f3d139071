"""Draw the results of a sweep: curves over one swept number, heat maps over two numbers."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import altair as alt
import pandas as pd

from fedcohort.core.words.formatted_values import by_dotted_key, in_words, setting
from fedcohort.core.words.score_style import ScoreStyle
from fedcohort.report.charts.axes_and_legends import (
    LISTED,
    NAME_WIDTH,
    hideable,
    in_order,
    legend_columns,
    of_strategy,
    sized,
    text_tooltip,
    with_texts,
)
from fedcohort.report.charts.final_accuracy import mean_and_deviation
from fedcohort.report.charts.line_axes import log_ticks
from fedcohort.report.charts.means_and_bands import score_domain, to_ticks
from fedcohort.report.data.report_data import Story
from fedcohort.report.figures.chart_style import Look, RowLooks, tick
from fedcohort.report.figures.figure import Drawing, Figure, Panel, View
from fedcohort.report.figures.layers import constant, decided, layered
from fedcohort.report.figures.panel_rows import NAMES, OWN_COLORS
from fedcohort.report.figures.screen_words import POINT_AT_MARK
from fedcohort.report.figures.shortened_names import short
from fedcohort.report.notes.seed_notes import counted, mean_over, mean_with_deviation
from fedcohort.report.notes.unranked_rows import about_different_seeds
from fedcohort.study.rows.references import SETTING, without_settings

__all__ = ["studies", "swept"]

ABOUT_WIDE = 800
"""About the width of a chart on a wide page, in pixels."""

LOG = 10
"""The axis of a setting is logarithmic if its largest value is so many times the smallest."""

COLORS = "Negative differences are orange. Colors do not tell whether a difference is clear."
"""What a heat map of differences says of its colors."""

STEP = 6
"""Distance of strategies with error bars at the same value, in pixels on the page."""

SIDE_BY_SIDE = 8
"""More strategies have smaller distances, so that all of them together take no more room than this many."""


@dataclass(frozen=True)
class Swept:
    """Rows of a comparison by the numbers that a sweep set.

    Attributes:
        keys: the settings, such as ``selection.k``.
        frame: a row for each row of the comparison: ``strategy``, its full ``name``, a column for each key, ``accuracy``, ``sd``,
            ``seeds``.
        labels: the strategies, the reference first.
        texts: for each key, its values as labels of rows write them, such as 1.0.
        when: after which round the accuracies are, in words.
        over, spread: the seeds that they are means over, in words, without and with their standard deviation.
        about_seeds: a sentence about means over different seeds; empty if all rows have the same seeds.
        differences: whether means can be compared: not after unequal numbers of rounds, nor over different seeds.
    """

    keys: list[str]
    frame: pd.DataFrame
    labels: list[str]
    texts: Mapping[str, Mapping[float, str]]
    when: str
    over: str
    spread: str
    about_seeds: str
    differences: bool


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
    names = [without_settings(label, {_last(key) for key in keys}) for label in labels]
    distinct = list(dict.fromkeys(names))
    reference = names[compared.groups[0].reference]
    distinct.sort(key=lambda name: name != reference)  # differences are taken to the first
    cut = dict(zip(distinct, short(distinct), strict=True))
    table = compared.table
    frame = pd.DataFrame({"strategy": [cut[name] for name in names], "name": names})
    for key in keys:
        frame[key] = [values[key] for values in settings]
    frame["accuracy"], frame["sd"], frame["seeds"] = table["accuracy"], table["accuracy_sd"], table["seeds"]
    texts = {key: _texts(settings, labels, key) for key in keys}
    over = mean_over(counted(story)), mean_with_deviation(counted(story))
    seeds = about_different_seeds(compared)
    comparable = not (compared.uneven or seeds)
    return Swept(keys, frame, [cut[name] for name in distinct], texts, compared.when, *over, seeds, comparable)


def _texts(settings: Sequence[Mapping[str, float]], labels: Sequence[str], key: str) -> dict[float, str]:
    """The values of a setting in ascending order, each as the labels of rows write it."""
    texts: dict[float, str] = {}
    for values, label in zip(settings, labels, strict=True):
        written = [text for name, text in SETTING.findall(label) if name == _last(key)]
        texts.setdefault(values[key], written[-1] if written else setting(values[key]))
    return dict(sorted(texts.items()))


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
        key: value
        for key, value in by_dotted_key(values).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _last(key: str) -> str:
    """The last part of a key: ``k`` of ``selection.k``."""
    return key.rpartition(".")[2]


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
    span = score_domain(score, frame["mean"], frame["low"], frame["high"])
    span = span if look.page else to_ticks(span, 5)
    texts = sweep.texts[key]
    frame["x_text"] = frame["x"].map(texts)
    written = f"{json.dumps(list(texts.values()))}[indexof({json.dumps(list(texts))}, datum.value)] || datum.label"
    ticks = alt.Axis(values=list(texts), labelExpr=written) if len(texts) <= 8 else alt.Axis(tickCount=6)
    many_times = min(texts) > 0 and max(texts) >= LOG * min(texts)
    kind: dict[str, Any] = {"type": "log"} if many_times else {"zero": False}
    if many_times and len(texts) > 8:
        ticks = alt.Axis(values=log_ticks(min(texts), max(texts)), **tick("~g"))
    dodged = len(labels) > 1 and bool(frame["sd"].notna().any())
    aside: dict[str, Any] = {"xOffset": _aside(labels, list(texts), look, log=many_times)} if dodged else {}
    padding = 12 + (STEP * min(len(labels), SIDE_BY_SIDE) / 2 if dodged else 0)
    title, scale = f"{key} (log)" if many_times else key, alt.Scale(nice=False, padding=padding, **kind)
    x = alt.X("x:Q", title=title, scale=scale, axis=ticks)
    y_axis = alt.Axis(**tick("~g" if score.numeric else ".0%"), tickCount=5)
    y = alt.Y("mean:Q", title=f"test {score.name}", scale=alt.Scale(domain=span, nice=False), axis=y_axis)
    tooltip = [alt.Tooltip("name:N", title="strategy"), text_tooltip("x", key), *mean_and_deviation(score)]
    look = replace(look, rows=_named_strategies(sweep))
    colors, shapes, dashes = _legend_encodings(labels, look)
    layers: list[alt.Chart] = []
    for base in in_order(hideable(alt.Chart(alt.NamedData(name="levels")), look), look.strong(labels)):
        errors = base.mark_rule(opacity=0.7, **aside)
        dots = base.mark_point(opacity=1, size=50 if look.page else 24, **aside)
        layers += [
            errors.encode(x, alt.Y("low:Q", scale=alt.Scale(domain=span)), colors, y2=alt.Y2("high:Q")),
            base.mark_line(**aside).encode(x, y, colors, dashes),
            dots.encode(x, y, colors, shapes, tooltip=tooltip),
        ]
    whole = layered(
        *layers, resolve={"legend": {"strokeDash": "independent"}}
    )  # dashes would break symbols of the legend
    chart = sized(whole, look, look.height, look.height)
    note = _about_curves(sweep, look, score, dodged=dodged)
    data = {"levels": with_texts(frame, {"mean": score.value, "sd": score.value})}
    return Figure("levels", f"Test {score.name} over {key}", note, [View("levels", [Panel(chart)])], data)


def _about_curves(sweep: Swept, look: Look, score: ScoreStyle, *, dodged: bool) -> str:
    """The caption of curves over a setting."""
    labels = sweep.labels
    note = f"Test {score.name} {sweep.when} for each value of {sweep.keys[0]}: {sweep.spread}."
    note += " Strategies stand side by side at each value." if dodged else ""
    note += f" {sweep.about_seeds}" if sweep.about_seeds else ""
    if look.page and len(labels) > LISTED:
        note += f" There is no legend for more than {LISTED} lines{POINT_AT_MARK}."
    if look.strong(labels):
        own = " over their own seeds" if sweep.about_seeds else ""
        highest = f"the {NAMES - 1} with the highest mean of test {score.name}{own} over all values"
        note += f" Colored: the reference and, of the other strategies, {highest}. The rest is gray."
    return note


def _aside(labels: Sequence[str], values: Sequence[float], look: Look, *, log: bool) -> alt.ExprRef:
    """By how many pixels each strategy is moved aside, so that its error bars do not cover those of others: together by no more than
    a third of the smallest distance of two values."""
    places = [math.log(value) for value in values] if log else list(values)
    gap = min(b - a for a, b in pairwise(places)) / (places[-1] - places[0])
    most = (STEP if look.page else STEP / 2) * min(1, SIDE_BY_SIDE / len(labels))
    step = f"min({most:.3g}, {gap / 3 / len(labels):.3g} * width)"
    return alt.ExprRef(f"(indexof({json.dumps(list(labels))}, datum.strategy) - {(len(labels) - 1) / 2}) * {step}")


def _named_strategies(sweep: Swept) -> RowLooks:
    """How strategies are told apart: of many, papers name the reference and the best ones over all values."""
    named: list[str] = []
    if len(sweep.labels) > OWN_COLORS:
        means = sweep.frame.groupby("strategy", sort=False)["accuracy"].mean()
        best = means.drop(sweep.labels[0]).sort_values(ascending=False, kind="stable")
        named = [sweep.labels[0], *best.index[: NAMES - 1]]
    return RowLooks({label: i for i, label in enumerate(sweep.labels)}, named=frozenset(named))


def _legend_encodings(labels: list[str], look: Look) -> tuple[alt.Color, alt.Shape, alt.StrokeDash]:
    """Color, symbol and dash of each strategy, with a legend on the page, too: sweeps have rows that the page's list does not name."""
    listed = look.strong(labels) or labels
    small: dict[str, Any] = {
        "title": None,
        "values": listed,
        "symbolSize": 50,
        "symbolStrokeWidth": 1,
        "symbolOpacity": 1,
    }
    place: dict[str, Any] = (
        {
            "orient": "top",
            "labelLimit": NAME_WIDTH,
            "columns": legend_columns(labels, replace(look, width=look.width or ABOUT_WIDE)),
        }
        if look.page
        else {"columns": legend_columns(listed, look)}
    )
    many = look.page and len(labels) > LISTED  # names of more would fill the chart, and be cut
    legend = None if many else alt.Legend(**small, **place)
    colors, dashes, symbols = look.of_rows(labels)
    return (
        alt.Color("strategy:N", scale=alt.Scale(domain=labels, range=colors), legend=legend),
        alt.Shape("strategy:N", scale=alt.Scale(domain=labels, range=symbols), legend=legend),
        alt.StrokeDash("strategy:N", scale=alt.Scale(domain=labels, range=dashes), legend=None),
    )


def _heat(sweep: Swept, across: str, up: str, look: Look, score: ScoreStyle) -> Figure:
    cell = sweep.frame.groupby(["strategy", "name", across, up], sort=False)["accuracy"]
    means = cell.agg(lambda values: values.mean(skipna=False)).reset_index()
    frame = means.rename(columns={across: "x", up: "y"})
    frame["x"], frame["y"] = frame["x"].map(sweep.texts[across]), frame["y"].map(sweep.texts[up])
    frame["text"] = [score.value(value) for value in frame["accuracy"]]
    labels = sweep.labels
    axes = list(sweep.texts[across].values()), list(sweep.texts[up].values())
    shade = _Shade("accuracy", float(frame["accuracy"].min()), float(frame["accuracy"].max()), *axes)
    cells = [Panel(_cells("heat", label, shade, across, up, look, score.heading("test")), label) for label in labels]
    each = f" Each cell is a mean over the values of {in_words(sweep.keys[2:])}." if sweep.keys[2:] else ""
    about = f"{sweep.when}, {sweep.over}, for {across} × {up}.{each}"
    note = f"Test {score.name}{score.in_unit} {about}{sweep.about_seeds and ' '}{sweep.about_seeds}"
    views, data = [View(score.name, cells, note)], {"heat": frame}
    if len(labels) > 1 and sweep.differences:
        gaps = _differences(frame, labels, score)
        shade = _Shade("size", 0, max(float(gaps["size"].max()), 1e-9), *axes)
        title = f"difference{score.points and ','}{score.points}"
        differences = [
            Panel(
                _cells("heat_difference", label, shade, across, up, look, title, signed=True), f"{label} − {labels[0]}"
            )
            for label in labels[1:]
        ]
        note = f"Difference in test {score.name} to '{labels[0]}' with the same settings{score.points and ', in'}{score.points}, "
        views.append(View("difference", differences, f"{note}{about} {COLORS}"))
        data["heat_difference"] = gaps
    return Figure("heat", f"Test {score.name} over {across} and {up}", "", views, data)


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
    across: list[str]
    up: list[str]


def _cells(
    name: str, label: str, shade: _Shade, across: str, up: str, look: Look, title: str, *, signed: bool = False
) -> Drawing:
    base = of_strategy(name, label)
    x_axis = alt.Axis(labelAngle=0, labelFlush=False, labelOverlap="parity", labelSeparation=2)
    x = alt.X("x:O", title=across, axis=x_axis, scale=alt.Scale(domain=shade.across))
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
