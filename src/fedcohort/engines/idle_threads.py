"""How many threads of an engine have nothing to do."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["IdleThreads"]


class IdleThreads:
    """Counts the threads that have nothing to do, for programs that run without Python: they give parts of their work to idle cores.

    Args:
        threads: number of threads, at most one per core.

    Attributes:
        count: number of idle threads now, int64 [].
    """

    def __init__(self, threads: int) -> None:
        self.count = torch.tensor(threads)
        self._now = self.count.numpy()
        self._lock = threading.Lock()

    @contextmanager
    def one_busy(self) -> Iterator[None]:
        """The calling thread has work during this block."""
        self._add(-1)
        try:
            yield
        finally:
            self._add(1)

    def _add(self, number: int) -> None:
        with self._lock:
            self._now += number
