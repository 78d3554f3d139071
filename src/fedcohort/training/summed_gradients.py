"""Gradients of a sum over chunks of samples."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from fedcohort.algorithms import Tensors

__all__ = ["summed_gradients"]


def summed_gradients(
    module: nn.Module, at: Tensors, parts: Callable[[Callable[[Tensor], Tensor]], Iterator[tuple[Tensor, Tensor]]]
) -> tuple[Tensor, Tensors]:
    """Values of all ``parts``, and the sum of their gradients ``at`` these parameters; 0 for those without an effect.

    The network runs on copies of its buffers, so that batch statistics stay as they are.

    Args:
        module: the network.
        at: the parameters, by name.
        parts: yields values and a loss of each chunk, by the network that it is given.
    """
    point = {name: value.detach().requires_grad_() for name, value in at.items()}
    state = point | {name: buffer.clone() for name, buffer in module.named_buffers()}
    total = {name: torch.zeros_like(value) for name, value in point.items()}
    values = []
    for value, loss in parts(lambda features: torch.func.functional_call(module, state, (features,))):
        values.append(value)
        slopes = torch.autograd.grad(loss, [*point.values()], materialize_grads=True)
        total = {name: summed + slope for (name, summed), slope in zip(total.items(), slopes, strict=True)}
    return torch.cat(values) if values else torch.empty(0), total
