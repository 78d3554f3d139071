"""Settings of torch on which bits depend: threads with one intra-op thread each, number format, gradients."""

import os
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from itertools import accumulate
from threading import Barrier, current_thread
from typing import TypeVar

__all__ = [
    "SHARED",
    "in_background",
    "in_two_threads",
    "intra_op_threads",
    "one_thread",
    "one_thread_each",
    "usual_settings",
]

T = TypeVar("T")
R = TypeVar("R")

BACKGROUND = "fedcohort-background"
"""Begin of the name of the background thread."""

SHARED = 2**21
"""Number of values of a model from which two threads share work on its entries, which other threads may be waiting for."""


def one_thread() -> AbstractContextManager[None]:
    """Run the block with one intra-op thread, so that its bits do not depend on the number of cores; restores torch's setting."""
    return intra_op_threads(1)


@contextmanager
def intra_op_threads(number: int) -> Iterator[None]:
    """Run the block with this number of intra-op threads, on which its bits can depend; restores torch's setting."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def usual_settings() -> Iterator[None]:
    """Run the block as torch is by default: float32, new tensors on the CPU, gradients; outside of inference mode and of autocast.

    The caller's program may have changed these settings; they are restored afterwards. Most of them are those of the calling thread,
    and other threads have torch's own: the results would depend on which thread trains a client.
    """
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.autocast("cpu", enabled=False),
            torch.autocast("cuda", enabled=False),
            nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu"),
        ):
            yield
    finally:
        torch.set_default_dtype(before)


def in_background(work: Callable[[], T]) -> Future[T]:
    """Run ``work`` in the background thread, after all earlier calls have finished, with one intra-op thread."""
    return _background().submit(work)


def in_two_threads(work: Callable[[T], R], items: Sequence[T], sizes: Sequence[int]) -> list[R]:
    """``work(item)`` for each of ``items``, in order. Two threads share the items if their ``sizes`` are at least :data:`SHARED`
    together; each item is done by one thread, so that the bits are the same."""
    ends = list(accumulate(sizes))
    if not ends or ends[-1] < SHARED or current_thread().name.startswith(BACKGROUND):
        return [work(item) for item in items]
    cut = bisect(ends, ends[-1] / 2)
    rest = in_background(lambda: [work(item) for item in items[cut:]])
    return [work(item) for item in items[:cut]] + rest.result()


def one_thread_each(workers: int, name: str) -> ThreadPoolExecutor:
    """A pool of threads that have started and that use one intra-op thread each, regardless of what other threads set later.

    ``torch.set_num_threads`` sets the number for the calling thread only once that thread has read the number. Until then, the thread
    uses the number that any thread set last. Every thread of the pool therefore sets and reads its number before this returns.
    """
    import torch

    before = torch.get_num_threads()
    ready = Barrier(workers)

    def use_one_thread() -> None:
        torch.set_num_threads(1)
        torch.get_num_threads()  # from here on the number is this thread's own
        ready.wait()  # holds the thread, so that every thread takes exactly one of these calls

    executor = ThreadPoolExecutor(workers, thread_name_prefix=name)
    try:
        for call in [executor.submit(use_one_thread) for _ in range(workers)]:
            call.result()
    except BaseException:  # if a thread cannot be started, the others would wait for it forever
        ready.abort()
        executor.shutdown()
        raise
    finally:
        torch.set_num_threads(before)
    return executor


@cache
def _background() -> ThreadPoolExecutor:
    return one_thread_each(1, BACKGROUND)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        after_in_child=_background.cache_clear
    )  # a forked process inherits the executor without its thread
