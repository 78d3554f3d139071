"""Do work in threads, and return the results in order; the number of results that wait is bounded.

A thread that becomes free takes the piece with the result that is due next, if no thread has begun it. Otherwise it takes the most
expensive piece of the window, so that all threads finish at about the same time. With every result that is taken, the window moves on
by one piece.

Side work in small pieces can be done at the same time. All threads but one may take it, so that the main work never pauses for it, and
only while main work is left.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar

from fedcohort.core.arrays import Values

__all__ = ["in_order"]

T = TypeVar("T")

POLLING = 0.02
"""Seconds between two calls of ``meanwhile`` while a result is waited for."""


def in_order(
    pool: ThreadPoolExecutor,
    work: Callable[[int], T],
    costs: Values,
    workers: int,
    window: int,
    beside: deque[Callable[[], None]] | None = None,
    meanwhile: Callable[[], bool] = lambda: False,
    *,
    here: bool = False,
) -> Iterator[T]:
    """Results of ``work(0), work(1), …``, one for each of ``costs``, in order.

    Args:
        pool: threads; an error in the work is raised where its result is due.
        work: called once for each position, in any order.
        costs: expected time of each piece, in any unit.
        workers: maximum number of pieces at the same time.
        window: maximum number of pieces that may be begun before the result of the first of them is taken.
        beside: pieces of side work, taken from the left; pieces that are not begun stay there.
        meanwhile: called by the thread that takes the results, while it waits for one; called again as long as it returns True.
        here: the calling thread does all pieces; other threads do nothing but side work.

    A single piece without side work is done by the calling thread, too.
    """
    if here and beside:
        pool.submit(_do_all, beside)
    if here or (len(costs) == 1 and not beside):  # there is nothing to do at the same time
        for position in range(len(costs)):
            meanwhile()
            yield work(position)
        return
    pieces = _Window(pool, work, costs, workers, window, deque() if beside is None else beside)
    try:
        for _ in range(len(costs)):
            yield pieces.next(meanwhile)
    finally:
        pieces.close()


def _do_all(pieces: deque[Callable[[], None]]) -> None:
    with suppress(IndexError):  # another thread may take some
        while True:
            pieces.popleft()()


class _Window(Generic[T]):
    """The pieces of work that may be begun now, and their results; arguments as for :func:`in_order`."""

    def __init__(
        self,
        pool: ThreadPoolExecutor,
        work: Callable[[int], T],
        costs: Values,
        workers: int,
        window: int,
        beside: deque[Callable[[], None]],
    ) -> None:
        self.pool, self.work, self.costs, self.workers, self.window = pool, work, costs, workers, window
        self.beside = beside
        self._lock = threading.Lock()
        self._results: dict[int, Future[T]] = {}  # of the pieces in the window
        self._waiting: set[int] = set()  # pieces in the window that no thread has begun
        self._opened = 0  # number of pieces that have come into the window so far
        self._due = 0  # position of the result that is taken next
        self._busy = 0  # threads at work
        self._busy_beside = 0  # those of them that do side work
        self._calls: list[Future[None]] = []  # of threads at work

    def next(self, meanwhile: Callable[[], bool]) -> T:
        """Wait for the next result and return it."""
        self._open()
        due = self._results[self._due]
        while not due.done() and meanwhile():
            wait([due], POLLING)
        result = due.result()
        with self._lock:
            del self._results[self._due]
            self._due += 1
        self._open()
        return result

    def close(self) -> None:
        """Begin no more pieces, and wait for those that were begun: they end before the caller begins other work."""
        with self._lock:
            self._waiting.clear()
        wait(self._calls)

    def _open(self) -> None:
        """Let pieces into the window, and put idle threads to work."""
        with self._lock:
            end = min(self._due + self.window, len(self.costs))
            for position in range(self._opened, end):
                self._results[position] = Future()
                self._waiting.add(position)
            self._opened = max(self._opened, end)
            idle = min(self.workers - self._busy, len(self._waiting) + len(self.beside))
            self._busy += idle
        if idle > 0:
            self._calls = [call for call in self._calls if not call.done()]
            self._calls += [self.pool.submit(self._serve) for _ in range(idle)]

    def _serve(self) -> None:
        """Work on one piece after another until no piece is left for this thread."""
        while (piece := self._take()) is not None:
            piece()
            del piece  # releases what it refers to before the thread waits for the lock

    def _take(self) -> Callable[[], None] | None:
        """The next piece for a thread; None if no piece is left for it."""
        with self._lock:
            main_goes_on = self._waiting or self._busy - self._busy_beside > 1
            if self.beside and self._busy_beside < self.workers - 1 and main_goes_on:
                self._busy_beside += 1
                return partial(self._do_beside, self.beside.popleft())
            if not self._waiting:
                self._busy -= 1
                return None
            position = self._most_urgent()
            self._waiting.discard(position)
            return partial(self._do, position, self._results[position])

    def _most_urgent(self) -> int:
        """The piece that is due, if it waits; otherwise, and when no more pieces will come, the most expensive one."""
        all_opened = self._opened == len(self.costs)
        if self._due in self._waiting and not all_opened:
            return self._due
        return min(self._waiting, key=lambda position: (-self.costs[position], position))

    def _do(self, position: int, result: Future[T]) -> None:
        try:
            result.set_result(self.work(position))
        except BaseException as error:
            result.set_exception(error)

    def _do_beside(self, piece: Callable[[], None]) -> None:
        piece()
        with self._lock:
            self._busy_beside -= 1
