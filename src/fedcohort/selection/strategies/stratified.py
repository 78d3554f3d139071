"""Stratified sampling: k seats (places in the cohort) are allocated to groups of similar clients, and filled at random in each.

1. strata G_1 … G_H, see ``by``; only available clients count, and a stratum without available clients is skipped
2. quotas q_h = k·v_h/Σv, with the weight v_h of a stratum
       proportional   |G_h|
       equal          1
       neyman         |G_h|·σ_h,  σ_h the standard deviation of the last losses of its available clients
   n_h = ⌊q_h⌋; the remaining seats go to the largest fractional parts; ties are random
3. n_h clients of stratum h, uniformly without replacement

With ``min_one`` and k ≥ H, every stratum first gets one seat, and the other k − H seats are allocated as above. No stratum gets more
seats than it has available clients; surplus seats go to the others by the same rule. With k < H, k strata are drawn without
replacement, stratum h with probability min(1, c·v_h) where c makes these sum to k, and one client from each of them.

For ``weights = "unbiased"``, the inclusion probability of client i is n_h/|G_h| (with k < H, the probability of its stratum divided by
|G_h|), which gives the Horvitz-Thompson weight p_i·|G_h|/n_h. It is unbiased if every stratum can get a seat, which is not certain
without ``min_one`` or with Neyman allocation. The weights for ``weights = "cohort"`` are the same, normalized to sum 1,
a_i ∝ N_i·|G_h|/n_h.

σ_h covers the available clients with a known loss (the sample standard deviation, with n − 1), and needs two losses. A stratum with
fewer gets the mean σ of the others, and if no σ is known or all are 0, Neyman allocation is proportional. This is ours. For k < H,
drawing strata by v_h instead of |G_h| is also ours (with the default allocation, they are equal).

"Client Selection in Federated Learning on Non-IID Data using Conformal Prediction" (master's thesis, Aalborg University, 2023),
section 4.2, names stratified sampling from survey statistics; the details are ours.
"""

from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.client_strata import Trait, check_given, check_no_noise, current_groups
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.draws import proportional, shares, systematic
from fedcohort.selection.selector import Selector
from fedcohort.selection.strategies.all_available import all_available
from fedcohort.selection.strategy_inputs import Census, Outcome, Round

__all__ = ["Stratified", "allocate", "members"]

LARGEST_LOSS = 1e100
"""Loss that no training reaches; squares of smaller ones can be added up."""


