"""Networks that are rows of layers: each layer takes the outputs of the one before.

FedCohort has faster ways to train such networks, see :mod:`fedcohort.training.programs.plain_network` and
:mod:`fedcohort.training.stack.stacked_networks`. They are found by what they compute: an ``nn.Sequential`` is a row, and so is a
module with a forward pass of its own that runs the same layers.
"""

from collections.abc import Iterator

from torch import nn

from fedcohort.training.programs.traced_networks import is_layer, traced_row

__all__ = ["is_sequence", "row_of"]


def row_of(module: nn.Module, shape: tuple[int, ...]) -> list[nn.Module] | None:
    """The layers in order, without those that do nothing; None if the network is no row of layers.

    Layers that the module has are the layers themselves. Functions that it calls are new layers without parameters.

    Args:
        module: the network, on a CPU.
        shape: shape of one sample.
    """
    row = list(_in_order(module)) if is_sequence(module) else traced_row(module, shape)
    return None if row is None else [layer for layer in row if not _does_nothing(layer)]


def is_sequence(module: nn.Module) -> bool:
    """Whether the network is a layer, or nested Sequentials of layers, so that nothing has to be found out."""
    return all(map(is_layer, _in_order(module)))


def _in_order(module: nn.Module) -> Iterator[nn.Module]:
    """The parts of nested Sequentials in order."""
    if type(module) is nn.Sequential:
        for part in module:
            yield from _in_order(part)
    else:
        yield module


def _does_nothing(layer: nn.Module) -> bool:
    return type(layer) is nn.Identity or (type(layer) is nn.Dropout and layer.p == 0)
