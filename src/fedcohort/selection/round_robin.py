"""Round robin: everybody in turn.

The clients stand in a queue, at first in a random order. Each round takes the first k of the queue that are available; they then go
to its end. As long as all are available, that is a pointer which moves through a fixed permutation. Whoever was not there when
it was their turn stays in front, and goes first next time.

After any number of rounds with everybody available the numbers of selections differ by at most 1. The reference for fairness; ours.
"""

from typing import ClassVar

import numpy as np

from fedcohort.core.arrays import Indices
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.inputs import Census, Outcome, Round
from fedcohort.selection.selector import Selector

__all__ = ["RoundRobin"]


@parameters
class RoundRobin(Selector):
    """The k clients whose last turn is longest ago."""

    card: ClassVar[Card] = Card(source="FedCohort", status="ours")

    def setup(self, census: Census) -> None:
        """The first round makes the queue, because the order is random."""
        super().setup(census)
        self.place: Indices | None = None
        self.end = census.num_clients

    def select(self, round: Round) -> Cohort:
        """The first k of the queue that are there."""
        if self.place is None:
            self.place = round.rng.permutation(self.census.num_clients)
        place = self.place[round.available]
        first = np.argpartition(place, round.k - 1)[: round.k]
        clients = round.available[first[np.argsort(place[first])]]
        return Cohort(clients, why=Why(round.available, -place.astype(np.float64), note="first in the queue"))

    def observe(self, outcome: Outcome) -> None:
        """Whoever was selected goes to the end, in the order of selection (R9)."""
        if self.place is None:  # nobody has been available so far
            return
        n = len(outcome.cohort)
        self.place[outcome.cohort.clients] = np.arange(self.end, self.end + n)
        self.end += n
