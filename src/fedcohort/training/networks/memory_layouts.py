"""The memory layout of images: channels last, which makes convolutions fast, unless the network needs channels first or is faster so.

A network that reshapes the outputs of a convolution by ``view`` needs them with channels first: ``view`` does not copy, and raises an
error in another layout. If the network is a row of layers, a copy does no harm, because nothing else uses its activations.

On a GPU of CUDA, PyTorch normalizes groups of channels with channels first, and turns activations around before and after. Networks
with GroupNorm are therefore faster with channels first there, except in exact arithmetic, whose convolutions are slow anyway.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fedcohort.core.network_copies import copy_of
from fedcohort.core.random_streams import torch_seeded
from fedcohort.training.programs.network_rows import row_of

__all__ = ["channels_last", "faster_with_channels_first", "in_fast_layout"]

Network = TypeVar("Network", bound=nn.Module)


def channels_last(features: Tensor) -> Tensor:
    """Images as [N, H, W, C], so that whole samples are contiguous; other features unchanged."""
    return features.permute(0, 2, 3, 1) if features.dim() == 4 else features


def in_fast_layout(module: Network, images: Tensor) -> Network:
    """Lay out the parameters with channels last, in place.

    In a network that cannot process such images, ``view`` copies if the network is a row of layers; other networks turn the images
    into channels first, and so do those for which :func:`faster_with_channels_first` holds. The network keeps its names, hooks and
    parameters.

    Args:
        module: a network for images.
        images: a standardized batch, on which a copy of the network is tried out.
    """
    last, first = torch.channels_last, torch.contiguous_format
    if images.is_cuda and faster_with_channels_first(module):
        return _derived(module, _ChannelsFirst).to(memory_format=first)  # type: ignore[call-overload, no-any-return]
    own = any(type(part).__module__.partition(".")[0] not in ("torch", "fedcohort") for part in module.modules())
    if own and not _processes(module, images, last) and _processes(module, images, first):
        is_row = row_of(module, tuple(images.shape[1:])) is not None
        module = _derived(module, _CopyingViews if is_row else _ChannelsFirst)
        last = last if is_row else first
    return module.to(memory_format=last)  # type: ignore[call-overload, no-any-return]


def faster_with_channels_first(module: nn.Module) -> bool:
    """Whether a GPU of CUDA computes the network faster with channels first, in the arithmetic that is set."""
    exact = torch.backends.cudnn.deterministic
    return not exact and any(isinstance(part, nn.GroupNorm) for part in module.modules())


def _derived(module: Network, base: type[nn.Module]) -> Network:
    """The module with another first base class, in place."""
    kind = type(module)
    module.__class__ = type(kind.__name__, (base, kind), {"__module__": kind.__module__})
    return module


def _processes(module: nn.Module, images: Tensor, layout: torch.memory_format) -> bool:
    """Whether the network can process images in this layout, in evaluation mode."""
    with suppress(Exception), torch.no_grad(), torch_seeded(0, images.device):
        inputs = images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)  # images of one channel, too
        inputs = inputs if layout == torch.channels_last else _channels_first(images)
        copy_of(module).eval().to(memory_format=layout)(inputs)  # type: ignore[call-overload]
        return True
    return False


def _channels_first(images: Tensor) -> Tensor:
    """The images with channels first. Those of one channel have both layouts, but PyTorch may take them for channels last."""
    return images.clone(memory_format=torch.contiguous_format)


class _Reshape(TorchFunctionMode):
    """Calls ``reshape`` instead of ``view`` in this thread."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return (Tensor.reshape if function is Tensor.view else function)(*args, **(kwargs or {}))


class _CopyingViews(nn.Module):
    """The first base class of a network in which ``view`` copies what has another layout."""

    def forward(self, images: Tensor) -> Any:
        with _Reshape():
            return super().forward(images)


class _ChannelsFirst(nn.Module):
    """The first base class of a network that gets channels first."""

    def forward(self, images: Tensor) -> Any:
        return super().forward(_channels_first(images))
