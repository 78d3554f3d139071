"""Counts of the operations of PyTorch, for tests of how work and memory grow."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["TensorOperations"]


class TensorOperations(TorchDispatchMode):
    """Counts the operations that are called in this context.

    Attributes:
        count: number of operations.
        largest: number of entries of the largest tensor that an operation returned.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count, self.largest = 0, 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        self.count += 1
        if isinstance(result, torch.Tensor):
            self.largest = max(self.largest, result.numel())
        return result
