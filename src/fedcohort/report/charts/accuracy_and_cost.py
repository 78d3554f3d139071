"""Draw the test accuracy of every strategy against what it costs, with the strategies that no other one beats in both."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from fedcohort import measures
from fedcohort.core.words import formatted_values
from fedcohort.core.words.score_style import ScoreStyle
from fedcohort.report.charts.axes_and_legends import (
    LISTED,
    color,
    hideable,
    in_order,
    legend_columns,
    outlined,
    sized,
    text_tooltip,
    with_texts,
)
from fedcohort.report.charts.cost_axis import across, log_x_range, side_by_side, x_range
from fedcohort.report.charts.cost_caption import ALL_NAMED, FRONT_NAMED, caption
from fedcohort.report.charts.full_names import names_by_label
from fedcohort.report.charts.low_scores import held_within, without_the_worst
from fedcohort.report.charts.means_and_bands import score_domain, to_ticks
from fedcohort.report.charts.names_beside_points import BESIDE, LED, names_with_room
from fedcohort.report.charts.shown_front import BEATEN, ON_FRONT, front_of_shown_rows
from fedcohort.report.data.report_data import Story
from fedcohort.report.figures.chart_style import REST, SYMBOLS, Look, tick
from fedcohort.report.figures.figure import Drawing, Figure, Panel, View
from fedcohort.report.figures.layers import constant, decided, layered, with_properties
from fedcohort.report.figures.panel_rows import FRONT
from fedcohort.report.notes.cost_notes import NO_TIME, about_questions
from fedcohort.report.notes.failed_training import failed
from fedcohort.report.notes.unranked_rows import DIFFERENT, unranked, with_different_seeds
from fedcohort.study.comparison import Comparison
from fedcohort.study.verdicts import FEWEST

__all__ = ["accuracy_and_cost", "front"]

HEIGHT = 240
"""Height of the chart on the page."""

TOLD = "datum.strategy + ': ' + datum.accuracy_text + ', ' + datum.x_text"
"""What screen readers say of a point: it can stand beside the place of its cost."""

GAP = 9
"""Distance from points without an interval to the intervals of other rows, in pixels."""

COSTS: tuple[tuple[str, str, str, Callable[[float], str]], ...] = (
    ("bytes", "bytes sent and received", "~s", formatted_values.size),
    ("client_passes", "client passes", "~s", formatted_values.count),
    ("simulated_time", "simulated time of all rounds", "~s", formatted_values.simulated_time),
)
"""Column of a comparison's table, title, d3 format, and how tooltips write it."""


def accuracy_and_cost(story: Story, look: Look) -> Figure | None:
    """Test accuracy after the last round against bytes, client passes and time; None with fewer than two rows that were tested."""
    compared = story.comparison
    if compared is None or np.isfinite(compared.table["accuracy"].to_numpy(np.float64)).sum() < 2:
        return None
    labels, score = [label for label, _ in story.played], story.score
    frame = _rows(compared, labels, look)
    span = score_domain(score, frame["accuracy"], frame["low"], frame["high"])
    means = frame.rename(columns={"accuracy": "mean"})
    span, cut = without_the_worst(means, span, names_by_label(story), score, " Points of lower rows stand at its end.")
    views: list[View] = []
    data: dict[str, pd.DataFrame] = {}
    dodged = False
    fronts = {column: _fronts(compared, frame, column) for column, *_ in COSTS}
    shown = look.strong(labels, _first_on(fronts, frame, look))
    for column, title, number, write in _costs(compared):
        name = f"tradeoff_{column}"
        own, beside = _places(compared, frame.assign(x=frame[column], front=fronts[column]), look)
        dodged = dodged or beside
        if look.page:
            data[f"{name}_names"] = _names(compared, own, span, look)
        texts = {"x": write, **dict.fromkeys(("accuracy", "low", "high"), score.value)}
        data[name] = with_texts(own.drop(columns=[column for column, *_ in COSTS]), texts)
        here = look.rows.named.union(own["strategy"][own["front"].astype(bool)])
        hollow = own["strategy"][~own["front"].astype(bool)].tolist()
        gaps = bool(own["low"].notna().any() and own["low"].isna().any())
        rows = _Shown(labels, shown, [label for label in shown if label in here], hollow, gaps, bool(cut))
        about = NO_TIME if column == "simulated_time" and _asks(compared) else ""
        views.append(View(title, [Panel(_chart(name, own["x"], title, number, span, rows, look, score))], about))
    note = f"{caption(story, compared, frame, look, dodged=dodged)}{cut}"
    return Figure("tradeoff", f"{score.title} and cost", note, views, data)


