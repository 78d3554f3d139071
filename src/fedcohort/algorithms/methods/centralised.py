"""Centralized training: a baseline that trains the same model on all data in one place. It is not a federated algorithm.

A single client receives the training data of all clients, including label noise and feature shift, but without the held-out parts.
A round is ``training.epochs`` epochs, and the optimizer starts with fresh state in every round, as in all other algorithms.
Selection, availability and dropout have no effect: the client takes part in every round. Its simulated time is that of one client
with all samples. The record counts one model down and one model up per round; the cost of collecting the data is not included.
"""

from typing import ClassVar

from fedcohort.algorithms.base import Algorithm
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card

__all__ = ["Centralised"]


@parameters
class Centralised(Algorithm):
    """One client that holds the data of all clients. The selection strategy and the systems section have no effect."""

    card: ClassVar[Card] = Card(
        source="a baseline, not a federated algorithm", status="ours", discloses="all data of the clients", cost="O(P)"
    )
    pools: ClassVar[bool] = True
