"""How many threads torch has, and what is worked out beside."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from threading import Barrier, Thread, current_thread

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.parameters import parameters
from fedcohort.core.threads import SHARED, in_background, in_two_threads, one_thread_each
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.models import Model
from fedcohort.selection import Cohort
from fedcohort.testing.base import HEALTHY, small_federation


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Torch works with two intra-op threads, whatever the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_threads_keep_to_one_intra_op_thread() -> None:
    """Whatever torch is told elsewhere, before they do anything and after."""
    together = Barrier(3, timeout=60)

    def look() -> tuple[str, int]:
        together.wait()
        return current_thread().name, torch.get_num_threads()

    with one_thread_each(3, "tests") as executor:
        for _ in range(2):
            assert torch.get_num_threads() == 2
            found = dict(call.result() for call in [executor.submit(look) for _ in range(3)])
            assert found == {f"tests_{i}": 1 for i in range(3)}
            torch.set_num_threads(2)


@pytest.mark.usefixtures("two_threads")
def test_so_does_the_one_beside() -> None:
    assert in_background(torch.get_num_threads).result() == 1
    assert torch.get_num_threads() == 2


def test_no_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error, and nobody waits for those that never came."""
    start, started = Thread.start, list[Thread]()

    def limited(self: Thread) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(self)
        start(self)

    monkeypatch.setattr(Thread, "start", limited)
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError, match="can't start"):
        one_thread_each(4, "tests")
    for thread in started:
        thread.join(30)
        assert not thread.is_alive()
    assert torch.get_num_threads() == before


SEEN: set[int] = set()


class Looking(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        SEEN.add(torch.get_num_threads())
        return super().forward(x)


@parameters
class Watchful(Model):
    """Sees how many intra-op threads its forward passes have."""

    def build(self, shape: tuple[int, ...], num_classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), Looking(int(np.prod(shape)), num_classes))


@pytest.mark.usefixtures("two_threads")
def test_so_do_the_threads_of_an_engine_whatever_they_do_first() -> None:
    """An evaluation that nobody trains beside used to be begun with as many as torch had."""
    settings = Training(batch_size=4)
    with closing(LocalEngine(small_federation(), Watchful(), settings, FedAvg(), 0, 2)) as engine:
        model = engine.initial_model()
        SEEN.clear()
        for _ in range(5):
            engine.evaluate(model, "test")
            list(engine.train(model, 1, Cohort(np.array(HEALTHY)), FedAvg()))
            engine.evaluate(model, "validation")
    assert {1} == SEEN


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_works_aside_too() -> None:
    """It has no thread of its parent's, and would wait for one forever."""
    assert in_background(lambda: 1).result() == 1
    child = os.fork()
    if child == 0:
        os._exit(in_background(lambda: 7).result())
    for _ in range(1500):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.02)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the forked process hangs")
    assert os.waitstatus_to_exitcode(status) == 7


@pytest.mark.parametrize("sizes", [[], [SHARED], [SHARED // 2] * 2, [1, SHARED, 1], [1, 2, 3]])
def test_two_threads_share_much_work_and_give_its_results_in_order(sizes: list[int]) -> None:
    def named(item: int) -> tuple[int, str]:
        return item, current_thread().name

    found = in_two_threads(named, range(len(sizes)), sizes)
    assert [item for item, _ in found] == list(range(len(sizes)))
    here = current_thread().name
    assert len({name for _, name in found} | {here}) == (2 if sum(sizes) >= SHARED else 1)
    # the background thread does not wait for itself
    found = in_background(lambda: in_two_threads(named, range(len(sizes)), sizes)).result(timeout=60)
    assert [item for item, _ in found] == list(range(len(sizes)))
    assert here not in {name for _, name in found}