def _costs(compared: Comparison) -> list[tuple[str, str, str, Callable[[float], str]]]:
    """The costs as in :data:`COSTS`; times of runs on real machines are wall times."""
    on_wall = all(row.on_wall_clock for row in compared.rows)
    wall = "wall time of all rounds, s"
    return [
        (key, wall if on_wall and key == "simulated_time" else title, number, write)
        for key, title, number, write in COSTS
    ]


@dataclass(frozen=True)
class _Shown:
    """All rows; in papers with many rows, those that have a color, and those of them that a view names; the hollow ones; whether
    intervals have gaps at points without one; and whether points are below the axis, and drawn at its end."""

    labels: list[str]
    colored: list[str]
    named: list[str]
    hollow: list[str]
    gaps: bool
    cut: bool


def _places(compared: Comparison, frame: pd.DataFrame, look: Look) -> tuple[pd.DataFrame, bool]:
    """Where points and names stand, for the rows with a known cost and accuracy; and whether a point was moved aside."""
    own = frame[np.isfinite(frame["accuracy"]) & np.isfinite(frame["x"])].copy()
    own["at"], beside = side_by_side(compared, own["x"], 0.0, float(own["x"].max()), look.width)
    log = log_x_range(own["x"]) if look.page else None
    if log is not None:
        places, _ = side_by_side(compared, np.log10(own["x"]), *np.log10(log).tolist())
        own["at_log"] = 10**places
    own["named"] = _named(compared, own)
    standing = np.where(own["front"], ON_FRONT, BEATEN)
    own["standing"] = np.where(own["failed"], "training failed", standing)
    own.loc[own.index.isin(with_different_seeds(compared)), "standing"] = f"unknown: rows {DIFFERENT}"
    own.loc[own.index.isin(compared.uneven), "standing"] = "unknown: rows have played unequal numbers of rounds"
    return own, beside


def _asks(compared: Comparison) -> bool:
    """Whether a strategy asks clients, which simulated time does not include."""
    return NO_TIME in about_questions(run for row in compared.rows for run in row.runs.values())


def _rows(compared: Comparison, labels: Sequence[str], look: Look) -> pd.DataFrame:
    """Accuracy with its interval, and costs, of each row; the interval is NaN with fewer than :data:`FEWEST` seeds. Rows are ranked
    unless training failed in them, or they are not ranked at all."""
    rows, table, without = [], compared.table.to_dict("records"), failed(compared)
    ranked = {i for i, lost in enumerate(without) if not lost} - unranked(compared)
    for label, row, own, lost in zip(labels, compared.counted, table, without, strict=True):
        values = [result.accuracy for result in compared.results[row.label] if result.seed in row.runs]
        low = high = math.nan
        if len(values) >= FEWEST:
            _, low, high = measures.paired_interval(values, np.zeros(len(values)), limits=compared.score.limits)
        costs = {column: float(own[column]) for column, *_ in COSTS}
        name = look.rows.names.get(label, label)
        known = {"strategy": label, "name": name, "accuracy": own["accuracy"], "low": low, "high": high}
        rows.append({**known, "failed": lost, **costs})
    return pd.DataFrame(rows).assign(ranked=[i in ranked for i in range(len(rows))])


def _first_on(fronts: Mapping[str, np.ndarray], frame: pd.DataFrame, look: Look) -> list[str]:
    """The best rows on a front of any cost, as many as a legend can name besides those that all charts name."""
    own = frame[np.logical_or.reduce(list(fronts.values())) & ~frame["strategy"].isin(look.rows.named)]
    best: list[str] = own.sort_values("accuracy", ascending=False, kind="stable")["strategy"].tolist()
    return best[:FRONT]


def _color_and_shape(rows: _Shown, look: Look) -> tuple[alt.Color, dict[str, alt.Shape]]:
    """The color of each strategy; in papers also its symbol, with the legend of both."""
    if look.page:
        return color(rows.labels, look, legend=False), {}
    listed = rows.named or rows.labels
    columns, drawn = legend_columns(listed, look), len(listed) <= LISTED
    symbol: dict[str, Any] = {"symbolStrokeWidth": 1, "symbolSize": 36, "symbolOpacity": 1}
    legend = alt.Legend(title=None, values=listed, columns=columns, **symbol) if drawn else None
    colors, symbols = _looks(rows, look)
    return (
        alt.Color("strategy:N", scale=alt.Scale(domain=rows.labels, range=colors), legend=legend),
        {"shape": alt.Shape("strategy:N", scale=alt.Scale(domain=rows.labels, range=symbols), legend=legend)},
    )


