"""FedSGD: every selected client sends one full-batch gradient.

    w^{t+1} = w^t − η Σ a_i ∇F_i(w^t)

This is FedAvg with one step of plain gradient descent on all data of the client. With all clients and ``n_selected`` weights, it
equals centralized full-batch gradient descent for every partition.

McMahan et al. 2017, arXiv:1602.05629.
"""

import dataclasses
from typing import ClassVar

from fedcohort.algorithms.base import Algorithm
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card

__all__ = ["FedSGD"]


@parameters
class FedSGD(Algorithm):
    """One full-batch gradient step per client and round. ``training.lr`` is its step size."""

    card: ClassVar[Card] = Card(source="McMahan et al. 2017, arXiv:1602.05629", status="paper", cost="O(kP)")

    def local_training(self, training: Training) -> Training:
        """One step of plain SGD on all data of the client."""
        return dataclasses.replace(training, epochs=1, batch_size=0, optimizer="sgd", momentum=0.0, nesterov=False)
