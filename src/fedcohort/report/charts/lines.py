"""Lines of strategies over rounds, time or bytes: mean and band over seeds, names at the ends, values at the pointer."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from fedcohort.core.arrays import Values
from fedcohort.report.gather import POINTS, Reading, blocks
from fedcohort.report.look import Look, tick

__all__ = [
    "band",
    "by_round",
    "colour",
    "dash",
    "domain",
    "ends",
    "hideable",
    "legend_columns",
    "lines",
    "marks",
    "on_grid",
    "thinned",
]


# --- data ----------------------------------------------------------------------------------------------------------------


def by_round(rows: Sequence[tuple[str, Sequence[Reading]]], series: Any) -> pd.DataFrame:
    """Mean and band over seeds of ``series(reading)`` [n] for each round; more than :data:`POINTS` rounds are averaged in blocks.

    Columns: ``strategy``, ``x`` (the round), ``mean``, ``low`` and ``high`` (mean ± standard deviation; NaN with one seed), ``seeds``.
    """
    frames = []
    for label, readings in rows:
        values = [(one.rounds.index.to_numpy(np.float64), np.asarray(series(one), np.float64)) for one in readings]
        longest = max((len(x) for x, _ in values), default=0)
        if not longest:
            continue
        matrix = np.full((len(values), longest), np.nan)
        for row, (_, y) in zip(matrix, values, strict=True):
            row[: len(y)] = y
        frames.append(_bands(label, np.arange(1.0, longest + 1), matrix))
    return _joined(frames)


def on_grid(rows: Sequence[tuple[str, Sequence[Reading]]], series: Any, clock: Any, points: int = 120) -> pd.DataFrame:
    """The same over a clock of each run's own, time or bytes: at every point what was reached by then.

    A row ends where its first seed ends, so that every point is a mean over all its seeds.
    """
    frames = []
    for label, readings in rows:
        pairs = [(np.asarray(clock(one), np.float64), np.asarray(series(one), np.float64)) for one in readings]
        pairs = [(x[~np.isnan(y)], y[~np.isnan(y)]) for x, y in pairs]
        pairs = [(x, y) for x, y in pairs if len(x)]
        if not pairs:
            continue
        start, end = max(x[0] for x, _ in pairs), min(x[-1] for x, _ in pairs)
        grid = pairs[0][0] if len(pairs) == 1 else np.linspace(start, max(end, start), points)
        matrix = np.stack([y[np.clip(np.searchsorted(x, grid, side="right") - 1, 0, None)] for x, y in pairs])
        frames.append(_bands(label, grid, matrix))
    return _joined(frames)


def _bands(label: str, x: Values, matrix: Values) -> pd.DataFrame:
    known = ~np.isnan(matrix)
    number = known.sum(axis=0)
    total = np.where(known, matrix, 0).sum(axis=0)
    mean = np.divide(total, number, out=np.full(len(x), np.nan), where=number > 0)
    squares = (np.where(known, matrix - mean, 0) ** 2).sum(axis=0)
    sd = np.sqrt(np.divide(squares, number - 1, out=np.full(len(x), np.nan), where=number > 1))
    frame = pd.DataFrame({"x": x, "mean": mean, "low": mean - sd, "high": mean + sd, "seeds": number})
    frame = thinned(frame[number > 0])
    frame.insert(0, "strategy", label)
    return frame


def thinned(frame: pd.DataFrame, most: int = POINTS) -> pd.DataFrame:
    """At most that many rows: means of blocks of rows."""
    if len(frame) <= most:
        return frame
    averaged: pd.DataFrame = frame.groupby(blocks(len(frame), most)).mean()
    return averaged


def _joined(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    if not frames:
        return pd.DataFrame({"strategy": [], "x": [], "mean": [], "low": [], "high": [], "seeds": []})
    return pd.concat(frames, ignore_index=True)


def band(frame: pd.DataFrame) -> bool:
    """Whether there is a band to draw."""
    return bool(np.isfinite(frame["low"]).any())


def domain(*columns: Any, floor: float | None = None, ceiling: float | None = None) -> list[float]:
    """What an axis spans: all values and a little room, inside the limits that the quantity has."""
    values = np.concatenate([np.asarray(column, np.float64).ravel() for column in columns])
    values = values[np.isfinite(values)]
    if not len(values):
        return [floor if floor is not None else 0.0, ceiling if ceiling is not None else 1.0]
    low, high = float(values.min()), float(values.max())
    room = 0.05 * (high - low) or 0.05 * abs(high) or 0.05
    low, high = low - room, high + room
    return [max(low, floor) if floor is not None else low, min(high, ceiling) if ceiling is not None else high]


def marks(number: int, most: int = 7) -> list[int]:
    """Whole numbers below ``number`` for an axis, evenly spaced; an axis that runs downwards finds none of itself."""
    step = next(s for s in (k * 10**e for e in range(9) for k in (1, 2, 5)) if number / s <= most)
    return list(range(0, number, step))


# --- encodings -----------------------------------------------------------------------------------------------------------


def colour(labels: Sequence[str], look: Look, *, legend: bool = True) -> alt.Color:
    """A strategy's colour; the legend of the page is its bar of strategies."""
    scale = alt.Scale(domain=list(labels), range=look.colours(len(labels)))
    return alt.Color("strategy:N", scale=scale, legend=_legend(labels, look) if legend else None)


