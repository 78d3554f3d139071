"""Provide what many charts share: axes, colors, dashes, legends, sizes and tooltips."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import altair as alt
import pandas as pd

from fedcohort.core.words import formatted_values
from fedcohort.report.data.report_data import Reading, Story
from fedcohort.report.figures.chart_style import REST, UNCLEAR, Look
from fedcohort.report.figures.figure import Drawing
from fedcohort.report.figures.layers import with_properties
from fedcohort.report.figures.panel_rows import LINES

__all__ = [
    "LISTED",
    "NAMED",
    "NAME_WIDTH",
    "SWATCH",
    "as_drawn",
    "beside",
    "by_point",
    "color",
    "crowded",
    "dash",
    "hideable",
    "in_order",
    "is_long",
    "legend_columns",
    "marks",
    "number_tooltip",
    "of_strategy",
    "outlined",
    "pale",
    "panel_colors",
    "panel_name",
    "panels_by_point",
    "paper_rows_height",
    "round_axis",
    "rounds_beside",
    "rows_height",
    "sized",
    "strategy_axis",
    "text_tooltip",
    "ticks_beside",
    "whole_ticks",
    "with_texts",
]


NAMED = 8
"""Largest number of lines with their names at their ends, and with bands; charts of more lines have a legend beside them, and no
bands, which would cover each other."""

NAME_WIDTH = 250
"""Width of the longest name of a strategy on the page, in pixels. Names are cut in the middle to at most 34 letters before, so that
they stay distinct; a second cut at their end would make them equal."""

DENSE = 24
"""Largest number of bars that are as high as looks best."""

LISTED = LINES
"""Largest number of lines with a legend: that of more would take the room of the chart, or name some of them only. The list of
strategies above the charts has the colors of all, and the lines of the best rows are named; in papers, captions say that there is no
legend."""

SWATCH = 26
"""Width of the lines in legends: one and a half times the longest pattern of dashes, so that each can be told from the others."""

PALE = 0.3
"""Opacity of the lines of many rows that are not named."""


def crowded(labels: Sequence[str], groups: Sequence[Sequence[str]]) -> bool:
    """Whether a chart has more than :data:`NAMED` lines, of all rows, or of those of a point if the page shows one at a time."""
    return _most(labels, groups) > NAMED


def as_drawn(frame: pd.DataFrame, labels: Sequence[str], look: Look) -> pd.DataFrame:
    """The lines with the bands that are drawn: an axis has no room for bands that are left out, because there are many lines."""
    return frame.assign(low=frame["mean"], high=frame["mean"]) if crowded(labels, look.rows.groups) else frame


def _most(labels: Sequence[str], groups: Sequence[Sequence[str]]) -> int:
    return max((len(set(labels) & set(group)) for group in groups or (labels,)), default=0)


def rows_height(each: int, labels: Iterable[str], look: Look) -> float:
    """The height of a chart with a bar of ``each`` points for each row: for the rows of one point, if the page shows one at a time.

    Rows of more than :data:`DENSE` are as low as their names allow, so that the chart can be seen without much scrolling.
    """
    shown = set(labels)
    number = max((len(shown & set(group)) for group in look.rows.groups or (shown,)), default=1)
    return number * _row_height(each, number, look)


def paper_rows_height(each: int, labels: Iterable[str], look: Look) -> float:
    """As :func:`rows_height`, for papers, which show the rows of all points."""
    number = len(set(labels))
    return number * _row_height(each, number, look)


def _row_height(each: int, number: int, look: Look) -> int:
    return max(round(1.3 * look.size), round(0.55 * each)) if number > DENSE else each


def is_long(labels: Iterable[str], look: Look) -> bool:
    """Whether a chart with a bar for each row is so long that it has an axis at its top, too."""
    return _most(list(labels), look.rows.groups if look.page else ()) > DENSE


def sized(chart: Drawing, look: Look, height: float, paper: float | None = None) -> Drawing:
    """The chart as wide as its place, and ``height`` points high on the page, ``paper`` points high in a paper.

    Without ``paper``, charts in papers are half as high as on the page.
    """
    width = "container" if look.width is None else look.width
    return with_properties(
        chart, width=width, height=height if look.page else round(height * 0.5) if paper is None else paper
    )


def hideable(chart: alt.Chart, look: Look) -> alt.Chart:
    """The chart with its strategies filtered by ``hidden``, the list that the page's script sets; unchanged in papers."""
    if not look.page:
        return chart
    filtered: alt.Chart = chart.transform_filter("indexof(hidden, datum.strategy) < 0")
    return filtered


