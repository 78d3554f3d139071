"""How stable the test accuracy is between rounds, and how much of each class is forgotten."""

import math

import numpy as np
from numpy.typing import ArrayLike

from fedcohort.core.arrays import Values, as_values
from fedcohort.core.errors import UsageError
from fedcohort.measures.argument_checks import as_measured, as_series
from fedcohort.measures.seeds import mean_sd

__all__ = ["forgetting", "largest_drop", "tail_sd"]


def tail_sd(series: ArrayLike) -> float:
    """Sample standard deviation of the accuracy over the last ⌈n/5⌉ of n rounds; NaN if fewer than two of them were measured."""
    values = as_series(series, "series")
    tail = values[len(values) - math.ceil(len(values) / 5) :]
    return mean_sd(tail[~np.isnan(tail)])[1] if not np.isnan(tail).all() else math.nan


def largest_drop(series: ArrayLike) -> float:
    """max_t (acc_{t−1} − acc_t) between consecutive measured rounds; 0 if the accuracy never drops."""
    return float(np.max(-np.diff(as_measured(series, "series")), initial=0.0)) + 0.0  # −0 becomes 0


def forgetting(per_class: ArrayLike) -> Values:
    """Σ_c (max_{s≤t} acc_c(s) − acc_c(t)) / K for every round t.

    Args:
        per_class: accuracy of each class in each round [n, K]. Classes with NaN in round t are left out of the mean of that round.

    Returns:
        Forgetting of each round [n]; NaN in rounds without measured classes.
    """
    matrix = as_values(per_class)
    if matrix.ndim != 2 or not matrix.size:
        raise UsageError(f"per_class has the shape {matrix.shape}; it must be [rounds, classes] and not empty")
    lost = np.fmax.accumulate(matrix, axis=0) - matrix
    defined = ~np.isnan(lost)
    number = defined.sum(axis=1)
    total = np.where(defined, lost, 0.0).sum(axis=1)
    mean: Values = np.divide(total, number, out=np.full(len(lost), np.nan), where=number > 0)
    return mean
