"""Turn runs into the tables that charts draw: means and bands over seeds, and the range of an axis."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.words.score_style import ScoreStyle
from fedcohort.report.data.report_data import POINTS, Reading, blocks

__all__ = [
    "ANY_NUMBER",
    "SHARES",
    "Series",
    "Span",
    "by_round",
    "domain",
    "has_band",
    "log_range",
    "on_grid",
    "score_domain",
    "span_of",
    "thinned",
    "tick_step",
    "to_ticks",
]

Series = Callable[[Reading], ArrayLike]
"""One number for each round of a run [n]."""

Limits = tuple[float, float]
"""The smallest and the largest number that is possible; bands end there."""

ANY_NUMBER: Limits = (-np.inf, np.inf)
SHARES: Limits = (0.0, 1.0)
"""Limits of accuracies and other shares."""

GRID = 120
"""Number of points of a line over a clock that differs between runs."""


def by_round(
    rows: Sequence[tuple[str, Sequence[Reading]]],
    series: Series,
    limits: Limits = ANY_NUMBER,
    before: Mapping[str, int] | None = None,
) -> pd.DataFrame:
    """Mean and band over seeds of ``series`` for each round; more than :data:`POINTS` rounds are averaged in blocks.

    Columns: ``strategy``, ``x`` (the round), ``mean``, ``low`` and ``high`` (mean ± standard deviation, within ``limits``; NaN with
    one seed), ``seeds``; with means of blocks, also ``averaged``, their numbers of rounds. Rows in ``before`` end before the given
    round.
    """
    frames = []
    for label, readings in rows:
        last = _last(label, before)
        values = [np.asarray(series(reading), np.float64)[:last] for reading in readings]
        longest = max(map(len, values), default=0)
        if not longest:
            continue
        matrix = np.full((len(values), longest), np.nan)
        for row, own in zip(matrix, values, strict=True):
            row[: len(own)] = own
        frames.append(_bands(label, np.arange(1.0, longest + 1), matrix, limits))
    return _joined(frames)


def on_grid(
    rows: Sequence[tuple[str, Sequence[Reading]]],
    series: Series,
    clock: Series,
    limits: Limits,
    before: Mapping[str, int],
) -> pd.DataFrame:
    """The same table over a clock that differs between runs, such as time or bytes: at each point, the value reached by then.

    Every point is a mean over all seeds of the row. A run that has ended keeps its last value until the last run of its row ends, so
    that the line ends at the mean over seeds after the last round. While a run goes on, its value later than its last round is not
    known, and the row ends there. Rows in ``before`` end where the first of their runs has played the round before the given one.

    A further column, ``playing``, is the number of runs that have not ended before the point.
    """
    frames = [_over_clock(label, readings, series, clock, limits, _last(label, before)) for label, readings in rows]
    return _joined([frame for frame in frames if frame is not None])


def _last(label: str, before: Mapping[str, int] | None) -> int | None:
    """The last round of a row that ends before a round; None for other rows."""
    return before[label] - 1 if before and label in before else None


def _over_clock(
    label: str,
    readings: Sequence[Reading],
    series: Series,
    clock: Series,
    limits: Limits,
    last: int | None,
) -> pd.DataFrame | None:
    """The rows of :func:`on_grid` of one strategy up to round ``last``; None if its values are not known."""
    known = [(reading, curve) for reading in readings if (curve := _curve(reading, series, clock, last)) is not None]
    if not known:
        return None
    curves = [curve for _, curve in known]
    going_on = [x[-1] for reading, (x, _) in known if last is not None or not reading.ended]
    if last is not None and min(going_on) < max(x[0] for x, _ in curves):
        return None  # a run ends before another one has a value
    grid = _grid([x for x, _ in curves], min(going_on, default=None))
    values = np.stack([_reached(x, y, grid) for x, y in curves])
    playing = np.sum([grid <= x[-1] for x, _ in curves], axis=0)
    return _bands(label, grid, values, limits, playing=playing)


def _curve(reading: Reading, series: Series, clock: Series, last: int | None) -> tuple[Values, Values] | None:
    """Clock and values of the rounds up to ``last`` in which the value is known; None if there are none."""
    x, y = (np.asarray(each(reading), np.float64)[:last] for each in (clock, series))
    known = ~np.isnan(y)
    return (x[known], y[known]) if known.any() else None


def _grid(clocks: Sequence[Values], known_until: float | None) -> Values:
    """The points of a row: those of its only run, or evenly spaced ones from the last start to the last end, or to the point up to
    which all runs are known."""
    if len(clocks) == 1:
        return clocks[0]
    start = max(x[0] for x in clocks)
    end = max(x[-1] for x in clocks) if known_until is None else known_until
    return np.linspace(start, max(end, start), GRID)


def _reached(x: Values, y: Values, grid: Values) -> Values:
    reached: Values = y[np.clip(np.searchsorted(x, grid, side="right") - 1, 0, None)]
    return reached


def _bands(label: str, x: Values, matrix: Values, limits: Limits, **more: Indices) -> pd.DataFrame:
    known = ~np.isnan(matrix)
    number = known.sum(axis=0)
    total = np.where(known, matrix, 0).sum(axis=0)
    mean = np.divide(total, number, out=np.full(len(x), np.nan), where=number > 0)
    squares = (np.where(known, matrix - mean, 0) ** 2).sum(axis=0)
    sd = np.sqrt(np.divide(squares, number - 1, out=np.full(len(x), np.nan), where=number > 1))
    low, high = np.maximum(mean - sd, limits[0]), np.minimum(mean + sd, limits[1])
    frame = pd.DataFrame({"x": x, "mean": mean, "low": low, "high": high, "seeds": number, **more})
    frame = thinned(frame[number > 0])
    frame.insert(0, "strategy", label)
    return frame


def thinned(frame: pd.DataFrame, most: int = POINTS) -> pd.DataFrame:
    """The table with at most ``most`` rows: means of blocks of rows if it has more, with their numbers of rows as ``averaged``."""
    if len(frame) <= most:
        return frame
    block = blocks(len(frame), most)
    means: pd.DataFrame = frame.groupby(block).mean().assign(averaged=np.bincount(block))
    return means


def _joined(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    if not frames:
        return pd.DataFrame({"strategy": [], "x": [], "mean": [], "low": [], "high": [], "seeds": []})
    joined = pd.concat(frames, ignore_index=True)
    return joined.assign(averaged=joined["averaged"].fillna(1).astype(int)) if "averaged" in joined else joined


def has_band(frame: pd.DataFrame) -> bool:
    """Whether the table has a band to draw, which takes at least two seeds."""
    return bool(np.isfinite(frame["low"]).any())


CONSTANT = 1e-4
"""If the values differ by at most this share of the largest, the axis does not magnify the difference: the line looks constant."""


def domain(*columns: ArrayLike, floor: float | None = None, ceiling: float | None = None) -> list[float]:
    """The range of an axis: all finite values and a margin of 5%, within the limits of the quantity."""
    values = np.concatenate([np.asarray(column, np.float64).ravel() for column in columns])
    values = values[np.isfinite(values)]
    if not len(values):
        return [floor if floor is not None else 0.0, ceiling if ceiling is not None else 1.0]
    low, high = float(values.min()), float(values.max())
    largest = max(abs(low), abs(high))
    margin = 0.05 * (high - low) if high - low > CONSTANT * largest else 0.05 * largest or 0.05
    low, high = low - margin, high + margin
    return [max(low, floor) if floor is not None else low, min(high, ceiling) if ceiling is not None else high]


def score_domain(score: ScoreStyle, *columns: ArrayLike) -> list[float]:
    """The range of an axis of scores: accuracies are from 0 to 1, and R² is at most 1."""
    return domain(*columns, floor=None if score.numeric else 0.0, ceiling=1.0)


def to_ticks(span: Sequence[float], count: int) -> list[float]:
    """The range of an axis with about ``count`` ticks, made larger until it begins and ends at a tick, so that no mark is beyond the
    last one. Steps are those of d3: 1, 2 or 5 times a power of ten.

    >>> to_ticks([0.13, 0.84], 5)
    [0.0, 1.0]
    >>> to_ticks([-61.0, 39.5], 6)
    [-80.0, 40.0]
    """
    low, high = span
    for _ in range(10):  # a larger range can have larger steps
        step = tick_step(low, high, count)
        ends = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
        if ends == (low, high):
            break
        low, high = ends
    return [float(f"{low:.12g}"), float(f"{high:.12g}")]


def tick_step(low: float, high: float, count: int) -> float:
    """The distance of ticks that d3 chooses."""
    power = 10.0 ** math.floor(math.log10((high - low) / count))
    error = (high - low) / count / power
    times = next(times for times, least in ((10, 50**0.5), (5, 10**0.5), (2, 2**0.5), (1, 0.0)) if error >= least)
    return times * power


@dataclass(frozen=True)
class Span:
    """The range of a y axis.

    Attributes:
        ends: the smallest and the largest number on the axis.
        log: whether the axis is logarithmic.
        beyond: the largest mean, if the axis ends below it; otherwise None.
        highest: the row that has this mean.
    """

    ends: list[float]
    log: bool = False
    beyond: float | None = None
    highest: str = ""

    def of_rows(self, frame: pd.DataFrame, labels: Sequence[str]) -> "Span":
        """The range as it is for some rows: with the largest of their means, if it is beyond the axis."""
        tops = frame[frame["strategy"].isin(list(labels))].groupby("strategy", sort=False)["mean"].max()
        if self.beyond is None or not (tops > self.ends[1]).any():
            return replace(self, beyond=None, highest="")
        return replace(self, beyond=float(tops.max()), highest=str(tops.idxmax()))

    def without_bands(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The table without bands around means above the axis, which would cover the chart where they are as wide as their mean."""
        above = frame["mean"] > self.ends[1]
        low = frame["low"].clip(lower=self.ends[0]) if self.log else frame["low"]
        return frame.assign(low=low.mask(above), high=frame["high"].mask(above))