def in_order(chart: alt.Chart, strong: Sequence[str]) -> list[alt.Chart]:
    """The chart's rows in the order in which they are drawn: before the ``strong`` ones that papers name, the others; all of them if
    there are no strong ones."""
    if not strong:
        return [chart]
    place = f"indexof({json.dumps(list(strong))}, datum.strategy)"
    return [chart.transform_filter(f"{place} < 0"), chart.transform_filter(f"{place} >= 0")]


def of_strategy(name: str, label: str) -> alt.Chart:
    """An empty chart of the rows of the table ``name`` that belong to one strategy."""
    return alt.Chart(alt.NamedData(name=name)).transform_filter(alt.FieldEqualPredicate(field="strategy", equal=label))


def panel_name(label: str, look: Look) -> str:
    """The title of a strategy's panel: on the page, which shows one point of a sweep at a time, without the settings of the point."""
    return look.rows.names.get(label, label) if look.page else label


def panel_colors(story: Story, look: Look) -> list[str]:
    """The color of each row that has a panel; in papers, the gray of rows without a color of their own is darker than that of lines
    behind others, since panels have gray bands."""
    colors = look.of_rows([label for label, _ in story.panels])[0]
    return [UNCLEAR if color == REST else color for color in colors]


def beside(story: Story, label: str) -> list[Reading]:
    """The runs whose panels are shown together with that of a strategy, and need the same axes: those at its point of a sweep."""
    groups = [group for group in story.row_looks.groups if label in group]
    return [reading for name, reading in story.panels if not groups or name in groups[0]]


def by_point(story: Story, look: Look) -> list[list[Reading]]:
    """The runs of charts of single clients at each point of a sweep, of which the page shows one at a time; otherwise all of them."""
    groups = story.row_looks.groups if look.page else ()
    return [[reading for reading in story.first if reading.label in group] for group in groups] or [list(story.first)]


def panels_by_point(story: Story, look: Look) -> list[list[Reading]]:
    """The runs at each point of a sweep that have a panel."""
    drawn = {label for label, _ in story.panels}
    return [[reading for reading in readings if reading.label in drawn] for readings in by_point(story, look)]


def rounds_beside(story: Story, label: str) -> int:
    """The largest number of rounds of these runs."""
    return max(reading.num_rounds for reading in beside(story, label))


def outlined(texts: alt.Chart, look: Look, width: float = 3) -> alt.Chart:
    """The same texts in the color of the ground and bolder, to be drawn behind the texts, so that no line crosses their letters."""
    chart: alt.Chart = texts.copy()
    chart.mark = alt.MarkDef(
        **(
            texts.mark.to_dict(validate=False)
            | {"stroke": look.ground, "strokeWidth": width, "color": look.ground, "strokeJoin": "round"}
        )
    )
    return chart


# --- axes ----------------------------------------------------------------------------------------------------------------


def round_axis(rounds: int, field: str = "x:Q", **more: Any) -> alt.X:
    """The x axis of charts that draw each of ``rounds`` rounds as wide as 1."""
    scale = alt.Scale(domain=[0.5, rounds + 0.5], nice=False)
    return alt.X(field, title="round", scale=scale, axis=alt.Axis(**whole_ticks(rounds, 6)), **more)


def whole_ticks(span: float, most: int) -> dict[str, Any]:
    """Altair's settings for an axis of whole numbers over a range of this width, with about ``most`` ticks at most.

    A least distance of 1 alone does not do: Vega then still chooses half numbers for ranges of 1 or 2.
    """
    return {"tickMinStep": 1, "tickCount": max(1, min(most, int(span)))}


def strategy_axis(labels: Sequence[str], look: Look) -> alt.Y:
    """The y axis of bars with one bar for each strategy."""
    names = json.dumps(dict(look.rows.names))
    shown: dict[str, Any] = (
        {"labelExpr": f"{names}[datum.label] || datum.label"} if look.page and look.rows.names else {}
    )
    axis = alt.Axis(labelColor=look.ink, labelLimit=NAME_WIDTH, **shown)
    return alt.Y("strategy:N", sort=list(labels), title=None, axis=axis)


def ticks_beside(labels: Sequence[str], look: Look, most: int) -> int:
    """At most ``most`` ticks of an axis below bars: in papers, as many as have room beside the names of rows, so that none is left
    without its label."""
    if look.width is None:
        return most
    room = look.width - 0.56 * look.size * max(map(len, labels), default=0) - 10
    return max(2, min(most, int(room / (4.4 * look.size))))


