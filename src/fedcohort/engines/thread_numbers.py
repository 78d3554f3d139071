"""How many threads train clients at the same time.

A thread that runs Python holds Python's lock. If Python runs every step, and steps are short, two threads pass it to and fro so often
that together they can be slower than one alone: the first rounds show whether they are. The results do not depend on the number of
threads.
"""

import time
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import nn

from fedcohort.algorithms import Update
from fedcohort.core.processor import cores

__all__ = ["ThreadNumbers", "threads_for"]

THREADS_FOR_LARGE = 5
"""Default number of threads that feed a GPU with the steps of a large network, whose kernels run side by side."""
THREADS_FOR_SMALL = 2
"""The same for a small network. More threads would wait for Python's lock, which they need to start the kernels."""
LARGE = 2**20
"""Number of parameters from which on a network is large."""

FIRST = 2
"""Number of rounds that are not timed, because first steps load libraries."""
TIMED = 3
"""Number of rounds that are timed with all threads, and then with one."""
LONG_STEP = 0.004
"""Seconds of a step from which on all threads are used: most of such a step are calls of PyTorch, which do not hold the lock."""
FASTER = 0.95
"""One thread is preferred if it needs at most this share of the time that all threads need."""


def threads_for(module: nn.Module, device: torch.device) -> int:
    """Default number of clients, or stacks, that are trained at the same time: one per core, or as many as feed a GPU.

    Args:
        module: the network.
        device: where it is trained.
    """
    if device.type == "cpu":
        return cores()
    return THREADS_FOR_LARGE if sum(p.numel() for p in module.parameters()) >= LARGE else THREADS_FOR_SMALL


class ThreadNumbers:
    """Times some rounds with all threads, then with one, and keeps the faster number.

    Args:
        workers: number of threads.
        clock: time in seconds.
    """

    def __init__(self, workers: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self.workers = workers
        self._clock = clock
        self._rounds = 0
        self._seconds: dict[int, list[float]] = {workers: [], 1: []}  # of a step, for each timed round
        self._chosen = 1 if workers == 1 else 0  # 0: not chosen yet

    def one_is_enough(self, clients: int, *, in_python: bool) -> bool:
        """Whether one thread trains all clients of a round, while others only evaluate.

        Args:
            clients: number of clients of the round.
            in_python: whether Python runs the steps of their training.
        """
        if not in_python or clients < 2 or self.workers == 1:
            return False
        return self._chosen == 1 or (not self._chosen and len(self._seconds[self.workers]) >= TIMED)

    def timed(self, results: Iterable[list[Update]], alone: bool, *, in_python: bool) -> Iterator[list[Update]]:
        """Pass on the results of a round, and note how long it took.

        Args:
            results: the updates of its clients.
            alone: whether one thread trained them.
            in_python: as for :meth:`one_is_enough`.
        """
        begin, steps, clients = self._clock(), 0, 0
        for updates in results:
            steps += sum(update.steps for update in updates)
            clients += len(updates)
            yield updates
        if in_python and clients > 1 and steps and not self._chosen:
            self._note(1 if alone else self.workers, (self._clock() - begin) / steps)

    def _note(self, threads: int, seconds: float) -> None:
        """Note the time of a round, in seconds of a step, and choose if there are enough."""
        self._rounds += 1
        if self._rounds > FIRST:
            self._seconds[threads].append(seconds)
        together, alone = self._seconds[self.workers], self._seconds[1]
        if len(together) >= TIMED and min(together) * self.workers >= LONG_STEP:
            self._chosen = self.workers
        elif len(alone) >= TIMED:
            self._chosen = 1 if min(alone) <= FASTER * min(together) else self.workers
