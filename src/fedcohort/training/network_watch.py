"""Whether a network still computes what a program was made for."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

__all__ = ["HOOKS", "NetworkWatch"]

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
"""Attributes of a module that hold its hooks; each is the same dictionary as long as the module lives."""

_HOOKS_OF_ALL_MODULES = tuple(f"_global{name}" for name in HOOKS)
"""Dictionaries of ``torch.nn.modules.module`` with hooks that PyTorch calls for every module."""


class NetworkWatch:
    """Watches a network and its trained parameters.

    Attributes:
        parts: the modules of the network.
    """

    def __init__(self, module: nn.Module, parameters: Sequence[Tensor]) -> None:
        self.parts, self._parameters = list(module.modules()), list(parameters)
        self._hooks = [getattr(nn.modules.module, name) for name in _HOOKS_OF_ALL_MODULES]
        self._hooks += [getattr(part, name) for part in self.parts for name in HOOKS]

    def unchanged(self) -> bool:
        """Whether there are no hooks, every forward pass is that of its class, all parameters are trained, and autocast is off."""
        observed = any(self._hooks) or any("forward" in vars(part) for part in self.parts)
        changed = any(
            not p.requires_grad or p._backward_hooks or getattr(p, "_post_accumulate_grad_hooks", None)
            for p in self._parameters
        )
        return not (observed or changed or torch.is_autocast_enabled("cpu"))