def _legend(labels: Sequence[str], look: Look) -> alt.Legend | None:
    """Strokes beside the strategies' names; none on the page."""
    if look.page:
        return None
    return alt.Legend(
        title=None,
        columns=legend_columns(labels, look),
        symbolType="stroke",
        symbolOpacity=1,
        symbolSize=260,
        symbolStrokeWidth=1.6,
    )


def legend_columns(labels: Sequence[str], look: Look) -> int:
    """Legend entries that fit side by side under the axis; a column is as wide as its longest name."""
    widths = [len(label) * look.size * 0.52 + 40 for label in labels]

    def whole(columns: int) -> float:
        return sum(max(widths[first::columns]) for first in range(columns))

    return next((n for n in range(len(labels), 1, -1) if whole(n) <= (look.width or 600) - 30), 1)


def dash(labels: Sequence[str], look: Look, *, legend: bool = True) -> alt.StrokeDash:
    """A strategy's dash."""
    scale = alt.Scale(domain=list(labels), range=look.dashes(len(labels)))
    return alt.StrokeDash("strategy:N", scale=scale, legend=_legend(labels, look) if legend else None)


def hideable(chart: Any, look: Look) -> Any:
    """A chart whose strategies readers can hide: the page sets ``hidden``."""
    if not look.page:
        return chart
    return chart.transform_filter("indexof(hidden, datum.strategy) < 0")


def ends(frame: pd.DataFrame, labels: Sequence[str], span: Sequence[float], look: Look) -> pd.DataFrame:
    """Where the names at the ends of lines stand: at the last value, moved apart until none covers another."""
    last = frame.dropna(subset=["mean"]).groupby("strategy", sort=False).tail(1).sort_values("mean")
    gap = 1.25 * look.size * (span[1] - span[0]) / look.height
    at = last["mean"].to_numpy(np.float64).copy()
    for _ in range(60):
        moved = False
        for i in range(len(at) - 1):
            overlap = gap - (at[i + 1] - at[i])
            if overlap > 1e-9:
                at[i], at[i + 1], moved = at[i] - overlap / 2, at[i + 1] + overlap / 2, True
        if not moved:
            break
    if len(at):
        at += max(0.0, span[0] - at[0]) - max(0.0, at[-1] - span[1])
    return pd.DataFrame({"strategy": last["strategy"], "x": frame["x"].max(), "y": at, "name": last["strategy"]})


# --- the chart -----------------------------------------------------------------------------------------------------------


