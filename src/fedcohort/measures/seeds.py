"""Means, standard deviations, paired confidence intervals, and paired tests over several seeds."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedcohort.core.arrays import Values
from fedcohort.core.errors import UsageError
from fedcohort.core.random_streams import rng
from fedcohort.measures.argument_checks import as_series, same_length

__all__ = [
    "ACCURACY_DIFFERENCES", "PairedInterval", "holm", "is_cut", "least_p_value", "mean_sd", "paired_interval", "paired_p_value",
]  # fmt: skip

ACCURACY_DIFFERENCES = (-1.0, 1.0)
"""The differences that two accuracies can have: limits of :func:`paired_interval`."""

EXACT_PAIRS = 14
"""Largest number of pairs for which :func:`paired_p_value` tries all signs."""
DRAWS = 9_999
"""Number of drawn signs for more pairs."""


def mean_sd(values: ArrayLike) -> tuple[float, float]:
    """Mean and sample standard deviation sqrt(Σ(x − mean)² / (n − 1)), which is NaN for one value."""
    x = as_series(values, "values")
    return float(x.mean()), float(x.std(ddof=1)) if len(x) > 1 else math.nan


class PairedInterval(NamedTuple):
    """Mean difference and its confidence interval."""

    mean: float
    """Mean of the paired differences."""
    low: float
    """Lower end of the interval; NaN for one pair."""
    high: float
    """Upper end of the interval; NaN for one pair."""


def paired_interval(
    a: ArrayLike,
    b: ArrayLike,
    confidence: float = 0.95,
    limits: tuple[float, float] = (-math.inf, math.inf),
) -> PairedInterval:
    """Mean of d = a − b over paired seeds, and the interval mean ± t_{n−1, (1+confidence)/2} · sd(d)/√n, which is NaN for one pair.

    Args:
        a: results of a method [n].
        b: results of another method under the same seeds, in the same order [n].
        confidence: probability that the interval contains the true mean, if differences are normally distributed.
        limits: the smallest and the largest difference that is possible; the interval ends there.
    """
    from scipy.special import stdtrit  # Student's quantile; scipy.stats is slow to import

    first, second = as_series(a, "a"), as_series(b, "b")
    same_length(first, "a", second, "b")
    if not 0 < confidence < 1:
        raise UsageError(f"confidence = {confidence}: must be between 0 and 1, such as 0.95")
    mean, sd = mean_sd(first - second)
    if len(first) == 1:
        return PairedInterval(mean, math.nan, math.nan)
    half = float(stdtrit(len(first) - 1, (1 + confidence) / 2)) * sd / math.sqrt(len(first))
    return PairedInterval(mean, max(mean - half, limits[0]), min(mean + half, limits[1]))


def is_cut(mean: float, low: float, high: float) -> bool:
    """Whether an interval of :func:`paired_interval` ends at a limit: then it is not symmetric around its mean.

    >>> is_cut(0.9, 0.8, 1.0), is_cut(0.95, 0.8, 1.0), is_cut(0.5, math.nan, math.nan)
    (False, True, False)
    """
    return abs((high - mean) - (mean - low)) > 1e-9


def paired_p_value(a: ArrayLike, b: ArrayLike) -> float:
    """Two-sided p-value of the paired permutation test: the share of signs ± of d = a − b with |Σ ±d| ≥ |Σ d|.

    If a method makes no difference, either result of a pair could be that of either method, and all signs are equally likely. With
    up to 14 pairs, all 2^n signs are tried; the smallest possible value is then 2/2^n. With more, 9,999 signs are drawn, always the
    same for the same number of pairs, and the p-value is (1 + their hits)/10,000.

    Args:
        a: results of a method [n].
        b: results of another method under the same seeds, in the same order [n].

    Returns:
        The p-value; NaN if a result is NaN.
    """
    first, second = as_series(a, "a"), as_series(b, "b")
    same_length(first, "a", second, "b")
    d = first - second
    if not np.isfinite(d).all():
        return math.nan
    least = abs(d.sum()) - 1e-9 * np.abs(d).sum()  # equal sums can differ by rounding
    n = len(d)
    if n <= EXACT_PAIRS:
        positive = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
        return float((np.abs((2.0 * positive - 1) @ d) >= least).mean())
    draw, hits = rng(0, "permutation-test", n), 0
    for size in _parts(DRAWS, 1000):
        signs = draw.integers(0, 2, (size, n), dtype=np.int8)
        hits += int((np.abs((2.0 * signs - 1) @ d) >= least).sum())
    return (1 + hits) / (1 + DRAWS)


def least_p_value(pairs: int) -> float:
    """The smallest value that :func:`paired_p_value` can have with so many pairs.

    >>> least_p_value(6), least_p_value(20)
    (0.03125, 0.0001)
    """
    return max(2.0 ** (1 - pairs), 1 / (1 + DRAWS))


def _parts(total: int, largest: int) -> list[int]:
    """``total`` as a list of numbers up to ``largest``, so that not all signs are in memory at the same time."""
    return [min(largest, total - start) for start in range(0, total, largest)]


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for their number (Holm 1979): the i-th smallest of m times m − i + 1, at most 1, and not below a smaller one.

    NaN stays NaN and does not count.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    values: Values = np.array(p_values, dtype=np.float64)
    known = np.flatnonzero(~np.isnan(values))
    order = known[np.argsort(values[known], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    values[order] = np.minimum(np.maximum.accumulate(values[order] * factors), 1.0)
    return [float(value) for value in values]
