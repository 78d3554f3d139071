"""Names for the two kinds of numpy arrays that pass between rooms, and what a million numbers need that numpy does slowly."""

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["MANY", "Indices", "Values", "nth_highest", "nth_lowest"]

Indices = NDArray[np.int64]
"""Client ids, counts, offsets."""
Values = NDArray[np.float64]
"""Scores, losses, seconds."""

SAMPLE = 2**14
"""Numbers from which it is guessed where among many a place is."""
MANY = 4 * SAMPLE
"""Numbers from which on guessing pays."""


def nth_highest(values: Values, count: int) -> float:
    """The ``count``-th highest of numbers without NaN, 1 ≤ count ≤ n.

    Of many, only those are partitioned that lie above a guess from evenly spaced ones; a million that are equal are not.
    """
    some, n = values, len(values)
    if n >= MANY:
        step = n // SAMPLE
        sample = values[::step]
        place = min(len(sample), 2 * count // step + 16)
        guess = np.partition(sample, len(sample) - place)[len(sample) - place]
        if guess < sample.max():
            some = values[values >= guess]
        if len(some) < count:  # the sample misled
            some = values
    highest = some.max()
    if np.count_nonzero(some == highest) >= count:
        return float(highest)
    return float(np.partition(some, len(some) - count)[len(some) - count])


def nth_lowest(values: Values, position: int) -> float:
    """The number at this position, counted from 0, of the sorted numbers without NaN.

    Of many, only those are partitioned that lie near a guess from evenly spaced ones.
    """
    n, some, below = len(values), values, 0
    if n >= MANY:
        sample = np.sort(values[:: n // (2 * SAMPLE)])
        centre, margin = position * len(sample) // n, 3 * math.isqrt(len(sample))  # six standard deviations at least
        low, high = sample[max(centre - margin, 0)], sample[min(centre + margin, len(sample) - 1)]
        under = values < low
        below = int(np.count_nonzero(under))
        some = values[np.logical_xor(under, values <= high, out=under)]
        if not below <= position < below + len(some):  # the sample misled
            some, below = values, 0
    return float(np.partition(some, position - below)[position - below])
