"""Trimmed mean: in every coordinate, the server leaves out the largest and the smallest values, and averages the others.

    c         = ⌊β·n⌋                      n admitted clients
    w^{t+1}_j = Σ_{i=c+1}^{n−c} w_{(i),j} / (n − 2c),   w_{(1),j} ≤ … ≤ w_{(n),j}

Each client counts once, whatever its number of samples, and a client that was drawn several times counts as many times. Up to c
clients with any values cannot move a coordinate beyond the values of the others. With fewer than 1/β clients, c = 0: nothing is left
out, and this is FedAvg with uniform weights.

The server keeps the models of the round until its end, k·P numbers, and merges 65,536 coordinates at a time. If clients send
parts of their models, n is the number of clients that sent the coordinate.

Yin, Chen, Ramchandran, Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", 2018, arXiv:1803.01498
(Definition 2; the mean of models instead of gradients); code ``adap/flower``, ``flwr/server/strategy/aggregate.py``.
"""

import math
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Lt
from torch import Tensor

from fedcohort.algorithms.base import Algorithm, WeightMode
from fedcohort.algorithms.models_by_coordinate import Coordinates, check_one_vote
from fedcohort.algorithms.updates import Members, ModelState
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card

__all__ = ["TrimmedMean", "trimmed_mean"]


def trimmed_mean(ascending: Tensor, beta: float) -> Tensor:
    """The mean of [n, P] with ascending columns, without the first and the last ⌊β·n⌋ rows.

    The mean is computed as differences from its smallest value, so that the mean of equal values is exactly that value.
    """
    n = len(ascending)
    cut = min(math.floor(beta * n + 1e-9), (n - 1) // 2)  # 0.29·100 is 28.999… in floating point
    kept = ascending[cut : n - cut]
    total = torch.zeros_like(kept[0])
    for row in kept:  # one after another: the same bits with any number of threads
        total += row - kept[0]
    return kept[0] + total / len(kept)


@parameters
class TrimmedMean(Algorithm):
    """Coordinate-wise mean without the most extreme values. The largest and the smallest values of the clients' models are left
    out.
    """

    weights: WeightMode = "uniform"
    """Only uniform: every client counts once."""
    beta: Annotated[float, Ge(0), Lt(0.5)] = 0.2
    """Share of the clients that is left out at each end (β); at least the share of clients that may send wrong models."""

    card: ClassVar[Card] = Card(
        source="Yin et al. 2018, arXiv:1803.01498; adap/flower",
        status="code",
        cost="O(P·k·log k), and k models in memory",
    )
    keeps_models: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_one_vote(self.weights, "the trimmed mean")

    def begin(self, model: ModelState, members: Members) -> Coordinates:
        """Keep the models of the round until its end."""
        return Coordinates()

    def end(self, fold: Coordinates, model: ModelState, members: Members) -> ModelState:
        """The trimmed mean of every coordinate."""
        return fold.merge(model, lambda ascending: trimmed_mean(ascending, self.beta))
