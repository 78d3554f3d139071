"""Optimisers of local training: PyTorch's fused ones, and plain SGD as the one call that it is."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from fedcohort.algorithms.local import Training

__all__ = ["Optimizer", "PlainSGD", "build_optimizer"]


class Optimizer(Protocol):
    """What local training uses of a ``torch.optim.Optimizer``."""

    param_groups: list[dict[str, Any]]
    state: Any

    def step(self) -> Any:
        """Move the parameters by their ``.grad``; those without stay."""
        ...


class PlainSGD:
    """w ← w − η·∇, with neither momentum nor weight decay. What PyTorch's does around this call takes as long again."""

    def __init__(self, parameters: Sequence[Tensor], lr: float) -> None:
        self.param_groups: list[dict[str, Any]] = [{"params": list(parameters), "lr": lr}]
        self.state: dict[Tensor, Any] = {}

    @torch.no_grad()
    def step(self) -> None:
        """See :class:`Optimizer`."""
        for group in self.param_groups:
            moved = [p for p in group["params"] if p.grad is not None]
            if moved:
                torch._foreach_add_(moved, [p.grad for p in moved], alpha=-group["lr"])


def build_optimizer(training: Training, parameters: Sequence[Tensor]) -> Optimizer:
    """The optimiser of the settings."""
    match training.optimizer:
        case "sgd" if not (training.momentum or training.weight_decay):
            return PlainSGD(parameters, training.lr)
        case "sgd":
            return torch.optim.SGD(
                parameters, training.lr, momentum=training.momentum, nesterov=training.nesterov,
                weight_decay=training.weight_decay, fused=True,
            )  # fmt: skip
        case "adam":
            return torch.optim.Adam(parameters, training.lr, weight_decay=training.weight_decay, fused=True)
        case "adamw":
            return torch.optim.AdamW(parameters, training.lr, weight_decay=training.weight_decay, fused=True)
