"""Arithmetic that server optimizers share: the average update, which serves as a gradient, and the step.

The average of the clients' models minus the old model takes the place of −gradient. Only trainable parameters are optimized;
batch-norm statistics are averaged. Differences and states are float64.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from fedcohort.algorithms.updates import Members, ModelState, Tensors
from fedcohort.core.sums import for_sums

__all__ = ["adaptive_move", "decayed", "difference", "moved"]


def difference(model: ModelState, merged: ModelState, members: Members) -> Tensors:
    """Δ = merged − model over trainable parameters, float64."""
    return {
        name: for_sums(merged[name]) - for_sums(value) for name, value in model.items() if members.trains(name, value)
    }


def moved(model: ModelState, merged: ModelState, move: Mapping[str, Tensor]) -> ModelState:
    """model + move for entries that have a move, the entry of ``merged`` for all others; in the dtypes of the model."""
    return {
        name: (for_sums(model[name]) + move[name]).to(value.dtype) if name in move else value
        for name, value in merged.items()
    }


def decayed(mean: Tensors, beta: float, new: Tensors) -> Tensors:
    """β·mean + (1 − β)·new; entries that are missing in ``mean`` count as 0."""
    return {name: beta * mean.get(name, 0.0) + (1 - beta) * value for name, value in new.items()}


def adaptive_move(u: Tensors, v: Tensors, rate: float, tau: float) -> Tensors:
    """rate·u/(√v + τ)."""
    return {name: rate * value / (torch.sqrt(v[name]) + tau) for name, value in u.items()}
