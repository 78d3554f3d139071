"""Draw the test accuracy of every strategy against what it costs, with the strategies that no other one beats in both."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from fedcohort import measures
from fedcohort.core import formatted_values
from fedcohort.core.score_style import ScoreStyle
from fedcohort.report.chart_style import Look, tick
from fedcohort.report.charts.axes_and_legends import (
    LISTED,
    color,
    hideable,
    legend_columns,
    outlined,
    sized,
    text_tooltip,
    with_texts,
)
from fedcohort.report.charts.layers import decided, layered, with_properties
from fedcohort.report.charts.means_and_bands import domain, log_range
from fedcohort.report.charts.names_beside_points import names_with_room
from fedcohort.report.charts.strategy_lines import apart
from fedcohort.report.cost_notes import NO_TIME, about_questions
from fedcohort.report.figure import Drawing, Figure, Panel, View
from fedcohort.report.report_data import Story
from fedcohort.study.comparison import Comparison
from fedcohort.study.verdicts import FEWEST

__all__ = ["accuracy_and_cost", "front"]

HEIGHT = 240
"""Height of the chart on the page."""

PHONE = 270
"""About the width of the chart on a phone, in pixels."""

NAME = 18
"""Number of letters to which the page's script cuts names on a phone."""

ALL_NAMED = 12
"""With more rows at a point, names and intervals of all of them would cover each other."""

FRONT_NAMED = 6
"""Then, the largest number of rows on the front with a name: names of more would stand far from their points."""

MARGIN = 0.04
"""Room after the largest cost, as a share of it."""

SPREAD = 0.06
"""Largest distance between the first and the last of the rows with one cost, as a share of the axis."""

COSTS: tuple[tuple[str, str, str, Callable[[float], str]], ...] = (
    ("bytes", "bytes sent and received", "~s", formatted_values.size),
    ("client_passes", "client passes", "~s", formatted_values.count),
    ("simulated_time", "simulated time of all rounds", "~s", formatted_values.count),
)
"""Column of a comparison's table, title, d3 format, and how tooltips write it."""


def accuracy_and_cost(story: Story, look: Look) -> Figure | None:
    """Test accuracy after the last round against bytes, client passes and time; None with fewer than two rows that were tested."""
    compared = story.comparison
    if compared is None or np.isfinite(compared.table["accuracy"].to_numpy(np.float64)).sum() < 2:
        return None
    labels, score = [label for label, _ in story.played], story.score
    frame = _rows(compared, labels, look)
    span = domain(frame["accuracy"], frame["low"], frame["high"], floor=None if score.numeric else 0.0, ceiling=1.0)
    views: list[View] = []
    data: dict[str, pd.DataFrame] = {}
    dodged = False
    on_wall = all(row.on_wall_clock for row in compared.rows)
    for column, title, number, write in COSTS:
        name = f"tradeoff_{column}"
        if column == "simulated_time" and on_wall:
            title = "wall time of all rounds, s"
        own = frame.assign(x=frame[column], front=_fronts(compared, frame, column))
        own = own[np.isfinite(own["accuracy"]) & np.isfinite(own["x"])]
        own["at"], beside = _side_by_side(compared, own["x"], 0.0, float(own["x"].max()))
        dodged, log = dodged or beside, _log_x_range(own["x"]) if look.page else None
        if log is not None:
            places, _ = _side_by_side(compared, np.log10(own["x"]), *np.log10(log).tolist())
            own["at_log"] = 10**places
        own["named"] = _named(compared, own)
        many = look.page and _most(compared) > ALL_NAMED
        if many:
            data[f"{name}_names"] = _names_of_many(compared, own, span, look)
        own["name_y"] = _name_heights(compared, own[own["named"]], span, look).reindex(own.index, fill_value=span[0])
        own["standing"] = np.where(
            own["front"], "no other row is better and cheaper", "another row is better and cheaper"
        )
        texts = {"x": write, **dict.fromkeys(("accuracy", "low", "high"), score.value)}
        data[name] = with_texts(own.drop(columns=[column for column, *_ in COSTS]), texts)
        views.append(View(title, [Panel(_chart(name, own["x"], title, number, span, labels, look, score))]))
    note = _note(compared, frame, look, dodged=dodged)
    return Figure("tradeoff", f"{score.title} and cost", note, views, data)


def _note(compared: Comparison, frame: pd.DataFrame, look: Look, *, dodged: bool) -> str:
    """The caption: what is filled, named, moved and drawn."""
    note = (
        f"Mean over seeds after the last round. Filled: no other row has at least this {compared.score.name} for less, or more "
        "for at most this cost. Hollow: another row has."
    )
    if _most(compared) > ALL_NAMED and look.page:
        note += (
            f" Names: the reference, and at most the {FRONT_NAMED} best of the rows that are filled, where a name covers no other "
            "name or row; point at a row for its name."
        )
    if dodged:
        note += " Rows with the same cost are drawn side by side."
    if frame["low"].notna().any():
        note += " Vertical line: 95% interval of the mean (Student's t)."
    if NO_TIME in about_questions(run for row in compared.rows for run in row.runs.values()):
        note += f" {NO_TIME}"
    return note


