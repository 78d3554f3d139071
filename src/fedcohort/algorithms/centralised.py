"""Centralised training: what the same model learns when all data are in one place. No federated algorithm, a yardstick.

The data of all clients, as the clients hold them (label noise, feature shift, without the held-out parts), are given to a single
client; a round is ``training.epochs`` epochs of it, with optimiser state that is fresh in every round as everywhere else. Who would
have been selected, is available or drops out does not matter: that client always takes part. Its simulated time is that of one
client with all samples, and the record counts one model down and up a round; what it costs to bring the data together is not in it.
"""

from typing import ClassVar

from fedcohort.algorithms.base import Algorithm
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card

__all__ = ["Centralised"]


@parameters
class Centralised(Algorithm):
    """One client that holds everybody's data; the selection strategy and the systems section have no say."""

    card: ClassVar[Card] = Card(
        source="a yardstick, no federated algorithm", status="ours", discloses="all its data", cost="O(P)"
    )
    pools: ClassVar[bool] = True
