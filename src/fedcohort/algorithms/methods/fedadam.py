"""FedAdam: Adam on the server, with the average of the clients' updates as its gradient.

    Δ     = Σ a_i (w_i − w^t)
    u     ← β₁ u + (1 − β₁) Δ
    v     ← β₂ v + (1 − β₂) Δ²,   v = τ² at the start
    w^{t+1} = w^t + s·u/(√v + τ)

In a round without admitted updates, u and v stay as they are.

Reddi et al., "Adaptive Federated Optimization", 2021, arXiv:2003.00295, without bias correction; code ``adap/flower``,
``flwr/serverapp/strategy/fedadam.py``, which corrects the bias (with an exponent that is too large by one) and starts at v = 0.
"""

import math
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, Lt

from fedcohort.algorithms.base import Algorithm
from fedcohort.algorithms.server_optimizer import adaptive_move, decayed, difference, moved
from fedcohort.algorithms.updates import Members, ModelState, Tensors
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card

__all__ = ["FedAdam"]


@parameters
class FedAdam(Algorithm):
    """Adam as the server's optimizer."""

    server_lr: Annotated[float, Gt(0)] = 0.1
    """Step size of the server (s)."""
    beta_1: Annotated[float, Ge(0), Lt(1)] = 0.9
    """Decay of the mean update (β₁)."""
    beta_2: Annotated[float, Ge(0), Lt(1)] = 0.99
    """Decay of the mean squared update (β₂)."""
    tau: Annotated[float, Gt(0)] = 1e-3
    """Degree of adaptivity (τ); smaller values adapt more."""
    bias_correction: bool = False
    """Multiply s by √(1 − β₂^n)/(1 − β₁^n) in the n-th round that has an update, as Adam does. The paper does not do this."""

    card: ClassVar[Card] = Card(source="Reddi et al. 2021, arXiv:2003.00295; adap/flower", status="code", cost="O(kP)")

    def __post_init__(self) -> None:
        self.u: Tensors = {}
        self.v: Tensors = {}
        self.steps = 0

    def step(self, model: ModelState, merged: ModelState, members: Members) -> ModelState:
        """One step of Adam."""
        change = difference(model, merged, members)
        start = self.v or {name: torch.full_like(delta, self.tau**2) for name, delta in change.items()}
        self.u = decayed(self.u, self.beta_1, change)
        self.v = decayed(start, self.beta_2, {name: delta.square() for name, delta in change.items()})
        self.steps += 1
        rate = self.server_lr
        if self.bias_correction:
            rate *= math.sqrt(1 - self.beta_2**self.steps) / (1 - self.beta_1**self.steps)
        return moved(model, merged, adaptive_move(self.u, self.v, rate, self.tau))
