"""Laws of random samples, computed by enumeration or checked by simulation, for tests of strategies that sample."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from fedcohort.core.arrays import Values
from fedcohort.selection import Cohort, Round
from tests.selection.fakes import a_round


def successive_orders(q: Sequence[float] | Values, k: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """All ordered samples of k successive draws, with their probabilities."""
    for order in itertools.permutations(range(len(q)), k):
        probability, left = 1.0, float(sum(q))
        for i in order:
            probability *= q[i] / left
            left -= q[i]
        yield order, probability


def successive_sets(q: Sequence[float] | Values, k: int) -> dict[tuple[int, ...], float]:
    """All sorted samples of k successive draws, with their probabilities."""
    law: dict[tuple[int, ...], float] = {}
    for order, probability in successive_orders(q, k):
        key = tuple(sorted(order))
        law[key] = law.get(key, 0.0) + probability
    return law


def same_law(select: Callable[[Round], Cohort], law: Mapping[Any, float], k: int, m: int, rounds: int) -> bool:
    """Whether the sorted cohorts of ``select`` follow the law, by chi-square; a correct strategy fails with probability 1e-6."""
    rng = np.random.default_rng(11)
    seen = dict.fromkeys(law, 0)
    for t in range(1, rounds + 1):
        seen[tuple(sorted(select(a_round(k, m, t=t, rng=rng)).clients.tolist()))] += 1
    kept = [key for key in law if law[key] > 0]
    result = stats.chisquare([seen[key] for key in kept], [rounds * law[key] for key in kept])
    return sum(seen[key] for key in law if law[key] == 0) == 0 and float(result.pvalue) > 1e-6


def mean_close(draws: Values, expected: Values) -> bool:
    """Whether the mean of independent draws [n, m] is within 6 standard errors of ``expected`` in every column."""
    error = draws.std(axis=0) / np.sqrt(len(draws))
    return bool((np.abs(draws.mean(axis=0) - expected) <= 6 * error + 1e-12).all())


def weights_of(cohort: Cohort, m: int) -> Values:
    """The weights of the cohort by client id; 0 for clients outside the cohort."""
    assert cohort.weights is not None
    weights = np.zeros(m)
    weights[cohort.clients] = cohort.weights
    return weights


def ratios_of(cohort: Cohort, p: Values) -> Values:
    """p_i divided by the inclusion probability, by client id, as with ``weights = "unbiased"``; 0 outside the cohort."""
    assert cohort.inclusion is not None
    weights = np.zeros(len(p))
    weights[cohort.clients] = p[cohort.clients] / cohort.inclusion
    return weights
