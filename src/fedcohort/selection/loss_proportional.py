"""Loss-proportional sampling: k successive draws with probability ∝ p_i·F_i(w^t)^{1/temperature}.

Power-of-choice, softened: a bridge from sampling by size (temperature → ∞) to the k highest losses (temperature → 0).

F_i is asked of all available clients, or of ``candidates`` of them drawn uniformly. A loss that is missing or not finite counts 0, and
such a client is drawn after all others (R4); all losses 0: by size. The weights for ``weights = "cohort"`` are Raj's, which make the
sum unbiased for Σ p_iΔ_i over the candidates. Ours.
"""

from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Gt

from fedcohort.core.arrays import Values
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.all_available import all_available
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.draws import raj, shares, successive
from fedcohort.selection.inputs import Round
from fedcohort.selection.questions import LocalLoss
from fedcohort.selection.selector import Selector

__all__ = ["LossProportional"]


@parameters
class LossProportional(Selector):
    """k successive draws, by size times loss. Native weights: uniform."""

    card: ClassVar[Card] = Card(
        source="FedCohort",
        status="ours",
        asks="every candidate for its loss (n' model downloads, n' forward passes)",
        discloses=LocalLoss.reveals,
        knows="N_i",
    )
    gives: ClassVar[frozenset[str]] = frozenset({"weights"})

    temperature: Annotated[float, Gt(0)] = 1.0
    """The loss counts with the exponent 1/temperature; large values leave it out."""
    candidates: Annotated[int, Ge(1)] | None = None
    """Number of candidates, drawn uniformly; none means all that are available."""

    def select(self, round: Round) -> Cohort:
        """Ask, and draw."""
        if round.k >= len(round.available):
            return all_available(round, self.census.num_samples)
        count = len(round.available) if self.candidates is None else max(self.candidates, round.k)
        asked = round.available if count >= len(round.available) else round.sample(count)
        losses = round.ask(LocalLoss(), asked)
        p = shares(self.census.num_samples[asked])
        q = p * _softened(losses, self.temperature)
        q = q / q.sum() if q.any() else p
        drawn = successive(q, round.k, round.rng)
        note = f"draws by size × loss among {len(asked)} candidates"
        why = Why(asked, q, {"p": p, "loss": losses}, note)
        return Cohort(asked[drawn], weights=raj(p[drawn], np.maximum(q[drawn], 1e-12)), why=why)


def _softened(losses: Values, temperature: float) -> Values:
    """F^{1/temperature}, the largest scaled to 1; 0 where the loss is missing or not finite."""
    known = np.where(np.isfinite(losses) & (losses > 0), losses, 0.0)
    softened: Values = (known / max(known.max(initial=0.0), 1e-300)) ** (1.0 / temperature)
    return softened
