"""Clustered sampling by similarity (algorithm 2): each bin is filled with clients that sent similar updates.

1. The dissimilarity of every two clients is that of the last updates Δ_i that they sent (0 before the first):
       cosine   arccos of the cosine, 0 if either is 0          L1   Σ|Δ_i − Δ_j|          L2   Σ(Δ_i − Δ_j)²
2. Ward's hierarchical clustering builds a tree. The authors' code passes the square matrix to the linkage routine, which treats its
   rows as points: ``linkage_input = "rows"`` does the same, ``"condensed"`` uses the entries as distances.
3. The tree is cut into the largest groups with a total p_i = N_i/N of at most 1/k.
4. The k heaviest groups start one bin each. The clients of the other groups, from the lightest group on and in random order within a
   group, fill the remaining room of the bins.
5. One client is drawn from each bin.

Before any client has sent an update, the bins are those of ``clustered_size``. A client with k·p_i ≥ 1 first fills ⌊k·p_i⌋ bins alone,
and only the rest of its mass takes part in steps 3 and 4: in the authors' code such a client violates (P2)
of :mod:`fedcohort.selection.client_bins` when rows are normalized. Native weights: uniform over draws.

The last updates of all clients and their dissimilarities take m·(4P + 8m) bytes of memory; above ``memory_limit``, the run is refused
before it begins. The time is O(m²), or O(m³) with ``"rows"``: more than 2,000 clients are refused.

Fraboni, Vidal, Kameni, Lorenzi 2021, arXiv:2105.05883, algorithm 2; code: Accenture/Labs-Federated-Learning, branch
clustered_sampling, py_func/clustering.py.
"""

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Gt
from numpy.typing import NDArray

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.client_bins import Pieces, draw_one_per_bin, fill_bins
from fedcohort.selection.cohort import Cohort
from fedcohort.selection.selector import Selector
from fedcohort.selection.stored_updates import arrived_updates, check_memory
from fedcohort.selection.strategies.all_available import all_available
from fedcohort.selection.strategy_inputs import Census, Outcome, Round

__all__ = ["LIMIT", "ClusteredSimilarity", "dissimilarities"]

LIMIT = 2_000
"""Largest number of clients."""

Measure = Literal["cosine", "L1", "L2"]


