"""Power-of-choice: of d candidates drawn with probability ∝ N_i, select the k with the highest loss.

1. 𝒜 = d available clients by successive draws without replacement, each with probability ∝ N_i;  k ≤ d ≤ |A_t|
2. L_i for i ∈ 𝒜:
       powd   F_i(w^t), the mean loss on all training data of client i; asked
       cpowd  the mean loss on one random mini-batch of b̂ samples; asked
       rpowd  the mean mini-batch loss over the local steps of i's last participation, +∞ before the first
3. S_t = the k candidates with the highest L_i; ties are random

With d = k the loss has no effect, and with d = m the choice is greedy. Native aggregation weights: ``uniform`` (1/k each). Clients
with noisy labels also have high losses, so they are selected often. A loss that is missing or not finite ranks last (R4): such a
client is selected only if fewer than k candidates have a loss.

Cho, Wang, Joshi, "Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice Selection
Strategies", 2020, arXiv:2010.01243. The default d = 2k is ours.
"""

import warnings
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.core.words.formatted_values import counted
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.draws import successive
from fedcohort.selection.questions import LocalLoss
from fedcohort.selection.ranking import rank_losses
from fedcohort.selection.selector import Selector
from fedcohort.selection.strategy_inputs import Census, Outcome, Round

__all__ = ["CommunicationPowerOfChoice", "ComputationPowerOfChoice", "PowerOfChoice", "highest_loss", "pool_size"]

SOURCE = "Cho, Wang, Joshi 2020, arXiv:2010.01243"


def pool_size(d: int | None, round: Round) -> int:
    """Number of candidates: d, or 2k if d is None, clipped to [k, |A_t|]. Warns if d is below k or above m."""
    if d is not None and d < round.k:
        warnings.warn(
            f"selection.d = {d}: fewer candidates than the k = {round.k} clients to select; using d = k", stacklevel=3
        )
    if d is not None and d > (m := len(round.durations)):
        warnings.warn(f"selection.d = {d}: more candidates than the {m} clients; using d = {m}", stacklevel=3)
    return min(max(2 * round.k if d is None else d, round.k), len(round.available))


def draw_by_size(num_samples: Indices, count: int, round: Round) -> Indices:
    """``count`` available clients by successive draws without replacement with probability ∝ N_i, in ascending order."""
    return round.available[np.sort(successive(num_samples[round.available], count, round.rng))]


def highest_loss(losses: Values, candidates: Indices, pool: str, round: Round) -> Cohort:
    """The k ``candidates`` with the highest ``losses``, both [d]; ``pool`` describes in the note how the candidates were drawn."""
    scores = rank_losses(losses)
    missing = np.count_nonzero(np.isneginf(scores))
    note = f"highest loss of {counted(len(candidates), 'candidate')}, {pool}" + (
        f"; {missing} without a loss" if missing else ""
    )
    return Cohort(round.top(scores, among=candidates), why=Why(candidates, scores, {"loss": losses}, note))


@parameters
class PowerOfChoice(Selector):
    """Of d candidates drawn by size, k with the highest loss. The loss is that on all their training data (π_pow-d). Native
    weights: uniform.
    """

    card: ClassVar[Card] = Card(
        source=SOURCE,
        status="paper",
        asks="d candidates for their loss (d model downloads, d forward passes)",
        discloses=LocalLoss.reveals,
        knows="numbers of samples",
        cost="O(m + d log d)",
    )

    d: Annotated[int, Ge(1)] | None = None
    """Number of candidates, k ≤ d ≤ m; 2k if not set."""

    def select(self, round: Round) -> Cohort:
        """Draw candidates, ask for their loss, and select the highest."""
        candidates = draw_by_size(self.census.num_samples, pool_size(self.d, round), round)
        return highest_loss(round.ask(LocalLoss(), candidates), candidates, "drawn by size", round)


@parameters
class ComputationPowerOfChoice(Selector):
    """As powd, but with the loss on one random mini-batch. The source calls it cpow-d. Native weights: uniform."""

    card: ClassVar[Card] = Card(
        source=SOURCE,
        status="paper",
        asks="d candidates for their loss on one mini-batch (d model downloads, d batches)",
        discloses="the mean loss of the current model on a random mini-batch",
        knows="numbers of samples",
        cost="O(m + d log d)",
    )

    d: Annotated[int, Ge(1)] | None = None
    """Number of candidates, k ≤ d ≤ m; 2k if not set."""
    batch_size: Annotated[int, Ge(1)] | None = None
    """Number of samples in the mini-batch of the loss (b̂); the batch size of training if not set, as in the paper."""

    def select(self, round: Round) -> Cohort:
        """Draw candidates, ask for their loss on a mini-batch, and select the highest."""
        candidates = draw_by_size(self.census.num_samples, pool_size(self.d, round), round)
        batch = self.census.batch_size if self.batch_size is None else self.batch_size
        losses = round.ask(LocalLoss(batch=batch), candidates)
        return highest_loss(losses, candidates, "drawn by size", round)


@parameters
class CommunicationPowerOfChoice(Selector):
    """As powd, but with the training loss when last selected. No client is asked; the source calls it rpow-d. Native weights:
    uniform.
    """

    card: ClassVar[Card] = Card(
        source=SOURCE,
        status="paper",
        asks="selected clients for their mean training loss, sent with the update",
        discloses="its mean training loss in each round in which it trains",
        knows="numbers of samples",
        cost="O(m + d log d)",
    )

    d: Annotated[int, Ge(1)] | None = None
    """Number of candidates, k ≤ d ≤ m; 2k if not set."""

    def setup(self, census: Census) -> None:
        """Start with the loss +∞, so that clients without a reported loss come first."""
        super().setup(census)
        self.last_loss = np.full(census.num_clients, np.inf)

    def select(self, round: Round) -> Cohort:
        """Draw candidates, and select the highest last losses."""
        candidates = draw_by_size(self.census.num_samples, pool_size(self.d, round), round)
        scores = self.last_loss[candidates]
        unreported = np.count_nonzero(np.isposinf(scores))
        note = f"highest last loss of {len(candidates)} candidates, drawn by size; {unreported} without a report"
        return Cohort(round.top(scores, among=candidates), why=Why(candidates, scores, {"loss": scores}, note))

    def observe(self, outcome: Outcome) -> None:
        """Store the loss of every client that trained; a loss that is not finite ranks last in later rounds (R4)."""
        trained = outcome.trained
        self.last_loss[outcome.cohort.clients[trained]] = rank_losses(outcome.billed_report("loss")[trained])