def _filled(hollow: list[str]) -> str:
    """The expression of the color inside a symbol. Vega-Lite uses it in the legend, too, where the datum is a name."""
    return (
        "isDefined(datum.strategy) ? scale('color', datum.strategy) : "
        f"indexof({json.dumps(hollow)}, datum.value) >= 0 ? 'transparent' : scale('color', datum.value)"
    )


def _looks(rows: _Shown, look: Look) -> tuple[list[str], list[str]]:
    """Colors and symbols of rows, the same in all views; gray circles for rows that the view does not name."""
    colors, _, symbols = look.of_rows(rows.labels, rows.colored)
    for i, label in enumerate(rows.labels):
        if rows.named and label not in rows.named:
            colors[i], symbols[i] = REST, SYMBOLS[0]
    return colors, symbols


def _named(compared: Comparison, frame: pd.DataFrame) -> list[bool]:
    """Whether each row has its name beside its point: with many rows at a point, only the best on the front, and the reference."""
    named = set()
    for group in compared.groups:
        own = frame[frame.index.isin(group.rows)]
        if len(group.rows) > ALL_NAMED:
            best = own[own["front"].astype(bool)].sort_values("accuracy", ascending=False, kind="stable")
            named |= {*best.index[:FRONT_NAMED], group.reference}
        else:
            named |= set(own.index)
    return [i in named for i in frame.index]


def _names(compared: Comparison, frame: pd.DataFrame, span: Sequence[float], look: Look) -> pd.DataFrame:
    """The places of names on linear and on logarithmic axes, at each point: first the reference has a name, then the best rows."""
    places, frame = [], frame.assign(accuracy=frame["accuracy"].clip(lower=span[0]))
    for group in compared.groups:
        own = frame[frame.index.isin(group.rows)]
        named = own[own["named"]].sort_values("accuracy", ascending=False, kind="stable").index.tolist()
        wanted = sorted(named, key=lambda row: row != group.reference)
        for log, share in enumerate(across(frame["x"])):
            points = own.assign(at=own["at_log"]) if log else own
            found = names_with_room(points, wanted, share, span, (look.size, HEIGHT))
            places.append(found.assign(log=log, at_log=found["at"]))
    return pd.concat(places, ignore_index=True)


def _fronts(compared: Comparison, frame: pd.DataFrame, column: str) -> np.ndarray:
    """Whether each row is on the front of its group. Rows in which training failed are not, and keep no other row from it. There is no
    front of rows that are not ranked."""
    on_front = np.zeros(len(frame), dtype=bool)
    for group in compared.groups:
        rows = [i for i in group.rows if frame["ranked"].iloc[i]]
        on_front[rows] = front(frame["accuracy"].iloc[rows].tolist(), frame[column].iloc[rows].tolist())
    return on_front


def front(accuracy: Sequence[float], cost: Sequence[float]) -> list[bool]:
    """Whether no other row is at least as accurate and at most as costly, and better in one of the two.

    >>> front([0.8, 0.9, 0.7], [1.0, 2.0, 1.0])
    [True, True, False]
    """
    return [
        not any(b >= a and d <= c and (b > a or d < c) for b, d in zip(accuracy, cost, strict=True))
        for a, c in zip(accuracy, cost, strict=True)
    ]