def _most(compared: Comparison) -> int:
    """The largest number of rows at a point."""
    return max(len(group.rows) for group in compared.groups)


def _rows(compared: Comparison, labels: Sequence[str], look: Look) -> pd.DataFrame:
    """Accuracy with its interval, and costs, of each row; the interval is NaN with fewer than :data:`FEWEST` seeds."""
    rows = []
    for label, row, own in zip(labels, compared.rows, compared.table.to_dict("records"), strict=True):
        values = [result.accuracy for result in compared.results[row.label]]
        low = high = math.nan
        if len(values) >= FEWEST:
            _, low, high = measures.paired_interval(values, np.zeros(len(values)), limits=compared.score.limits)
        costs = {column: float(own[column]) for column, *_ in COSTS}
        name = look.rows.names.get(label, label)
        rows.append({"strategy": label, "name": name, "accuracy": own["accuracy"], "low": low, "high": high, **costs})
    return pd.DataFrame(rows)


def _side_by_side(
    compared: Comparison, costs: "pd.Series[float]", low: float, high: float
) -> tuple["pd.Series[float]", bool]:
    """Where rows are drawn along the axis of costs, which begins at ``low``, if the largest cost is ``high``: rows of a point with
    almost the same cost are moved apart, so that no interval covers another, but not far from their costs; and whether any was."""
    whole = max(high - low, 1e-9)
    step = 0.012 * whole
    places, moved = costs.astype(float).copy(), False
    for group in compared.groups:
        own = costs[costs.index.isin(group.rows)].sort_values(kind="stable")
        cluster: list[int] = []
        for row, cost in [*own.items(), (-1, math.inf)]:
            if cluster and cost - own[cluster[-1]] > step / 2:
                each = min(step, SPREAD * whole / max(1, len(cluster) - 1))
                first = own[cluster[0]]
                inside = max(0.0, each * (len(cluster) - 1) / 2 - (first - low) / 2)  # not before the begin of the axis
                for i, member in enumerate(cluster):
                    places[member] = own[member] + each * (i - (len(cluster) - 1) / 2) + inside
                moved, cluster = moved or len(cluster) > 1, []
            cluster.append(int(str(row)))
    return places, moved


def _color_and_shape(labels: Sequence[str], look: Look) -> tuple[alt.Color, dict[str, alt.Shape]]:
    """The color of each strategy; in papers also its symbol, with the legend of both."""
    if look.page:
        return color(labels, look, legend=False), {}
    columns, drawn = legend_columns(labels, look), len(labels) <= LISTED
    legend = (
        alt.Legend(title=None, columns=columns, symbolStrokeWidth=1, symbolSize=36, symbolOpacity=1) if drawn else None
    )
    colors, _, symbols = look.of_rows(labels)
    return (
        alt.Color("strategy:N", scale=alt.Scale(domain=list(labels), range=colors), legend=legend),
        {"shape": alt.Shape("strategy:N", scale=alt.Scale(domain=list(labels), range=symbols), legend=legend)},
    )


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


def _names_of_many(compared: Comparison, frame: pd.DataFrame, span: Sequence[float], look: Look) -> pd.DataFrame:
    """The places of names on linear and on logarithmic axes, at each point: first the reference has a name, then the best rows."""
    places = []
    for group in compared.groups:
        own = frame[frame.index.isin(group.rows)]
        named = own[own["named"]].sort_values("accuracy", ascending=False, kind="stable").index.tolist()
        wanted = sorted(named, key=lambda row: row != group.reference)
        for log, across in enumerate(_across(frame["x"])):
            points = own.assign(at=own["at_log"]) if log else own
            found = names_with_room(points, wanted, across, span, (look.size, HEIGHT))
            places.append(found.assign(log=log, at_log=found["at"]))
    return pd.concat(places, ignore_index=True)


def _across(costs: "pd.Series[Any]") -> list[Callable[[float], float]]:
    """From a cost to its share of the width: of a linear axis, and of a logarithmic one if the chart can have it."""
    low, high = _x_range(costs)
    log = _log_x_range(costs)
    found: list[Callable[[float], float]] = [lambda cost: (cost - low) / (high - low)]
    if log is not None:
        first, last = np.log(log)
        found.append(lambda cost: float((np.log(cost) - first) / (last - first)) if cost > 0 else math.nan)
    return found


def _x_range(costs: "pd.Series[Any]") -> tuple[float, float]:
    """The range of the axis of costs: from 0, so that small differences of costs look small, with room for the last point."""
    return 0.0, (1 + MARGIN) * domain(costs, [0.0])[1]


def _log_x_range(costs: "pd.Series[Any]") -> list[float] | None:
    """The range of the axis of costs if readers make it logarithmic; None if they cannot."""
    found = log_range(costs, 3)
    if found is None:
        return None
    low, high = found
    return [low / 1.1, high * (high / low) ** 0.05]


