"""Loss-proportional sampling: k successive draws with probability ∝ p_i·F_i(w^t)^{1/temperature}.

This is a soft form of power-of-choice. It lies between sampling by size (temperature → ∞) and the k highest losses (temperature → 0).

All available clients are asked for F_i, or ``candidates`` of them, drawn uniformly. A loss that is missing or not finite counts as 0,
and such a client is drawn after all others (R4). If all losses are 0, clients are drawn by size. The weights for
``weights = "cohort"`` are Raj's, which make the sum unbiased for Σ p_iΔ_i over the candidates. The method is ours.
"""

from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Gt

from fedcohort.core.arrays import Values
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.draws import raj, shares, successive
from fedcohort.selection.questions import LocalLoss
from fedcohort.selection.selector import Selector
from fedcohort.selection.strategies.all_available import all_available
from fedcohort.selection.strategy_inputs import Round

__all__ = ["LossProportional"]


@parameters
class LossProportional(Selector):
    """k clients drawn in proportion to size times loss. The k draws are successive. Native weights: uniform."""

    card: ClassVar[Card] = Card(
        source="FedCohort",
        status="ours",
        asks="every candidate for its loss (n' model downloads, n' forward passes; n' candidates)",
        discloses=LocalLoss.reveals,
        knows="N_i",
    )
    gives: ClassVar[frozenset[str]] = frozenset({"weights"})

    temperature: Annotated[float, Gt(0)] = 1.0
    """The exponent of the loss is 1/temperature, so large values ignore the loss."""
    candidates: Annotated[int, Ge(1)] | None = None
    """Number of candidates, drawn uniformly; all available clients if not set."""

    def select(self, round: Round) -> Cohort:
        """Ask the candidates for their loss, and draw."""
        if round.k >= len(round.available):
            return all_available(round, self.census.num_samples)
        asked = round.candidates(self.candidates)
        losses = round.ask(LocalLoss(), asked)
        p = shares(self.census.num_samples[asked])
        q = p * _softened(losses, self.temperature)
        q = q / q.sum() if q.any() else p
        drawn = successive(q, round.k, round.rng)
        note = f"draws by size × loss among {len(asked)} candidates"
        why = Why(asked, q, {"p": p, "loss": losses}, note)
        return Cohort(asked[drawn], weights=raj(p[drawn], np.maximum(q[drawn], 1e-12)), why=why)


def _softened(losses: Values, temperature: float) -> Values:
    """F^{1/temperature} with the largest scaled to 1; 0 if the loss is missing, negative or not finite."""
    known = np.where(np.isfinite(losses) & (losses > 0), losses, 0.0)
    softened: Values = (known / max(known.max(initial=0.0), 1e-300)) ** (1.0 / temperature)
    return softened
