"""Models and other tensors as numpy arrays, the form in which they travel between the processes of a cluster.

Ray hands arrays over through shared memory, and what arrives there is read-only. PyTorch does not notice that, so every tensor that
leaves this module is a copy that may be written to.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcohort.algorithms import ModelState, Tensors

__all__ = ["ModelLayout", "as_arrays", "as_tensors"]

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
NestedArrays = dict[str, dict[str, tuple[Bytes, torch.dtype, tuple[int, ...]]]]
"""Group → name → (bytes, number format, shape)."""

ALIGNED = 64
"""Every tensor begins at a multiple of this number of bytes."""


class ModelLayout:
    """Where each entry of a model lies in one array of bytes. All states of one model have the same layout.

    Args:
        state: a state of the model.

    Attributes:
        num_bytes: length of the array of one state.
    """

    def __init__(self, state: ModelState) -> None:
        self._entries: list[tuple[str, int, int, torch.dtype, torch.Size]] = []
        end = 0
        for name, value in state.items():
            self._entries.append((name, end, value.nbytes, value.dtype, value.shape))
            end += -(-value.nbytes // ALIGNED) * ALIGNED
        self.num_bytes = max(1, end)

    def flat(self, states: Sequence[ModelState]) -> Bytes:
        """The states in one array, uint8 [n, num_bytes]."""
        rows = torch.zeros((len(states), self.num_bytes), dtype=torch.uint8)
        for row, state in zip(rows, states, strict=True):
            for (_, target), value in zip(self._views(row), state.values(), strict=True):
                target.copy_(value)
        return rows.numpy()

    def states(self, rows: Bytes) -> list[ModelState]:
        """Copies of the states that :meth:`flat` put into ``rows``."""
        copied = torch.empty(rows.shape, dtype=torch.uint8)
        copied.numpy()[...] = rows
        return [dict(self._views(row)) for row in copied]

    def _views(self, row: Tensor) -> list[tuple[str, Tensor]]:
        return [
            (name, row[start : start + size].view(dtype).reshape(shape))
            for name, start, size, dtype, shape in self._entries
        ]


def as_arrays(groups: Mapping[str, Tensors]) -> NestedArrays:
    """Groups of tensors as bytes."""
    return {
        group: {name: (_bytes_of(value), value.dtype, tuple(value.shape)) for name, value in tensors.items()}
        for group, tensors in groups.items()
    }


def as_tensors(groups: NestedArrays) -> dict[str, Tensors]:
    """Copies of the tensors that :func:`as_arrays` turned into bytes."""
    return {
        group: {
            name: torch.from_numpy(flat.copy()).view(dtype).reshape(shape)
            for name, (flat, dtype, shape) in values.items()
        }
        for group, values in groups.items()
    }


def _bytes_of(value: Tensor) -> Bytes:
    flat: Bytes = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return flat
