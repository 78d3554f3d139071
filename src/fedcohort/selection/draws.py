"""Weighted random draws with and without replacement, and the weights that keep sums over them unbiased.

Successive draws take one client after another, each with probability ∝ its weight among the clients not yet drawn. If client i_j is
the j-th of k, drawn with probability q̃_j = q_{i_j}/(1 − Σ_{l<j} q_{i_l}), then

    e_j = Σ_{l<j} p_{i_l}Δ_{i_l} + p_{i_j}Δ_{i_j}/q̃_j          has the mean Σ_i p_iΔ_i for every j, whatever was drawn before,

and so does (1/k) Σ_j e_j, in which Δ_{i_j} has the weight (p_{i_j}/k)·(1/q̃_j + k − j).

Raj, "Some Estimators in Sampling with Varying Probabilities without Replacement", JASA 1956.
"""

import math

import numpy as np
from numpy.typing import NDArray

from fedcohort.core.arrays import LONG, Indices, Values

__all__ = ["proportional", "raj", "repeated", "shares", "successive", "successive_by_rejection", "systematic"]


def successive(weights: Values | Indices, count: int, rng: np.random.Generator) -> Indices:
    """Positions of ``count`` successive draws without replacement, each with probability ∝ weight, in the order of the draws.

    Positions without a weight (0 or less, or NaN) come after all others, in random order; if no position has a weight, the draws
    are uniform.
    """
    count = min(count, len(weights))
    if count <= 0:
        return np.zeros(0, dtype=np.int64)
    weights = np.asarray(weights, dtype=np.float64)
    if len(weights) >= LONG and 1e-200 < weights.max() < 1e200 and 8 * count * weights.max() < weights.sum():
        return successive_by_rejection(weights, count, rng)
    # An exponential race: position i arrives after an exponential time of rate w_i. The first to arrive is i with probability
    # w_i/Σw, and the race among the rest starts afresh because exponential times have no memory. So the order of arrival follows
    # the law of successive draws, in O(m) for any count. Logarithms avoid overflow and underflow of very large or small weights.
    arrivals = np.log(rng.exponential(size=len(weights)))
    arrivals -= np.log(weights, where=weights > 0, out=np.full(len(weights), -1e6))
    first = np.argpartition(arrivals, count - 1)[:count]
    return first[np.argsort(arrivals[first])]


def successive_by_rejection(weights: Values | NDArray[np.bool_], count: int, rng: np.random.Generator) -> Indices:
    """Positions of ``count`` successive draws as in :func:`successive`, by rejection sampling.

    Positions are proposed uniformly and accepted with probability w_i/max w. Repeats are rejected, which leaves the
    probabilities of the others in proportion. This takes about count·n·max w/Σw proposals, so it is fast if ``count`` is small and no
    weight dominates.
    """
    n, largest, drawn = len(weights), weights.max(), dict[int, None]()
    proposals_per_draw = n * largest / weights.sum()
    while len(drawn) < count:
        proposed = rng.integers(n, size=math.ceil((count - len(drawn)) * proposals_per_draw) + 16)
        accepted = proposed[rng.random(len(proposed)) * largest < weights[proposed]]
        drawn.update(dict.fromkeys(accepted.tolist()))
    return np.fromiter(drawn, dtype=np.int64)[:count]


def repeated(weights: Values | Indices, count: int, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """``count`` independent draws with replacement, each with probability ∝ weight; uniform if every weight is 0.

    Returns:
        the distinct positions drawn, ascending, and how often each was drawn.
    """
    total = np.cumsum(weights if weights.any() else np.ones(len(weights)))
    drawn = np.searchsorted(total, rng.random(count) * total[-1], side="right")
    last = np.searchsorted(total, total[-1])  # u·Σw can be rounded up to Σw, beyond the last position with a weight
    positions, times = np.unique(np.minimum(drawn, last), return_counts=True)
    return positions, times


def proportional(weights: Values | Indices, count: int) -> Values:
    """Inclusion probabilities min(1, c·w_i) that sum to ``count``; 1 for every positive weight if there are at most ``count`` of them.

    With the weights in ascending order, l is the largest integer with 0 < count + l − n ≤ Σ_{j≤l} w_j/w_l. The l smallest have
    the probability (count + l − n)·w_i/Σ_{j≤l} w_j, the others 1. Among all probabilities with that sum, these have the smallest
    Σ w_i²/π_i (Chen, Horváth, Richtárik 2020). If every weight is 0, all positions have the same probability.

    >>> proportional(np.array([0.1, 0.2, 0.3, 0.4, 2.0]), 2)
    array([0.1, 0.2, 0.3, 0.4, 1. ])
    """
    positive = np.flatnonzero(weights > 0)
    n = len(positive)
    if n == 0:
        return np.full(len(weights), min(1.0, count / max(len(weights), 1)))
    chance = np.zeros(len(weights))
    if n <= count:
        chance[positive] = 1.0
        return chance
    ascending = np.sort(weights[positive])
    sums, seats = np.cumsum(ascending), count - n + np.arange(1, n + 1)
    last = np.flatnonzero((seats > 0) & (seats * ascending <= sums))[-1]
    chance[positive] = np.minimum(1.0, seats[last] / sums[last] * weights[positive])
    return chance


def systematic(chance: Values, rng: np.random.Generator) -> Indices:
    """Positions drawn without replacement with the inclusion probabilities ``chance``; their sum must be an integer.

    This is systematic sampling: the probabilities are laid end to end in a random order, and the positions at a random offset plus
    0, 1, 2, … are drawn. The number of positions drawn is the sum of the probabilities.
    """
    order = rng.permutation(len(chance))
    ends = np.cumsum(chance[order])
    points = rng.random() + np.arange(round(float(ends[-1])))
    drawn = np.searchsorted(ends * (len(points) / ends[-1]), points, side="right")
    return order[np.minimum(drawn, len(order) - 1)]


def raj(p: Values, q: Values) -> Values:
    """Raj's weights (p_{i_j}/k)(1/q̃_j + k − j) of clients in the order in which :func:`successive` drew them.

    Args:
        p: expected weight of each client, [k].
        q: probability of each client in the first draw, [k]; over all clients that could be drawn, q sums to 1.

    >>> raj(np.array([0.5, 0.2]), np.array([0.5, 0.25]))  # the second was drawn with probability 0.25 of the remaining 0.5
    array([0.75, 0.2 ])
    """
    k = len(q)
    left = np.maximum(1.0 - np.concatenate([[0.0], np.cumsum(q)[:-1]]), q)
    weights: Values = p / k * (left / q + np.arange(k - 1, -1, -1))
    return weights


def shares(num_samples: Indices) -> Values:
    """p_i: each client's share of the listed clients' samples; equal shares if no client has samples."""
    total = int(num_samples.sum())
    return num_samples / total if total else np.full(len(num_samples), 1.0 / max(len(num_samples), 1))
