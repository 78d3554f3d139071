"""All clients take part in every round: S_t = A_t. The upper reference for accuracy, and for cost."""

from typing import ClassVar

import numpy as np

from fedcohort.core.parameters import parameters
from fedcohort.selection.base import Card, Cohort, Round, Selector, Why

__all__ = ["All"]


@parameters
class All(Selector):
    """Everybody who is available, whatever k says."""

    card: ClassVar[Card] = Card(
        source="McMahan et al. 2017 (C = 1), arXiv:1602.05629", status="paper", cost="O(m), m trainings"
    )

    gives: ClassVar[frozenset[str]] = frozenset({"inclusion"})
    variable_size: ClassVar[bool] = True

    def select(self, round: Round) -> Cohort:
        """All available clients."""
        ones = np.ones(len(round.available))
        return Cohort(round.available, inclusion=ones, why=Why(round.available, ones, note="everybody"))
