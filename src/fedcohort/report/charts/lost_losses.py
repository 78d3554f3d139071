"""Find the rounds from which on the loss of a row has no mean, since it is infinite or not a number under a seed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedcohort.core.formatted_values import in_words
from fedcohort.report.report_data import Reading

__all__ = ["Lost", "about_lost", "crosses", "last_points", "lost_rows"]

LISTED = 3
"""Largest number of rows that a caption names."""

Mask = NDArray[np.bool_]

Rows = Sequence[tuple[str, Sequence[Reading]]]


@dataclass(frozen=True)
class Lost:
    """The first round in which the loss of a row is lost, and the seeds that lost it there."""

    round: int
    seeds: tuple[int, ...]

    @property
    def words(self) -> str:
        """Round and seeds in words."""
        seeds = f"seed{'s' * (len(self.seeds) > 1)} {in_words(list(map(str, self.seeds)))}"
        return f"from round {self.round} on ({seeds})"


def lost_rows(rows: Rows, column: str) -> dict[str, Lost]:
    """The rows whose loss is infinite or not a number in some round, under any seed.

    A mean over the other seeds would look as if the row had recovered. Rounds without a test or without a client that trained have no
    loss, and lose none.

    Args:
        rows: the runs of each row.
        column: ``test_loss`` or ``train_loss``.
    """
    found = {}
    for label, readings in rows:
        rounds = {reading.seed: lost for reading in readings if (lost := LOST[column](reading)).any()}
        if rounds:
            first = min(int(lost.argmax()) for lost in rounds.values())
            found[label] = Lost(first + 1, tuple(seed for seed, lost in rounds.items() if lost[first]))
    return found


def _test_loss(reading: Reading) -> Mask:
    """Whether each tested round has no finite test loss. Runs on real machines need not measure it at all."""
    known = np.isfinite(reading.rounds["test_loss"].to_numpy(np.float64))
    tested = np.isfinite(reading.rounds["test_accuracy"].to_numpy(np.float64))
    lost: Mask = tested & ~known & (known.any() or reading.run.clock != "wall")
    return lost


def _train_loss(reading: Reading) -> Mask:
    """Whether each round has no finite training loss, because updates diverged."""
    losses = reading.rounds["train_loss"].to_numpy(np.float64)
    diverged = np.zeros(len(losses), dtype=bool)
    diverged[reading.clients.loc[reading.clients["status"] == "diverged", "round"].to_numpy(np.int64) - 1] = True
    lost: Mask = np.isinf(losses) | (np.isnan(losses) & diverged)
    return lost


LOST: Mapping[str, Callable[[Reading], Mask]] = {"test_loss": _test_loss, "train_loss": _train_loss}


def about_lost(by_name: Mapping[str, Mapping[str, Lost]], names: Mapping[str, str]) -> str:
    """Sentences about the lines that end, with a space before them, by the name of the loss.

    Args:
        by_name: the rows that lost it.
        names: full names of rows, by the label in the charts.
    """
    text = ""
    for name, rows in by_name.items():
        listed = [f"'{names.get(label, label)}' {lost.words}" for label, lost in list(rows.items())[:LISTED]]
        more = len(rows) - len(listed)
        listed += [f"{more} more row{'s' * (more > 1)}"] if more else []
        if listed:
            text += f" Lines end (×) where the {name} is infinite or not a number under a seed: {in_words(listed)}."
    return text


def last_points(frame: pd.DataFrame, rows: Mapping[str, Lost]) -> pd.DataFrame:
    """The last point of each line that ends, with the reason in words."""
    ended = frame[frame["strategy"].isin(list(rows))].groupby("strategy", sort=False).tail(1)
    return pd.DataFrame(
        {
            "strategy": ended["strategy"],
            "x": ended["x"],
            "mean": ended["mean"],
            "why": [f"no number {rows[label].words}" for label in ended["strategy"]],
        }
    )


def crosses(base: alt.Chart, *, page: bool) -> alt.Chart:
    """Crosses at the ends of such lines. The caller adds where they stand, and their colors.

    Args:
        base: a chart of the table of :func:`last_points`.
        page: whether the chart is on the page, where marks are larger.
    """
    mark = base.mark_point(
        shape="M-1,-1L1,1M-1,1L1,-1",
        filled=False,
        size=70 if page else 25,
        strokeWidth=2 if page else 1,
        opacity=1,
        clip=True,
    )
    crossed: alt.Chart = mark.encode(tooltip=[alt.Tooltip("strategy:N"), alt.Tooltip("why:N", title="loss")])
    return crossed