def marks(number: int, most: int = 7) -> list[int]:
    """At most about ``most`` evenly spaced whole numbers below ``number``: labels of axes that run downwards."""
    step = next(s for s in (k * 10**e for e in range(9) for k in (1, 2, 5)) if number / s <= most)
    return list(range(0, number, step))


# --- colors and legends --------------------------------------------------------------------------------------------------


def color(labels: Sequence[str], look: Look, *, legend: bool = True) -> alt.Color:
    """The color of each strategy. On the page, the list of strategies above the charts is the legend, except for many lines."""
    scale = alt.Scale(domain=list(labels), range=look.of_rows(labels)[0])
    return alt.Color("strategy:N", scale=scale, legend=_legend(labels, look) if legend else None)


def dash(labels: Sequence[str], look: Look) -> alt.StrokeDash:
    """The dash of each strategy."""
    scale = alt.Scale(domain=list(labels), range=look.of_rows(labels)[1])
    return alt.StrokeDash("strategy:N", scale=scale, legend=_legend(labels, look))


def _legend(labels: Sequence[str], look: Look) -> alt.Legend | None:
    if look.page:
        if not NAMED < _most(labels, look.rows.groups) <= LISTED:
            return None
        return alt.Legend(title=None, labelLimit=NAME_WIDTH, columns=1, orient="right", **_swatch())
    listed = look.strong(labels) or list(labels)
    if len(listed) > LISTED:
        return None
    return alt.Legend(
        title=None,
        values=listed,
        columns=legend_columns(listed, look),
        symbolStrokeWidth=1.6,
        **_swatch(),
    )


def _swatch() -> dict[str, Any]:
    """The settings of a legend that shows lines, each :data:`SWATCH` wide.

    A symbol of a legend is as high as it is wide. A line is therefore drawn as a path that is longer than its symbol is wide.
    """
    height = 10
    return {
        "symbolType": f"M{-SWATCH / height:g},0L{SWATCH / height:g},0",  # in halves of the height
        "symbolSize": height**2,
        "symbolOffset": (SWATCH - height) / 2,
        "labelOffset": 4 + (SWATCH - height) / 2,
        "symbolOpacity": 1,
    }


def legend_columns(labels: Sequence[str], look: Look) -> int:
    """Number of legend entries that fit side by side below the chart; a column is as wide as its longest name."""
    widths = [len(label) * look.size * 0.52 + 40 for label in labels]

    def total_width(columns: int) -> float:
        return sum(max(widths[first::columns]) for first in range(columns))

    return next((n for n in range(len(labels), 1, -1) if total_width(n) <= (look.width or 600) - 30), 1)


def pale(look: Look) -> dict[str, Any]:
    """The encoding by which lines of many rows are pale, unless they are named, or readers highlight a row; empty for few rows."""
    if not look.page or not look.rows.named:
        return {}
    named = json.dumps(sorted(look.rows.named))
    strong = f"length(dimmed) > 0 || indexof({named}, datum.strategy) >= 0"  # the page's script adds the variable
    return {"opacity": _strong(strong)}


@cache
def _strong(condition: str) -> alt.OpacityValue:
    """Full opacity if the condition holds. Altair takes long to make it, therefore once."""
    pale_or_not = alt.condition(condition, alt.value(1), alt.value(PALE))
    return alt.OpacityValue.from_dict(dict(pale_or_not), validate=False)


# --- tooltips ------------------------------------------------------------------------------------------------------------


def with_texts(frame: pd.DataFrame, formats: Mapping[str, Callable[..., str]]) -> pd.DataFrame:
    """The table with a column ``<name>_text`` for each column in ``formats``: its numbers as the format writes them."""
    texts = {f"{name}_text": [write(value) for value in frame[name]] for name, write in formats.items()}
    return frame.assign(**texts)


def text_tooltip(name: str, title: str) -> alt.Tooltip:
    """A line of a tooltip: a number as :func:`with_texts` wrote it."""
    return alt.Tooltip(f"{name}_text:N", title=title)


def number_tooltip(name: str, kind: str, title: str | None = None) -> alt.Tooltip:
    """A line of a tooltip: a number that the browser writes, by a kind of :data:`fedcohort.core.words.formatted_values.D3_FORMATS`."""
    return alt.Tooltip(f"{name}:Q", title=name if title is None else title, format=formatted_values.D3_FORMATS[kind])
