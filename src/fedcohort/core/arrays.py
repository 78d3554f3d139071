"""Types of the numpy arrays that packages exchange, and order statistics that are fast for millions of numbers."""

import math
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["LONG", "Flags", "Indices", "Values", "as_values", "nth_highest", "nth_lowest", "num_masked", "read_only"]

Indices = NDArray[np.int64]
"""Client ids, counts, offsets."""
Flags = NDArray[np.bool_]
"""Whether something holds, entry by entry."""
Values = NDArray[np.float64]
"""Scores, losses, seconds."""

Array = TypeVar("Array", bound=NDArray[Any])

SAMPLE = 2**14
"""Sample size for estimating a quantile's position."""
LONG = 4 * SAMPLE
"""Length of an array from which it is faster to look at a sample of it first."""


def as_values(values: ArrayLike) -> Values:
    """Numbers as float64; masked values, which ``numpy.asarray`` would take as they are, become NaN.

    >>> as_values(np.ma.array([0.5, 0.9], mask=[False, True])).tolist()
    [0.5, nan]
    """
    if isinstance(values, np.ma.MaskedArray):
        known: Values = np.ma.filled(values.astype(np.float64), np.nan)
        return known
    return np.asarray(values, np.float64)


def num_masked(values: object) -> int:
    """Number of masked values of an array; 0 for other arrays."""
    return int(np.ma.getmaskarray(values).sum()) if isinstance(values, np.ma.MaskedArray) else 0


def nth_highest(values: Values, count: int) -> float:
    """The ``count``-th highest of ``values``, which hold no NaN; 1 ≤ count ≤ n.

    A long array is not partitioned as a whole: an evenly spaced sample gives a lower bound, and only the values above it are
    partitioned. If at least ``count`` values equal the highest one, nothing is partitioned.
    """
    candidates, n = values, len(values)
    if n >= LONG:
        step = n // SAMPLE
        sample = values[::step]
        position = min(len(sample), 2 * count // step + 16)
        bound = np.partition(sample, len(sample) - position)[len(sample) - position]
        if bound < sample.max():
            candidates = values[values >= bound]
        if len(candidates) < count:  # the bound was too high: use all values
            candidates = values
    highest = candidates.max()
    if np.count_nonzero(candidates == highest) >= count:
        return float(highest)
    return float(np.partition(candidates, len(candidates) - count)[len(candidates) - count])


def nth_lowest(values: Values, position: int) -> float:
    """The value at this position, counted from 0, of the sorted ``values``, which hold no NaN.

    A long array is not partitioned as a whole: an evenly spaced sample gives two bounds, and only the values between them are
    partitioned.
    """
    n, candidates, below = len(values), values, 0
    if n >= LONG:
        sample = np.sort(values[:: n // (2 * SAMPLE)])
        center, margin = position * len(sample) // n, 3 * math.isqrt(len(sample))  # at least six standard deviations
        low, high = sample[max(center - margin, 0)], sample[min(center + margin, len(sample) - 1)]
        under = values < low
        below = int(np.count_nonzero(under))
        candidates = values[np.logical_xor(under, values <= high, out=under)]
        if not below <= position < below + len(candidates):  # the position is outside the bounds: use all values
            candidates, below = values, 0
    return float(np.partition(candidates, position - below)[position - below])


def read_only(values: Array) -> Array:
    """A view of an array that cannot be written."""
    view: Array = values.view()
    view.flags.writeable = False
    return view
