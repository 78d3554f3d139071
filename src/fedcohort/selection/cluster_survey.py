"""Cluster sampling in the sense of survey statistics: draw groups of similar clients, and take whole groups.

One stage (the default): groups are drawn without replacement, and all available members of each take part, until there are k
clients; the last group is cut at random to hit k exactly.
Two stages (``per_group`` = b): g = ⌈k/b⌉ groups are drawn, and b available members of each, fewer of the last. Where groups have
fewer than b members further groups are drawn, and when there are none left the missing clients are drawn from all others.

A group is drawn with uniform probability, or by successive draws ∝ its number of available members. Clients of one group are
alike, so this is less precise than uniform and than stratified sampling of the same size; clients of a group may be cheaper to
reach together. Not the method of ``clustered_size`` and ``clustered_similarity``.

"Client Selection in Federated Learning on Non-IID Data using Conformal Prediction" (master's thesis, Aalborg University, 2023),
section 4.3, names the idea; the details are ours.
"""

from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt

from fedcohort.core.arrays import Indices
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.all_available import all_available
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.draws import successive
from fedcohort.selection.inputs import Census, Round
from fedcohort.selection.selector import Selector
from fedcohort.selection.strata import Trait, check_given, strata, strata_by_speed
from fedcohort.selection.stratified import members

__all__ = ["ClusterSurvey"]


@parameters
class ClusterSurvey(Selector):
    """Whole groups of similar clients at random, until there are k. Native weights: n_selected."""

    card: ClassVar[Card] = Card(
        source="CP thesis, section 4.3 (idea)",
        status="ours",
        asks="the trait that defines its group, once",
        discloses="its label histogram (dominant_label and label_cluster; the former needs its largest class only), or what by names",
        knows="the trait of every client: label histograms, N_i, durations, or labels that the experiment gives",
        cost="O(m); k-means once for label_cluster",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"histogram"})

    by: Trait = "label_cluster"
    """What makes clients similar: given, dominant_label, label_cluster, size_quantile or speed_quantile."""
    given: list[int] | None = None
    """The group of each client, for by = "given"."""
    groups: Annotated[int, Ge(1)] = 10
    """Number of clusters or quantiles (H)."""
    epsilon_dp: Annotated[float, Gt(0)] | None = None
    """Laplace noise of scale 1/epsilon_dp on every count of the histograms; none means no noise."""
    per_group: Annotated[int, Ge(1)] | None = None
    """Clients taken of each drawn group (b); none takes all."""
    chance: Literal["uniform", "size"] = "uniform"
    """Probability of a group: the same for all, or proportional to its available members."""

    def setup(self, census: Census) -> None:
        """The first round forms the groups, since that may be random."""
        super().setup(census)
        check_given(self.by, self.given, census.num_clients)
        self.group: Indices | None = None

    def select(self, round: Round) -> Cohort:
        """Draw groups, then members."""
        if round.k >= len(round.available):
            return all_available(round, self.census.num_samples)
        group = self._groups(round)
        room = np.bincount(group)
        there = np.flatnonzero(room)  # groups with available clients
        worth = room[there] if self.chance == "size" else np.ones(len(there))
        order = there[successive(worth, len(there), round.rng)]
        most = room[order] if self.per_group is None else np.minimum(room[order], self.per_group)
        before = np.cumsum(most) - most
        seats = np.zeros_like(room)
        seats[order] = np.clip(round.k - before, 0, most)
        chosen = members(group, seats, round.rng)
        drawn = int(np.count_nonzero(seats))
        if len(chosen) < round.k:  # every group has given what it may
            others = np.setdiff1d(np.arange(len(group)), chosen)
            chosen = np.concatenate([chosen, round.rng.choice(others, round.k - len(chosen), replace=False)])
        note = f"{drawn} of {len(there)} groups by {self.by}"
        taken = seats[group] > 0
        why = Why(round.available, taken.astype(np.float64), {"group": group.astype(np.float64)}, note)
        return Cohort(round.available[chosen], why=why)

    def _groups(self, round: Round) -> Indices:
        """The group of every available client."""
        if self.by == "speed_quantile":
            return strata_by_speed(round, self.groups)
        if self.group is None:
            self.group = strata(
                self.by, self.census, round.rng, given=self.given, groups=self.groups, epsilon_dp=self.epsilon_dp
            )
        return self.group[round.available]
