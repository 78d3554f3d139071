"""Importance sampling of agents by gradient norms, estimated from the updates of past rounds.

    ĝ_i  = running mean (factor ½) of ‖Δ_i‖₂/H_i over the rounds in which client i trained; for a client that never trained, the
           largest ĝ of the others
    q_i  = (1 − ξ)·p_iĝ_i/Σ_{A_t} p_jĝ_j + ξ/|A_t|;   1/|A_t| until a client has trained
    S_t  = k successive draws without replacement, each ∝ q among the clients not yet drawn

‖Δ_i‖/(η·H_i) estimates the norm of the gradient; the learning rate η is the same for all clients and cancels. (With a learning-rate
schedule, norms of early rounds are on an older scale.) The weights for ``weights = "cohort"`` are Raj's, which make Σ a_iΔ_i unbiased
for Σ p_iΔ_i, or ``self_normalised``, a_i ∝ p_i/q_i with the sum 1.

With ``importance_data``, a client draws the samples of its batches with replacement and with probability ∝ their loss at the start of
the epoch, which is cheaper to compute than the norm of their gradients. The loss of sample j of n counts 1/(n·probability), so that
the mean of the gradients does not change.

Unlike with ``ocs``, only selected clients train, and their number is fixed.

Rizk, Vlaski, Sayed, "Federated Learning under Importance Sampling", 2020, arXiv:2012.07383 (short: arXiv:2010.13600): agents and
samples drawn with probabilities proportional to gradient norms, without replacement. We had access to the abstract and the
introduction only; the rest is ours.
"""

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Le

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.draws import raj, shares, successive
from fedcohort.selection.selector import Selector
from fedcohort.selection.strategies.all_available import all_available
from fedcohort.selection.strategy_inputs import Census, Outcome, Round

__all__ = ["Rizk"]


@parameters
class Rizk(Selector):
    """k clients drawn by size and by norm of their past updates. The k draws are successive, with probability ∝ size times norm
    per step. Native weights: cohort.
    """

    card: ClassVar[Card] = Card(
        source="Rizk, Vlaski, Sayed 2020, arXiv:2012.07383 (abstract)",
        status="ours",
        asks="selected clients for their number of local steps (1 number with the update); the server computes the norm of the update",
        discloses="its number of local steps in each round in which it trains",
        knows="N_i",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"update_norm"})
    gives: ClassVar[frozenset[str]] = frozenset({"weights"})

    xi: Annotated[float, Ge(0), Le(1)] = 0.1
    """Share of the probability that is distributed uniformly (ξ), which bounds the weights."""
    factor: Annotated[float, Ge(0), Le(1)] = 0.5
    """Weight of the newest norm in the running mean."""
    estimator: Literal["raj", "self_normalised"] = "raj"
    """Aggregation weights: raj (unbiased), or self_normalised (sum 1)."""

    importance_data: bool = False
    """Draw the samples of batches ∝ their loss, with weights that avoid bias; an epoch then takes a third longer."""

    def setup(self, census: Census) -> None:
        """Start without norms."""
        super().setup(census)
        self.norm = np.full(census.num_clients, np.nan)

    def select(self, round: Round) -> Cohort:
        """Draw k clients with the probabilities q."""
        i, k = round.available, round.k
        sampling: Literal["shuffled", "loss_unbiased"] = "loss_unbiased" if self.importance_data else "shuffled"
        if k >= len(i):
            return replace(all_available(round, self.census.num_samples), sampling=sampling)
        p = shares(self.census.num_samples[i])
        q, note = self._probabilities(p, i)
        drawn = successive(q, k, round.rng)
        ratio = p[drawn] / np.maximum(q[drawn], 1e-12)
        weights = raj(p[drawn], np.maximum(q[drawn], 1e-12)) if self.estimator == "raj" else ratio / ratio.sum()
        why = Why(i, q, {"p": p, "norm": self.norm[i]}, note)
        return Cohort(i[drawn], weights=weights, sampling=sampling, why=why)

    def observe(self, outcome: Outcome) -> None:
        """Update the running mean of the norm per step of every client that trained."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            latest = outcome.billed_report("update_norm") / outcome.billed_report("steps")
        known = outcome.trained & np.isfinite(latest)
        clients, latest = outcome.cohort.clients[known], latest[known]
        before = self.norm[clients]
        self.norm[clients] = np.where(np.isnan(before), latest, (1 - self.factor) * before + self.factor * latest)

    def _probabilities(self, p: Values, clients: Indices) -> tuple[Values, str]:
        """q of these clients, and the note for the record."""
        largest = np.nanmax(self.norm) if np.isfinite(self.norm).any() else 0.0
        if largest <= 0:
            return np.full(len(p), 1 / len(p)), "random: no updates yet"
        norms = self.norm[clients]
        importance = p * np.where(np.isnan(norms), largest, norms)
        if not importance.any():
            return np.full(len(p), 1 / len(p)), "random: all updates of the available clients were 0"
        q = (1 - self.xi) * importance / importance.sum() + self.xi / len(p)
        return q, "successive draws by size × norm per step"
