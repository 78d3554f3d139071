"""Whether a network still computes what a program or a script was made for."""

from collections.abc import Iterable, Mapping, Sequence, Set
from operator import is_

import torch
from torch import Tensor, nn

from fedcohort.training.code_reading.constant_values import frozen, may_change
from fedcohort.training.code_reading.forward_code import OF_ALL_MODULES, Names, names_kept, names_read

__all__ = ["HOOKS", "NetworkWatch", "ReadValues"]

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
        kept = names_kept(module)
        self._attributes = [(vars(part), _number(vars(part), kept)) for part in self.parts]
        inner = [names for part in self.parts for names in (part._parameters, part._buffers, part._modules)]
        self._named = [ReadValues(vars(part), vars(part).keys() - {"training", *kept}) for part in self.parts]
        self._named += [ReadValues(names, names) for names in inner if names]
        self._named += [ReadValues(names, read) for names, read in names_read(module) if read]
        self._kept = kept
        self._tensors = [*module.parameters(), *module.buffers()]
        self._memory = [tensor.data_ptr() for tensor in self._tensors]

    def unchanged(self) -> bool:
        """Whether the network computes the same.

        It does if there are no hooks, every forward pass is that of its class, all parameters are trained, autocast is off, and no
        attribute or global name that forward passes read has another value.
        """
        observed = any(self._hooks) or any("forward" in vars(part) for part in self.parts)
        changed = any(
            not p.requires_grad or p._backward_hooks or getattr(p, "_post_accumulate_grad_hooks", None)
            for p in self._parameters
        )
        if observed or changed or torch.is_autocast_enabled("cpu"):
            return False
        moved = any(tensor.data_ptr() != place for tensor, place in zip(self._tensors, self._memory, strict=True))
        added = any(_number(attributes, self._kept) != number for attributes, number in self._attributes)
        return not (moved or added) and all(values.unchanged() for values in self._named)


def _number(attributes: Mapping[str, object], kept: Set[str]) -> int:
    """The number of attributes that are not ``kept``."""
    return len(attributes.keys() - kept) if kept else len(attributes)


class ReadValues:
    """The values that names have now.

    Args:
        names: the values by name; they may change.
        watched: the names.
    """

    def __init__(self, names: Names, watched: Iterable[str]) -> None:
        self._names, self._watched = names, list(watched)
        self._values = [names.get(name) for name in self._watched]
        self._contents = [
            (name, contents)
            for name, value in zip(self._watched, self._values, strict=True)
            if may_change(value) and name not in OF_ALL_MODULES and (contents := frozen(value)) is not None
        ]

    def unchanged(self) -> bool:
        """Whether the names still have these values, and lists, dictionaries and records the same contents."""
        now = map(self._names.get, self._watched)
        same = all(map(is_, now, self._values)) or all(map(self._is_equal, self._watched, self._values))
        return same and all(frozen(self._names.get(name)) == contents for name, contents in self._contents)

    def _is_equal(self, name: str, value: object) -> bool:
        """Whether a name has this value, or an equal number or text."""
        now = self._names.get(name)
        return now is value or (isinstance(now, int | float | str) and type(now) is type(value) and now == value)
