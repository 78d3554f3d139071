"""The clients' memories, which last from one round to the next: SCAFFOLD's control variates, FedBiO's sample weights.

A client gets its new memory only if the server admits its update; otherwise, it keeps the old one. The first ``limit`` bytes of
memories are ordinary tensors. All further memories are in a temporary file, which is mapped into the process and vanishes with it. A
place in the file is written to only while no committed memory is stored there, so a memory that was handed out does not change until
its client's next commit. Memories have the same bits in both places.
"""

import math
import tempfile
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor

from fedcohort.algorithms import Tensors, Update
from fedcohort.core.errors import UsageError
from fedcohort.core.files.durable_files import reserve
from fedcohort.core.files.stamped_entries import Stamp, StampedEntries, new_version
from fedcohort.core.tensor_sizes import num_bytes

__all__ = ["LIMIT", "Memories", "Memory", "Trained"]

LIMIT = 2**30
"""Default limit of bytes in memory: 1 GiB."""

_ALIGNED = 64
_GROWTH = 2**24, 2**30
"""Minimum and maximum growth of the file, in bytes; between these limits, its size doubles."""

Memory = dict[str, Tensors]
"""One client's memory, as :meth:`fedcohort.algorithms.Algorithm.finish` gives it."""

Trained = tuple[Update, Memory]
"""What the training of a client gives: its update, and its new memory."""


@dataclass(frozen=True)
class _Place:
    """A part of the file, and the layout of a memory in it: group → name → (offset, dtype, shape)."""

    start: int
    size: int
    layout: dict[str, dict[str, tuple[int, torch.dtype, tuple[int, ...]]]] = field(default_factory=dict)


class Memories:
    """Memories by client. Threads may read and propose at the same time.

    Args:
        limit: maximum bytes in memory; further memories go to the file.
        folder: folder of that file; by default the system's folder for temporary files (``TMPDIR``).
    """

    def __init__(self, limit: int = LIMIT, folder: str | Path | None = None) -> None:
        self.limit = limit
        self._folder = folder
        self._kept: dict[int, Memory | _Place] = {}
        self._proposed: dict[int, Memory | _Place] = {}
        self._stamps: dict[str, Stamp] = {}
        self._bytes = 0
        self._end = 0
        self._free: dict[int, list[int]] = {}
        self._file: IO[bytes] | None = None
        self._mapped = torch.empty(0, dtype=torch.uint8)
        self._round = 0
        self._lock = threading.Lock()

    @property
    def num_bytes(self) -> int:
        """Bytes in memory."""
        return self._bytes

    @property
    def proposed(self) -> list[int]:
        """Clients with a new memory that waits for the server's decision."""
        return list(self._proposed)

    def get(self, client: int) -> Memory:
        """The client's memory, which the caller must not change; empty if it has none."""
        with self._lock:
            stored = self._kept.get(client, {})
            return self._read(stored) if isinstance(stored, _Place) else stored

    def begin(self) -> int:
        """Begin a round without proposals. Its number tells :meth:`propose` apart from calls of an abandoned round that still runs."""
        self.commit(())
        return self._round

    def propose(self, round: int, client: int, memory: Memory) -> None:
        """Set the client's new memory, which it gets if its update is admitted; ``round`` is the number from :meth:`begin`."""
        with self._lock:
            if round == self._round:
                self._release(self._proposed.pop(client, {}))
                self._proposed[client] = self._store(memory)

    def commit(self, admitted: Iterable[int]) -> None:
        """Store the new memories of these clients, and forget all other proposals."""
        with self._lock:
            for client in admitted:
                if client in self._proposed:
                    self._release(self._kept.get(client, {}))
                    self._keep(client, self._proposed.pop(client))
            for forgotten in self._proposed.values():
                self._release(forgotten)
            self._proposed = {}
            self._round += 1

    def state_dict(self) -> StampedEntries[Memory]:
        """All memories by client, for the checkpoint; use them before the next commit."""
        return StampedEntries(dict(self._stamps), lambda client: self.get(int(client)))

    def load_state_dict(self, state: Mapping[str, Memory]) -> None:
        """Replace all memories by these."""
        memories = dict(state)  # they may be read from the memories that are replaced
        with self._lock:
            self._forget()
            for client, memory in memories.items():
                self._keep(int(client), self._store(memory))

    # where memories are stored

    def _keep(self, client: int, stored: Memory | _Place) -> None:
        self._kept[client] = stored
        size = stored.size if isinstance(stored, _Place) else num_bytes(stored.values())
        self._stamps[str(client)] = Stamp(new_version(), size)

    def _forget(self) -> None:
        self._kept, self._proposed, self._free, self._stamps = {}, {}, {}, {}
        self._bytes = self._end = 0
        self._mapped = torch.empty(0, dtype=torch.uint8)
        self._round += 1
        if self._file is not None:
            self._file.close()
            self._file = None

    def _store(self, memory: Memory) -> Memory | _Place:
        size = num_bytes(memory.values())
        if self._bytes + size <= self.limit:
            self._bytes += size
            return memory
        return self._write(memory)

    def _release(self, stored: Memory | _Place) -> None:
        if isinstance(stored, _Place):
            self._free.setdefault(stored.size, []).append(stored.start)
        else:
            self._bytes -= num_bytes(stored.values())

    def _write(self, memory: Memory) -> _Place:
        size = 0
        layout: dict[str, dict[str, tuple[int, torch.dtype, tuple[int, ...]]]] = {}
        for group, tensors in memory.items():
            layout[group] = {}
            for name, value in tensors.items():
                layout[group][name] = (size, value.dtype, tuple(value.shape))
                size += _aligned(value.numel() * value.element_size())
        free = self._free.get(size)
        if free:
            start = free.pop()
        else:
            start = self._end
            self._grow(start + size)
            self._end += size
        place = _Place(start, size, layout)
        for group, tensors in self._read(place).items():
            for name, value in tensors.items():
                value.copy_(memory[group][name])
        return place

    def _read(self, place: _Place) -> Memory:
        """The memory at this place, as tensors that are mapped from the file."""

        def tensor(offset: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
            begin = place.start + offset
            return self._mapped[begin : begin + math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)

        return {
            group: {name: tensor(*where) for name, where in tensors.items()} for group, tensors in place.layout.items()
        }

    def _grow(self, size: int) -> None:
        """Make the file at least ``size`` bytes large; tensors that were handed out before stay valid."""
        held = len(self._mapped)
        if size <= held:
            return
        least, most = _GROWTH
        size = max(size, held + min(max(held, least), most))
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._folder, prefix="fedcohort-memories-")  # noqa: SIM115 - closed when it is forgotten
            # Without this, a full disk would be a bus error at the first write, which Python cannot handle.
            reserve(self._file.fileno(), held, size - held)
            self._mapped = torch.from_numpy(np.memmap(self._file, np.uint8, "r+", shape=(size,)))
        except OSError as error:
            folder = self._folder or tempfile.gettempdir()
            raise UsageError(
                f"{folder}: no space for {size / 2**30:.1f} GiB of client memories ({error}); set TMPDIR to a folder that has it"
            ) from None


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED
