"""Names for the two kinds of numpy arrays that pass between rooms, and what a million numbers need that numpy does slowly."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["Indices", "Values", "nth_highest"]

Indices = NDArray[np.int64]
"""Client ids, counts, offsets."""
Values = NDArray[np.float64]
"""Scores, losses, seconds."""

SAMPLE = 2**14
"""Numbers from which it is guessed where the highest of many are."""


def nth_highest(values: Values, count: int) -> float:
    """The ``count``-th highest of numbers without NaN, 1 ≤ count ≤ n.

    Of many, only those are partitioned that lie above a guess from evenly spaced ones; a million that are equal are not.
    """
    some, n = values, len(values)
    if n >= 4 * SAMPLE:
        step = n // SAMPLE
        sample = values[::step]
        place = min(len(sample), 2 * count // step + 16)
        some = values[values >= np.partition(sample, len(sample) - place)[len(sample) - place]]
        if len(some) < count:  # the sample misled
            some = values
    highest = some.max()
    if np.count_nonzero(some == highest) >= count:
        return float(highest)
    return float(np.partition(some, len(some) - count)[len(some) - count])
