"""Active federated learning (AFL): clients with much data and high loss are drawn more often. (Agnostic federated
learning is another method with the abbreviation AFL.)

The valuation of a client is v_i = √N_i·(mean loss on its data). Each client is asked for its loss once, when it is first available;
later, its valuation changes only when it takes part. Of the n available clients:

    1. the ⌊α₁·n⌋ with the lowest valuations get probability 0 (fewer if too few would be left), the others ∝ exp(α₂·v_i)
    2. ⌊(1 − α₃)·k⌋ clients are drawn with these probabilities, without replacement
    3. the rest of the cohort is drawn uniformly from the clients not yet drawn

A client without a finite loss ranks last (R4).

Goetz et al., "Active Federated Learning", 2019, arXiv:1909.12641; code Yoruko-Tang/FedCor, src/federated_main.py. The paper's
valuation is the sum of losses divided by √N_i, which equals √N_i times the mean; Plato divides the mean by √N_i instead.
"""

import math
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Le, Lt

from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.questions import LocalLoss
from fedcohort.selection.ranking import best, rank_losses
from fedcohort.selection.selector import Selector
from fedcohort.selection.strategy_inputs import Census, Outcome, Round

__all__ = ["ActiveFL"]


@parameters
class ActiveFL(Selector):
    """k clients, most of them from those with high total loss. They are drawn with probability ∝ exp(α₂·√N_i·loss) from the
    quarter with the highest √N_i·loss.
    """

    card: ClassVar[Card] = Card(
        source="Goetz et al. 2019, arXiv:1909.12641; code Yoruko-Tang/FedCor, src/federated_main.py",
        status="code",
        asks="every client for its loss, once (m model downloads, m forward passes); selected clients for their training loss",
        discloses=f"{LocalLoss.reveals}, once; its mean training loss in each round in which it trains",
        knows="N_i",
        cost="O(m)",
    )

    alpha1: Annotated[float, Ge(0), Lt(1)] = 0.75
    """Share of the available clients, those with the lowest valuations, that get probability 0 (α₁)."""
    alpha2: Annotated[float, Ge(0)] = 0.01
    """Weight of the valuation in the exponent (α₂); 0 gives the remaining clients equal probabilities."""
    alpha3: Annotated[float, Ge(0), Le(1)] = 0.1
    """Share of the cohort that is drawn uniformly (α₃)."""

    def setup(self, census: Census) -> None:
        """Start without valuations."""
        super().setup(census)
        self.valuation = np.full(census.num_clients, -np.inf)
        self.asked = np.zeros(census.num_clients, dtype=bool)

    def select(self, round: Round) -> Cohort:
        """Ask clients that were never asked, draw by valuation, then uniformly."""
        i = round.available
        self._ask(round)
        v = self.valuation[i]
        by_value = math.floor((1 - self.alpha3) * round.k + 1e-9)
        dropped = min(math.floor(self.alpha1 * len(i) + 1e-9), len(i) - by_value)
        kept = best(v, len(i) - dropped, round.rng)
        weights = np.zeros(len(i))
        weights[kept] = np.exp(self.alpha2 * np.maximum(v[kept] - v.max(), -1e300)) if np.isfinite(v.max()) else 0.0
        weights[np.isneginf(v)] = 0.0
        drawn = round.draw(weights[kept], by_value, among=i[kept])
        rest = round.sample(round.k - by_value, among=i[~np.isin(i, drawn)])
        share = weights / max(weights.sum(), 1e-300)
        note = f"{by_value} by valuation among {len(kept)}, {len(rest)} at random"
        return Cohort(np.concatenate([drawn, rest]), why=Why(i, v, {"valuation": v, "probability": share}, note))

    def _ask(self, round: Round) -> None:
        new = round.available[~self.asked[round.available]]
        if len(new):
            losses = rank_losses(round.ask(LocalLoss(), new))
            self.valuation[new] = np.sqrt(self.census.num_samples[new]) * losses
            self.asked[new] = True

    def observe(self, outcome: Outcome) -> None:
        """Update the valuations of clients that trained."""
        losses = outcome.billed_report("loss")
        known = outcome.trained & np.isfinite(losses)
        clients = outcome.cohort.clients[known]
        self.valuation[clients] = np.sqrt(self.census.num_samples[clients]) * losses[known]
