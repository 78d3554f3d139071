"""PyTorch's threads for forked calls of TorchScript, with one intra-op thread each.

``torch.jit.fork`` gives a call to one of these threads. After ``torch.jit.wait``, the program that waited may continue in one of
them, too. They have settings of their own, on which bits depend.
"""

import atexit
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache

import torch
from torch import Tensor

__all__ = ["can_fork"]

PATIENCE = 5.0
"""Seconds within which all threads must have answered."""

_started_in: set[int] = set()
"""The processes in which the threads were started: this one, or those from which it was forked."""


def can_fork() -> bool:
    """Whether ``torch.jit.fork`` in TorchScript computes a call at the same time, with the bits that the calling thread would give.

    PyTorch starts its threads for such calls at the first one. The number of their intra-op threads is whatever any thread has set
    last, until they have read it. The first call of this function therefore lets each of them set and read one, and switch off
    TorchScript's optimizations, which would change bits.

    The answer is no where PyTorch has no TorchScript, if the threads are busy, and in a process that was forked after they had
    started, because the threads do not exist there.
    """
    return _can_fork(os.getpid())


@cache
def _can_fork(process: int) -> bool:
    """:func:`can_fork` in this process."""
    if sys.version_info >= (3, 14) or _started_in:
        return False
    _started_in.add(process)
    before = torch.get_num_threads()
    prepared = _within(PATIENCE, _prepare_all)
    torch.set_num_threads(before)
    atexit.register(_let_all_finish)
    return prepared


def _within(seconds: float, work: Callable[[], None]) -> bool:
    """Whether ``work`` ended without an error in this time. If it waits for threads that do not exist, it is left behind."""
    done = threading.Event()

    def run() -> None:
        with suppress(Exception):
            work()
            done.set()

    thread = threading.Thread(target=run, name="fedcohort-script-threads", daemon=True)
    thread.start()
    thread.join(seconds)
    return done.is_set()


def _prepare_all() -> None:
    """Let each thread set what bits depend on."""
    number = torch.get_num_interop_threads()
    all_here = threading.Barrier(number)

    @torch.jit.ignore  # type: ignore[untyped-decorator]
    def prepare(given: Tensor) -> Tensor:
        torch.set_num_threads(1)
        torch.get_num_threads()  # from here on the number is this thread's own
        torch._C._set_graph_executor_optimize(False)
        all_here.wait(PATIENCE)  # holds the thread, so that every thread takes exactly one of these calls
        return given

    def prepare_one(given: Tensor) -> Tensor:
        ready: Tensor = prepare(given)
        return ready

    def prepare_each(given: list[Tensor]) -> None:
        calls = [torch.jit.fork(prepare_one, one) for one in given]
        for call in calls:
            torch.jit.wait(call)

    torch.jit.script(prepare_each)([torch.zeros(1)] * number)


def _let_all_finish() -> None:
    """Wait until the threads have released what their last calls used.

    A program returns before the thread that ended it has. If Python is finalized in between, and the thread releases a tensor that
    Python knows, the process would be aborted.
    """
    if os.getpid() in _started_in:
        _within(PATIENCE, lambda: torch.jit.script(_meet)(torch.get_num_interop_threads()))


def _meet(number: int) -> None:
    """Occupy all threads at the same time; this uses nothing that Python knows."""
    here = [torch.zeros([]) for _ in range(number)]
    calls = [torch.jit.fork(_arrive, here, i) for i in range(number)]
    for call in calls:
        torch.jit.wait(call)


def _arrive(here: list[Tensor], own: int) -> None:
    """Wait until all threads have called this, but not for longer than about a second."""
    here[own].fill_(1)
    for _ in range(100_000):
        if bool(torch.stack(here).sum() == len(here)):
            break