@parameters
class Stratified(Selector):
    """k random clients, a fixed number from each group. Groups hold similar clients. Native weights: n_selected."""

    card: ClassVar[Card] = Card(
        source="CP thesis, section 4.2 (idea)",
        status="ours",
        asks="all clients for the trait that defines their stratum, once; selected clients for their training loss "
        "(1 number with the update), which only allocation = neyman uses",
        discloses="its label histogram if by is label_cluster or dominant_label (which needs its largest class only); otherwise the "
        "trait that by names; its mean training loss in each round in which it trains",
        knows="the trait of every client: label histograms, N_i, durations, or labels that the experiment gives",
        cost="O(m); k-means once for label_cluster",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"histogram"})
    gives: ClassVar[frozenset[str]] = frozenset({"inclusion", "weights"})

    by: Trait = "dominant_label"
    """Trait that defines strata: given, dominant_label, label_cluster, size_quantile or speed_quantile."""
    given: list[int] | None = None
    """The stratum of each client, for by = "given"."""
    groups: Annotated[int, Ge(1)] = 10
    """Number of clusters or quantiles (H)."""
    epsilon_dp: Annotated[float, Gt(0)] | None = None
    """Clients add Laplace noise of scale 1/epsilon_dp to every count of their histogram; no noise if not set."""
    allocation: Literal["proportional", "equal", "neyman"] = "proportional"
    """Allocation of seats to strata: proportional to size, equal, or neyman (size times spread of the last losses)."""
    min_one: bool = True
    """Give every stratum one seat first, if k is at least the number of strata."""

    def check_clients(self, number: int) -> None:
        """Check that ``given`` has one stratum per client, if strata are given."""
        check_given(self.by, self.given, number)

    def setup(self, census: Census) -> None:
        """Start without strata: the first round forms them, because that may be random."""
        super().setup(census)
        self.stratum: Indices | None = None
        self.last_loss = np.full(census.num_clients, np.nan)

    def extend(self, census: Census) -> None:
        """Form the strata anew in the next round, with the clients that joined."""
        check_no_noise(self.epsilon_dp)
        super().extend(census)
        self.stratum = None

    def select(self, round: Round) -> Cohort:
        """Allocate seats to strata, and draw clients inside each stratum."""
        if round.k >= len(round.available):
            return all_available(round, self.census.num_samples)
        self.stratum, stratum = current_groups(self, self.stratum, round)
        size = np.bincount(stratum)
        nonempty = np.flatnonzero(size)
        worth = self._worth(stratum, size, round.available)[nonempty]
        seats, expected = np.zeros_like(size), np.zeros(len(size))  # seats of each stratum, and their expected number
        if round.k < len(nonempty):
            expected[nonempty] = proportional(worth if np.count_nonzero(worth) >= round.k else size[nonempty], round.k)
            seats[nonempty[systematic(expected[nonempty], round.rng)]] = 1
            note = f"one client from {round.k} of {len(nonempty)} strata by {self.by}"
        else:
            first = np.full(len(nonempty), int(self.min_one))
            seats[nonempty] = first + allocate(worth, size[nonempty] - first, round.k - int(first.sum()), round.rng)
            expected[nonempty] = seats[nonempty]
            note = f"{self.allocation} seats in {len(nonempty)} strata by {self.by}: {_listed(seats[nonempty])}"
        chosen, chance = members(stratum, seats, round.rng), expected / np.maximum(size, 1)
        inclusion = chance[stratum[chosen]]
        weights = shares(self.census.num_samples[round.available])[chosen] / inclusion
        return Cohort(
            round.available[chosen],
            inclusion=inclusion,
            weights=weights / weights.sum(),
            why=Why(round.available, chance[stratum], {"stratum": stratum.astype(np.float64)}, note),
        )

    def observe(self, outcome: Outcome) -> None:
        """Store the last loss of every client that trained, if it is a possible one (R4)."""
        loss = outcome.billed_report("loss")
        known = outcome.trained & (np.abs(loss) < LARGEST_LOSS)  # not NaN
        self.last_loss[outcome.cohort.clients[known]] = loss[known]

    def _worth(self, stratum: Indices, size: Indices, available: Indices) -> Values:
        """v_h of every stratum."""
        if self.allocation == "equal":
            return np.ones(len(size))
        worth = size.astype(np.float64)
        return worth if self.allocation == "proportional" else worth * self._spread(stratum, len(size), available)

    def _spread(self, stratum: Indices, num_strata: int, available: Indices) -> Values:
        """σ_h over the available clients with a known loss; 1 for every stratum if no σ_h is known and positive."""
        losses = self.last_loss[available]
        known = np.isfinite(losses)
        stratum, losses = stratum[known], losses[known]
        count = np.bincount(stratum, minlength=num_strata)
        mean = np.bincount(stratum, losses, num_strata) / np.maximum(count, 1)
        variance = np.bincount(stratum, (losses - mean[stratum]) ** 2, num_strata) / np.maximum(count - 1, 1)
        spread, enough = np.sqrt(variance), count >= 2
        if not (enough & (spread > 0)).any():
            return np.ones(num_strata)
        return np.where(enough, spread, spread[enough].mean())


def allocate(worth: Values | Indices, room: Indices, seats: int, rng: np.random.Generator) -> Indices:
    """Seats of each stratum, ∝ ``worth``: whole parts of the quotas first, the rest to the largest fractional parts, ties at random.

    No stratum gets more seats than ``room``; surplus seats go to the others by the same rule.

    Args:
        worth: weight of each stratum, [H].
        room: largest number of seats of each stratum, [H].
        seats: number of seats to allocate.
        rng: random generator for ties.

    >>> allocate(np.array([7, 4, 1]), np.array([7, 4, 1]), 3, np.random.default_rng(0))
    array([2, 1, 0])
    """
    given = np.zeros(len(room), dtype=np.int64)
    while seats > 0 and (given < room).any():
        has_room = given < room
        weight = np.where(has_room, worth, 0.0)
        if weight.sum() <= 0:
            weight = np.where(has_room, room - given, 0).astype(np.float64)
        quota = seats * weight / weight.sum()
        share = np.floor(quota + 1e-9).astype(np.int64)
        by_fraction = np.lexsort((rng.random(len(room)), -np.round(quota - share, 9), ~has_room))
        share[by_fraction[: seats - int(share.sum())]] += 1
        share = np.minimum(share, room - given)
        given += share
        seats -= int(share.sum())
    return given


def members(stratum: Indices, seats: Indices, rng: np.random.Generator) -> Indices:
    """Positions of ``seats[h]`` members of each stratum h, drawn uniformly without replacement; ``stratum`` is int64 [n]."""
    if np.count_nonzero(seats) == 0:
        return np.zeros(0, dtype=np.int64)
    order = np.argsort(stratum.astype(np.int16 if len(seats) < 2**15 else np.int64), kind="stable")
    size = np.bincount(stratum, minlength=len(seats))
    start = np.cumsum(size) - size
    parts = [
        order[start[h] + rng.choice(size[h], size=seats[h], replace=False, shuffle=False)]
        for h in np.flatnonzero(seats)
    ]
    return np.concatenate(parts)


def _listed(seats: Indices) -> str:
    """The numbers of seats as text; a list of more than 12 is shortened."""
    return ", ".join(map(str, seats[:12])) + (", …" if len(seats) > 12 else "")
