"""Stratified sampling: the k seats are allocated to groups of similar clients, and filled at random inside each group.

1. strata G_1 … G_H, see ``by``; only available clients count, and a stratum without any is skipped
2. quotas q_h = k·v_h/Σv, with the weight v_h of a stratum
       proportional   |G_h|
       equal          1
       neyman         |G_h|·σ_h,  σ_h the standard deviation of the last losses that its clients reported
   n_h = ⌊q_h⌋; the remaining seats go by the largest fractional part, ties at random
3. n_h clients of stratum h, uniformly without replacement

With ``min_one`` and k ≥ H every stratum has one seat first, and the other k − H are allocated as above. No stratum has more seats
than available clients; surplus seats go to the others by the same rule. With k < H, k strata are drawn without replacement, stratum h
with probability min(1, c·v_h), and one client of each.

For ``weights = "unbiased"`` client i is included with probability n_h/|G_h| (k < H: that of its stratum, divided by |G_h|), which
gives the Horvitz-Thompson weight p_i·|G_h|/n_h. It is unbiased as long as every stratum can have a seat; without ``min_one``, and
under Neyman allocation, some may not. Those for ``weights = "cohort"`` are the same brought to a sum of 1, a_i ∝ N_i·|G_h|/n_h.

σ_h needs two losses; a stratum with fewer takes the mean of the others' σ, and where no σ is known or all are 0 Neyman allocation is
proportional. That, and v_h instead of |G_h| as the chance of a stratum when k < H (the same under the default), is ours.

"Client Selection in Federated Learning on Non-IID Data using Conformal Prediction" (master's thesis, Aalborg University, 2023),
section 4.2, names stratified sampling from survey statistics; the details are ours.
"""

from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.all_available import all_available
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.draws import proportional, shares, systematic
from fedcohort.selection.inputs import Census, Outcome, Round
from fedcohort.selection.selector import Selector
from fedcohort.selection.strata import Trait, check_given, strata, strata_by_speed

__all__ = ["Stratified", "allocate", "members"]


