"""Say how many rounds a point of a chart is the mean of: long runs have more rounds than a chart has points."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from fedcohort.core.words.formatted_values import first_in_words

__all__ = ["about_points", "each_is_mean"]

SHOWN = 3
"""Largest number of rows that a sentence names together."""


def each_is_mean(what: str, number: int, of: str = "rounds") -> str:
    """A sentence about marks that are each the mean of several rounds; empty if each is one round.

    >>> each_is_mean("bar", 2), each_is_mean("bar", 1)
    ('Each bar is the mean of 2 rounds.', '')
    """
    return f"Each {what} is the mean of {number} {of}." if number > 1 else ""


def about_points(frame: pd.DataFrame, names: Mapping[str, str], *, over_rounds: bool = True) -> str:
    """A sentence about the points of lines that are means of several rounds, with the rows that differ in it; empty if none is.

    Args:
        frame: the lines, from :func:`~fedcohort.report.charts.means_and_bands.by_round` or
            :func:`~fedcohort.report.charts.means_and_bands.on_grid`.
        names: full names of rows, by the label in the charts.
        over_rounds: whether ``x`` is the round, which tells rounds without a value from others.
    """
    if "averaged" not in frame:
        return ""
    rows: dict[tuple[int, str], list[str]] = {}
    for label, own in frame.groupby("strategy", sort=False):
        number = int(own["averaged"].max())
        rows.setdefault((number, _kind(own, number) if over_rounds else "rounds"), []).append(
            f"'{names.get(str(label), str(label))}'"
        )
    usual = max(rows, key=lambda each: len(rows[each]))
    others = [
        f"in {first_in_words(own, SHOWN)} ({f'mean of {number} {kind}' if number > 1 else 'single rounds'})"
        for (number, kind), own in rows.items()
        if (number, kind) != usual
    ]
    sentence = each_is_mean("point", *usual) or "Each point is one round."
    return f"{sentence.removesuffix('.')}, except {', '.join(others)}." if others else sentence


def _kind(points: pd.DataFrame, number: int) -> str:
    """What the points of a row are means of: rounds, or those of them that have a value."""
    x = points["x"].to_numpy(np.float64)
    return "rounds" if len(x) < 2 or x[1] - x[0] <= number + 1e-9 else "rounds with a value"
