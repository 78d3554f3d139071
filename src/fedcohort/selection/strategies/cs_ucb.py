"""CS-UCB: the highest upper confidence bounds on speed, after every client was selected once.

    score_i = mean of (1 − T_i/T_max) + √((k + 1)·ln t/n_i);   S_t = the top k

T_i are the times of client i that the server measured (for a late client, how long the server waited), n_i is its number of
selections, and T_max is the longest time measured so far unless ``t_max`` is set. Clients that were never selected come first.

Xia, Quek, Guo, Wen, Yang, Zhu, "Multi-Armed Bandit-Based Client Scheduling for Federated Learning", IEEE TWC 2020 (we did not
have access to the text).
"""

import math
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Gt

from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.selector import Selector
from fedcohort.selection.strategy_inputs import Census, Outcome, Round

__all__ = ["CSUCB"]


@parameters
class CSUCB(Selector):
    """k clients that are fast, or that were rarely selected. Their score is an upper confidence bound on their speed."""

    card: ClassVar[Card] = Card(
        source="Xia et al. 2020 (IEEE TWC)", status="ours", knows="durations of selected clients", cost="O(m)"
    )

    t_max: Annotated[float, Gt(0)] | None = None
    """Time at which the reward reaches 0 (T_max); the longest time measured so far if not set."""

    def setup(self, census: Census) -> None:
        """Start without selections and times."""
        super().setup(census)
        self.selections = np.zeros(census.num_clients, dtype=np.int64)
        self.seen = np.zeros(census.num_clients, dtype=np.int64)
        self.seconds = np.zeros(census.num_clients)
        self.longest = 0.0

    def select(self, round: Round) -> Cohort:
        """Select the k clients with the highest scores."""
        i = round.available
        longest = self.longest if self.t_max is None else self.t_max
        mean_time = self.seconds[i] / np.maximum(self.seen[i], 1)
        reward = np.where(self.seen[i] > 0, 1 - np.minimum(mean_time / max(longest, 1e-12), 1.0), 0.0)
        bonus = np.full(len(i), np.inf)
        tried = self.selections[i] > 0
        bonus[tried] = np.sqrt((round.k + 1) * math.log(round.t) / self.selections[i][tried])
        scores = reward + bonus
        return Cohort(
            round.top(scores), why=Why(i, scores, {"mean_reward": reward, "bonus": bonus}, "highest UCB of speed")
        )

    def observe(self, outcome: Outcome) -> None:
        """Count selections, and add the times that the server measured, clipped at t_max."""
        self.selections[outcome.cohort.clients] += 1
        seen = np.isfinite(outcome.durations)
        clients, seconds = outcome.cohort.clients[seen], outcome.durations[seen]
        self.seen[clients] += 1
        self.seconds[clients] += seconds if self.t_max is None else np.minimum(seconds, self.t_max)
        self.longest = max(self.longest, float(seconds.max(initial=0.0)))
