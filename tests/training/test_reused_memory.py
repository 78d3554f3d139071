"""Memory that comes back: never while somebody can still see it."""

import gc
import threading

import torch

from fedcohort.training.reused_memory import ALIGNMENT, Buffers

LIKE = {"weight": torch.zeros(3, 5), "bias": torch.zeros(7, dtype=torch.float64)}


def test_shapes_types_and_alignment() -> None:
    made = Buffers().like(LIKE, 4)
    assert {name: (tuple(value.shape), value.dtype) for name, value in made.items()} == {
        "weight": ((4, 3, 5), torch.float32),
        "bias": ((4, 7), torch.float64),
    }
    assert all(value.is_contiguous() and value.data_ptr() % ALIGNMENT == 0 for value in made.values())


def test_copies() -> None:
    """Each of them is aligned and contiguous, and none overlaps another; a number has a shape, too."""
    like = [*LIKE.values(), torch.zeros(()), torch.zeros(2, 3, 2, 2)]
    for number in (1, 3):
        made = Buffers().copies(like, number)
        assert len(made) == number
        for mark, values in enumerate(made):
            for value in values:
                value.fill_(mark)
        for mark, values in enumerate(made):
            assert [(value.shape, value.dtype) for value in values] == [(value.shape, value.dtype) for value in like]
            assert all(value.is_contiguous() and value.data_ptr() % ALIGNMENT == 0 for value in values)
            assert all((value == mark).all() for value in values)


def test_memory_comes_back_only_when_the_last_view_is_gone() -> None:
    buffers = Buffers()
    first = buffers.like(LIKE, 4)
    place = first["weight"].data_ptr()
    view = first["bias"][2].detach()
    del first
    gc.collect()
    view.fill_(3)
    second = buffers.like(LIKE, 4)
    assert second["weight"].data_ptr() != place
    second["bias"].zero_()
    assert view.tolist() == [3] * 7
    del view
    gc.collect()
    assert buffers.like(LIKE, 2)["weight"].data_ptr() == place  # a smaller stack fits, too


def test_no_more_is_kept_than_allowed() -> None:
    buffers = Buffers(most=1000)
    held = [buffers.like(LIKE, 4) for _ in range(3)]  # 464 bytes and 64 for the alignment, each
    held.clear()
    gc.collect()
    assert len(buffers._free) == 1


def test_threads_never_share_memory() -> None:
    buffers, wrong = Buffers(), []

    def work(mark: int) -> None:
        for _ in range(300):
            mine = buffers.like(LIKE, 8)
            mine["weight"].fill_(mark)
            if not bool((mine["weight"] == mark).all()):
                wrong.append(mark)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(buffers._free) <= 8  # while a thread takes the next, it still has the last
