"""Clustered sampling: k bins of equal mass are filled with clients, and one client is drawn from each bin.

Bin c holds the integer masses R_{c,i} of clients, with N = Σ_i N_i and

    (P1) Σ_i R_{c,i} = N  for each c        (P2) Σ_c R_{c,i} = k·N_i  for each i        r_c(i) = R_{c,i}/N

The average of the k drawn models is unbiased because of (P2), and the variance of each client's count, Σ_c r_c(i)(1 − r_c(i)),
never exceeds that of k independent draws, k·p_i(1 − p_i). A client that lies in several bins may be drawn several times (R5).

Only available clients are drawn: each bin is restricted to them and renormalised, and a bin without any draws by size among all
that are available. ``weights = "unbiased"`` divides by the probability of being drawn at all, 1 − Π_c (1 − r_c(i)), of the bins so
restricted.

Fraboni, Vidal, Kameni, Lorenzi, "Clustered Sampling: Low-Variance and Improved Representativity for Clients Selection in
Federated Learning", ICML 2021, arXiv:2105.05883.
"""

from dataclasses import dataclass

import numpy as np

from fedcohort.core.arrays import Indices, Values
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.draws import shares
from fedcohort.selection.inputs import Round

__all__ = ["Pieces", "draw", "pour"]


@dataclass(frozen=True)
class Pieces:
    """What lies in the bins: piece j is a mass of one client in one bin. All arrays int64 [pieces], in the order of the bins."""

    bin: Indices
    client: Indices
    mass: Indices

    def table(self, num_bins: int, num_clients: int) -> Indices:
        """R, int64 [bins, m]."""
        masses = np.zeros((num_bins, num_clients), dtype=np.int64)
        np.add.at(masses, (self.bin, self.client), self.mass)
        return masses

    def __add__(self, other: "Pieces") -> "Pieces":
        """Both together."""
        bins = np.concatenate([self.bin, other.bin])
        order = np.argsort(bins, kind="stable")
        client, mass = np.concatenate([self.client, other.client]), np.concatenate([self.mass, other.mass])
        return Pieces(bins[order], client[order], mass[order])


def pour(clients: Indices, mass: Indices, room: Indices) -> Pieces:
    """The clients, in this order, into bin 0 until its ``room`` is full, then bin 1, and so on; Σ mass = Σ room."""
    if len(clients) == 0:
        return Pieces(clients, clients, mass)
    ends, edges = np.cumsum(mass), np.cumsum(room)[:-1]  # of the clients, and of the bins, on one line
    whose = np.searchsorted(ends, edges)  # who is cut by each edge
    cuts, clients = np.insert(ends, whose, edges), np.insert(clients, whose, clients[whose])
    first = np.concatenate([[0], whose + np.arange(1, len(room)), [len(cuts)]])  # piece of each bin
    amount = np.diff(cuts, prepend=0)
    some = amount > 0
    return Pieces(np.repeat(np.arange(len(room)), np.diff(first))[some], clients[some], amount[some])


def draw(pieces: Pieces, round: Round, num_samples: Indices, note: str) -> Cohort:
    """One available client from each of the k bins."""
    i, k, m = round.available, round.k, len(num_samples)
    there = np.zeros(m, dtype=bool)
    there[i] = True
    mass = np.where(there[pieces.client], pieces.mass, 0)
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
    with np.errstate(divide="ignore"):  # a client that fills a bin is sure to be drawn
        missed = np.bincount(pieces.client, np.log1p(-mass / np.maximum(held, 1)[pieces.bin]), m)
        if empty.any():
            missed += empty.sum() * np.log1p(-p)
    chance: Values = np.minimum(-np.expm1(missed), 1.0)
    why = Why(i, chance[i], {"p": p[i]}, f"{note}; {len(clients)} different clients")
    return Cohort(clients, multiplicity=times, inclusion=chance[clients], weights=times / k, why=why)
