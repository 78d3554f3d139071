"""FedYogi: Yogi on the server. It differs from FedAdam in v, which changes by at most the squared update and so forgets more slowly.

    Δ     = Σ a_i (w_i − w^t)
    u     ← β₁ u + (1 − β₁) Δ
    v     ← v − (1 − β₂) Δ² sign(v − Δ²),   v = τ² at the start
    w^{t+1} = w^t + s·u/(√v + τ)

In a round without admitted updates, u and v stay as they are.

Reddi et al., "Adaptive Federated Optimization", 2021, arXiv:2003.00295; code ``adap/flower``, ``flwr/serverapp/strategy/fedyogi.py``,
which starts at v = 0.
"""

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, Lt

from fedcohort.algorithms.base import Algorithm
from fedcohort.algorithms.server_optimizer import adaptive_move, decayed, difference, moved
from fedcohort.algorithms.updates import Members, ModelState, Tensors
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card

__all__ = ["FedYogi"]


@parameters
class FedYogi(Algorithm):
    """Yogi as the server's optimizer."""

    server_lr: Annotated[float, Gt(0)] = 0.01
    """Step size of the server (s)."""
    beta_1: Annotated[float, Ge(0), Lt(1)] = 0.9
    """Decay of the mean update (β₁)."""
    beta_2: Annotated[float, Ge(0), Lt(1)] = 0.99
    """Decay of the mean squared update (β₂)."""
    tau: Annotated[float, Gt(0)] = 1e-3
    """Degree of adaptivity (τ); smaller values adapt more."""

    card: ClassVar[Card] = Card(source="Reddi et al. 2021, arXiv:2003.00295; adap/flower", status="code", cost="O(kP)")

    def __post_init__(self) -> None:
        self.u: Tensors = {}
        self.v: Tensors = {}

    def step(self, model: ModelState, merged: ModelState, members: Members) -> ModelState:
        """One step of Yogi."""
        change = difference(model, merged, members)
        start = self.v or {name: torch.full_like(delta, self.tau**2) for name, delta in change.items()}
        squares = {name: delta.square() for name, delta in change.items()}
        self.u = decayed(self.u, self.beta_1, change)
        self.v = {
            name: v - (1 - self.beta_2) * squares[name] * torch.sign(v - squares[name]) for name, v in start.items()
        }
        return moved(model, merged, adaptive_move(self.u, self.v, self.server_lr, self.tau))
