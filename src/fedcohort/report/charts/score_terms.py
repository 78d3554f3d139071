"""Find and name the terms of scores, and average them over blocks of rounds."""

import numpy as np
import pandas as pd

from fedcohort.core.words import formatted_values
from fedcohort.core.words.report_names import is_random
from fedcohort.report.charts.selection_raster import CELLS
from fedcohort.report.data.report_data import Reading, blocks
from fedcohort.report.figures.shortened_names import drawable

__all__ = ["GROUPS", "about_random", "by_block", "named", "random_rounds", "term_names", "untried"]

NAMES = {
    "p": "share of samples",
    "q_hat": "conformal quantile",
    "set_size": "classes in a prediction set",
    "calibration": "held-out samples",
    "done": "criterion met",
}
"""What charts call terms that have a short name in the record."""


GROUPS = ("cluster", "group", "stratum")
"""Terms that only name the group of a client: their mean over clients means nothing."""


REASONS = 3
"""Largest number of reasons for random rounds that a sentence lists."""


def term_names(decisions: pd.DataFrame) -> list[str]:
    """The columns of a table of decisions that are terms of scores."""
    return [str(name) for name in decisions.columns if name not in ("round", "client", "selected", "score")]


def untried(decisions: pd.DataFrame) -> "pd.Series[bool]":
    """Whether the bonus in each score only says that its client was never selected before; see
    :data:`~fedcohort.core.words.formatted_values.UNTRIED`."""
    if "bonus" not in decisions:
        return pd.Series(data=False, index=decisions.index)
    return decisions["bonus"] >= formatted_values.UNTRIED


def random_rounds(reading: Reading) -> "pd.Series[bool]":
    """For each round, whether its clients were selected at random, whatever their scores."""
    return reading.rounds["note"].map(is_random).astype(bool)


def about_random(reading: Reading) -> str:
    """A sentence on the rounds in which clients were selected at random, with a space before it; empty without such rounds."""
    random = random_rounds(reading)
    notes = reading.rounds["note"][random].str.removeprefix("random").str.removeprefix(": ").str.split(";").str[0]
    number = formatted_values.counted(len(random), "round")
    reasons = [f"{reason}: {times}" for reason, times in notes[notes != ""].value_counts(sort=False).items()]
    why = f" ({', '.join(reasons)})" if 0 < len(reasons) <= REASONS else ""
    return f" In {random.sum()} of {number}, clients were selected at random, whatever their scores{why}." * bool(
        random.any()
    )


def named(term: str) -> str:
    """What charts call a term."""
    name = NAMES.get(term, term.replace("_", " "))
    return f"context: {name.removeprefix('x ')}" if name.startswith("x ") else drawable(name)


def by_block(reading: Reading, frame: pd.DataFrame, names: list[str]) -> tuple[pd.DataFrame, int]:
    """Means of terms over blocks of rounds.

    Returns:
        a table with a row for each block and term: ``round`` (the block's first), ``x`` and ``x2`` (its edges), ``term``, ``value``;
        and the number of rounds of a block.
    """
    block = blocks(reading.num_rounds, CELLS[0])
    wide = int((block == 0).sum())
    means = frame.groupby(block[frame["round"].to_numpy(np.int64) - 1])[names].mean()
    long = means.rename_axis("block").reset_index().melt("block", var_name="term", value_name="value").dropna()
    long = long.assign(round=1 + long["block"] * wide, term=long["term"].map(named))
    return long.assign(x=long["round"] - 0.5, x2=long["round"] + wide - 0.5).drop(columns="block"), wide
