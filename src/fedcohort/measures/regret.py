"""Regret of a sequence of selections."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from fedcohort.core.arrays import Values
from fedcohort.core.errors import UsageError
from fedcohort.measures.argument_checks import as_rewards

__all__ = ["hindsight_regret", "regret"]


def regret(rewards: ArrayLike, selections: Sequence[ArrayLike]) -> Values:
    """Cumulative full-information regret R_t = Σ_{s≤t} ρ_s, with ρ_t = Σ (top |S_t| of r_t(1..m)) − Σ_{i∈S_t} r_t(i).

    Args:
        rewards: reward of every client in every round [n, m]; NaN for clients that were not available.
        selections: the clients of each round S_t, n lists; a client listed twice counts once, and an empty round adds no regret.

    Returns:
        R_t [n]; it never decreases.
    """
    matrix, chosen = as_rewards(rewards, selections)
    per_round = np.zeros(len(matrix))
    for t, (row, clients) in enumerate(zip(matrix, chosen, strict=True)):
        received = np.sort(row[clients])
        if np.isnan(received).any():
            client = clients[np.isnan(row[clients])][0]
            raise UsageError(f"rewards: client {client} was selected in round {t + 1}, but has no reward in that round")
        if len(received):
            best = np.sort(row[~np.isnan(row)])[-len(received) :]
            per_round[t] = (best - received).sum()  # pairwise, each ≥ 0: no rounding error below 0
    return np.cumsum(per_round)


def hindsight_regret(rewards: ArrayLike, selections: Sequence[ArrayLike]) -> Values:
    """Cumulative regret compared with the fixed set of clients that is best in hindsight; only observed rewards are needed.

    μ_i is the mean of client i's rewards over the rounds in which it was selected, and
    R_t = Σ_{s≤t} (Σ (top |S_s| of μ) − Σ_{i∈S_s} r_s(i)). A client without a reward in a round (NaN, after a dropout) is removed
    from S_s. R_t can decrease and be negative if rewards change over time.

    Args:
        rewards: rewards [n, m]; only those of selected clients are used.
        selections: the clients of each round S_t, n lists; a client that is listed twice counts once.

    Returns:
        R_t [n].
    """
    matrix, chosen = as_rewards(rewards, selections)
    observed = np.zeros(matrix.shape, bool)
    for seen, clients in zip(observed, chosen, strict=True):
        seen[clients] = True
    observed &= ~np.isnan(matrix)
    received = np.where(observed, matrix, 0.0)
    times = observed.sum(axis=0)
    means = np.sort((received.sum(axis=0)[times > 0]) / times[times > 0])[::-1]
    best = np.concatenate([[0.0], np.cumsum(means)])
    return np.cumsum(best[observed.sum(axis=1)] - received.sum(axis=1))
