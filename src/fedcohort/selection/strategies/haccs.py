"""HACCS: clients are clustered by their labels once; in every round, clusters get places in the cohort for their fastest clients.

OPTICS clusters the normalized label histograms, cut at distance eps. Two clients are enough for a cluster, and a client that is close
to no other is a cluster of its own. In every round, the latency of a cluster is the mean time of its available clients, its loss is
the mean square of their last losses, and

    weight_c = ρ·(1 − latency_c/max latency) + (1 − ρ)·loss_c/Σ loss

The first ⌊deterministic·k⌋ places (seats) go to the clusters in order of weight, one seat each, and repeatedly if seats are left.
Every other seat goes to a cluster drawn ∝ weight. Each seat of a cluster is filled by the fastest of its available clients not
selected yet. If a cluster has no known loss, its loss is the highest of the others (R3). Clients are asked once for their speed.

Wolfrath, Sreekumar, Kumar, Wang, Chandra, "HACCS: Heterogeneity-Aware Clustered Client Selection for Accelerated Federated
Learning", IPDPS 2022; code NS-PhD-Research/HACCS. The authors do not state how many seats are given without a draw.
"""

import math
import warnings
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Gt, Le

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.client_speed import ask_speed, no_stated_times, times
from fedcohort.selection.client_strata import check_no_noise
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.questions import Speed
from fedcohort.selection.selector import Selector
from fedcohort.selection.strategy_inputs import Census, Outcome, Round

__all__ = ["HACCS"]

MAX_CLIENTS = 10_000
"""Largest number of clients, because the cost of clustering is quadratic."""


