"""Means, standard deviations and paired confidence intervals over several seeds."""

import math
from typing import NamedTuple

from numpy.typing import ArrayLike

from fedcohort.core.errors import UsageError
from fedcohort.measures.argument_checks import as_series, same_length

__all__ = ["PairedInterval", "mean_sd", "paired_interval"]


def mean_sd(values: ArrayLike) -> tuple[float, float]:
    """Mean and sample standard deviation sqrt(Σ(x − mean)² / (n − 1)), which is NaN for one value."""
    x = as_series(values, "values")
    return float(x.mean()), float(x.std(ddof=1)) if len(x) > 1 else math.nan


class PairedInterval(NamedTuple):
    """Mean difference and its confidence interval."""

    mean: float
    low: float
    high: float


def paired_interval(a: ArrayLike, b: ArrayLike, confidence: float = 0.95) -> PairedInterval:
    """Mean of d = a − b over paired seeds, and the interval mean ± t_{n−1, (1+confidence)/2} · sd(d)/√n, which is NaN for one pair.

    Args:
        a: results of a method [n].
        b: results of another method under the same seeds, in the same order [n].
        confidence: probability that the interval contains the true mean, if differences are normally distributed.
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
    return PairedInterval(mean, mean - half, mean + half)
