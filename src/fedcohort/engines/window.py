"""Work in threads whose results come in order, with a bounded number of them waiting.

A thread that becomes free takes the result that is waited for next, if nobody has begun it; otherwise the most expensive one of the
window, so that threads end together. The window slides: with every result that is taken, one more piece of work may begin.

Something else may be done beside it, in small pieces: from the start by all threads but one, so that the main work never pauses for
it, and no longer than the main work lasts.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

from fedcohort.core.arrays import Values

__all__ = ["in_order"]

T = TypeVar("T")

AGAIN = 0.02
"""Seconds after which who waits is asked again."""


def in_order(
    pool: ThreadPoolExecutor,
    work: Callable[[int], T],
    costs: Values,
    workers: int,
    window: int,
    beside: deque[Callable[[], None]] | None = None,
    meanwhile: Callable[[], bool] = lambda: False,
) -> Iterator[T]:
    """Results of ``work(0), work(1), …``, one for each of ``costs``, in order.

    Args:
        pool: threads; an error in the work is raised where its result is due.
        work: called once for each position, in any order.
        costs: how long each piece takes, in any unit.
        workers: pieces at the same time, at most.
        window: pieces that are begun or done and whose results were not taken, at most.
        beside: pieces of other work, taken from the left; what is not begun stays there.
        meanwhile: called, by who takes the results, while a result is waited for; again as long as it says so.
    """
    total = len(costs)
    beside = deque() if beside is None else beside
    results: dict[int, Future[T]] = {}
    waiting: set[int] = set()
    lock = threading.Lock()
    opened = due = serving = aside = (
        0  # pieces in the window so far, the piece waited for, threads at work, and those beside
    )
    servants: list[Future[None]] = []

    def take() -> Callable[[], None] | None:
        nonlocal serving, aside
        with lock:
            if beside and aside < workers - 1 and (waiting or serving - aside > 1):
                aside += 1
                return other(beside.popleft())
            if not waiting:
                serving -= 1
                return None
            ends = opened == total  # nothing new will come: the longest first, so that all end together
            position = due if due in waiting and not ends else min(waiting, key=lambda p: (-costs[p], p))
            waiting.discard(position)
            return main(position)

    def main(position: int) -> Callable[[], None]:
        result = results[position]

        def piece() -> None:
            try:
                result.set_result(work(position))
            except BaseException as error:
                result.set_exception(error)

        return piece

    def other(call: Callable[[], None]) -> Callable[[], None]:
        def piece() -> None:
            nonlocal aside
            call()
            with lock:
                aside -= 1

        return piece

    def serve() -> None:
        while (piece := take()) is not None:
            piece()
            del piece

    def open_more() -> None:
        nonlocal opened, serving
        with lock:
            for position in range(opened, min(due + window, total)):
                results[position] = Future()
                waiting.add(position)
            opened = max(opened, min(due + window, total))
            hands = min(workers - serving, len(waiting) + len(beside))
            serving += hands
        if hands > 0:
            servants[:] = [servant for servant in servants if not servant.done()]
            servants.extend(pool.submit(serve) for _ in range(hands))

    try:
        while due < total:
            open_more()
            while not results[due].done() and meanwhile():
                wait([results[due]], AGAIN)
            result = results[due].result()
            with lock:
                del results[due]
                due += 1
            open_more()
            yield result
            del result
    finally:
        with lock:
            waiting.clear()
        wait(servants)  # what is being worked on ends before anything else may begin
