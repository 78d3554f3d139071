"""The memory layout of images: channels last, which makes convolutions fast, unless the network needs channels first.

A network that reshapes the outputs of a convolution by ``view`` needs them with channels first: ``view`` does not copy, and raises an
error in another layout.
"""

import copy
from contextlib import suppress
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from fedcohort.core.random_streams import torch_seeded

__all__ = ["in_fast_layout"]

Network = TypeVar("Network", bound=nn.Module)


def in_fast_layout(module: Network, images: Tensor) -> Network:
    """Lay out the parameters with channels last, in place; a network that cannot process such images turns them into channels first.

    Args:
        module: a network for images.
        images: a standardized batch, on which a copy of the network is tried out.
    """
    last, first = torch.channels_last, torch.contiguous_format
    own = any(not type(part).__module__.startswith("torch.nn.") for part in module.modules())
    if own and not _processes(module, images, last) and _processes(module, images, first):
        kind = type(module)
        module.__class__ = type(kind.__name__, (_ChannelsFirst, kind), {"__module__": kind.__module__})
        return module.to(memory_format=first)  # type: ignore[call-overload, no-any-return]
    return module.to(memory_format=last)  # type: ignore[call-overload, no-any-return]


def _processes(module: nn.Module, images: Tensor, layout: torch.memory_format) -> bool:
    """Whether the network can process images in this layout, in evaluation mode."""
    with suppress(Exception), torch.no_grad(), torch_seeded(0, images.device):
        copy.deepcopy(module).eval().to(memory_format=layout)(images.contiguous(memory_format=layout))  # type: ignore[call-overload]
        return True
    return False


class _ChannelsFirst(nn.Module):
    """The first base class of a network that needs channels first."""

    def forward(self, images: Tensor) -> Any:
        return super().forward(images.contiguous())  # type: ignore[misc]
