"""Select by loss: of d candidates drawn uniformly, select the k with the highest loss of the global model on their data.

1. 𝒜 = a uniform d-subset of the available clients, d = min(|A_t|, 2k)
2. L_i = F_i(w^t), the mean loss on all training data of client i, asked of i ∈ 𝒜
3. S_t = the k candidates with the highest L_i; ties are random; a loss that is missing or not finite ranks last (R4)

With d = k, this is uniform selection. The source combines it with FedAvg weighted by size (``n_selected``) and a server step below 1,
to reduce the oscillation that this selection causes. It does not state the number of candidates or the samples for the loss; both are
ours.

X86 report, section 4.3. Compare power-of-choice, arXiv:2010.01243, which draws the candidates by size.
"""

from typing import Annotated, ClassVar

from annotated_types import Ge

from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.cohort import Cohort
from fedcohort.selection.questions import LocalLoss
from fedcohort.selection.selector import Selector
from fedcohort.selection.strategies.power_of_choice import highest_loss, pool_size
from fedcohort.selection.strategy_inputs import Round

__all__ = ["SelectByLoss"]


@parameters
class SelectByLoss(Selector):
    """Of d random candidates, the k with the highest loss. The loss is that on all their training data. Native weights:
    n_selected.
    """

    card: ClassVar[Card] = Card(
        source="X86 report, section 4.3",
        status="ours",
        asks="d candidates for their loss (d model downloads, d forward passes)",
        discloses=LocalLoss.reveals,
        cost="O(d log d)",
    )

    d: Annotated[int, Ge(1)] | None = None
    """Number of candidates, k ≤ d ≤ m; 2k if not set."""

    def select(self, round: Round) -> Cohort:
        """Draw candidates, ask for their loss, and select the highest."""
        candidates = round.sample(pool_size(self.d, round))
        return highest_loss(round.ask(LocalLoss(), candidates), candidates, "drawn uniformly", round)
