"""Every available client takes part in every round: S_t = A_t. This is the upper reference for accuracy and for cost."""

from typing import ClassVar

import numpy as np

from fedcohort.core.arrays import Indices
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.draws import shares
from fedcohort.selection.selector import Selector
from fedcohort.selection.strategy_inputs import Round

__all__ = ["All", "all_available"]


@parameters
class All(Selector):
    """Every available client, regardless of k."""

    card: ClassVar[Card] = Card(
        source="McMahan et al. 2017 (C = 1), arXiv:1602.05629", status="paper", cost="O(m), m trainings"
    )

    gives: ClassVar[frozenset[str]] = frozenset({"inclusion"})
    variable_size: ClassVar[bool] = True

    def select(self, round: Round) -> Cohort:
        """All available clients."""
        ones = np.ones(len(round.available))
        return Cohort(round.available, inclusion=ones, why=Why(round.available, ones, note="all available clients"))


def all_available(round: Round, num_samples: Indices) -> Cohort:
    """All available clients, for rounds in which k or fewer are available (R1); each has inclusion 1 and weight p_i."""
    i = round.available
    ones, p = np.ones(len(i)), shares(num_samples[i])
    why = Why(i, ones.copy(), {"p": p.copy()}, "all available clients: k or fewer are available")
    return Cohort(i, inclusion=ones, weights=p, why=why)
