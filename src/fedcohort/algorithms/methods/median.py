"""Median: the server takes the median of the clients' models in every coordinate.

    w^{t+1}_j = med{w_{i,j} : i admitted},   the mean of the two middle values for an even number of clients

Each client counts once, whatever its number of samples, and a client that was drawn several times counts as many times. Fewer than
half of the clients, with any values, cannot move a coordinate beyond the values of the others. The price: where clients have different
data, the median is not an average of what they learned.

The server keeps the models of the round until its end, k·P numbers, and merges 65,536 coordinates at a time. If clients send
parts of their models, a coordinate's median is that of the clients that sent it.

Yin, Chen, Ramchandran, Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", 2018, arXiv:1803.01498
(Definition 1; the median of models instead of gradients); code ``adap/flower``, ``flwr/server/strategy/aggregate.py``.
"""

from typing import ClassVar

import torch
from torch import Tensor

from fedcohort.algorithms.base import Algorithm, WeightMode
from fedcohort.algorithms.models_by_coordinate import Coordinates, check_one_vote
from fedcohort.algorithms.updates import Members, ModelState
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card

__all__ = ["Median", "median"]


def median(ascending: Tensor) -> Tensor:
    """The middle row, or the mean of the two middle rows, of [n, P] with ascending columns."""
    n = len(ascending)
    return torch.lerp(ascending[(n - 1) // 2], ascending[n // 2], 0.5)


@parameters
class Median(Algorithm):
    """Coordinate-wise median of the clients' models."""

    weights: WeightMode = "uniform"
    """Only uniform: every client counts once."""

    card: ClassVar[Card] = Card(
        source="Yin et al. 2018, arXiv:1803.01498; adap/flower",
        status="code",
        cost="O(P·k·log k), and k models in memory",
    )
    keeps_models: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_one_vote(self.weights, "the median")

    def begin(self, model: ModelState, members: Members) -> Coordinates:
        """Keep the models of the round until its end."""
        return Coordinates()

    def end(self, fold: Coordinates, model: ModelState, members: Members) -> ModelState:
        """The median of every coordinate."""
        return fold.merge(model, median)
