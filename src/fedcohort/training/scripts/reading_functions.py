"""Functions of PyTorch by which Python code reads values, which a recorder of calls does not see."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fedcohort.training.scripts.call_recorder import NoRecordError, tensors_in

__all__ = ["WithoutReading"]


class WithoutReading(TorchFunctionMode):
    """Refuses functions that no operator stands for: those by which Python reads values, and those that observe gradients.

    ``one_hot`` reads its smallest and its largest value. With a given number of classes, it is replaced by calls that read nothing.

    Raises:
        NoRecordError: from within such a function.
    """

    def __torch_function__(
        self,
        function: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """A function of PyTorch is called."""
        name, given = getattr(function, "__name__", ""), (*args, *(kwargs or {}).values())
        if name in _READING or any(_is_read(name, value) for value in given):
            raise NoRecordError(function)
        classes = (kwargs or {}).get("num_classes", args[-1] if args else None)
        if name == "one_hot" and isinstance(args[0], Tensor) and isinstance(classes, int) and classes > 0:
            return _one_hot(args[0], classes)
        return function(*args, **(kwargs or {}))


def _one_hot(labels: Tensor, classes: int) -> Tensor:
    """As ``torch.nn.functional.one_hot``; labels that are no classes raise an error, too."""
    zeros = torch.zeros((*labels.shape, classes), dtype=torch.int64)
    return zeros.scatter_(-1, labels.unsqueeze(-1), 1)


_READING = frozenset(
    (
        "tolist", "numpy", "__array__", "__dlpack__", "__reduce_ex__", "__deepcopy__", "__repr__", "__format__", "__str__",
        "data_ptr", "storage", "untyped_storage", "apply_", "map_", "map2_",
        "register_hook", "register_post_accumulate_grad_hook", "retain_grad", "backward",
    )
)  # fmt: skip


_OF_LISTS = frozenset(("tensor", "as_tensor", "asarray", "new_tensor", "scalar_tensor", "Tensor", "new"))
"""Names of functions that read the values of tensors in lists."""


def _is_read(name: str, value: object) -> bool:
    """Whether a function of this name reads values of tensors in this argument, which no operator shows."""
    if name in ("__getitem__", "__setitem__"):
        parts = value if isinstance(value, tuple) else (value,)
        return any(isinstance(part, list) and any(True for _ in tensors_in(part)) for part in parts)
    if name == "tensor_split":
        return isinstance(value, Tensor) and value.dtype == torch.int64
    return name in _OF_LISTS and isinstance(value, list | tuple) and any(True for _ in tensors_in(value))
