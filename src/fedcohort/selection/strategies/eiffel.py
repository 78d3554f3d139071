"""Eiffel-style score: the highest sum of loss, speed and age, a fair baseline that is easy to explain.

    score_i = a·loss_i + b·speed_i + c·age_i;   S_t = the top k

loss_i is the last training loss that the client reported, speed_i = 1/T_i, and age_i the number of rounds since it was last selected
(t before the first selection). Each is scaled to [0, 1] over the available clients (0 for all if they are equal). A client without a
loss counts with the scaled loss 1 (R3). T_i is the measured time; before the first measurement it is proportional to N_i.

After Sultana et al., "Eiffel: Efficient and Fair Scheduling in Adaptive Federated Learning", IEEE TPDS 2022. We did not have access to
the text, so the score is ours.
"""

from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from fedcohort.core.arrays import Values
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.client_speed import by_size
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.selector import Selector
from fedcohort.selection.strategy_inputs import Census, Outcome, Round

__all__ = ["Eiffel"]


@parameters
class Eiffel(Selector):
    """k clients with the highest sum of loss, speed and age. Each is scaled; age counts the rounds since a client was last
    selected.
    """

    card: ClassVar[Card] = Card(
        source="after Sultana et al. 2022 (IEEE TPDS)",
        status="ours",
        asks="selected clients for their training loss",
        discloses="its mean training loss in each round it takes part in",
        knows="N_i; durations",
        cost="O(m)",
    )

    loss: Annotated[float, Ge(0)] = 1 / 3
    """Weight of the loss (a)."""
    speed: Annotated[float, Ge(0)] = 1 / 3
    """Weight of the speed (b)."""
    age: Annotated[float, Ge(0)] = 1 / 3
    """Weight of the rounds since the last selection (c)."""

    def setup(self, census: Census) -> None:
        """Start without losses and selections."""
        super().setup(census)
        self.last_loss = np.full(census.num_clients, np.nan)
        self.last_round = np.zeros(census.num_clients, dtype=np.int64)

    def select(self, round: Round) -> Cohort:
        """Select the k clients with the highest scores."""
        i = round.available
        loss = scaled(self.last_loss[i])
        loss[np.isnan(loss)] = 1.0
        speed = scaled(1 / by_size(round, self.census.num_samples))
        age = scaled((round.t - self.last_round[i]).astype(np.float64))
        scores = self.loss * loss + self.speed * speed + self.age * age
        why = Why(i, scores, {"loss": loss, "speed": speed, "age": age}, "highest sum of loss, speed and age")
        return Cohort(round.top(scores), why=why)

    def observe(self, outcome: Outcome) -> None:
        """Store the reported losses, and reset the age of the selected clients."""
        losses = outcome.billed_report("loss")
        known = outcome.trained & np.isfinite(losses)
        self.last_loss[outcome.cohort.clients[known]] = losses[known]
        self.last_round[outcome.cohort.clients] = outcome.t


def scaled(values: Values) -> Values:
    """Values scaled linearly so that the finite ones span [0, 1]; 0 if these are all equal. NaN stays NaN."""
    known = values[np.isfinite(values)]
    low, high = (known.min(), known.max()) if len(known) else (0.0, 0.0)
    shifted: Values = (values - low) / (high - low) if high > low else values * 0.0
    return shifted
