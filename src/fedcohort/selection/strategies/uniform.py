"""Uniform random selection: every available client is equally likely.

S_t is a uniform k-subset of the available clients, drawn without replacement; each is included with probability k/|A_t|.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", 2017, arXiv:1602.05629.
"""

from typing import ClassVar

import numpy as np

from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.selector import Selector
from fedcohort.selection.strategy_inputs import Round

__all__ = ["Uniform"]


@parameters
class Uniform(Selector):
    """k random clients; the usual baseline of a comparison."""

    card: ClassVar[Card] = Card(source="McMahan et al. 2017, arXiv:1602.05629", status="paper")
    gives: ClassVar[frozenset[str]] = frozenset({"inclusion"})

    def select(self, round: Round) -> Cohort:
        """Draw a uniform k-subset."""
        clients = round.sample(round.k)
        chance = round.k / len(round.available)
        scores = np.broadcast_to(chance, len(round.available))  # stores a single number
        return Cohort(
            clients, inclusion=np.full(len(clients), chance), why=Why(round.available, scores, note="uniform")
        )
