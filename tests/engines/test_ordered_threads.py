"""Work in order, and other work beside it."""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fedcohort.engines.ordered_threads import in_order


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("window", [1, 3, 50])
def test_results_come_in_order_and_what_is_beside_is_done_or_left(workers: int, window: int) -> None:
    done: list[int] = []
    beside: deque[Callable[[], None]] = deque(lambda i=i: done.append(i) for i in range(7))  # type: ignore[misc]
    costs = np.random.default_rng(0).random(20)

    def work(position: int) -> int:
        time.sleep(0.002 * costs[position])
        return position

    with ThreadPoolExecutor(workers) as pool:
        assert list(in_order(pool, work, costs, workers, window, beside)) == list(range(20))
    assert len(done) + len(beside) == 7
    assert sorted(done) == list(range(len(done)))
    assert (len(done) == 0) == (workers == 1)


def test_one_thread_is_kept_for_the_main_work_which_does_not_wait_for_the_rest() -> None:
    """Endless work beside: the main work ends all the same, and is never without a thread, though two pieces beside never end.

    Each piece of the main work lasts until ten more pieces beside were begun; the forty-first and the one after last until all
    results are there.
    """
    begun, beside_now, most, over, news = 0, 0, 0, False, threading.Condition()

    def other() -> None:
        nonlocal begun, beside_now, most
        with news:
            begun, beside_now = begun + 1, beside_now + 1
            most = max(most, beside_now)
            news.notify_all()
            if begun > 40:
                assert news.wait_for(lambda: over, timeout=60)
            beside_now -= 1

    def work(position: int) -> int:
        with news:
            assert news.wait_for(lambda: begun >= (10, 20, 30, 42)[position], timeout=60)
        return position

    beside: deque[Callable[[], None]] = deque([other] * 10_000)
    with ThreadPoolExecutor(3) as pool:
        stream = in_order(pool, work, np.ones(4), 3, 10, beside)
        assert [next(stream) for _ in range(4)] == [0, 1, 2, 3]
        pool.submit(lambda: None).result(timeout=60)  # the third thread has nothing left to do
        with news:
            over = True
            news.notify_all()
        assert list(stream) == []
    assert most == 2
    assert len(beside) == 10_000 - 42


def test_an_error_is_raised_where_its_result_is_due() -> None:

    def broken(position: int) -> int:
        if position == 1:
            raise ValueError("one")
        return position

    with ThreadPoolExecutor(2) as pool:
        stream = in_order(pool, broken, np.ones(3), 2, 2, deque())
        assert next(stream) == 0
        with pytest.raises(ValueError, match="one"):
            next(stream)


def test_who_waits_is_asked_for_something_to_do_until_there_is_nothing_left() -> None:
    waits, threads, last = 0, set(), threading.Event()

    def meanwhile() -> bool:
        nonlocal waits
        waits += 1
        threads.add(threading.current_thread())
        if waits == 3:
            last.set()
        return waits < 3

    def work(position: int) -> int:
        assert last.wait(timeout=60)
        return position

    with ThreadPoolExecutor(1) as pool:
        side_work = deque([lambda: None])  # which a single thread leaves alone while there is other work
        stream = in_order(pool, work, np.ones(1), 1, 1, side_work, meanwhile)
        assert list(stream) == [0]
    assert waits == 3
    assert threads == {threading.current_thread()}


def test_a_single_piece_is_done_by_the_calling_thread() -> None:
    order: list[str | threading.Thread] = []

    def work(position: int) -> int:
        order.append(threading.current_thread())
        return position

    def meanwhile() -> bool:
        order.append("meanwhile")
        return True

    with ThreadPoolExecutor(1) as pool:
        assert list(in_order(pool, work, np.ones(1), 2, 1, deque(), meanwhile)) == [0]
    assert order == ["meanwhile", threading.current_thread()]
