"""GPFL: clients with updates that point along the global update, and a bonus for clients that were rarely selected.

    c_i = ⟨d_i, g⟩/‖g‖,   d_i ← μ·d_i + (1 − μ)·Δ_i  when client i takes part (d_i = Δ_i the first time)
    score_i = n·softmax(c_i/σ_c) + a·decay^(t−1)·√(2 ln t/n_i);   S_t = the top k

g is the last global update, the mean of the admitted updates weighted by N_i. σ_c is the standard deviation of c over the n available
clients with an update, and the factor n makes the first term of the average client 1. n_i is the number of selections of client i. A
client that was never selected comes first; for a client that was selected but never sent an update, the first term is 1. No client is
asked a question.

The averages d_i take 4·m·P bytes. If that is more than ``memory_limit``, the run is refused before it begins.

After Na, Liang, Yiu, "GPFL: A Gradient Projection-Based Client Selection Framework for Efficient Federated Learning", 2024,
arXiv:2403.17833. We did not have access to the text, and the exact form is ours. A personalization method of the same name is
unrelated.
"""

import math
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.selector import Selector
from fedcohort.selection.stored_updates import arrived_updates, check_memory
from fedcohort.selection.strategy_inputs import Census, Outcome, Round

__all__ = ["GPFL"]


@parameters
class GPFL(Selector):
    """k clients with updates in line with the global update. Clients that were rarely selected get a bonus."""

    card: ClassVar[Card] = Card(
        source="after Na, Liang, Yiu 2024, arXiv:2403.17833",
        status="ours",
        knows="N_i; an average of the updates of every client",
        cost="O(m·P), 4·m·P bytes",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"update"})

    a: Annotated[float, Ge(0)] = 1.0
    """Weight of the bonus for rarely selected clients in the first round."""
    decay: Annotated[float, Gt(0), Le(1)] = 0.98
    """Factor by which this weight is multiplied in every round."""
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    """Weight of past updates in the average of a client's updates (μ)."""
    memory_limit: Annotated[float, Gt(0)] = 4.0
    """Largest memory for the averages, in GiB."""

    def setup(self, census: Census) -> None:
        """Start without updates."""
        super().setup(census)
        self._check_memory(census.num_parameters)
        self.directions: Values | None = None
        self.global_update: Values | None = None
        self.known = np.zeros(census.num_clients, dtype=bool)
        self.selections = np.zeros(census.num_clients, dtype=np.int64)

    def select(self, round: Round) -> Cohort:
        """Select the k clients with the highest scores."""
        i = round.available
        projection = self._projections(i)
        fit = np.ones(len(i))
        known = np.isfinite(projection)
        if known.any():
            spread = max(float(projection[known].std()), 1e-12)
            raised = np.exp((projection[known] - projection[known].max()) / spread)
            fit[known] = np.count_nonzero(known) * raised / raised.sum()
        bonus = np.full(len(i), np.inf)
        tried = self.selections[i] > 0
        weight = self.a * self.decay ** (round.t - 1)
        bonus[tried] = weight * np.sqrt(2 * math.log(round.t) / self.selections[i][tried])
        scores = fit + bonus
        terms = {"projection": projection, "fit": fit, "bonus": bonus}
        return Cohort(round.top(scores), why=Why(i, scores, terms, "along the global update, rarely selected first"))

    def _projections(self, clients: Indices) -> Values:
        """c_i of these clients; NaN for a client without an update."""
        if self.directions is None or self.global_update is None:
            return np.full(len(clients), np.nan)
        # Unlike BLAS, einsum gives the same bits with any number of threads.
        with np.errstate(over="ignore", invalid="ignore"):  # select treats a projection that overflows as unknown
            length = max(float(np.sqrt(np.einsum("j,j->", self.global_update, self.global_update))), 1e-12)
            along = np.einsum("ij,j->i", self.directions, self.global_update)[clients] / length
        return np.where(self.known[clients], along.astype(np.float64), np.nan)

    def observe(self, outcome: Outcome) -> None:
        """Count selections, and add the new updates to the averages."""
        self.selections[outcome.cohort.clients] += 1
        arrived = arrived_updates(outcome)
        if arrived is None:
            return
        clients, rows = arrived
        if self.directions is None:
            self._check_memory(rows.shape[1])
            self.directions = np.zeros((self.census.num_clients, rows.shape[1]), dtype=np.float32)
        past = np.where(self.known[clients], self.momentum, 0.0)[:, None]
        self.directions[clients] = past * self.directions[clients] + (1 - past) * rows
        self.known[clients] = True
        if outcome.admitted.any():
            weights = self.census.num_samples[outcome.cohort.clients[outcome.admitted]].astype(np.float64)
            weights /= weights.sum()
            admitted = outcome.billed_report("update")[outcome.admitted]
            self.global_update = np.einsum("i,ij->j", weights, admitted).astype(np.float32)

    def _check_memory(self, width: int) -> None:
        m = self.census.num_clients
        check_memory(self.memory_limit, m, width, 4 * m * width)