@parameters
class Stratified(Selector):
    """k clients at random, so many from each group of similar ones. Native weights: n_selected."""

    card: ClassVar[Card] = Card(
        source="CP thesis, section 4.2 (idea)",
        status="ours",
        asks="the trait that defines its stratum, once; participants for their training loss, if allocation = neyman",
        discloses="its label histogram (dominant_label and label_cluster; the former needs its largest class only), or what by names; "
        "its training loss, if allocation = neyman",
        knows="the trait of every client: label histograms, N_i, durations, or labels that the experiment gives",
        cost="O(m); k-means once for label_cluster",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"histogram"})
    gives: ClassVar[frozenset[str]] = frozenset({"inclusion", "weights"})

    by: Trait = "dominant_label"
    """What makes clients similar: given, dominant_label, label_cluster, size_quantile or speed_quantile."""
    given: list[int] | None = None
    """The stratum of each client, for by = "given"."""
    groups: Annotated[int, Ge(1)] = 10
    """Number of clusters or quantiles (H)."""
    epsilon_dp: Annotated[float, Gt(0)] | None = None
    """Laplace noise of scale 1/epsilon_dp on every count of the histograms; none means no noise."""
    allocation: Literal["proportional", "equal", "neyman"] = "proportional"
    """How seats are allocated to strata: by their size, equally, or by size times spread of the last losses."""
    min_one: bool = True
    """Give every stratum one seat first, where there are enough."""

    def setup(self, census: Census) -> None:
        """The first round forms the strata, since that may be random."""
        super().setup(census)
        check_given(self.by, self.given, census.num_clients)
        self.stratum: Indices | None = None
        self.last_loss = np.full(census.num_clients, np.nan)

    def select(self, round: Round) -> Cohort:
        """Allocate, then draw inside each stratum."""
        if round.k >= len(round.available):
            return all_available(round, self.census.num_samples)
        stratum = self._strata(round)
        room = np.bincount(stratum)
        there = np.flatnonzero(room)  # strata with available clients
        worth = self._worth(stratum, room, round.available)[there]
        seats, drawn = np.zeros_like(room), np.ones(len(room))
        if round.k < len(there):
            drawn[there] = proportional(worth if np.count_nonzero(worth) >= round.k else room[there], round.k)
            seats[there[systematic(drawn[there], round.rng)]] = 1
            chance = drawn / np.maximum(room, 1)
            note = f"one client from {round.k} of {len(there)} strata by {self.by}"
        else:
            first = np.full(len(there), int(self.min_one))
            seats[there] = first + allocate(worth, room[there] - first, round.k - int(first.sum()), round.rng)
            chance = seats / np.maximum(room, 1)
            note = f"{self.allocation} seats in {len(there)} strata by {self.by}: {_listed(seats[there])}"
        chosen = members(stratum, seats, round.rng)
        mine = stratum[chosen]
        weights = shares(self.census.num_samples[round.available])[chosen] / chance[mine]
        return Cohort(
            round.available[chosen],
            inclusion=chance[mine],
            weights=weights / weights.sum(),
            why=Why(round.available, chance[stratum], {"stratum": stratum.astype(np.float64)}, note),
        )

    def observe(self, outcome: Outcome) -> None:
        """Keep the last finite loss of every client that came back (R4)."""
        loss = outcome.billed_report("loss")
        known = outcome.trained & np.isfinite(loss)
        self.last_loss[outcome.cohort.clients[known]] = loss[known]

    def _strata(self, round: Round) -> Indices:
        """The stratum of every available client."""
        if self.by == "speed_quantile":
            return strata_by_speed(round, self.groups)
        if self.stratum is None:
            self.stratum = strata(
                self.by, self.census, round.rng, given=self.given, groups=self.groups, epsilon_dp=self.epsilon_dp
            )
        return self.stratum[round.available]

    def _worth(self, stratum: Indices, room: Indices, available: Indices) -> Values:
        """v_h of every stratum."""
        if self.allocation == "equal":
            return np.ones(len(room))
        size = room.astype(np.float64)
        return size if self.allocation == "proportional" else size * self._spread(stratum, len(room), available)

    def _spread(self, stratum: Indices, num_strata: int, available: Indices) -> Values:
        """σ_h over the available clients whose loss is known; 1 everywhere when that says nothing."""
        losses = self.last_loss[available]
        known = np.isfinite(losses)
        here, losses = stratum[known], losses[known]
        count = np.bincount(here, minlength=num_strata)
        mean = np.bincount(here, losses, num_strata) / np.maximum(count, 1)
        variance = np.bincount(here, (losses - mean[here]) ** 2, num_strata) / np.maximum(count - 1, 1)
        spread, enough = np.sqrt(variance), count >= 2
        if not (enough & (spread > 0)).any():
            return np.ones(num_strata)
        return np.where(enough, spread, spread[enough].mean())


def allocate(worth: Values | Indices, room: Indices, seats: int, rng: np.random.Generator) -> Indices:
    """Seats of each stratum, ∝ ``worth``: whole parts of the quotas first, the rest by largest fractional part, ties at random.

    No stratum has more seats than ``room``; what is left over goes to the others by the same rule.

    >>> allocate(np.array([7, 4, 1]), np.array([7, 4, 1]), 3, np.random.default_rng(0))
    array([2, 1, 0])
    """
    given = np.zeros(len(room), dtype=np.int64)
    while seats > 0 and (given < room).any():
        open_ones = given < room
        weight = np.where(open_ones, worth, 0.0)
        if weight.sum() <= 0:
            weight = np.where(open_ones, room - given, 0).astype(np.float64)
        quota = seats * weight / weight.sum()
        share = np.floor(quota + 1e-9).astype(np.int64)
        by_fraction = np.lexsort((rng.random(len(room)), -np.round(quota - share, 9), ~open_ones))
        share[by_fraction[: seats - int(share.sum())]] += 1
        share = np.minimum(share, room - given)
        given += share
        seats -= int(share.sum())
    return given


def members(stratum: Indices, seats: Indices, rng: np.random.Generator) -> Indices:
    """Positions of ``seats[h]`` members of each stratum h, drawn uniformly without replacement."""
    if np.count_nonzero(seats) == 0:
        return np.zeros(0, dtype=np.int64)
    order = np.argsort(stratum.astype(np.int16 if len(seats) < 2**15 else np.int64), kind="stable")
    room = np.bincount(stratum, minlength=len(seats))
    start = np.cumsum(room) - room
    parts = [
        order[start[h] + rng.choice(room[h], size=seats[h], replace=False, shuffle=False)]
        for h in np.flatnonzero(seats)
    ]
    return np.concatenate(parts)


def _listed(seats: Indices) -> str:
    """The seats in words; a long list is cut."""
    return ", ".join(map(str, seats[:12])) + (", …" if len(seats) > 12 else "")
