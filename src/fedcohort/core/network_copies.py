"""Copies of networks, also of those that keep tensors which autograd has computed."""

import copy
from typing import TypeVar

from torch import Tensor, nn

__all__ = ["copy_of"]

N = TypeVar("N", bound=nn.Module)


def copy_of(module: N) -> N:
    """A deep copy of a network.

    ``copy.deepcopy`` refuses tensors that autograd has computed. Networks have such tensors as attributes if they keep activations,
    and if ``torch.nn.utils.weight_norm`` or ``torch.nn.utils.prune`` compute a weight before each forward pass. The copy has their
    values. It computes the parameters of parts that are compiled by ``torch.jit`` from those of the original; in the copy, they are
    parameters of its own, which can be trained.
    """
    tensors = [value for part in module.modules() for names in (vars(part), part._buffers) for value in names.values()]
    computed = {
        id(value): value.detach().clone() for value in tensors if isinstance(value, Tensor) and not value.is_leaf
    }
    copied = copy.deepcopy(module, computed)
    for parameter, original in zip(copied.parameters(), module.parameters(), strict=True):
        if not parameter.is_leaf or parameter.requires_grad != original.requires_grad:
            parameter.detach_().requires_grad_(original.requires_grad)
    return copied
