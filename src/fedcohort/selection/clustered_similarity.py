"""Clustered sampling by similarity (algorithm 2): bins are filled with clients whose updates point the same way.

1. dissimilarity of every two clients' representative gradients, the last update Δ_i that each sent (0 before the first):
       cosine   arccos of the cosine, 0 where either is 0          L1   Σ|Δ_i − Δ_j|          L2   Σ(Δ_i − Δ_j)²
2. Ward's hierarchical clustering. The authors' code hands the square matrix to the linkage routine, which takes its rows for points:
   ``linkage_input = "rows"`` does the same, ``"condensed"`` uses the entries as distances
3. the largest groups of the tree whose total p is at most 1/k
4. the k heaviest groups start one bin each; the clients of the others, group by group from the lightest, at random inside a group,
   are poured into what the bins have left
5. one client is drawn from each bin

As long as nobody has sent an update there is nothing to compare, and the bins are those of ``clustered_size``. A client with
k·p_i ≥ 1 first fills ⌊k·p_i⌋ bins alone, and only the rest of its mass takes part in steps 3 and 4: in the authors' code such a
client breaks (P2) when rows are normalised. Native weights: uniform over draws.

Memory is m·(4P + 8m) bytes, for the last update of every client and their dissimilarities; above ``memory_limit`` the run is refused
before it begins. Time is O(m²), with ``"rows"`` O(m³): more than 2,000 clients are refused.

Fraboni, Vidal, Kameni, Lorenzi 2021, arXiv:2105.05883, algorithm 2; code: Accenture/Labs-Federated-Learning, branch
clustered_sampling, py_func/clustering.py.
"""

from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Gt
from numpy.typing import NDArray

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.all_available import all_available
from fedcohort.selection.bins import Pieces, draw, pour
from fedcohort.selection.cohort import Cohort
from fedcohort.selection.inputs import Census, Outcome, Round
from fedcohort.selection.memory import check_memory
from fedcohort.selection.selector import Selector

__all__ = ["LIMIT", "ClusteredSimilarity", "dissimilarities"]

LIMIT = 2_000
"""Clients at most."""

Measure = Literal["cosine", "L1", "L2"]


