"""Round robin: clients take turns in a fixed random order.

The clients form a queue, initially in random order. Each round selects the first k clients of the queue that are available, and moves
them to its end. A client that is not available keeps its place, and is selected as soon as it is available again. If all clients are
always available, this is a pointer that moves through a fixed permutation, and the numbers of selections never differ by more than 1.

This is the reference for fairness; ours.
"""

from typing import ClassVar

import numpy as np

from fedcohort.core.arrays import Indices
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.selector import Selector
from fedcohort.selection.strategy_inputs import Census, Outcome, Round

__all__ = ["RoundRobin"]


@parameters
class RoundRobin(Selector):
    """The k clients that have waited longest. They take turns in a fixed random order."""

    card: ClassVar[Card] = Card(source="FedCohort", status="ours")

    def setup(self, census: Census) -> None:
        """Start without a queue: the first round forms it, because the order is random."""
        super().setup(census)
        self.place: Indices | None = None
        self.end = census.num_clients

    def select(self, round: Round) -> Cohort:
        """Select the first k available clients of the queue."""
        if self.place is None:
            self.place = round.rng.permutation(self.census.num_clients)
        place = self.place[round.available]
        first = np.argpartition(place, round.k - 1)[: round.k]
        clients = round.available[first[np.argsort(place[first])]]
        return Cohort(clients, why=Why(round.available, -place.astype(np.float64), note="first in the queue"))

    def observe(self, outcome: Outcome) -> None:
        """Move the selected clients to the end of the queue, in the order of selection (R9)."""
        if self.place is None:  # no client has been available so far
            return
        n = len(outcome.cohort)
        self.place[outcome.cohort.clients] = np.arange(self.end, self.end + n)
        self.end += n
