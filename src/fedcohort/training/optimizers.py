"""Optimizers of local training: SGD as a single fused call, and PyTorch's fused optimizers.

PyTorch's SGD class spends as much time around that call as a plain step takes. Creating the first PyTorch optimizer also loads
PyTorch's compiler, which takes a second.
"""

from collections.abc import Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from fedcohort.algorithms.training_settings import Training

__all__ = ["SGD", "Optimizer", "PlainSGD", "build_optimizer", "laid_out"]


class Optimizer(Protocol):
    """What local training uses of a ``torch.optim.Optimizer``.

    A gradient has the memory layout of its parameter (:func:`laid_out`), because fused steps go through both in memory order.
    """

    param_groups: list[dict[str, Any]]
    state: Any

    def step(self) -> object:
        """Move the parameters by their ``.grad``; parameters without one stay."""
        ...


class PlainSGD:
    """w ← w − η·∇, with neither momentum nor weight decay."""

    def __init__(self, parameters: Sequence[Tensor], lr: float) -> None:
        self.param_groups: list[dict[str, Any]] = [{"params": list(parameters), "lr": lr}]
        self.state: dict[Tensor, dict[str, Tensor]] = {}

    @torch.no_grad()
    def step(self) -> None:
        """See :class:`Optimizer`."""
        for group in self.param_groups:
            moved = [p for p in group["params"] if p.grad is not None]
            if moved:
                torch._foreach_add_(moved, [p.grad for p in moved], alpha=-group["lr"])


class SGD:
    """SGD with momentum μ and weight decay λ, with the bits of ``torch.optim.SGD``.

    w ← w − η·v, with v ← μ·v + ∇ + λ·w, in the first step v = ∇ + λ·w. With Nesterov momentum, w ← w − η·(∇ + λ·w + μ·v).
    """

    def __init__(
        self, parameters: Sequence[Tensor], lr: float, momentum: float, nesterov: bool, weight_decay: float
    ) -> None:
        self.param_groups: list[dict[str, Any]] = [{"params": list(parameters), "lr": lr}]
        self.state: dict[Tensor, dict[str, Tensor]] = {}
        self.momentum, self.nesterov, self.weight_decay = momentum, nesterov, weight_decay

    @torch.no_grad()
    def step(self) -> None:
        """See :class:`Optimizer`."""
        for group in self.param_groups:
            moved = [p for p in group["params"] if p.grad is not None]
            fresh = self._without_velocity(moved) if self.momentum else []
            if fresh:
                moved = [p for p in moved if self.state.get(p)]
            self._move(moved, group["lr"], first=False)
            self._keep(fresh)
            self._move(fresh, group["lr"], first=True)

    def velocities(self) -> tuple[list[Tensor], bool]:
        """v of every parameter, and whether the first step has yet to set them; an empty list without momentum."""
        parameters = self.param_groups[0]["params"] if self.momentum else []
        fresh = bool(self._without_velocity(parameters))
        if fresh:
            self._keep(parameters)
        return [self.state[p]["v"] for p in parameters], fresh

    def _without_velocity(self, parameters: list[Tensor]) -> list[Tensor]:
        return [p for p in parameters if not self.state.get(p)]

    def _keep(self, parameters: list[Tensor]) -> None:
        """Allocate the velocities of these parameters; their first step sets them."""
        for p in parameters:
            self.state[p] = {"v": torch.empty_like(p)}

    def _move(self, parameters: list[Tensor], lr: float, *, first: bool) -> None:
        if parameters:
            gradients = cast("list[Tensor]", [p.grad for p in parameters])  # `step` leaves out parameters without one
            velocities = [self.state[p]["v"] for p in parameters] if self.momentum else []
            torch._fused_sgd_(
                parameters, gradients, velocities, weight_decay=self.weight_decay,
                momentum=self.momentum, lr=lr, dampening=0.0, nesterov=self.nesterov, maximize=False, is_first_step=first,
            )  # fmt: skip


def laid_out(gradient: Tensor, parameter: Tensor) -> Tensor:
    """The gradient in the parameter's memory layout. Autograd's ``.grad`` has it; other gradients may not."""
    if gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)


def build_optimizer(training: Training, parameters: Sequence[Tensor]) -> Optimizer:
    """The optimizer that the settings describe."""
    match training.optimizer:
        case "sgd" if not (training.momentum or training.weight_decay):
            return PlainSGD(parameters, training.lr)
        case "sgd":
            return SGD(parameters, training.lr, training.momentum, training.nesterov, training.weight_decay)
        case "adam":
            return torch.optim.Adam(parameters, training.lr, weight_decay=training.weight_decay, fused=True)
        case "adamw":
            return torch.optim.AdamW(parameters, training.lr, weight_decay=training.weight_decay, fused=True)
