"""DivFL: clients whose updates together stand for all others: greedy facility location on the last known updates.

    minimise  Σ_i min over j in S of ‖G_i − G_j‖₂,   G_i the last update of client i,

over sets S of k available clients, greedily: beginning with nobody, the client is added that leaves the smallest sum. The sum goes
over all clients with an update. Updates are refreshed when a client takes part (the paper's version without overhead); those who never
took part come first, at random, k a round, until an update of everybody is known; or everybody takes part in the first round
(``start = "everybody"``, the paper's version). ``subset`` tries only a random part of the candidates at each step (stochastic greedy).

The cohort's weights (``algorithm.weights = "cohort"``) are the masses of the facilities: the share of clients that each stands for.
Native aggregation weights are ``n_selected``.

Every step of a choice looks at the distances of every candidate to every client. Up to 4,000 clients can be compared so, and 10,000
if each step tries so few of them (``subset``) that it looks at no more distances than that. Memory is 4·m·(P + m) bytes, for the
updates and their distances, at most ``memory_limit``. Runs beyond that are refused before they begin.

Balakrishnan, Li, Zhou, Himayat, Smith, Bilmes, "Diverse Client Selection for Federated Learning via Submodular Maximization",
ICLR 2022; code melodi-lab/divfl.
"""

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt
from scipy.spatial.distance import cdist

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.inputs import Census, Outcome, Round
from fedcohort.selection.memory import check_memory
from fedcohort.selection.selector import Selector

__all__ = ["LIMIT", "MOST", "DivFL"]

LIMIT, MOST = 4_000, 10_000
"""Clients of which all can be tried at each step, and clients of which a few can: some seconds for a choice of a hundred."""
BLOCK = 2**16
"""Entries of an update that are compared at a time."""
CELLS = 2**22
"""Distances that are looked at at a time."""


@parameters
class DivFL(Selector):
    """k clients whose last updates are nearest to everybody's."""

    card: ClassVar[Card] = Card(
        source="Balakrishnan et al. 2022 (ICLR); code melodi-lab/divfl",
        status="code",
        knows="the last update of every client",
        cost=f"O(k·m·P) for distances, O(k·m²) to choose, m at most {LIMIT:,}, with subset {MOST:,}; 4·m·(P + m) bytes",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"update"})
    gives: ClassVar[frozenset[str]] = frozenset({"weights"})

    subset: Annotated[int, Ge(1)] | None = None
    """Candidates that are tried at each step, drawn at random; none given means all, which takes k·m² steps a round: with many
    thousands of clients, give a few hundred."""
    start: Literal["unseen_first", "everybody"] = "unseen_first"
    """How updates become known: k clients a round, those without one first; or all available clients take part in the first round."""
    memory_limit: Annotated[float, Gt(0)] = 4.0
    """The most GiB that updates and distances may take."""

    def __post_init__(self) -> None:
        vars(self)["variable_size"] = self.start == "everybody"

    def setup(self, census: Census) -> None:
        """No update is known; refuses what would take too long, or too much memory."""
        super().setup(census)
        m = census.num_clients
        most = LIMIT * LIMIT // m
        if m > MOST:
            raise UsageError(
                f"selection.name = 'divfl': {m:,} clients; comparing them all is quadratic, and done for at most {LIMIT:,}, or "
                f"{MOST:,} with subset = {LIMIT * LIMIT // MOST:,}; use another strategy, or fewer clients"
            )
        if min(self.subset or m, m) > most:
            raise UsageError(
                f"selection.subset = {self.subset}: divfl can try all candidates of at most {LIMIT:,} clients, not {m:,}; "
                f"give subset = {most:,} or less"
            )
        self._check_memory(census.num_parameters)
        self.updates: Values | None = None
        self.distances: Values | None = None
        self.known = np.zeros(census.num_clients, dtype=bool)

    def select(self, round: Round) -> Cohort:
        """The unknown first, then the best facilities."""
        i = round.available
        unknown = i[~self.known[i]]
        everybody_first = self.start == "everybody" and not self.known.any()
        first = unknown if everybody_first else round.sample(round.k, among=unknown)
        everybody, candidates = np.flatnonzero(self.known), i[self.known[i]]
        count = max(0, min(round.k - len(first), len(candidates)))
        scores = np.full(len(i), np.inf)
        picks: Indices = np.zeros(0, dtype=np.int64)
        cost, masses = 0.0, np.zeros(0)
        if count > 0 and self.distances is not None:
            table = self.distances[np.ix_(everybody, candidates)]
            scores[self.known[i]] = -table.sum(axis=0, dtype=np.float64)
            picks, costs = facility_location(table, count, round.rng, self.subset)
            cost = costs[-1]
            masses = np.bincount(table[:, picks].argmin(axis=1), minlength=count).astype(np.float64)
        clients = np.concatenate([first, candidates[picks]])
        weights = np.concatenate([np.ones(len(first)), masses])
        note = f"{len(first)} without an update, {count} that stand for {len(everybody)} clients (sum of distances {cost:.6g})"
        return Cohort(clients, weights=weights / weights.sum(), why=Why(i, scores, {"alone": -scores}, note))

    def observe(self, outcome: Outcome) -> None:
        """Keep the updates that came in, and their distances to all others."""
        rows = outcome.billed_report("update")
        if rows.ndim != 2:  # nobody sent one
            return
        came = outcome.trained & np.isfinite(rows).all(axis=1)
        if not came.any():
            return
        if self.updates is None or self.distances is None:
            self._check_memory(rows.shape[1])
            m = self.census.num_clients
            self.updates = np.zeros((m, rows.shape[1]), dtype=np.float32)
            self.distances = np.zeros((m, m), dtype=np.float32)
        clients = outcome.cohort.clients[came]
        self.updates[clients] = rows[came]
        self.known[clients] = True
        everybody = np.flatnonzero(self.known)
        found = distances(self.updates, clients, everybody)
        self.distances[np.ix_(clients, everybody)] = found
        self.distances[np.ix_(everybody, clients)] = found.T

    def state_dict(self) -> dict[str, Any]:
        """Updates and distances; whether the cohort's size varies follows from ``start``."""
        return {name: value for name, value in super().state_dict().items() if name != "variable_size"}

    def _check_memory(self, width: int) -> None:
        m = self.census.num_clients
        check_memory(self.memory_limit, m, width, 4 * m * (width + m), "their distances")


def distances(updates: Values, some: Indices, others: Indices) -> Values:
    """Euclidean distances of rows of ``updates``, summed in blocks of entries: the same bits whatever the machine's threads."""
    total = np.zeros((len(some), len(others)))
    for start in range(0, updates.shape[1], BLOCK):
        part = updates[:, start : start + BLOCK]
        total += cdist(part[some], part[others], "sqeuclidean")
    return np.sqrt(total)


def facility_location(
    table: Values, count: int, rng: np.random.Generator, subset: int | None = None
) -> tuple[Indices, list[float]]:
    """Greedy: positions of ``count`` columns of ``table`` [clients, candidates], and the sum of distances after each.

    Ties are broken at random. With ``subset``, each step tries this many random columns of those that are left.
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
