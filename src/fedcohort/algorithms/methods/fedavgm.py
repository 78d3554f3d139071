"""FedAvgM: FedAvg with momentum on the server.

    Δ     = Σ a_i (w_i − w^t)
    v     ← β v + Δ
    w^{t+1} = w^t + s·v

With β = 0, this is FedAvg with server damping s. In a round without admitted updates, v stays as it is.

Hsu, Qi, Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification", 2019,
arXiv:1909.06335; code ``adap/flower``, ``flwr/serverapp/strategy/fedavgm.py``.
"""

from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Lt

from fedcohort.algorithms.base import Algorithm
from fedcohort.algorithms.server_optimizer import difference, moved
from fedcohort.algorithms.updates import Members, ModelState, Tensors
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card

__all__ = ["FedAvgM"]


@parameters
class FedAvgM(Algorithm):
    """Server momentum on the average of the clients' models."""

    server_lr: Annotated[float, Gt(0)] = 1.0
    """Step size of the server (s)."""
    beta: Annotated[float, Ge(0), Lt(1)] = 0.9
    """Server momentum (β)."""

    card: ClassVar[Card] = Card(source="Hsu et al. 2019, arXiv:1909.06335; adap/flower", status="code", cost="O(kP)")

    def __post_init__(self) -> None:
        self.v: Tensors = {}

    def step(self, model: ModelState, merged: ModelState, members: Members) -> ModelState:
        """v ← βv + Δ, then w + s·v."""
        change = difference(model, merged, members)
        self.v = {name: self.beta * self.v.get(name, 0.0) + delta for name, delta in change.items()}
        return moved(model, merged, {name: self.server_lr * v for name, v in self.v.items()})
