"""Cluster sampling as in survey statistics: groups of similar clients are drawn, and whole groups take part.

One stage (the default): groups are drawn without replacement, and all available members of each take part, until there are k
clients; a random part of the last group brings the number to exactly k.

Two stages (``per_group`` = b): g = ⌈k/b⌉ groups are drawn, and b available members of each, fewer of the last. If groups have fewer
than b available members, further groups are drawn; if no group is left, the missing clients are drawn from all other clients.

Groups are drawn uniformly, or by successive draws ∝ their number of available members. Because clients of one group are similar,
this is less precise than uniform or stratified sampling of the same size; but a whole group may be cheaper to reach. This is not the
method of ``clustered_size`` and ``clustered_similarity``.

"Client Selection in Federated Learning on Non-IID Data using Conformal Prediction" (master's thesis, Aalborg University, 2023),
section 4.3, proposes the idea; the details are ours.
"""

from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt

from fedcohort.core.arrays import Indices
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.client_strata import Trait, check_given, check_no_noise, current_groups
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.draws import successive
from fedcohort.selection.selector import Selector
from fedcohort.selection.strategies.all_available import all_available
from fedcohort.selection.strategies.stratified import members
from fedcohort.selection.strategy_inputs import Census, Round

__all__ = ["ClusterSurvey"]


@parameters
class ClusterSurvey(Selector):
    """Random whole groups of similar clients, k clients in all. Native weights: n_selected."""

    card: ClassVar[Card] = Card(
        source="CP thesis, section 4.3 (idea)",
        status="ours",
        asks="every client for the trait that defines its group, once",
        discloses="its label histogram if by is label_cluster or dominant_label (which needs its largest class only); "
        "otherwise the trait that by names",
        knows="the trait of every client: label histograms, N_i, durations, or groups that the experiment gives",
        cost="O(m); k-means once for label_cluster",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"histogram"})

    by: Trait = "label_cluster"
    """Trait that defines the groups: given, dominant_label, label_cluster, size_quantile or speed_quantile."""
    given: list[int] | None = None
    """Group of each client, for by = "given"."""
    groups: Annotated[int, Ge(1)] = 10
    """Number of clusters or quantiles (H)."""
    epsilon_dp: Annotated[float, Gt(0)] | None = None
    """Privacy parameter: Laplace noise of scale 1/epsilon_dp is added to every count of the histograms; no noise if not set."""
    per_group: Annotated[int, Ge(1)] | None = None
    """Number of clients selected from each drawn group (b); all of them if not set."""
    chance: Literal["uniform", "size"] = "uniform"
    """Probability of a group: uniform, or size (proportional to its number of available members)."""

    def setup(self, census: Census) -> None:
        """Check the parameters; the first round forms the groups, which may need random numbers."""
        super().setup(census)
        check_given(self.by, self.given, census.num_clients)
        self.group: Indices | None = None

    def extend(self, census: Census) -> None:
        """Form the groups anew in the next round, with the clients that joined."""
        check_no_noise(self.epsilon_dp)
        super().extend(census)
        self.group = None

    def select(self, round: Round) -> Cohort:
        """Draw groups, then members."""
        if round.k >= len(round.available):
            return all_available(round, self.census.num_samples)
        self.group, group = current_groups(self, self.group, round)
        size = np.bincount(group)
        present = np.flatnonzero(size)  # groups with available clients
        weight = size[present] if self.chance == "size" else np.ones(len(present))
        order = present[successive(weight, len(present), round.rng)]
        largest = size[order] if self.per_group is None else np.minimum(size[order], self.per_group)
        before = np.cumsum(largest) - largest
        seats = np.zeros_like(size)  # clients to select from each group
        seats[order] = np.clip(round.k - before, 0, largest)
        chosen = members(group, seats, round.rng)
        drawn = int(np.count_nonzero(seats))
        if len(chosen) < round.k:  # every group has contributed per_group clients
            others = np.setdiff1d(np.arange(len(group)), chosen)
            chosen = np.concatenate([chosen, round.rng.choice(others, round.k - len(chosen), replace=False)])
        note = f"{drawn} of {len(present)} groups by {self.by}"
        taken = seats[group] > 0
        why = Why(round.available, taken.astype(np.float64), {"group": group.astype(np.float64)}, note)
        return Cohort(round.available[chosen], why=why)
