"""DivFL: the clients with the last updates that best represent those of all others, by greedy facility location.

    minimize  Σ_i min over j in S of ‖G_i − G_j‖₂,   G_i the last update of client i,

over sets S of k available clients. The greedy algorithm starts with the empty set and adds, at each step, the client that leaves the
smallest sum. The sum runs over all clients with a known update. An update is refreshed when its client takes part (the paper's version
without overhead). Clients without a known update come first, at random, k per round; alternatively, all available clients take
part in the first round (``start = "everybody"``, the paper's version). With ``subset``, each step tries only a random part of the
candidates (stochastic greedy).

The cohort's weights (``algorithm.weights = "cohort"``) are the share of clients that each selected client represents. Native
aggregation weights are ``n_selected``.

Each step compares every candidate with every client. This is possible for up to 4,000 clients, and for up to 10,000 with a ``subset``
that keeps the number of comparisons below that of 4,000 clients. Updates and distances take 4·m·(P + m) bytes of memory, at most
``memory_limit``. Larger runs are refused before they begin.

Balakrishnan, Li, Zhou, Himayat, Smith, Bilmes, "Diverse Client Selection for Federated Learning via Submodular Maximization",
ICLR 2022; code melodi-lab/divfl.
"""

from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt
from scipy.spatial.distance import cdist

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.selector import Selector
from fedcohort.selection.stored_updates import arrived_updates, check_memory
from fedcohort.selection.strategy_inputs import Census, Outcome, Round

__all__ = ["LIMIT", "MOST", "DivFL"]

LIMIT, MOST = 4_000, 10_000
"""Largest number of clients if each step tries all candidates, and if it tries a subset: selecting 100 then takes some seconds."""
BLOCK = 2**16
"""Number of entries of an update that are compared at a time."""
CELLS = 2**22
"""Number of distances that are evaluated at a time."""


