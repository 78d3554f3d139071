"""HACCS: clients are clustered by their labels once; every round clusters are given seats, and the fastest of each take them.

Normalised label histograms are clustered by OPTICS (cut at distance eps, two clients make a cluster); a client that is near nobody
is a cluster of its own. With a cluster's latency the mean time of its available clients, and its loss the mean square of their last
losses,

    weight_c = ρ·(1 − latency_c/max latency) + (1 − ρ)·loss_c/Σ loss

The first ⌊deterministic·k⌋ seats go to the clusters in order of weight, one each and round again; every other seat goes to a cluster
drawn ∝ weight. Inside a cluster the fastest available client that is left takes the seat. A cluster of which no loss is known
counts with the highest (R3); clients are asked once for their speed.

Wolfrath, Sreekumar, Kumar, Wang, Chandra, "HACCS: Heterogeneity-Aware Clustered Client Selection for Accelerated Federated
Learning", IPDPS 2022; code NS-PhD-Research/HACCS. How many seats are given without a draw is not stated there.
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
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.inputs import Census, Outcome, Round
from fedcohort.selection.questions import Speed
from fedcohort.selection.selector import Selector
from fedcohort.selection.speed import ask_speed, nobody_said, times

__all__ = ["HACCS"]

MOST = 10_000
"""Clients; clustering is quadratic."""


@parameters
class HACCS(Selector):
    """The fastest clients of clusters with similar labels; clusters with high loss and low latency get more seats."""

    card: ClassVar[Card] = Card(
        source="Wolfrath et al. 2022 (IPDPS); code NS-PhD-Research/HACCS",
        status="ours",
        asks="the label histogram and the speed, once; participants for their training loss",
        discloses=f"its label histogram, noised if epsilon_dp is given; {Speed.reveals}; its training loss",
        knows="label histograms; durations",
        cost=f"O(m²K) once, m at most {MOST:,}; then O(m log m + k·clusters)",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"histogram"})

    rho: Annotated[float, Ge(0), Le(1)] = 0.5
    """Weight of the latency against the loss (ρ)."""
    deterministic: Annotated[float, Ge(0), Le(1)] = 0.5
    """Share of the seats that go to clusters in order of weight, without a draw."""
    eps: Annotated[float, Gt(0)] = 0.25
    """Euclidean distance of normalised histograms at which clusters are cut."""
    min_samples: Annotated[int, Ge(2)] = 2
    """Clients within this distance that make a cluster."""
    epsilon_dp: Annotated[float, Gt(0)] | None = None
    """Clients add Laplace noise of scale 1/epsilon_dp to every count; none given means no noise."""

    def setup(self, census: Census) -> None:
        """Nobody is in a cluster yet: the noise is drawn in the first round."""
        super().setup(census)
        if census.num_clients > MOST:
            raise UsageError(
                f"selection.name = 'haccs': {census.num_clients:,} clients; clustering them by histograms is quadratic, and done "
                f"for at most {MOST:,}; use 'stratified', or fewer clients"
            )
        self.cluster: Indices | None = None
        self.said = nobody_said(census.num_clients)
        self.last_loss = np.full(census.num_clients, np.nan)

    def select(self, round: Round) -> Cohort:
        """Weigh the clusters, give away the seats."""
        i = round.available
        if self.cluster is None:
            self.cluster = self._clustered(round.rng)
        ask_speed(round, self.said, i)
        seconds = times(round, self.said)[i]
        names, cluster = np.unique(self.cluster[i], return_inverse=True)
        weights, terms = self._weights(cluster, len(names), seconds, self.last_loss[i])
        patience = np.where(np.isfinite(seconds), seconds, np.inf)
        queue = np.lexsort((round.rng.random(len(i)), patience, cluster))  # cluster by cluster, the fastest first
        first = np.searchsorted(cluster[queue], np.arange(len(names)))
        ends = np.append(first[1:], len(queue))
        clients = []
        for seat in self._seats(weights, ends - first, round):
            clients.append(i[queue[first[seat]]])
            first[seat] += 1
        note = f"seats for {len(names)} clusters by latency and loss, the fastest of each"
        wide = {"cluster": names[cluster].astype(np.float64), "duration": seconds}
        wide |= {name: values[cluster] for name, values in terms.items()}
        return Cohort(np.array(clients, dtype=np.int64), why=Why(i, weights[cluster], wide, note))

    def _clustered(self, rng: np.random.Generator) -> Indices:
        """The cluster of every client; those without samples are in none (−1)."""
        from sklearn.cluster import OPTICS

        assert self.census.histogram is not None  # the needs saw to it
        counts = self.census.histogram.astype(np.float64)
        if self.epsilon_dp is not None:
            counts = np.maximum(counts + rng.laplace(scale=1 / self.epsilon_dp, size=counts.shape), 0.0)
            counts[counts.sum(axis=1) == 0] = 1.0
        labels = np.full(len(counts), -1, dtype=np.int64)
        there = np.flatnonzero(self.census.num_samples)
        shares = counts[there] / np.maximum(counts[there].sum(axis=1, keepdims=True), 1e-12)
        found = np.full(len(there), -1)
        if len(there) >= self.min_samples:
            optics = OPTICS(min_samples=self.min_samples, max_eps=self.eps, eps=self.eps, cluster_method="dbscan")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # that all are alone is no mistake
                found = optics.fit(shares).labels_
        alone = found < 0
        found[alone] = found.max(initial=-1) + 1 + np.arange(alone.sum())
        labels[there] = found
        return labels

    def _weights(
        self, cluster: Indices, count: int, seconds: Values, losses: Values
    ) -> tuple[Values, dict[str, Values]]:
        """weight_c of the clusters 0 … count − 1, and what it is made of."""
        latency = _means(seconds, cluster, count)
        latency = np.where(np.isnan(latency), np.nanmax(latency, initial=0.0), latency)
        fast = 1 - latency / max(latency.max(initial=0.0), 1e-12)
        loss = _means(losses**2, cluster, count)
        loss = np.where(np.isnan(loss), np.nanmax(loss, initial=0.0) or 1.0, loss)
        share = loss / max(loss.sum(), 1e-12)
        return self.rho * fast + (1 - self.rho) * share, {"fast": fast, "share of loss": share}

    def _seats(self, weights: Values, members: Indices, round: Round) -> list[int]:
        """The cluster of each of the k seats."""
        left = members.copy()
        order = round.top(weights, len(weights), among=np.arange(len(weights)))
        seats: list[int] = []
        sure = math.floor(self.deterministic * round.k + 1e-9)
        while len(seats) < sure:
            turn = order[left[order] > 0][: sure - len(seats)]
            left[turn] -= 1
            seats.extend(turn.tolist())
        while len(seats) < round.k:
            seat = int(round.draw(weights[left > 0], 1, among=np.flatnonzero(left > 0))[0])
            left[seat] -= 1
            seats.append(seat)
        return seats

    def observe(self, outcome: Outcome) -> None:
        """Keep the losses that came in."""
        losses = outcome.billed_report("loss")
        came = outcome.trained & np.isfinite(losses)
        self.last_loss[outcome.cohort.clients[came]] = losses[came]


def _means(values: Values, cluster: Indices, count: int) -> Values:
    """Mean of the finite ``values`` of each cluster; NaN where there are none."""
    known = np.isfinite(values)
    sums = np.bincount(cluster[known], weights=values[known], minlength=count)
    counts = np.bincount(cluster[known], minlength=count)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
