"""The steps of optimizers, in TorchScript; :mod:`fedcohort.training.optimizers` says what each rule does."""

import torch
from torch import Tensor

__all__ = ["begin_training", "correct", "take_step", "write_step"]


def begin_training(values: list[Tensor], start: list[Tensor], rule: str, states: list[list[Tensor]]) -> list[Tensor]:
    """Prepare the optimizer and ``values`` for a client's first step, which begins at the parameters ``start``.

    Returns:
        the parameters at which the first step begins. For the plain rule, they are ``start`` itself, because :func:`write_step` then
        writes ``values``. For other rules, they are ``values``, which are copies of ``start``.
    """
    if rule == "adam" or rule == "adamw":
        for part in states:
            torch._foreach_zero_(part)
    if rule == "plain":
        return start
    for i in range(len(values)):
        values[i].copy_(start[i])
    return values


def correct(
    slopes: list[Tensor], values: list[Tensor], shifts: list[Tensor], anchors: list[Tensor], mu: float, clip: float
) -> None:  # fmt: skip
    """Scale the gradients down to the norm ``clip``, unless it is 0, with the bits of ``torch.nn.utils.clip_grad_norm_``. Then add to
    them what the algorithm adds: μ·(values − anchors) unless μ is 0, and ``shifts`` unless they are empty."""
    if clip > 0:
        norm = torch.ops.aten.linalg_vector_norm(torch.stack(torch._foreach_norm(slopes, 2.0)), 2.0)
        torch._foreach_mul_(slopes, torch.clamp((norm + 1e-6).reciprocal() * clip, max=1.0))
    if mu != 0:
        for i in range(len(slopes)):
            slopes[i].add_(values[i] - anchors[i], alpha=mu)
    if len(shifts) > 0:
        torch._foreach_add_(slopes, shifts)


def write_step(values: list[Tensor], before: list[Tensor], slopes: list[Tensor], rate: float) -> None:
    """A step of the plain rule from the values ``before``, which stay, to ``values``."""
    for i in range(len(values)):
        torch.add(before[i], slopes[i], alpha=-rate, out=values[i])


def take_step(
    values: list[Tensor], slopes: list[Tensor], rule: str, rates: list[float], nesterov: bool,
    states: list[list[Tensor]], first: bool,
) -> None:  # fmt: skip
    """A step of the optimizer; ``first`` says whether its states are fresh."""
    if rule == "plain":
        torch._foreach_add_(values, slopes, alpha=-rates[0])
    elif rule == "sgd":
        torch._fused_sgd_(
            values, slopes, states[0], weight_decay=rates[1], momentum=rates[2], lr=rates[0], dampening=0.0,
            nesterov=nesterov, maximize=False, is_first_step=first,
        )  # fmt: skip
    else:
        none: list[Tensor] = []
        torch._foreach_add_(states[2], 1.0)
        if rule == "adam":
            torch._fused_adam_(
                values, slopes, states[0], states[1], none, states[2], lr=rates[0], beta1=rates[2], beta2=rates[3],
                weight_decay=rates[1], eps=rates[4], amsgrad=False, maximize=False,
            )  # fmt: skip
        else:
            torch._fused_adamw_(
                values, slopes, states[0], states[1], none, states[2], lr=rates[0], beta1=rates[2], beta2=rates[3],
                weight_decay=rates[1], eps=rates[4], amsgrad=False, maximize=False,
            )  # fmt: skip
