"""Average ranks over federations: the Friedman test, and the critical difference of Nemenyi's test.

Demšar 2006, "Statistical Comparisons of Classifiers over Multiple Data Sets", Journal of Machine Learning Research 7, 1–30.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedcohort.core.arrays import Values

__all__ = ["Friedman", "average_ranks", "critical_difference", "friedman"]


class Friedman(NamedTuple):
    """The result of a Friedman test.

    Attributes:
        chi_square: χ²_F of Friedman, with k − 1 degrees of freedom.
        f: the statistic of Iman and Davenport, with k − 1 and (k − 1)(N − 1) degrees of freedom; infinite if all rankings are equal.
        p_value: p-value of ``f``.
    """

    chi_square: float
    f: float
    p_value: float


def average_ranks(scores: ArrayLike) -> Values:
    """The mean rank of each column, 1 for the best; equal scores share the mean of their ranks.

    Args:
        scores: scores [federations, strategies]; higher is better.
    """
    from scipy.stats import rankdata

    ranks: Values = rankdata(-np.asarray(scores, np.float64), axis=1).mean(axis=0)
    return ranks


def friedman(ranks: ArrayLike, blocks: int) -> Friedman:
    """The Friedman test of the hypothesis that all strategies are alike, in the form of Iman and Davenport.

    χ²_F = 12 N/(k(k + 1)) · (Σ R_j² − k(k + 1)²/4),    F = (N − 1) χ²_F/(N(k − 1) − χ²_F)

    Args:
        ranks: average ranks R_j [k].
        blocks: number of federations N.
    """
    from scipy.stats import f as f_distribution

    mean = np.asarray(ranks, np.float64)
    k = len(mean)
    chi_square = 12 * blocks / (k * (k + 1)) * float((mean**2).sum() - k * (k + 1) ** 2 / 4)
    left = blocks * (k - 1) - chi_square
    statistic = (blocks - 1) * chi_square / left if left > 1e-9 else math.inf
    return Friedman(chi_square, statistic, float(f_distribution.sf(statistic, k - 1, (k - 1) * (blocks - 1))))


def critical_difference(strategies: int, blocks: int, level: float = 0.05) -> float:
    """The difference of two average ranks from which on Nemenyi's test calls it significant.

    CD = q_α · sqrt(k(k + 1)/(6N)), where q_α is the quantile of the studentised range with infinite degrees of freedom, divided by √2.

    Args:
        strategies: their number k.
        blocks: number of federations N.
        level: probability α of any false difference.
    """
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(1 - level, strategies, np.inf)) / math.sqrt(2)
    return q * math.sqrt(strategies * (strategies + 1) / (6 * blocks))