@parameters
class HACCS(Selector):
    """The fastest clients of clusters with similar labels. Clusters with high loss and low latency get more places."""

    card: ClassVar[Card] = Card(
        source="Wolfrath et al. 2022 (IPDPS); code NS-PhD-Research/HACCS",
        status="ours",
        asks="all clients for their label histogram and speed, once; selected clients for their training loss",
        discloses=f"its label histogram, with noise if epsilon_dp is set; {Speed.reveals}; its training loss",
        knows="label histograms; durations",
        cost=f"O(m²K) once, m at most {MAX_CLIENTS:,}; then O(m log m + k·clusters)",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"histogram"})

    rho: Annotated[float, Ge(0), Le(1)] = 0.5
    """Weight of latency against loss in the weight of a cluster (ρ)."""
    deterministic: Annotated[float, Ge(0), Le(1)] = 0.5
    """Share of seats that go to clusters in order of weight; the other seats are drawn."""
    eps: Annotated[float, Gt(0)] = 0.25
    """Euclidean distance between normalized histograms at which clusters are cut."""
    min_samples: Annotated[int, Ge(2)] = 2
    """Number of clients within this distance that form a cluster."""
    epsilon_dp: Annotated[float, Gt(0)] | None = None
    """Clients add Laplace noise of scale 1/epsilon_dp to every count of their histogram; no noise if not set."""

    def check_clients(self, number: int) -> None:
        """Refuse runs that would take too long."""
        if number > MAX_CLIENTS:
            raise UsageError(
                f"selection.name = 'haccs': {number:,} clients; clustering takes quadratic time, so haccs supports "
                f"at most {MAX_CLIENTS:,}; use 'stratified', or fewer clients"
            )

    def setup(self, census: Census) -> None:
        """Start without clusters: the first round forms them, because noise is random."""
        super().setup(census)
        self.cluster: Indices | None = None
        self.said = no_stated_times(census.num_clients)
        self.last_loss = np.full(census.num_clients, np.nan)

    def extend(self, census: Census) -> None:
        """Form the clusters anew in the next round, with the clients that joined."""
        check_no_noise(self.epsilon_dp)
        super().extend(census)
        self.cluster = None

    def select(self, round: Round) -> Cohort:
        """Compute the weights of clusters, and give the seats to their fastest clients."""
        i = round.available
        if self.cluster is None:
            self.cluster = self._form_clusters(round.rng)
        ask_speed(round, self.said, i)
        seconds = times(round, self.said)[i]
        names, cluster = np.unique(self.cluster[i], return_inverse=True)
        weights, terms = self._weights(cluster, len(names), seconds, self.last_loss[i])
        unknown_last = np.where(np.isfinite(seconds), seconds, np.inf)
        # Clients sorted by cluster, and inside each cluster the fastest first.
        queue = np.lexsort((round.rng.random(len(i)), unknown_last, cluster))
        next_in = np.searchsorted(cluster[queue], np.arange(len(names)))
        ends = np.append(next_in[1:], len(queue))
        clients = []
        for seat_cluster in self._seats(weights, ends - next_in, round):
            clients.append(i[queue[next_in[seat_cluster]]])
            next_in[seat_cluster] += 1
        note = f"seats for {len(names)} clusters by latency and loss, the fastest of each"
        client_terms = {"cluster": names[cluster].astype(np.float64), "duration": seconds}
        client_terms |= {name: values[cluster] for name, values in terms.items()}
        return Cohort(np.array(clients, dtype=np.int64), why=Why(i, weights[cluster], client_terms, note))

    def _form_clusters(self, rng: np.random.Generator) -> Indices:
        """The cluster of every client; −1 for clients without samples."""
        from sklearn.cluster import OPTICS

        assert self.census.histogram is not None  # guaranteed by ``needs``
        counts = self.census.histogram.astype(np.float64)
        if self.epsilon_dp is not None:
            counts = np.maximum(counts + rng.laplace(scale=1 / self.epsilon_dp, size=counts.shape), 0.0)
            counts[counts.sum(axis=1) == 0] = 1.0
        labels = np.full(len(counts), -1, dtype=np.int64)
        with_samples = np.flatnonzero(self.census.num_samples)
        fractions = counts[with_samples] / np.maximum(counts[with_samples].sum(axis=1, keepdims=True), 1e-12)
        cluster = np.full(len(with_samples), -1)
        if len(with_samples) >= self.min_samples:
            optics = OPTICS(min_samples=self.min_samples, max_eps=self.eps, eps=self.eps, cluster_method="dbscan")
            with warnings.catch_warnings():
                # OPTICS warns if no two clients are close, but then every client is a cluster of its own.
                warnings.simplefilter("ignore", UserWarning)
                cluster = optics.fit(fractions).labels_
        alone = cluster < 0
        cluster[alone] = cluster.max(initial=-1) + 1 + np.arange(alone.sum())
        labels[with_samples] = cluster
        return labels

    def _weights(
        self, cluster: Indices, count: int, seconds: Values, losses: Values
    ) -> tuple[Values, dict[str, Values]]:
        """weight_c of the clusters 0 … count − 1, and its two terms."""
        latency = _means(seconds, cluster, count)
        latency = np.where(np.isnan(latency), np.nanmax(latency, initial=0.0), latency)
        fast = 1 - latency / max(latency.max(initial=0.0), 1e-12)
        loss = _means(losses**2, cluster, count)
        loss = np.where(np.isnan(loss), np.nanmax(loss, initial=0.0) or 1.0, loss)
        share = loss / max(loss.sum(), 1e-12)
        return self.rho * fast + (1 - self.rho) * share, {"fast": fast, "share of loss": share}

    def _seats(self, weights: Values, members: Indices, round: Round) -> list[int]:
        """The cluster that gets each of the k seats."""
        left = members.copy()
        order = round.top(weights, len(weights), among=np.arange(len(weights)))
        seats: list[int] = []
        without_draw = math.floor(self.deterministic * round.k + 1e-9)
        while len(seats) < without_draw:
            one_each = order[left[order] > 0][: without_draw - len(seats)]
            left[one_each] -= 1
            seats.extend(one_each.tolist())
        while len(seats) < round.k:
            drawn = int(round.draw(weights[left > 0], 1, among=np.flatnonzero(left > 0))[0])
            left[drawn] -= 1
            seats.append(drawn)
        return seats

    def observe(self, outcome: Outcome) -> None:
        """Store the last finite loss of every client that trained."""
        losses = outcome.billed_report("loss")
        known = outcome.trained & np.isfinite(losses)
        self.last_loss[outcome.cohort.clients[known]] = losses[known]


def _means(values: Values, cluster: Indices, count: int) -> Values:
    """Mean of the finite ``values`` of each cluster; NaN for a cluster without finite values."""
    known = np.isfinite(values)
    sums = np.bincount(cluster[known], weights=values[known], minlength=count)
    counts = np.bincount(cluster[known], minlength=count)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
