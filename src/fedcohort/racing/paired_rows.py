"""Paired differences of all rows of a race: means and standard deviations over the seeds that two rows have in common."""

from typing import NamedTuple

import numpy as np

from fedcohort.core.arrays import Indices, Values

__all__ = ["Pairs", "paired"]


class Pairs(NamedTuple):
    """Differences x_j − x_i of all ordered pairs of rows.

    Attributes:
        mean: their means, [K, K]; row j, column i.
        sd: their standard deviations with divisor n, never below the floor, [K, K].
        seeds: number of seeds n that both rows have, [K, K].
    """

    mean: Values
    sd: Values
    seeds: Indices


def paired(scores: Values, counts: Indices, floor: float) -> Pairs:
    """The paired differences of rows that have played the first ``counts`` seeds each.

    Args:
        scores: score of each row under each seed [K, seeds]; only the first ``counts`` of each row are read.
        counts: number of seeds that each row has played [K], at least 1.
        floor: standard deviation that is added in quadrature, so that scores with few digits give no certainty.
    """
    seeds = np.minimum.outer(counts, counts)
    mean, variance = np.zeros(seeds.shape), np.zeros(seeds.shape)
    for n in np.unique(counts).tolist():
        rows = np.flatnonzero(counts >= n)
        values = scores[rows, :n]
        means = values.mean(axis=1)
        covariance = (values - means[:, None]) @ (values - means[:, None]).T / n
        variances = np.diag(covariance)
        here = seeds[np.ix_(rows, rows)] == n
        block = np.ix_(rows, rows)
        mean[block] = np.where(here, np.subtract.outer(means, means), mean[block])
        variance[block] = np.where(here, np.add.outer(variances, variances) - 2 * covariance, variance[block])
    return Pairs(mean, np.sqrt(np.maximum(variance, 0.0) + floor**2), seeds)
