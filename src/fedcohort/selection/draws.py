"""Random draws with unequal chances, and the weights that keep them unbiased; shared by every strategy that samples.

Successive draws take one client after another, each with probability ∝ its weight among those that are left. When client i_j is
the j-th of k, drawn with probability q̃_j = q_{i_j}/(1 − Σ_{l<j} q_{i_l}), then

    e_j = Σ_{l<j} p_{i_l}Δ_{i_l} + p_{i_j}Δ_{i_j}/q̃_j          has the mean Σ_i p_iΔ_i for every j, whatever was drawn before,

and so has (1/k) Σ_j e_j. There the weight of Δ_{i_j} is (p_{i_j}/k)·(1/q̃_j + k − j).

Raj, "Some Estimators in Sampling with Varying Probabilities without Replacement", JASA 1956.
"""

import numpy as np

from fedcohort.selection.base import Cohort, Indices, Round, Values, Why, successive

__all__ = ["everybody", "proportional", "raj", "repeated", "shares", "successive", "systematic"]


def repeated(weights: Values | Indices, count: int, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """``count`` independent draws: the positions that were drawn, ascending, and how often; all alike when every weight is 0."""
    total = np.cumsum(weights if weights.any() else np.ones(len(weights)))
    drawn = np.searchsorted(total, rng.random(count) * total[-1], side="right")
    last = np.searchsorted(total, total[-1])  # u·Σw may be rounded up to Σw, which is nobody's
    positions, times = np.unique(np.minimum(drawn, last), return_counts=True)
    return positions, times


def proportional(weights: Values | Indices, count: int) -> Values:
    """Inclusion probabilities min(1, c·w_i) that sum to ``count``; 1 wherever the weight is not 0 if there are no more such.

    With the weights in ascending order, l is the largest integer with 0 < count + l − n ≤ Σ_{j≤l} w_j/w_l; the l smallest have
    the probability (count + l − n)·w_i/Σ_{j≤l} w_j, the others 1. Among all probabilities with that sum these have the smallest
    Σ w_i²/π_i (Chen, Horváth, Richtárik 2020). All weights 0 are taken as equal.

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
    """Positions drawn without replacement, each with its ``chance``; their number is the sum of the chances, which is an integer.

    The chances are laid side by side in a random order, and a comb whose teeth are 1 apart falls on them at a random place.
    """
    order = rng.permutation(len(chance))
    ends = np.cumsum(chance[order])
    teeth = rng.random() + np.arange(round(float(ends[-1])))
    drawn = np.searchsorted(ends * (len(teeth) / ends[-1]), teeth, side="right")
    return order[np.minimum(drawn, len(order) - 1)]


def raj(p: Values, q: Values) -> Values:
    """Weights (p_{i_j}/k)(1/q̃_j + k − j) of clients in the order in which they were drawn by :func:`successive`.

    Args:
        p: what each client should weigh on average, [k].
        q: its probability in the first draw, [k]; over all that could be drawn these sum to 1.

    >>> raj(np.array([0.5, 0.2]), np.array([0.5, 0.25]))  # the second was drawn with 0.25 of the 0.5 that were left
    array([0.75, 0.2 ])
    """
    k = len(q)
    left = np.maximum(1.0 - np.concatenate([[0.0], np.cumsum(q)[:-1]]), q)
    weights: Values = p / k * (left / q + np.arange(k - 1, -1, -1))
    return weights


def shares(num_samples: Indices) -> Values:
    """p_i: the samples of each client over those of all that are listed; alike when nobody has any."""
    total = int(num_samples.sum())
    return num_samples / total if total else np.full(len(num_samples), 1.0 / max(len(num_samples), 1))


def everybody(round: Round, num_samples: Indices) -> Cohort:
    """All available clients, because no more are there than are wanted (R1): each is sure to take part, and weighs p_i."""
    i = round.available
    sure, p = np.ones(len(i)), shares(num_samples[i])
    why = Why(i, sure.copy(), {"p": p.copy()}, "everybody: no more are there than wanted")
    return Cohort(i, inclusion=sure, weights=p, why=why)