def _name_heights(compared: Comparison, frame: pd.DataFrame, span: Sequence[float], look: Look) -> "pd.Series[float]":
    """The heights of the names beside their points: moved apart where names of a group would cover each other on a phone."""
    heights = frame["accuracy"].astype(float).copy()
    highest = max(float(frame["at"].max()), 1e-9)  # the axis begins at 0
    width = (0.55 * look.size * frame["name"].str.len().clip(upper=NAME) + 8) / PHONE * highest
    left = frame["at"].where(frame["at"] <= highest / 2, frame["at"] - width)
    for group in compared.groups:
        own = frame.assign(left=left, right=left + width)[frame.index.isin(group.rows)].sort_values(
            "left", kind="stable"
        )
        cluster = (own["left"] > own["right"].cummax().shift()).cumsum()
        for _, rows in own.groupby(cluster):
            ordered = rows["accuracy"].sort_values(kind="stable")
            heights[ordered.index] = apart(
                ordered.to_numpy(np.float64), 1.3 * look.size * (span[1] - span[0]) / HEIGHT, span
            )
    return heights


def _fronts(compared: Comparison, frame: pd.DataFrame, column: str) -> np.ndarray:
    """Whether each row is on the front of its group."""
    on_front = np.zeros(len(frame), dtype=bool)
    for group in compared.groups:
        rows = list(group.rows)
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
    labels: Sequence[str],
    look: Look,
    score: ScoreStyle,
) -> Drawing:
    groups = look.rows.groups or (tuple(labels),)
    low, high = _x_range(costs)
    x_scale = alt.Scale(domain=[low, high], nice=False, zero=False)
    y_scale = alt.Scale(domain=list(span), nice=False)
    x = alt.X("at:Q", title=title, scale=x_scale, axis=alt.Axis(**tick(number), tickCount=4))
    y_axis = alt.Axis(**tick("~g" if score.numeric else "~%"), tickCount=5)
    y = alt.Y("accuracy:Q", title=f"test {score.name}", scale=y_scale, axis=y_axis)
    own_color, shape = _color_and_shape(labels, look)
    fill_color = alt.Fill(
        "strategy:N", scale=alt.Scale(domain=list(labels), range=look.of_rows(labels)[0]), legend=None
    )
    base = hideable(alt.Chart(alt.NamedData(name=name)), look)
    tooltip = [
        alt.Tooltip("strategy:N"),
        text_tooltip("accuracy", score.heading("test")),
        text_tooltip("low", "95% interval, from"),
        text_tooltip("high", "95% interval, to"),
        text_tooltip("x", title),
        alt.Tooltip("standing:N", title="on the front"),
    ]
    fill = decided(alt.FillOpacityValue, "datum.front", 1, 0)
    layers: list[alt.Chart] = [
        base.mark_rule(strokeWidth=1.2, opacity=1.0 if max(map(len, groups)) <= ALL_NAMED else 0.3).encode(
            x, alt.Y("low:Q", scale=y_scale), alt.Y2("high:Q"), own_color
        ),
        base.mark_point(
            size=80 if look.page else 50, strokeWidth=2 if look.page else 1, opacity=1, filled=False
        ).encode(x, y, own_color, fill_color, fillOpacity=fill, tooltip=tooltip, **shape),
    ]
    if look.page:
        many = max(map(len, groups)) > ALL_NAMED
        places = hideable(alt.Chart(alt.NamedData(name=f"{name}_names")), look) if many else base
        if many:
            places = places.transform_filter("datum.log == 0 && width >= datum.least && width < datum.below")
            leaders = places.transform_filter("datum.far").mark_rule(strokeWidth=1)
            layers.insert(1, leaders.encode(x, y, alt.Y2("name_y:Q"), own_color))
        _add_names(layers, places, _sides(many, high / (1 + MARGIN) / 2), (x, y_scale, own_color), look)
    whole, log = layered(*layers), _log_x_range(costs)
    if look.page and log is not None:
        whole = with_properties(whole, usermeta={"log": {"x": log}})
    return sized(whole, look, HEIGHT, 120)


def _sides(many: bool, middle: float) -> tuple[str, str]:
    """Which names stand on the right and on the left of their points: of few rows, those of the left and of the right half, so that
    none leaves the chart."""
    if many:
        return "datum.right", "!datum.right"
    return f"datum.named && datum.at <= {middle}", f"datum.named && datum.at > {middle}"


def _add_names(
    layers: list[Drawing],
    places: Drawing,
    sides: tuple[str, str],
    encodings: tuple[alt.X, alt.Scale, alt.Color],
    look: Look,
) -> None:
    """Add the names beside the points, and behind the points the same names in the color of the ground."""
    x, y_scale, own_color = encodings
    name_y, text = alt.Y("name_y:Q", scale=y_scale), alt.Text("name:N")
    for number, side in enumerate(sides):
        beside: dict[str, Any] = {"align": "right", "dx": -8} if number else {"align": "left", "dx": 8}
        names = places.transform_filter(side).mark_text(fontSize=look.size, clip=False, baseline="middle", **beside)
        layers.insert(1, outlined(names.encode(x, name_y, text=text), look))
        layers.append(names.encode(x, name_y, own_color, text=text))