@parameters
class ClusteredSimilarity(Selector):
    """One client from each of k bins of similar last updates. Bins have equal numbers of samples."""

    card: ClassVar[Card] = Card(
        source="Fraboni et al. 2021, arXiv:2105.05883, algorithm 2",
        status="code",
        asks="nothing beyond the update, which the server stores",
        discloses="nothing beyond its update, which the server compares with the others'",
        knows="N_i; the last update of every client",
        cost="O(kmP) dissimilarities, O(m²) to O(m³) clustering; m ≤ 2,000",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"update"})
    gives: ClassVar[frozenset[str]] = frozenset({"inclusion", "weights"})

    dissimilarity: Measure = "cosine"
    """Dissimilarity of two updates: cosine (the angle between them), L1, or L2 (squared)."""
    linkage_input: Literal["rows", "condensed"] = "rows"
    """Input of the clustering: rows (the rows of the dissimilarity matrix as points, as in the authors' code), or condensed (its
    entries as distances)."""

    memory_limit: Annotated[float, Gt(0)] = 4.0
    """Largest memory for updates and dissimilarities, in GiB."""

    def check_clients(self, number: int) -> None:
        """Refuse runs that would take too long."""
        if number > LIMIT:
            raise UsageError(
                f"selection.name = 'clustered_similarity': {number:,} clients; it compares all pairs of clients, for at most "
                f"{LIMIT:,} clients; use clustered_size, or fewer clients"
            )

    def setup(self, census: Census) -> None:
        """Start without updates; refuse runs that would take too much memory."""
        super().setup(census)
        m = census.num_clients
        width = census.num_parameters
        check_memory(self.memory_limit, m, width, m * (4 * width + 8 * m), "their dissimilarities")
        self.sent = np.full(m, -1)  # row of each client in `updates`
        self.updates = np.zeros((0, 0), dtype=np.float32)
        self.distances = np.zeros((m, m))

    def select(self, round: Round) -> Cohort:
        """Cluster the clients, fill the bins, and draw one client from each."""
        if round.k >= len(round.available):
            return all_available(round, self.census.num_samples)
        num_samples = self.census.num_samples
        if len(self.updates):
            bins, note = self.bins(round.k, round.rng), f"by similarity, {len(self.updates)} updates known"
        else:
            order = np.argsort(-num_samples, kind="stable")
            bins = fill_bins(order, round.k * num_samples[order], np.full(round.k, num_samples.sum()))
            note = "by size: no updates yet"
        return draw_one_per_bin(bins, round, num_samples, f"one client from each of {round.k} bins {note}")

    def observe(self, outcome: Outcome) -> None:
        """Store the updates that came back, and their dissimilarities to the other updates."""
        arrived = arrived_updates(outcome)
        if arrived is None:
            return
        clients, updates = arrived
        new = clients[self.sent[clients] < 0]
        self.sent[new] = len(self.updates) + np.arange(len(new))
        grown = np.zeros((len(self.updates) + len(new), updates.shape[1]), dtype=np.float32)
        if len(self.updates):
            grown[: len(self.updates)] = self.updates
        grown[self.sent[clients]] = updates
        self.updates = grown
        known, zero = self.sent >= 0, np.zeros((1, updates.shape[1]), dtype=np.float32)
        for client in clients:
            update = grown[self.sent[client]]
            row = np.full(len(known), dissimilarities(update, zero, self.dissimilarity)[0])
            row[known] = dissimilarities(update, grown, self.dissimilarity)[self.sent[known]]
            row[client] = 0.0
            self.distances[client, :] = self.distances[:, client] = row

    def bins(self, k: int, rng: np.random.Generator) -> Pieces:
        """The contents of the k bins."""
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
        shuffled = rng.permutation(np.flatnonzero((place[group] >= 0) & (rest > 0)))
        shuffled = shuffled[np.argsort(place[group[shuffled]], kind="stable")]
        shared = started + fill_bins(shuffled, rest[shuffled], total - weight[heaviest])
        return alone + Pieces(shared.bin + (k - left), shared.client, shared.mass)

    def _groups(self, mass: Indices, most: int) -> Indices:
        """The group of each client, int64 [m], numbered from 0.

        Groups are the largest subtrees with a mass of at most ``most``; a single client can be a group.
        """
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


def dissimilarities(update: NDArray[np.float32], others: NDArray[np.float32], measure: Measure) -> Values:
    """The dissimilarity between ``update`` [P] and each of ``others`` [n, P], float64 [n]."""
    with np.errstate(over="ignore", invalid="ignore"):
        found, fits = _measured(update, others, measure)
    if not fits.all():  # squares of large numbers, of diverging clients, overflow in float32
        found[~fits] = _measured(update.astype(np.float64), others[~fits].astype(np.float64), measure)[0]
    return found


def _measured(update: NDArray[Any], others: NDArray[Any], measure: Measure) -> tuple[Values, NDArray[np.bool_]]:
    """The dissimilarities, in the precision of the updates, and whether each could be computed without an overflow."""
    if measure != "cosine":
        difference = others - update
        sums: Values = (np.abs(difference) if measure == "L1" else np.square(difference)).sum(axis=1, dtype=np.float64)
        return sums, np.isfinite(sums)
    norms = np.linalg.norm(others, axis=1) * np.linalg.norm(update)
    inner = (others * update).sum(axis=1, dtype=np.float64)
    cosine = np.clip(inner / np.where(norms > 0, norms, 1.0), -1.0, 1.0)
    return np.where(norms > 0, np.arccos(cosine), 0.0), np.isfinite(norms)
