"""Importance sampling by size: client i is drawn with probability N_i/Σ_{j∈A_t} N_j, or with probability ∝ any importance ω_i.

Without replacement (the default), this is k successive draws, each with the probabilities normalized over the clients not yet drawn.
With replacement, it is k independent draws, which for ω = N is MD sampling. If all ω are 0, the draws are uniform.

The thesis gives no weights. ``uniform`` is meant, because ``n_selected`` would count the size twice. The weights for
``weights = "cohort"`` make the sum unbiased for Σ p_iΔ_i, p_i = N_i/Σ_{A_t} N_j: c_i·p_i/(k·q_i) with replacement, and Raj's without.

"Client Selection in Federated Learning on Non-IID Data using Conformal Prediction" (master's thesis, Aalborg University, 2023),
section 4.4.
"""

from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.draws import raj, repeated, shares, successive
from fedcohort.selection.selector import Selector
from fedcohort.selection.strategies.all_available import all_available
from fedcohort.selection.strategy_inputs import Round

__all__ = ["BySize"]


@parameters
class BySize(Selector):
    """k clients drawn in proportion to their number of samples. Native weights: uniform."""

    card: ClassVar[Card] = Card(source="CP thesis, section 4.4", status="paper", knows="N_i")
    gives: ClassVar[frozenset[str]] = frozenset({"weights"})

    replacement: bool = False
    """Draw with replacement, so that a client can be drawn several times."""
    importance: list[Annotated[float, Ge(0)]] | None = None
    """Importance ω_i of each client; its number of samples if not set."""

    def check_clients(self, number: int) -> None:
        """Check that ``importance`` has one number per client."""
        given = self.importance
        if given is not None and len(given) != number:
            raise UsageError(f"selection.importance: {len(given)} numbers for {number} clients; give one for each")

    def select(self, round: Round) -> Cohort:
        """Draw k clients with probability ∝ importance."""
        i, k = round.available, round.k
        if k >= len(i):
            return all_available(round, self.census.num_samples)
        p = shares(self.census.num_samples[i])
        importance = p if self.importance is None else np.asarray(self.importance, dtype=np.float64)[i]
        q = importance / importance.sum() if importance.any() else np.full(len(i), 1 / len(i))
        what = "size" if self.importance is None else "importance"
        if self.replacement:
            drawn, times = repeated(q, k, round.rng)
            why = Why(i, q, note=f"{k} draws by {what} with replacement, {len(drawn)} different clients")
            return Cohort(i[drawn], multiplicity=times, weights=times * p[drawn] / (k * q[drawn]), why=why)
        drawn = successive(q, k, round.rng)
        drawable = np.maximum(q[drawn], 1e-12)  # clients with importance 0 are drawn only after all others
        return Cohort(i[drawn], weights=raj(p[drawn], drawable), why=Why(i, q, note=f"{k} successive draws by {what}"))
