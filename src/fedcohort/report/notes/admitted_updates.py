"""Jain's index of admitted updates in tables: the mean over the seeds that admitted an update, and what is said about the others."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fedcohort.core.words.formatted_values import about_of_seeds
from fedcohort.study.run_measures import Measured

__all__ = ["about_admitted", "jain_of_admitted"]


def jain_of_admitted(runs: Sequence[Measured]) -> tuple[float, int, int]:
    """The mean of Jain's index over the seeds that admitted an update, NaN if none did; their number; and the number of all seeds."""
    own = [run.admitted.jain for run in runs]
    known = [value for value in own if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan, len(known), len(own)


def about_admitted(rows: Iterable[Mapping[str, Any]]) -> str:
    """What marks and unknown values in the column of admitted updates mean, in sentences with a space before them.

    Args:
        rows: rows of the table, each with the number of seeds that admitted an update, and of all (``with_admitted``).

    >>> about_admitted([{"with_admitted": (1, 3)}, {"with_admitted": (0, 3)}])
    ' (1/3): 1 of 3 seeds admitted an update; the means cover only those. It is not known (–) where no update was admitted.'
    """
    numbers = [row["with_admitted"] for row in rows]
    marks = about_of_seeds(numbers, "admitted an update")
    none = "It is not known (–) where no update was admitted." if any(known == 0 for known, _ in numbers) else ""
    return "".join(f" {sentence}" for sentence in (marks, none) if sentence)
