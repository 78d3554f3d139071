"""FedAvg: clients train for E epochs, and the server averages their models.

    w_i   = E epochs of mini-batch steps from w^t on client i
    w^{t+1} = Σ a_i w_i,   a_i = N_i / Σ_{j admitted} N_j

Optimizers start with fresh state in every round, and the last short batch is kept. Server damping (``server_lr``) and the other
weightings are parameters.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", 2017, arXiv:1602.05629.
"""

from typing import ClassVar

from fedcohort.algorithms.base import Algorithm
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card

__all__ = ["FedAvg"]


@parameters
class FedAvg(Algorithm):
    """Weighted average of the clients' models."""

    card: ClassVar[Card] = Card(source="McMahan et al. 2017, arXiv:1602.05629", status="paper", cost="O(kP)")
