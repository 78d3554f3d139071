"""Optimizers of local training: SGD, Adam and AdamW, each step as a single fused call.

They have the bits of PyTorch's optimizers. PyTorch's classes spend as much time around that call as a step of a small network takes.
Creating the first PyTorch optimizer also loads PyTorch's compiler, which takes a second.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, cast

import torch
from torch import Tensor

from fedcohort.algorithms.training_settings import Training

__all__ = ["SGD", "Adam", "Optimizer", "PlainSGD", "Rule", "build_optimizer", "laid_out"]

BETAS = 0.9, 0.999
EPSILON = 1e-8


@dataclass(frozen=True)
class Rule:
    """What an optimizer does with gradients, for programs that take many steps in one call.

    Attributes:
        kind: plain, sgd, adam or adamw.
        rates: learning rate and weight decay, then the momentum, or β₁, β₂ and ε; for ``plain``, only the learning rate.
        nesterov: whether the momentum is Nesterov's.
        states: velocities; or first moments, second moments and numbers of steps; each a list with one tensor per parameter.
        fresh: whether the first step sets the velocities.
    """

    kind: Literal["plain", "sgd", "adam", "adamw"]
    rates: list[float]
    nesterov: bool = False
    states: list[list[Tensor]] = field(default_factory=list)
    fresh: bool = False


class Optimizer(Protocol):
    """An optimizer of the parameters of a network.

    A gradient has the memory layout of its parameter (:func:`laid_out`), because fused steps go through both in memory order.
    """

    param_groups: list[dict[str, Any]]
    state: Any

    def step(self) -> object:
        """Move the parameters by their ``.grad``; parameters without one stay."""

    def rule(self) -> Rule:
        """What the next steps do if every parameter has a gradient."""


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

    def rule(self) -> Rule:
        """See :class:`Optimizer`."""
        return Rule("plain", [self.param_groups[0]["lr"]])


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

    def rule(self) -> Rule:
        """See :class:`Optimizer`."""
        group = self.param_groups[0]
        parameters = group["params"] if self.momentum else []
        fresh = bool(self._without_velocity(parameters))
        if fresh:
            self._keep(parameters)
        rates = [group["lr"], self.weight_decay, self.momentum]
        return Rule("sgd", rates, self.nesterov, [[self.state[p]["v"] for p in parameters]], fresh)

    def _without_velocity(self, parameters: list[Tensor]) -> list[Tensor]:
        return [p for p in parameters if not self.state.get(p)]

    def _keep(self, parameters: list[Tensor]) -> None:
        """Allocate the velocities of these parameters; their first step sets them."""
        for p in parameters:
            self.state[p] = {"v": torch.empty_like(p)}

    def _move(self, parameters: list[Tensor], lr: float, *, first: bool) -> None:
        if parameters:
            gradients = _gradients_of(parameters)
            velocities = [self.state[p]["v"] for p in parameters] if self.momentum else []
            torch._fused_sgd_(
                parameters, gradients, velocities, weight_decay=self.weight_decay,
                momentum=self.momentum, lr=lr, dampening=0.0, nesterov=self.nesterov, maximize=False, is_first_step=first,
            )  # fmt: skip


class Adam:
    """Adam, or AdamW if the weight decay is ``decoupled``, with the bits of ``torch.optim.Adam`` and ``torch.optim.AdamW``."""

    def __init__(self, parameters: Sequence[Tensor], lr: float, weight_decay: float, *, decoupled: bool) -> None:
        self.param_groups: list[dict[str, Any]] = [{"params": list(parameters), "lr": lr}]
        self.state: dict[Tensor, dict[str, Tensor]] = {}
        self.weight_decay, self.decoupled = weight_decay, decoupled

    @torch.no_grad()
    def step(self) -> None:
        """See :class:`Optimizer`."""
        for group in self.param_groups:
            moved = [p for p in group["params"] if p.grad is not None]
            if not moved:
                continue
            means, squares, steps = self._moments(moved)
            torch._foreach_add_(steps, 1.0)
            function = torch._fused_adamw_ if self.decoupled else torch._fused_adam_
            function(
                moved, _gradients_of(moved), means, squares, [], steps, lr=group["lr"],
                beta1=BETAS[0], beta2=BETAS[1], weight_decay=self.weight_decay, eps=EPSILON, amsgrad=False, maximize=False,
            )  # fmt: skip

    def rule(self) -> Rule:
        """See :class:`Optimizer`."""
        group = self.param_groups[0]
        rates = [group["lr"], self.weight_decay, *BETAS, EPSILON]
        return Rule("adamw" if self.decoupled else "adam", rates, states=self._moments(group["params"]))

    def _moments(self, parameters: list[Tensor]) -> list[list[Tensor]]:
        """First moments, second moments and numbers of steps, 0 for parameters that have none."""
        for p in parameters:
            if not self.state.get(p):
                self.state[p] = {
                    "exp_avg": torch.zeros_like(p),
                    "exp_avg_sq": torch.zeros_like(p),
                    "step": torch.zeros((), dtype=torch.float32, device=p.device),
                }
        return [[self.state[p][name] for p in parameters] for name in ("exp_avg", "exp_avg_sq", "step")]


def _gradients_of(parameters: list[Tensor]) -> list[Tensor]:
    """The gradients of these parameters, which all have one; an algorithm of a user may have set it in another memory layout."""
    return [laid_out(cast("Tensor", p.grad), p) for p in parameters]


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
            return Adam(parameters, training.lr, training.weight_decay, decoupled=False)
        case "adamw":
            return Adam(parameters, training.lr, training.weight_decay, decoupled=True)
