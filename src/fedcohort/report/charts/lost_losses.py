"""Find the rounds from which on the loss or the R² of a row has no mean, since it is infinite or not a number under a seed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedcohort.core.arrays import Values
from fedcohort.core.words.formatted_values import first_in_words
from fedcohort.report.charts.seen_ends import Edges, inside, seen_end, under_each_other
from fedcohort.report.data.report_data import Reading
from fedcohort.report.figures.chart_style import Look
from fedcohort.study.rows.failing_rows import seeds_in_words
from fedcohort.study.run_measures import measured_of

__all__ = ["LISTED", "Lost", "about_lost", "crosses", "last_points", "lost_rows"]

LISTED = 3
"""Largest number of rows that a caption names."""

APART = 13
"""Distance of crosses at the upper edge of a chart, in pixels."""

Mask = NDArray[np.bool_]

Rows = Sequence[tuple[str, Sequence[Reading]]]


@dataclass(frozen=True)
class Lost:
    """The first round in which the loss or the R² of a row is lost, and the seeds that lost it there."""

    round: int
    seeds: tuple[int, ...]

    @property
    def words(self) -> str:
        """Round and seeds in words."""
        return f"from round {self.round} on ({seeds_in_words(self.seeds)})"


def lost_rows(rows: Rows, column: str) -> dict[str, Lost]:
    """The rows whose loss or R² is infinite or not a number in some round, under any seed.

    A mean over the other seeds would look as if the row had recovered. Rounds without a test or without a client that trained have no
    loss, and lose none.

    Args:
        rows: the runs of each row.
        column: ``test_loss``, ``train_loss``, or ``test_accuracy``: the R² of a regression, since accuracies are always finite.
    """
    found = {}
    for label, readings in rows:
        rounds = {reading.seed: lost for reading in readings if (lost := LOST[column](reading)).any()}
        if rounds:
            first = min(int(lost.argmax()) for lost in rounds.values())
            found[label] = Lost(first + 1, tuple(seed for seed, lost in rounds.items() if lost[first]))
    return found


def _test_score(reading: Reading) -> Mask:
    """Whether the model of a regression had diverged in each tested round, see :attr:`Measured.without_score`."""
    if reading.run.labels != "numbers":
        return np.zeros(reading.num_rounds, dtype=bool)
    return measured_of(reading.run).without_score[: reading.num_rounds]


def _test_loss(reading: Reading) -> Mask:
    """Whether each tested round has no finite test loss. Runs on real machines need not measure it at all."""
    known = np.isfinite(reading.rounds["test_loss"].to_numpy(np.float64))
    tested = np.isfinite(reading.rounds["test_accuracy"].to_numpy(np.float64))
    lost: Mask = _test_score(reading) | (tested & ~known & (known.any() or reading.run.clock != "wall"))
    return lost


def _train_loss(reading: Reading) -> Mask:
    """Whether each round has no finite training loss, because updates diverged."""
    losses = reading.rounds["train_loss"].to_numpy(np.float64)
    diverged = np.zeros(len(losses), dtype=bool)
    diverged[reading.clients.loc[reading.clients["status"] == "diverged", "round"].to_numpy(np.int64) - 1] = True
    lost: Mask = np.isinf(losses) | (np.isnan(losses) & diverged)
    return lost


LOST: Mapping[str, Callable[[Reading], Mask]] = {
    "test_loss": _test_loss,
    "train_loss": _train_loss,
    "test_accuracy": _test_score,
}


def about_lost(by_name: Mapping[str, Mapping[str, Lost]], names: Mapping[str, str]) -> str:
    """Sentences about the lines that end, with a space before them, by the name of the loss.

    Args:
        by_name: the rows that lost it.
        names: full names of rows, by the label in the charts.
    """
    text = ""
    for name, rows in by_name.items():
        ended = [f"'{names.get(label, label)}' {lost.words}" for label, lost in rows.items()]
        if ended:
            text += f" Lines end (×) where the {name} is infinite or not a number under a seed: {first_in_words(ended, LISTED)}."
    return text


def last_points(
    frame: pd.DataFrame,
    rows: Mapping[str, Lost],
    places: Mapping[str, Edges],
    groups: Sequence[Sequence[str]],
    size: tuple[float, float],
) -> pd.DataFrame:
    """Where crosses stand, one for each row that ends, with the reason in words.

    Columns: ``strategy``, ``x`` and ``mean`` (the last point of the line; the lost round if there is none), ``edge`` and ``end``
    (where its cross stands: there, or where the line leaves the axis for the last time), and ``why``.

    Args:
        frame: the lines.
        rows: the rows that end.
        places: the axes; by what the columns ``edge`` and ``end`` end in there, ``""`` or ``"_log"``.
        groups: the rows that are shown together; empty for all rows.
        size: the least width of the chart, and its height, in pixels.
    """
    parts = []
    for group in groups or (tuple(rows),):
        ended = [label for label in rows if label in group]
        lines = [_line(frame, label, rows[label]) for label in ended]
        last = {"x": [x[-1] for x, _ in lines], "mean": [means[-1] for _, means in lines]}
        ends = {}
        for suffix, edges in places.items():
            ends[f"edge{suffix}"], ends[f"end{suffix}"] = _ends(lines, edges, size)
        why = [f"no number {rows[label].words}" for label in ended]
        parts.append(pd.DataFrame({"strategy": ended, **last, **ends, "why": why}))
    return pd.concat(parts, ignore_index=True)


def _line(frame: pd.DataFrame, label: str, lost: Lost) -> tuple[Values, Values]:
    """The points of the line of a row; one above all others in the lost round, if it never had a mean."""
    own = frame[frame["strategy"] == label].dropna(subset="mean")
    if own.empty:
        return np.array([float(lost.round)]), np.array([np.inf])
    return own["x"].to_numpy(np.float64), own["mean"].to_numpy(np.float64)


def _ends(lines: Sequence[tuple[Values, Values]], edges: Edges, size: tuple[float, float]) -> tuple[Values, Values]:
    """Where the crosses of some lines stand; those at the upper edge that would cover each other, under each other."""
    x, y = np.array([seen_end(*line, edges) for line in lines], np.float64).reshape(-1, 2).T
    above = y >= edges.y[1]
    y[above] = under_each_other(x[above], y[above], edges, size, APART)
    return x, y


def crosses(base: alt.Chart, look: Look) -> list[alt.Chart]:
    """Crosses at the ends of such lines, and behind them wider ones in the color of the ground, so that they can be seen on lines. The
    caller adds where they stand, and the colors.

    Args:
        base: a chart of the table of :func:`last_points`.
        look: how charts look; marks are larger on the page. There, readers can move the chart along x: crosses stay inside.
    """
    layers = []
    for width in (6, 2.5) if look.page else (3, 1.2):
        mark = base.mark_point(
            shape="M-1,-1L1,1M-1,1L1,-1",
            filled=False,
            size=110 if look.page else 36,
            strokeWidth=width,
            opacity=1,
            clip=False,
        )
        crossed = mark.encode(tooltip=[alt.Tooltip("strategy:N"), alt.Tooltip("why:N", title="loss")])
        layers.append(crossed.encode(opacity=inside("edge")) if look.page else crossed)
    return [layers[0].encode(color=alt.value(look.ground)), layers[1]]
