"""How evenly clients were selected."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcohort.core.arrays import Values
from fedcohort.measures.argument_checks import as_counts, distinct_clients

__all__ = [
    "Participation",
    "coverage",
    "entropy",
    "gini",
    "jain",
    "participation",
    "rounds_since",
    "selection_counts",
]


def jain(counts: ArrayLike) -> float:
    """Jain's fairness index J = (Σx)² / (m Σx²), from 1/m to 1; 1 if all x_i are 0.

    x_i is how often client i was selected (or admitted). Compare it with :func:`~fedcohort.measures.jain_random`.
    Jain, Chiu, Hawe 1984, arXiv:cs/9809099.
    """
    x = as_counts(counts)
    return float(x.sum() ** 2 / (len(x) * (x**2).sum())) if x.any() else 1.0


def gini(counts: ArrayLike) -> float:
    """Gini coefficient Σ_i (2i − m − 1) x_(i) / (m Σx) of the sorted counts: 0 if all are equal or all are 0, at most 1 − 1/m."""
    x = np.sort(as_counts(counts))
    m = len(x)
    return float((2.0 * np.arange(1, m + 1) - m - 1) @ x / (m * x.sum())) if x.any() else 0.0


def entropy(counts: ArrayLike) -> float:
    """−Σ_i p_i ln p_i with p_i = x_i / Σx, from 0 to ln m (nats); 0 if all counts are 0."""
    x = as_counts(counts)
    p = x[x > 0] / x.sum()
    return float(-(p * np.log(p)).sum()) + 0.0  # + 0.0 avoids −0


def coverage(counts: ArrayLike) -> float:
    """|{i: x_i > 0}| / m."""
    return float((as_counts(counts) > 0).mean())


class Participation(NamedTuple):
    """How evenly clients were selected (or admitted)."""

    jain: float
    """Jain's index, from 1/m (one client only) to 1 (even)."""
    gini: float
    """Gini coefficient, from 0 (even) to 1 − 1/m."""
    entropy: float
    """Entropy of the shares in nats, from 0 to ln m (even)."""
    coverage: float
    """Share of the clients that were selected at least once."""


def participation(counts: ArrayLike) -> Participation:
    """All four measures of how often each client was selected; compare them with :func:`~fedcohort.measures.participation_random`."""
    return Participation(jain(counts), gini(counts), entropy(counts), coverage(counts))


def selection_counts(selections: Sequence[ArrayLike], num_clients: int) -> NDArray[np.int64]:
    """The number of rounds in which each client was selected, int64 [m]. A client that is listed twice in a round counts once.

    Args:
        selections: the clients of each round, n lists.
        num_clients: m.
    """
    counts = np.zeros(num_clients, np.int64)
    for clients in distinct_clients(selections, num_clients):
        counts[clients] += 1
    return counts


def rounds_since(selections: Sequence[ArrayLike], num_clients: int) -> Values:
    """Rounds since each client was last selected, as of the last round, float64 [m]: 0 if it was selected there, inf if never.

    Args:
        selections: the clients of each round, n lists.
        num_clients: m.
    """
    last = np.full(num_clients, -np.inf)
    for t, clients in enumerate(distinct_clients(selections, num_clients), start=1):
        last[clients] = t
    return len(selections) - last