@parameters
class DivFL(Selector):
    """k clients with updates that best represent all updates. The updates are the last ones that are known."""

    card: ClassVar[Card] = Card(
        source="Balakrishnan et al. 2022 (ICLR); code melodi-lab/divfl",
        status="code",
        knows="the last update of every client",
        cost=f"O(k·m·P) for distances, O(k·m²) to choose, m at most {LIMIT:,}, with subset {MOST:,}; 4·m·(P + m) bytes",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"update"})
    gives: ClassVar[frozenset[str]] = frozenset({"weights"})

    subset: Annotated[int, Ge(1)] | None = None
    """Number of randomly drawn candidates tried at each step. Not set means all, which takes k·m² operations per round: with
    thousands of clients, set a few hundred."""
    start: Literal["unseen_first", "everybody"] = "unseen_first"
    """How updates become known: unseen_first (k clients per round, those without a known update first), or everybody (all available
    clients take part in the first round)."""
    memory_limit: Annotated[float, Gt(0)] = 4.0
    """Largest memory for updates and distances, in GiB."""

    def __post_init__(self) -> None:
        self.declare(variable_size=self.start == "everybody")

    def check_clients(self, number: int) -> None:
        """Refuse runs that would take too long."""
        most = LIMIT * LIMIT // number
        if number > MOST:
            raise UsageError(
                f"selection.name = 'divfl': {number:,} clients; it compares all pairs, which is allowed for at most {LIMIT:,} "
                f"clients, or {MOST:,} with subset = {LIMIT * LIMIT // MOST:,}; use another strategy, or fewer clients"
            )
        if min(self.subset or number, number) > most:
            raise UsageError(
                f"selection.subset{'' if self.subset is None else f' = {self.subset}'}: "
                f"divfl can try at most {most:,} candidates per step with {number:,} clients; set subset to {most:,} or less"
            )

    def setup(self, census: Census) -> None:
        """Start without any update; refuse runs that would take too much memory."""
        super().setup(census)
        self._check_memory(census.num_parameters)
        self.updates: Values | None = None
        self.distances: Values | None = None
        self.known = np.zeros(census.num_clients, dtype=bool)

    def select(self, round: Round) -> Cohort:
        """Clients without a known update first, then the best representatives."""
        i = round.available
        unknown = i[~self.known[i]]
        all_first = self.start == "everybody" and not self.known.any()
        first = unknown if all_first else round.sample(round.k, among=unknown)
        represented, candidates = np.flatnonzero(self.known), i[self.known[i]]
        count = max(0, min(round.k - len(first), len(candidates)))
        scores = np.full(len(i), np.inf)
        picks: Indices = np.zeros(0, dtype=np.int64)
        cost, masses = 0.0, np.zeros(0)
        if count > 0 and self.distances is not None:
            table = self.distances[np.ix_(represented, candidates)]
            scores[self.known[i]] = -table.sum(axis=0, dtype=np.float64)
            picks, costs = facility_location(table, count, round.rng, self.subset)
            cost = costs[-1]
            masses = np.bincount(table[:, picks].argmin(axis=1), minlength=count).astype(np.float64)
        clients = np.concatenate([first, candidates[picks]])
        weights = np.concatenate([np.ones(len(first)), masses])
        note = f"{len(first)} without an update, {count} that represent {len(represented)} clients (sum of distances {cost:.6g})"
        return Cohort(clients, weights=weights / weights.sum(), why=Why(i, scores, {"alone": -scores}, note))

    def observe(self, outcome: Outcome) -> None:
        """Store the updates that came back, and their distances to all other known updates."""
        arrived = arrived_updates(outcome)
        if arrived is None:
            return
        clients, rows = arrived
        if self.updates is None or self.distances is None:
            self._check_memory(rows.shape[1])
            m = self.census.num_clients
            self.updates = np.zeros((m, rows.shape[1]), dtype=np.float32)
            self.distances = np.zeros((m, m), dtype=np.float32)
        self.updates[clients] = rows
        self.known[clients] = True
        known = np.flatnonzero(self.known)
        to_known = distances(self.updates, clients, known)
        self.distances[np.ix_(clients, known)] = to_known
        self.distances[np.ix_(known, clients)] = to_known.T

    def _check_memory(self, width: int) -> None:
        m = self.census.num_clients
        check_memory(self.memory_limit, m, width, 4 * m * (width + m), "their distances")


def distances(updates: Values, clients: Indices, others: Indices) -> Values:
    """Euclidean distances [clients, others] between rows of ``updates`` [m, P].

    They are summed in blocks of entries, which gives the same bits for any number of threads.
    """
    total = np.zeros((len(clients), len(others)))
    for start in range(0, updates.shape[1], BLOCK):
        part = updates[:, start : start + BLOCK]
        total += cdist(part[clients], part[others], "sqeuclidean")
    return np.sqrt(total)


def facility_location(
    table: Values, count: int, rng: np.random.Generator, subset: int | None = None
) -> tuple[Indices, list[float]]:
    """Positions of ``count`` columns of the distances ``table`` [clients, candidates], chosen greedily, and the sum after each step.

    Ties are broken at random. With ``subset``, each step tries that many random columns among those not yet chosen.
    """
    nearest = np.full(len(table), np.inf)
    left = np.arange(table.shape[1])
    picks, costs = [], []
    for _ in range(count):
        tried = left if subset is None or subset >= len(left) else rng.choice(left, subset, replace=False)
        width = max(CELLS // max(len(table), 1), 1)
        sums = np.concatenate(
            [
                np.minimum(nearest[:, None], table[:, tried[start : start + width]]).sum(axis=0)
                for start in range(0, len(tried), width)
            ]
        )
        best = tried[np.lexsort((rng.random(len(tried)), sums))[0]]
        nearest = np.minimum(nearest, table[:, best])
        picks.append(best)
        costs.append(float(sums.min()))
        left = left[left != best]
    return np.array(picks, dtype=np.int64), costs
