"""Importance sampling of agents by gradient norms, from what participants are seen to do.

    ĝ_i  = running mean (factor ½) of ‖Δ_i‖₂/H_i over the rounds in which client i took part; never seen: the largest of the seen ones
    q_i  = (1 − ξ)·p_iĝ_i/Σ_{A_t} p_jĝ_j + ξ/|A_t|;   1/|A_t| as long as nobody was seen
    S_t  = k successive draws without replacement, each ∝ q among those that are left

‖Δ_i‖/(η·H_i) estimates the gradient's norm; the learning rate η is the same for all and cancels. (Under a schedule, norms measured
long ago are on an older scale.) The weights for ``weights = "cohort"``: Raj's, which make Σ a_iΔ_i unbiased for Σ p_iΔ_i, or
``self_normalised``, a_i ∝ p_i/q_i with the sum 1.

Inside a client, ``importance_data`` draws the samples of its batches with replacement and with probability ∝ their loss at the
beginning of the epoch, a cheap stand-in for the norm of their gradient; the loss of sample j of n counts 1/(n·probability), so that
the mean of the gradients stays.

Unlike ``ocs`` nobody trains for nothing, and the number of clients is fixed.

Rizk, Vlaski, Sayed, "Federated Learning under Importance Sampling", 2020, arXiv:2012.07383 (short: arXiv:2010.13600): agents and
samples drawn with probabilities proportional to gradient norms, without replacement. Only the abstract and the introduction were
available; the rest is ours.
"""

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Le

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.all_available import all_available
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.draws import raj, shares, successive
from fedcohort.selection.inputs import Census, Outcome, Round
from fedcohort.selection.selector import Selector

__all__ = ["Rizk"]


@parameters
class Rizk(Selector):
    """k successive draws, by size times the size of the client's past steps. Native weights: cohort."""

    card: ClassVar[Card] = Card(
        source="Rizk, Vlaski, Sayed 2020, arXiv:2012.07383 (abstract)",
        status="ours",
        asks="nothing beyond the update, whose norm the server takes",
        discloses="nothing beyond its update",
        knows="N_i",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"update_norm"})
    gives: ClassVar[frozenset[str]] = frozenset({"weights"})

    xi: Annotated[float, Ge(0), Le(1)] = 0.1
    """Share of the probability that is spread evenly (ξ); it bounds the weights."""
    factor: Annotated[float, Ge(0), Le(1)] = 0.5
    """What the newest norm counts in the running mean."""
    estimator: Literal["raj", "self_normalised"] = "raj"
    """The weights: raj is unbiased, self_normalised sums to 1."""

    importance_data: bool = False
    """Clients draw the samples of their batches ∝ their loss, reweighted without bias; an epoch then takes a third longer."""

    def setup(self, census: Census) -> None:
        """Nobody was seen."""
        super().setup(census)
        self.norm = np.full(census.num_clients, np.nan)

    def select(self, round: Round) -> Cohort:
        """Draw by q."""
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
        """Norm per step of every client that came back."""
        with np.errstate(divide="ignore", invalid="ignore"):
            latest = outcome.billed_report("update_norm") / outcome.billed_report("steps")
        seen = outcome.trained & np.isfinite(latest)
        clients, latest = outcome.cohort.clients[seen], latest[seen]
        before = self.norm[clients]
        self.norm[clients] = np.where(np.isnan(before), latest, (1 - self.factor) * before + self.factor * latest)

    def _probabilities(self, p: Values, clients: Indices) -> tuple[Values, str]:
        largest = np.nanmax(self.norm) if np.isfinite(self.norm).any() else 0.0
        if largest <= 0:
            return np.full(len(p), 1 / len(p)), "random: no update seen yet"
        known = self.norm[clients]
        worth = p * np.where(np.isnan(known), largest, known)
        if not worth.any():
            return np.full(len(p), 1 / len(p)), "random: no available client has moved"
        return (1 - self.xi) * worth / worth.sum() + self.xi / len(p), "successive draws by size × norm per step"