@parameters
class ClusteredSimilarity(Selector):
    """One client from each of k groups of equal mass, formed by the similarity of the clients' last updates."""

    card: ClassVar[Card] = Card(
        source="Fraboni et al. 2021, arXiv:2105.05883, algorithm 2",
        status="code",
        asks="nothing beyond the update, which the server keeps",
        discloses="nothing beyond its update, which the server compares with the others'",
        knows="N_i; the last update of every client",
        cost="O(kmP) dissimilarities, O(m²) to O(m³) clustering; m ≤ 2,000",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"update"})
    gives: ClassVar[frozenset[str]] = frozenset({"inclusion", "weights"})

    dissimilarity: Measure = "cosine"
    """How different two updates are: cosine (the angle between them), L1, or L2 (squared)."""
    linkage_input: Literal["rows", "condensed"] = "rows"
    """Whether the clustering takes the rows of the dissimilarity matrix for points, as the authors' code does, or its entries for
    distances."""

    memory_limit: Annotated[float, Gt(0)] = 4.0
    """The most GiB that updates and dissimilarities may take."""

    def setup(self, census: Census) -> None:
        """Nobody has sent an update."""
        super().setup(census)
        m = census.num_clients
        if m > LIMIT:
            raise UsageError(
                f"selection.name: clustered_similarity compares every two clients, and {m:,} are more than {LIMIT:,}; "
                "use clustered_size, or fewer clients"
            )
        width = census.num_parameters
        check_memory(self.memory_limit, m, width, m * (4 * width + 8 * m), "their dissimilarities")
        self.sent = np.full(m, -1)  # row of each client in `updates`
        self.updates = np.zeros((0, 0), dtype=np.float32)
        self.distances = np.zeros((m, m))

    def select(self, round: Round) -> Cohort:
        """Cluster, pour, and draw one client from each bin."""
        if round.k >= len(round.available):
            return all_available(round, self.census.num_samples)
        num_samples = self.census.num_samples
        if len(self.updates) == 0:
            order = np.argsort(-num_samples, kind="stable")
            bins = pour(order, round.k * num_samples[order], np.full(round.k, num_samples.sum()))
            return draw(bins, round, num_samples, f"one client from each of {round.k} bins by size: no updates yet")
        return draw(
            self.bins(round.k, round.rng),
            round,
            num_samples,
            f"one client from each of {round.k} bins by similarity, {len(self.updates)} updates known",
        )

    def observe(self, outcome: Outcome) -> None:
        """Keep the update of every client that came back, and compare it with the others'."""
        updates = outcome.billed_report("update")
        came = np.flatnonzero(outcome.trained)
        if updates.ndim != 2 or len(came) == 0:
            return
        came = came[np.isfinite(updates[came]).all(axis=1)]
        clients = outcome.cohort.clients[came]
        new = clients[self.sent[clients] < 0]
        self.sent[new] = len(self.updates) + np.arange(len(new))
        grown = np.zeros((len(self.updates) + len(new), updates.shape[1]), dtype=np.float32)
        if len(self.updates):
            grown[: len(self.updates)] = self.updates
        grown[self.sent[clients]] = updates[came]
        self.updates = grown
        known, nothing = self.sent >= 0, np.zeros((1, updates.shape[1]), dtype=np.float32)
        for client in clients:
            mine = grown[self.sent[client]]
            row = np.full(len(known), dissimilarities(mine, nothing, self.dissimilarity)[0])
            row[known] = dissimilarities(mine, grown, self.dissimilarity)[self.sent[known]]
            row[client] = 0.0
            self.distances[client, :] = self.distances[:, client] = row

    def bins(self, k: int, rng: np.random.Generator) -> Pieces:
        """What the k bins hold."""
        num_samples = self.census.num_samples
        total = int(num_samples.sum())
        whole, rest = np.divmod(k * num_samples, total)  # a client with k·p_i ≥ 1 fills bins alone
        large = np.flatnonzero(whole)
        alone = Pieces(np.arange(whole.sum()), np.repeat(large, whole[large]), np.full(whole.sum(), total))
        left = k - int(whole.sum())
        if left == 0:
            return alone
        group = self._groups(rest, total)
        weight = np.bincount(group, rest).astype(np.int64)
        by_weight = np.argsort(weight, kind="stable")
        others, heaviest = by_weight[: len(by_weight) - left], by_weight[len(by_weight) - left :]
        bin_of = np.full(len(weight), -1)
        bin_of[heaviest] = np.arange(left)
        first = np.flatnonzero((bin_of[group] >= 0) & (rest > 0))
        first = first[np.argsort(bin_of[group[first]], kind="stable")]
        started = Pieces(bin_of[group[first]], first, rest[first])
        place = np.full(len(weight), -1)
        place[others] = np.arange(len(others))
        poured = rng.permutation(np.flatnonzero((place[group] >= 0) & (rest > 0)))
        poured = poured[np.argsort(place[group[poured]], kind="stable")]
        shared = started + pour(poured, rest[poured], total - weight[heaviest])
        return alone + Pieces(shared.bin + (k - left), shared.client, shared.mass)

    def _groups(self, mass: Indices, most: int) -> Indices:
        """The largest groups of the tree with a mass of at most ``most``, numbered from 0; a client may be its own."""
        from scipy.cluster.hierarchy import linkage
        from scipy.spatial.distance import pdist, squareform

        distances = pdist(self.distances) if self.linkage_input == "rows" else squareform(self.distances, checks=False)
        m = len(mass)
        held = np.concatenate([mass, np.zeros(m - 1, dtype=np.int64)])
        parent = np.full(2 * m - 1, -1)
        for step, (left, right) in enumerate(linkage(distances, "ward")[:, :2].astype(np.int64)):
            held[m + step] = held[left] + held[right]
            parent[[left, right]] = m + step
        top = np.arange(2 * m - 1)
        for node in range(2 * m - 3, -1, -1):  # parents come after their children
            if held[parent[node]] <= most:
                top[node] = top[parent[node]]
        return np.unique(top[:m], return_inverse=True)[1]


def dissimilarities(one: NDArray[np.float32], others: NDArray[np.float32], measure: Measure) -> Values:
    """How different ``one`` update is from each of ``others`` [n, P]: float64 [n]."""
    if measure != "cosine":
        difference = others - one
        apart: Values = (np.abs(difference) if measure == "L1" else np.square(difference)).sum(axis=1, dtype=np.float64)
        return apart
    norms = np.linalg.norm(others, axis=1) * np.linalg.norm(one)
    inner = (others * one).sum(axis=1, dtype=np.float64)
    cosine = np.clip(inner / np.where(norms > 0, norms, 1.0), -1.0, 1.0)
    return np.where(norms > 0, np.arccos(cosine), 0.0)
