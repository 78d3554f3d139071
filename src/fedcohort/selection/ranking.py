"""The k highest scores, with random ties (R2) and a uniform chance for scores that are NaN (R4)."""

import numpy as np
from numpy.typing import NDArray

from fedcohort.core.arrays import LONG, Indices, Values, nth_highest
from fedcohort.selection.draws import successive_by_rejection

__all__ = ["best", "rank_losses", "top"]


def top(scores: Values, k: int, rng: np.random.Generator) -> Indices:
    """Positions of the ``k`` highest scores, best first.

    Ties are broken by one random key per position (R2). A NaN score cannot be ranked, so its position is included with the
    probability of a uniform choice, k/n, and excluded otherwise (R4).
    """
    positions, highest, keys = _highest(scores, k, rng)
    return positions[np.lexsort((keys, -highest))]


def best(scores: Values, k: int, rng: np.random.Generator) -> Indices:
    """Positions of the ``k`` highest scores as in :func:`top`, but in no particular order, which is faster if k is large."""
    return _highest(scores, k, rng)[0]


def _highest(scores: Values, k: int, rng: np.random.Generator) -> tuple[Indices, Values, Values]:
    """Positions of the ``k`` highest scores, their scores (±∞ for NaN), and their tie-breaking keys.

    With at least ``LONG`` scores, only the positions in the result get a key, and long ties are drawn by rejection: this has the same
    distribution as one key per position, without drawing a key for each.
    """
    scores = np.asarray(scores, dtype=np.float64)  # booleans and unsigned integers have no negatives to sort by
    n = len(scores)
    keys = rng.random(n) if n < LONG else None
    if k <= 0:
        return np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0)
    if n and np.isnan(scores.max()):
        scores = np.where(np.isnan(scores), np.where(rng.random(n) < k / n, np.inf, -np.inf), scores)
    if k >= n:
        positions = np.arange(n)
    else:
        threshold = nth_highest(scores, k)
        above, equal = np.flatnonzero(scores > threshold), scores == threshold
        positions = np.concatenate([above, _draw_ties(equal, k - len(above), keys, rng)])
    return positions, scores[positions], rng.random(len(positions)) if keys is None else keys[positions]


def _draw_ties(tied: NDArray[np.bool_], count: int, keys: Values | None, rng: np.random.Generator) -> Indices:
    """``count`` of the tied positions: those with the lowest keys, or a uniform draw if there are no keys."""
    if keys is None and 8 * count < np.count_nonzero(tied):
        return successive_by_rejection(tied, count, rng)
    positions = np.flatnonzero(tied)
    if count == len(positions):
        return positions
    return (
        rng.choice(positions, count, replace=False)
        if keys is None
        else positions[np.argpartition(keys[positions], count - 1)[:count]]
    )


def rank_losses(losses: Values) -> Values:
    """Losses reported by clients, prepared for "highest first": NaN and ±∞ become −∞ and rank last (R4)."""
    return np.where(np.isfinite(losses), losses, -np.inf)
