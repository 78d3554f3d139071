"""Models and other tensors as numpy arrays, the form in which they travel between the processes of a cluster.

Ray hands arrays over through shared memory. Models of trained clients are read where they arrive, because nothing else reads them;
other tensors that leave this module are copies.
"""

import platform
import warnings
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcohort.algorithms import ModelState, Tensors
from fedcohort.core.errors import UsageError

__all__ = ["Bytes", "ModelLayout", "NestedArrays", "ReusedRows", "SharedModels", "as_arrays", "as_tensors"]

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
NestedArrays = dict[str, dict[str, tuple[Bytes, torch.dtype, tuple[int, ...]]]]
"""Group → name → (bytes, number format, shape)."""

ALIGNED = 64
"""Every tensor begins at a multiple of this number of bytes."""


class ModelLayout:
    """Where each entry of a model lies in one array of bytes. All states of one model have the same layout, also in other processes,
    in which a network can have its entries in another order: Python orders a set of names differently in each process.

    Args:
        state: a state of the model.

    Attributes:
        num_bytes: length of the array of one state.
        model_bytes: size of the entries of one state; smaller, because every entry begins at a multiple of :data:`ALIGNED`.
    """

    def __init__(self, state: ModelState) -> None:
        self._entries: list[tuple[str, int, int, torch.dtype, torch.Size]] = []
        end = 0
        for name, value in state.items():
            self._entries.append((name, end, value.nbytes, value.dtype, value.shape))
            end += -(-value.nbytes // ALIGNED) * ALIGNED
        self.num_bytes = max(1, end)
        self.model_bytes = sum(size for _, _, size, _, _ in self._entries)

    def check(self, state: ModelState) -> None:
        """Check that the state of a network that another process has built has the same entries; they may be in another order.

        Raises:
            UsageError: an entry is missing or new, or has another number format or shape.
        """
        here = {name: _kind(value.dtype, value.shape) for name, value in state.items()}
        there = {name: _kind(dtype, shape) for name, _, _, dtype, shape in self._entries}
        for name in sorted(here.keys() | there.keys()):
            if here.get(name) != there.get(name):
                raise UsageError(
                    f"model: the entry {name!r} of the network is {here.get(name, 'missing')} on {platform.node()}, and "
                    f"{there.get(name, 'missing')} on the machine of the run; install the same versions of all packages on both"
                )

    def flat(self, states: Sequence[ModelState]) -> Bytes:
        """The states in one new array, uint8 [n, num_bytes]."""
        rows = np.zeros((len(states), self.num_bytes), np.uint8)
        for target, state in zip(self.views(rows), states, strict=True):
            self.copy(state, target)
        return rows

    def copy(self, state: ModelState, target: ModelState) -> ModelState:
        """Copy a state into a view of a row; returns the view."""
        for name, value in target.items():
            value.copy_(state[name])
        return target

    def views(self, rows: Bytes) -> list[ModelState]:
        """The states in ``rows`` as tensors that share its memory. Writing to them changes the rows."""
        return self._views(torch.from_numpy(rows))

    def states(self, rows: Bytes) -> list[ModelState]:
        """Copies of the states that :meth:`flat` put into ``rows``."""
        copied = torch.empty(rows.shape, dtype=torch.uint8)
        copied.numpy()[...] = rows
        return self._views(copied)

    def states_in_place(self, rows: Bytes) -> list[ModelState]:
        """The states that :meth:`flat` put into ``rows``, as tensors that share its memory."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            return self._views(torch.from_numpy(rows))

    def _views(self, rows: Tensor) -> list[ModelState]:
        columns = [
            rows[:, start : start + size].view(dtype).reshape(len(rows), *shape).unbind()
            for _, start, size, dtype, shape in self._entries
        ]
        if not columns:
            return [{} for _ in rows]
        names = [name for name, *_ in self._entries]
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


class ReusedRows:
    """Arrays of rows that are used again after their last view is gone, because the first use of new memory costs as much as a copy.

    Args:
        num_bytes: length of a row.
    """

    def __init__(self, num_bytes: int) -> None:
        self._num_bytes = num_bytes
        self._free: list[Bytes] = []

    def take(self, count: int) -> Bytes:
        """An array, uint8 [count, num_bytes], with any content, in which rows that are a multiple of :data:`ALIGNED` long begin at
        such a multiple, as bits of products can depend on it. It is used again after it and all views of it are gone."""
        whole = self._free.pop() if self._free else None
        if whole is None or len(whole) < count:
            memory = np.empty(count * self._num_bytes + ALIGNED, np.uint8)
            start = -memory.ctypes.data % ALIGNED
            whole = memory[start : start + count * self._num_bytes].reshape(count, self._num_bytes)
        rows = whole[:count]
        weakref.finalize(rows, self._free.append, whole).atexit = False
        return rows


class SharedModels:
    """Models that are read where they arrived, up to a limit; beyond it they are copied, so that Ray's memory does not fill up.

    Args:
        layout: the layout of the models.
        limit: maximum number of bytes that are held in Ray's memory.
    """

    def __init__(self, layout: ModelLayout, limit: int) -> None:
        self._layout, self._limit = layout, limit
        self._bytes = 0

    def states(self, rows: Bytes) -> list[ModelState]:
        """The states in ``rows``, which nothing else may read."""
        if self._bytes + rows.nbytes > self._limit:
            return self._layout.states(rows)
        view = rows.view()
        self._bytes += rows.nbytes
        weakref.finalize(view, self._forget, rows.nbytes).atexit = False
        return self._layout.states_in_place(view)

    def _forget(self, num_bytes: int) -> None:
        self._bytes -= num_bytes


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


def _kind(dtype: torch.dtype, shape: Sequence[int]) -> str:
    return f"{str(dtype).removeprefix('torch.')} {list(shape)}"


def _bytes_of(value: Tensor) -> Bytes:
    flat: Bytes = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return flat