FLATTENED = (10, 100)
"""An axis is not linear up to its largest number if that is so many times the largest one of a typical row, or the median of all."""

SEEN = 0.25
"""Share of a logarithmic axis that the typical rows need; otherwise the axis ends above them."""


def span_of(frame: pd.DataFrame, floor: float | None = None) -> Span:
    """The range of the axis of means and their bands.

    If a linear axis would flatten the lines of most rows, as where one diverges, it is logarithmic. If that would flatten them, too,
    it ends above the rows that do not diverge, and is logarithmic if these, too, are mostly far below its end.
    """
    linear = Span(domain(frame["mean"], frame["low"], frame["high"], floor=floor))
    finite = frame[np.isfinite(frame["mean"].to_numpy(np.float64))]
    positive = finite.loc[finite["mean"] > 0, "mean"]
    if positive.empty or finite["mean"].min() < 0:
        return linear
    tops = finite.groupby("strategy")["mean"].max().sort_values()
    top, typical, low = float(tops.iloc[-1]), float(tops.iloc[(len(tops) - 1) // 2]), float(positive.min())
    if top < FLATTENED[0] * typical and top < FLATTENED[1] * float(finite["mean"].median()):
        return linear
    sound = tops[tops < FLATTENED[0] * typical]
    if len(sound) == len(tops) or np.log(sound.iloc[-1] / low) >= SEEN * np.log(top / low):
        return Span([low / 1.2, top * 1.2], log=True)
    kept = finite[finite["strategy"].isin(sound.index)]
    last = kept.groupby("strategy")["mean"].last().median()
    if sound.iloc[-1] >= FLATTENED[0] * last:  # some of many rows rise for a few rounds only
        lowest = float(kept.loc[kept["mean"] > 0, "mean"].min())
        return Span([lowest / 1.2, float(sound.iloc[-1]) * 1.2], log=True, beyond=top, highest=str(tops.index[-1]))
    return Span(domain(kept["mean"], kept["low"], kept["high"], floor=floor), beyond=top, highest=str(tops.index[-1]))


def log_range(column: ArrayLike, times: float) -> list[float] | None:
    """The range of a logarithmic axis; None unless all numbers are positive and the largest is at least ``times`` the smallest."""
    values = np.asarray(column, np.float64)
    values = values[np.isfinite(values)]
    if not len(values) or values.min() <= 0 or values.max() < times * values.min():
        return None
    return [float(values.min()), float(values.max())]
