"""Clustered sampling: clients fill k bins of equal mass, and one client is drawn from each bin.

Bin c holds an integer mass R_{c,i} of each client i, with N = Σ_i N_i and

    (P1) Σ_i R_{c,i} = N  for each c        (P2) Σ_c R_{c,i} = k·N_i  for each i        r_c(i) = R_{c,i}/N

The average of the k drawn models is unbiased because of (P2), and the variance of each client's count, Σ_c r_c(i)(1 − r_c(i)),
never exceeds that of k independent draws, k·p_i(1 − p_i). A client with mass in several bins can be drawn several times (R5).

Only available clients are drawn: each bin is restricted to them and renormalized. For a bin without available clients, one of all
available clients is drawn with probability ∝ size. ``weights = "unbiased"`` divides by the probability of being drawn at least once
from the restricted bins, 1 − Π_c (1 − r_c(i)).

Fraboni, Vidal, Kameni, Lorenzi, "Clustered Sampling: Low-Variance and Improved Representativity for Clients Selection in
Federated Learning", ICML 2021, arXiv:2105.05883.
"""

from dataclasses import dataclass

import numpy as np

from fedcohort.core.arrays import Indices, Values
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.draws import shares
from fedcohort.selection.strategy_inputs import Round

__all__ = ["Pieces", "draw_one_per_bin", "fill_bins"]


@dataclass(frozen=True)
class Pieces:
    """The contents of the bins: piece j is a mass of one client in one bin. All arrays are int64 [pieces], sorted by bin."""

    bin: Indices
    client: Indices
    mass: Indices

    def __add__(self, other: "Pieces") -> "Pieces":
        """The pieces of both."""
        bins = np.concatenate([self.bin, other.bin])
        order = np.argsort(bins, kind="stable")
        client, mass = np.concatenate([self.client, other.client]), np.concatenate([self.mass, other.mass])
        return Pieces(bins[order], client[order], mass[order])


def fill_bins(clients: Indices, mass: Indices, room: Indices) -> Pieces:
    """Fill bins with clients in this order: bin 0 until its ``room`` is full, then bin 1, and so on.

    Args:
        clients: ids in the order of filling, [n].
        mass: mass of each of these clients, [n].
        room: capacity of each bin, [bins]; its sum must be that of ``mass``.
    """
    if len(clients) == 0:
        return Pieces(clients, clients, mass)
    ends, edges = np.cumsum(mass), np.cumsum(room)[:-1]  # where clients end and where bins end, on one line of mass
    split = np.searchsorted(ends, edges)  # position of the client that each edge splits
    cuts, clients = np.insert(ends, split, edges), np.insert(clients, split, clients[split])
    first = np.concatenate([[0], split + np.arange(1, len(room)), [len(cuts)]])  # first piece of each bin
    amount = np.diff(cuts, prepend=0)
    filled = amount > 0
    return Pieces(np.repeat(np.arange(len(room)), np.diff(first))[filled], clients[filled], amount[filled])


def draw_one_per_bin(pieces: Pieces, round: Round, num_samples: Indices, note: str) -> Cohort:
    """Draw one available client from each of the k bins."""
    i, k, m = round.available, round.k, len(num_samples)
    is_available = np.zeros(m, dtype=bool)
    is_available[i] = True
    mass = np.where(is_available[pieces.client], pieces.mass, 0)
    level = np.cumsum(mass)
    first = np.searchsorted(pieces.bin, np.arange(k))
    last = np.searchsorted(pieces.bin, np.arange(k), side="right")
    low = np.where(first > 0, level[np.maximum(first - 1, 0)], 0)
    held = level[last - 1] - low
    at = low + np.floor(round.rng.random(k) * held).astype(np.int64)
    drawn = pieces.client[np.searchsorted(level, at, side="right").clip(max=len(level) - 1)]

    p = np.zeros(m)
    p[i] = shares(num_samples[i])
    empty = held == 0
    if empty.any():
        drawn[empty] = round.rng.choice(i, size=int(empty.sum()), p=p[i])
    clients, times = np.unique(drawn, return_counts=True)
    with np.errstate(divide="ignore"):  # log 0 for a client that fills a bin: it is always drawn
        missed = np.bincount(pieces.client, np.log1p(-mass / np.maximum(held, 1)[pieces.bin]), m)
        if empty.any():
            missed += empty.sum() * np.log1p(-p)
    chance: Values = np.minimum(-np.expm1(missed), 1.0)
    why = Why(i, chance[i], {"p": p[i]}, f"{note}; {len(clients)} different clients")
    return Cohort(clients, multiplicity=times, inclusion=chance[clients], weights=times / k, why=why)
