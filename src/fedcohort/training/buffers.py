"""Memory that is used again: on a CPU, fresh pages for the parameters of a stack cost more than the arithmetic of a small model.

100 copies of a perceptron of 159,010 parameters take 31 ms in fresh pages and 1.4 ms in used ones. PyTorch's allocator of a GPU keeps
freed memory by itself.
"""

import threading
import weakref
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Buffers"]

ALIGNMENT = 64
"""Bytes of a cache line and of the widest registers."""


class Buffers:
    """Tensors in memory that comes back as soon as nobody refers to it. Threads may share it.

    Args:
        most: bytes that are kept while nobody uses them, at most.
    """

    def __init__(self, most: int = 2**29) -> None:
        self._most = most
        self._free: list[NDArray[np.uint8]] = []
        self._lock = threading.RLock()  # what comes back may come back in the middle of anything, by the same thread

    def like(self, values: Mapping[str, Tensor], clients: int) -> dict[str, Tensor]:
        """An uninitialised tensor [clients, *shape] for every value, of its type and where it is."""
        if any(value.device.type != "cpu" for value in values.values()):
            return {name: value.new_empty((clients, *value.shape)) for name, value in values.items()}
        starts, total = {}, 0
        for name, value in values.items():
            starts[name] = total
            total += -(-clients * value.nbytes // ALIGNMENT) * ALIGNMENT
        memory = self._take(total)
        return {
            name: memory[starts[name] : starts[name] + clients * value.nbytes].view(value.dtype).view(clients, *value.shape)
            for name, value in values.items()
        }  # fmt: skip

    def _take(self, size: int) -> Tensor:
        """So many bytes, from memory that came back if some is large enough."""
        with self._lock:
            fitting = [position for position, memory in enumerate(self._free) if len(memory) >= size + ALIGNMENT]
            best = min(fitting, key=lambda position: len(self._free[position]), default=None)
            memory = np.empty(size + ALIGNMENT, dtype=np.uint8) if best is None else self._free.pop(best)
        start = -memory.ctypes.data % ALIGNMENT
        part = memory[start : start + size]
        weakref.finalize(part, self._give_back, memory).atexit = False  # a tensor's storage holds the very array
        return torch.from_numpy(part)

    def _give_back(self, memory: NDArray[np.uint8]) -> None:
        with self._lock:
            if sum(map(len, self._free)) + len(memory) <= self._most:
                self._free.append(memory)
