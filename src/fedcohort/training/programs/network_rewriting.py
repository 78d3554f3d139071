"""Rewritings that make a network faster without changing a bit of its outputs and gradients, or a name of its parameters.

ReLU is moved after layers that only select or rearrange numbers. After a 2 × 2 pooling it has a quarter of the work, forward and
backward; after Flatten, its gradient arrives in the memory layout that it needs. This is exact because
max(relu(x)) = relu(max(x)), and because neither order passes a gradient on if the largest number of a window is not above 0.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import nn

__all__ = ["GivenOrder", "relu_after_pooling", "relu_last"]

POOLINGS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
PICKING = (*POOLINGS, nn.Flatten, nn.Identity)


class GivenOrder:
    """The order of the layers of a network before :func:`relu_last` moves them: what its user means by the names of its parts.

    Args:
        module: the network.
    """

    def __init__(self, module: nn.Module) -> None:
        self._given = [(part, list(part)) for part in module.modules() if type(part) is nn.Sequential]

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Put the layers back, for the duration of the context."""
        moved = [(part, list(part)) for part, _ in self._given]
        _arrange(self._given)
        try:
            yield
        finally:
            _arrange(moved)


def _arrange(orders: Iterable[tuple[nn.Sequential, list[nn.Module]]]) -> None:
    for part, layers in orders:
        for i, layer in enumerate(layers):
            part[i] = layer


def relu_last(module: nn.Module) -> nn.Module:
    """Move every ReLU of a Sequential after the poolings and Flatten that follow it, in place.

    The layers that change places have no parameters, so that every parameter keeps its name. Layers that have hooks or more than one
    output are not moved. Nor are layers inside a Sequential that is part of another kind of module, because that module may use them
    one by one.
    """
    if type(module) is not nn.Sequential:
        return module
    for i in range(len(module) - 1):
        layer, following = module[i], module[i + 1]
        if type(layer) is nn.ReLU and type(following) in PICKING and _can_move(layer) and _can_move(following):
            module[i], module[i + 1] = following, layer
    for part in module:
        relu_last(part)
    return module


def relu_after_pooling(row: list[nn.Module]) -> list[nn.Module]:
    """The row with every ReLU after the poolings that follow it, and after a Flatten that follows a pooling.

    Unlike :func:`relu_last`, this leaves a ReLU between another layer and Flatten where it is. Moving it would change the memory
    layout of the gradient that the layer receives, and convolutions round differently in another layout. A pooling does not.
    """
    row = list(row)
    for i in range(len(row) - 1):
        layer, following = row[i], row[i + 1]
        pooled = i > 0 and type(row[i - 1]) in POOLINGS
        if type(layer) is nn.ReLU and (type(following) in POOLINGS or (pooled and type(following) is nn.Flatten)):
            row[i], row[i + 1] = following, layer
    return row


def _can_move(part: nn.Module) -> bool:
    """Whether the layer has no hooks and one output."""
    hooks = part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks
    return not hooks and not getattr(part, "return_indices", False)
