"""One thread for torch where the bits of a sum matter, and one more for what can be worked out beside."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

__all__ = ["aside", "one_thread"]

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


@cache
def _beside() -> ThreadPoolExecutor:
    import torch

    before = torch.get_num_threads()
    executor = ThreadPoolExecutor(1, thread_name_prefix="aside", initializer=torch.set_num_threads, initargs=(1,))
    executor.submit(int).result()
    torch.set_num_threads(before)  # a part of the setting is everybody's
    return executor


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_beside.cache_clear)  # a forked process has the executor, but not its thread
