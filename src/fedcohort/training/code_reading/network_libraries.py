"""Packages of networks whose code is trusted to compute only, without side effects."""

from collections.abc import Iterable

from torch import nn

__all__ = ["LIBRARIES", "checkpoints", "is_of_library"]

LIBRARIES = frozenset(("einops", "timm", "torchvision", "transformers"))
"""Packages whose networks and functions compute outputs, apart from warnings and from numbers that they read.

Their code has what is not allowed in code of users, such as ``try``. What they draw outside of PyTorch's generator shows when a script
is compared with autograd, because it differs from pass to pass.
"""

_SWITCHES = ("activation_checkpointing", "grad_checkpointing", "gradient_checkpointing", "memory_efficient")
"""Attributes by which networks of these libraries use ``torch.utils.checkpoint``."""


def is_of_library(module: object) -> bool:
    """Whether a module, by its name, is part of one of these libraries."""
    return isinstance(module, str) and module.partition(".")[0] in LIBRARIES


def checkpoints(parts: Iterable[nn.Module]) -> bool:
    """Whether a network of one of these libraries uses ``torch.utils.checkpoint``: it does only if it was switched on."""
    return any(
        vars(part).get(name, False)
        for part in parts
        for name in _SWITCHES
        if any(is_of_library(base.__module__) for base in type(part).__mro__)
    )