def _chart(
    name: str,
    costs: "pd.Series[Any]",
    title: str,
    number: str,
    span: Sequence[float],
    rows: _Shown,
    look: Look,
    score: ScoreStyle,
) -> Drawing:
    groups = look.rows.groups or (tuple(rows.labels),)
    low, high = x_range(costs)
    x_scale = alt.Scale(domain=[low, high] if look.page else to_ticks([low, high], 4), nice=False, zero=False)
    y_scale = alt.Scale(domain=list(span) if look.page else to_ticks(span, 5), nice=False)
    x = alt.X("at:Q", title=title, scale=x_scale, axis=alt.Axis(**tick(number), tickCount=4))
    y_axis = alt.Axis(**tick("~g" if score.numeric else "~%"), tickCount=5)
    y = alt.Y("accuracy:Q", title=f"test {score.name}", scale=y_scale, axis=y_axis)
    own_color, shape = _color_and_shape(rows, look)
    own_fill = constant(alt.FillValue, alt.ExprRef(_filled(rows.hollow)))
    base = hideable(alt.Chart(alt.NamedData(name=name)), look)
    base = held_within(base, span, "accuracy", "low", "high") if rows.cut else base
    tooltip = [
        alt.Tooltip("strategy:N"),
        text_tooltip("accuracy", score.heading("test")),
        text_tooltip("low", "95% interval, from"),
        text_tooltip("high", "95% interval, to"),
        text_tooltip("x", title),
        alt.Tooltip("standing:N", title="on the front"),
    ]
    fill = decided(alt.FillOpacityValue, "datum.front", 1, 0)
    size: dict[str, Any] = {"size": 80, "strokeWidth": 2} if look.page else {"size": 50, "strokeWidth": 1}
    parts = in_order(base, rows.named)
    lines: dict[str, Any] = {
        "aria": False,
        "strokeWidth": 1.2,
        "opacity": 1.0 if max(map(len, groups)) <= ALL_NAMED else 0.3,
    }
    layers: list[alt.Chart] = [
        part.mark_rule(**lines).encode(x, alt.Y("low:Q", scale=y_scale), alt.Y2("high:Q"), own_color) for part in parts
    ]
    layers += [_gaps(base, look).encode(x, y)] if rows.gaps else []
    for part in in_order(front_of_shown_rows(base), rows.named) if look.page else parts:
        told = part.transform_calculate(told=TOLD)
        points = told.mark_point(opacity=1, filled=False, **size)
        layers.append(
            points.encode(
                x,
                y,
                own_color,
                own_fill,
                fillOpacity=fill,
                tooltip=tooltip,
                description=alt.Description("told:N"),
                **shape,
            )
        )
    if look.page:
        places = hideable(alt.Chart(alt.NamedData(name=f"{name}_names")), look)
        places = places.transform_filter("datum.log == 0 && width >= datum.least && width < datum.below")
        layers.insert(
            1, _leaders(places.transform_filter("datum.far"), look).encode(x, y, alt.X2("at:Q"), alt.Y2("name_y:Q"))
        )
        _add_names(layers, places, (x, y_scale, own_color), look)
    whole, log = layered(*layers), log_x_range(costs)
    if look.page and log is not None:
        whole = with_properties(whole, usermeta={"log": {"x": log}})
    return sized(whole, look, HEIGHT, 120)


def _gaps(rows: alt.Chart, look: Look) -> alt.Chart:
    """Gaps in intervals at the points of rows without an interval: one of another row would look as if it was theirs."""
    radius = GAP if look.page else GAP / 2
    gaps: alt.Chart = rows.transform_filter("!isValid(datum.low)").mark_point(
        filled=True, color=look.ground, opacity=1, size=math.pi * radius**2, aria=False, tooltip=None
    )
    return gaps


def _leaders(names: alt.Chart, look: Look) -> alt.Chart:
    """Lines from points to far names: slanted, thin, and in the color of no row, so that they do not look like intervals."""
    begin, end = (alt.ExprRef(f"datum.right ? {at} : {-at}") for at in (BESIDE - 2, LED - 3))
    lines: alt.Chart = names.mark_rule(
        color=look.soft, strokeWidth=0.8, opacity=0.8, aria=False, xOffset=begin, x2Offset=end
    )
    return lines


def _add_names(
    layers: list[alt.Chart],
    places: alt.Chart,
    encodings: tuple[alt.X, alt.Scale, alt.Color],
    look: Look,
) -> None:
    """Add the names beside the points, and behind the points the same names in the color of the ground."""
    x, y_scale, own_color = encodings
    name_y, text = alt.Y("name_y:Q", scale=y_scale), alt.Text("name:N")
    for number, side in enumerate(("datum.right", "!datum.right")):
        sign = -1 if number else 1
        away = alt.ExprRef(f"datum.far ? {sign * LED} : {sign * BESIDE}")
        beside: dict[str, Any] = {"align": "right" if number else "left", "dx": away}
        names = places.transform_filter(side).mark_text(
            aria=False, fontSize=look.size, clip=False, baseline="middle", **beside
        )
        layers.insert(1, outlined(names.encode(x, name_y, text=text), look))
        layers.append(names.encode(x, name_y, own_color, text=text))
