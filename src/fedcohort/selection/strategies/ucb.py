"""UCB: the upper confidence bound of the accuracy that a client's participation adds, with ε-greedy exploration and random first
rounds.

Every admitted client of a round is rewarded with the increase of the validation accuracy in that round,
r = clip(acc_t − acc_{t−1}, 0, 1) with acc_0 = 0. For t ≤ initial_rounds, and later with probability ε, the cohort is a uniform
k-subset. Otherwise it is the top k by

    UCB_i = mean(ρ_i) + c · √(max(0, ln s) / (n_i + 1e-10)),        s = Σ_j n_j + 1e-10

with n_i the selections and ρ_i the rewards of client i (mean 0 without rewards). A client that was never selected has a score of about
1e5, and so comes first. With c = √2 and rewards of a few percent, the bonus dominates, and the order is nearly "least selected first".

Team Darts report, 2025, Algorithm 1.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Le

from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.selector import Selector
from fedcohort.selection.strategy_inputs import Census, Outcome, Round

__all__ = ["UCB"]


@parameters
class UCB(Selector):
    """k clients that raised accuracy or were rarely selected. Their score is an upper confidence bound on the gain in validation
    accuracy.
    """

    card: ClassVar[Card] = Card(
        source="Team Darts report, 2025, Algorithm 1",
        status="paper",
        knows="a validation set",
        cost="O(m) + one validation",
        score="its gain: reward_norm = clip cuts the gain to [0, 1]; affine and raw take any number",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"validation"})

    c: Annotated[float, Ge(0)] = math.sqrt(2)
    """Weight of the exploration bonus; 0 uses the mean reward only."""
    epsilon: Annotated[float, Ge(0), Le(1)] = 0.1
    """Probability of a uniformly random cohort in each round after the first ones."""
    initial_rounds: Annotated[int, Ge(0)] = 5
    """Number of first rounds with a uniformly random cohort (R_init)."""
    reward_norm: Literal["clip", "affine", "raw"] = "clip"
    """Reward from the accuracy gain Δ: clip is Δ cut to [0, 1], affine (Δ + 1)/2, raw Δ itself."""

    def setup(self, census: Census) -> None:
        """Start without selections and rewards, and with acc_0 = 0."""
        super().setup(census)
        self.selections = np.zeros(census.num_clients, dtype=np.int64)
        self.reward_counts = np.zeros(census.num_clients, dtype=np.int64)
        self.reward_sums, self.mean_rewards = np.zeros(census.num_clients), np.zeros(census.num_clients)
        self.previous_accuracy = 0.0

    def select(self, round: Round) -> Cohort:
        """Select a uniform k-subset or the top k by UCB.

        The draw that decides between the two is made first in every round, so that later draws do not depend on ``initial_rounds``.
        """
        explore = round.rng.random() < self.epsilon
        i, n = round.available, round.of(self.selections)
        mean = round.of(self.mean_rewards)
        log_s = max(0.0, math.log(self.selections.sum() + 1e-10))
        # Many clients share a value of n, so the root is computed once per value.
        bonus_of_count = self.c * np.sqrt(log_s / (np.arange(n.max() + 1) + 1e-10))
        bonus = bonus_of_count[n]
        scores = mean + bonus
        if round.t <= self.initial_rounds:
            clients, note = round.sample(round.k), "random: first rounds"
        elif explore:
            clients, note = round.sample(round.k), "random: epsilon"
        else:
            clients, note = round.top(scores), "highest UCB"
        return Cohort(clients, why=Why(i, scores, {"mean_reward": mean, "bonus": bonus}, note))

    def observe(self, outcome: Outcome) -> None:
        """Count selections, and reward the admitted clients (R9)."""
        self.selections[outcome.cohort.clients] += 1
        if math.isnan(outcome.accuracy):
            return
        rewarded = outcome.cohort.clients[outcome.admitted]
        self.reward_sums[rewarded] += self._reward(outcome.accuracy - self.previous_accuracy)
        self.reward_counts[rewarded] += 1
        self.mean_rewards[rewarded] = self.reward_sums[rewarded] / self.reward_counts[rewarded]
        self.previous_accuracy = float(outcome.accuracy)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state; mean rewards are computed, because earlier checkpoints do not contain them."""
        super().load_state_dict(state)
        self.mean_rewards = self.reward_sums / np.maximum(self.reward_counts, 1)

    def _reward(self, gain: float) -> float:
        """The reward for a gain in accuracy, as ``reward_norm`` says."""
        if self.reward_norm == "clip":
            return min(max(gain, 0.0), 1.0)
        return (gain + 1) / 2 if self.reward_norm == "affine" else gain