def lines(
    name: str,
    frame: pd.DataFrame,
    labels: Sequence[str],
    look: Look,
    *,
    x: str,
    y: str,
    span: Sequence[float],
    percent: bool = False,
    x_format: str = ",.0f",
    reference: bool = False,
    target: float | None = None,
) -> tuple[alt.LayerChart, dict[str, pd.DataFrame]]:
    """Mean lines with bands.

    Args:
        name: of the data.
        frame: from :func:`by_round` or :func:`on_grid`.
        labels: all strategies, in their order.
        look: how it looks.
        x, y: titles of the axes.
        span: what the y axis spans.
        percent: whether values are fractions.
        x_format: d3 format of the x axis.
        reference: whether the caller gives the data ``<name>_reference``, drawn in grey behind the lines.
        target: a level that is marked.
    """
    digits = ".1%" if percent else ",.4~g"
    x_scale = alt.Scale(
        nice=False, zero=False, domain=[float(frame["x"].min()), float(frame["x"].max())] if len(frame) else [0, 1]
    )
    at = alt.X("x:Q", title=x, scale=x_scale, axis=alt.Axis(**tick(x_format), tickCount=6))
    y_axis = alt.Axis(**tick("~%" if percent else "~g"), tickCount=5)
    y_scale = alt.Scale(domain=list(span), nice=False, zero=False)

    def high(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title=y, scale=y_scale, axis=y_axis)

    base = hideable(alt.Chart(alt.NamedData(name=name)), look)
    layers: list[Any] = []
    if reference:
        grey = alt.Chart(alt.NamedData(name=f"{name}_reference"))
        layers.append(grey.mark_area(opacity=0.14, color=look.soft).encode(at, high("low"), y2=alt.Y2("high:Q")))
        layers.append(grey.mark_line(color=look.soft, strokeWidth=1, strokeDash=[2, 2]).encode(at, high("mean")))
    if target is not None and span[0] < target < span[1]:
        level = alt.Chart(alt.InlineData(values=[{"level": target, "name": f"target {100 * target:g} %"}]))
        words = level.mark_text(align="left", baseline="bottom", dx=3, dy=-2, color=look.soft, fontSize=look.size - 1)
        layers.append(level.mark_rule(strokeDash=[1, 3], strokeWidth=1, color=look.soft).encode(high("level")))
        layers.append(words.encode(high("level"), x=alt.value(0), text=alt.Text("name:N")))
    if band(frame):
        layers.append(
            base.mark_area(opacity=0.13, clip=True).encode(at, high("low"), alt.Y2("high:Q"), colour(labels, look))
        )
    drawn = base.mark_line(clip=True).encode(at, high("mean"), colour(labels, look), dash(labels, look))
    layers.append(drawn.add_params(_zoom()) if look.page else drawn)
    data = {name: frame}
    few = len(frame) and frame.groupby("strategy", sort=False).size().max() <= 2
    if look.page or few:
        hover = alt.selection_point(
            nearest=True, on="pointerover", clear="pointerout", fields=["x"], empty=False, name="hover"
        )
        tooltip = [
            alt.Tooltip("strategy:N", title="strategy"),
            alt.Tooltip("x:Q", title=x, format=",.4~s" if x_format == "~s" else x_format),
            alt.Tooltip("mean:Q", title=y, format=digits),
            *([alt.Tooltip("seeds:Q", title="seeds", format=".3~g")] if frame["seeds"].nunique() > 1 else []),
            *(
                [alt.Tooltip("low:Q", title="− sd", format=digits), alt.Tooltip("high:Q", title="+ sd", format=digits)]
                if band(frame)
                else []
            ),
        ]
        shown = 1 if few else 0
        points = base.mark_point(size=46 if look.page else 22, opacity=1).encode(
            at,
            high("mean"),
            colour(labels, look),
            opacity=alt.OpacityValue(1)
            if not look.page
            else alt.when(hover).then(alt.value(1)).otherwise(alt.value(shown)),
            tooltip=tooltip,
        )
        layers.append(points.add_params(hover) if look.page else points)
    if look.page and 1 < len(labels) <= 8 and len(frame):
        data[f"{name}_ends"] = ends(frame, labels, span, look)
        names = hideable(alt.Chart(alt.NamedData(name=f"{name}_ends")), look).mark_text(
            align="left", dx=7, fontWeight=600, fontSize=look.size, clip=False
        )
        layers.append(
            names.encode(
                alt.X("x:Q", scale=x_scale),
                alt.Y("y:Q", scale=y_scale),
                colour(labels, look),
                text=alt.Text("name:N"),
                opacity=alt.OpacityValue(alt.ExprRef("named ? 1 : 0")),
            )
        )
    chart = alt.layer(*layers)
    return _sized(chart, look), data


def _zoom() -> alt.Parameter:
    """Drag moves along x, the wheel zooms while Shift is held (without it the page scrolls), a double click shows all again."""
    return alt.selection_interval(
        bind="scales",
        encodings=["x"],
        name="zoom",
        zoom="wheel![event.shiftKey]",
        translate="[pointerdown, window:pointerup] > window:pointermove!",
    )


def _sized(chart: Any, look: Look) -> Any:
    return chart.properties(width="container" if look.width is None else look.width, height=look.height)
