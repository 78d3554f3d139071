"""One intra-op thread where the bits of a sum matter, here and in threads that keep to it, and one thread more to work beside."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Barrier
from typing import TypeVar

__all__ = ["aside", "one_thread", "one_thread_each"]

T = TypeVar("T")


@contextmanager
def one_thread() -> Iterator[None]:
    """One intra-op thread, so that the machine does not decide the bits; torch's setting is put back afterwards."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def aside(work: Callable[[], T]) -> Future[T]:
    """Begin ``work`` in the thread that there is for this, after what it was given before; with one intra-op thread."""
    return _beside().submit(work)


def one_thread_each(workers: int, name: str) -> ThreadPoolExecutor:
    """Threads that are running already, with one intra-op thread each, whatever torch is told later.

    A thread keeps to what torch is told in it only from the first time on that torch has looked; until then it takes what any thread
    was told last.
    """
    import torch

    before = torch.get_num_threads()
    ready = Barrier(workers)

    def keep_to_one() -> None:
        torch.set_num_threads(1)
        torch.get_num_threads()  # looks
        ready.wait()  # each thread takes one of these calls

    executor = ThreadPoolExecutor(workers, thread_name_prefix=name)
    try:
        for call in [executor.submit(keep_to_one) for _ in range(workers)]:
            call.result()
    except BaseException:  # no more threads can be had, say: those that there are would wait for them for ever
        ready.abort()
        executor.shutdown()
        raise
    finally:
        torch.set_num_threads(before)
    return executor


@cache
def _beside() -> ThreadPoolExecutor:
    return one_thread_each(1, "aside")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_beside.cache_clear)  # a forked process has the executor, but not its thread
