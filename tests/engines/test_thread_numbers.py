"""Networks whose steps Python runs: by all threads or by one, whichever is faster, with the same bits."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from threading import Event, current_thread
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedcohort.algorithms import Algorithm, Problem, Tensors, Update
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.engines.ordered_threads import in_order
from fedcohort.engines.thread_numbers import FIRST, TIMED, ThreadNumbers
from fedcohort.federation.federation import Federation, Samples
from fedcohort.models import Mlp, as_model
from fedcohort.selection import Cohort
from fedcohort.testing.base import bits

ROUNDS = FIRST + 2 * TIMED
"""Number of rounds after which the number of threads is chosen."""


class Network(nn.Module):
    """Reads a number in every forward pass, so that Python has to run it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * (2.0 if float(x.detach().sum()) > 0 else 1.0)


@pytest.fixture
def federation() -> Federation:
    """Five clients with 40 rows of numbers each."""
    numbers = torch.Generator().manual_seed(0)
    features, labels = torch.randn(260, 6, generator=numbers), torch.randint(0, 3, (260,), generator=numbers)
    train, test = Samples(features[:200], labels[:200]), Samples(features[200:], labels[200:])
    edges = np.arange(0, 201, 40)
    return Federation(train, edges, test, test, ("a", "b", "c"), torch.zeros(6), torch.ones(6))


class Rounds:
    """Rounds of one client with 10 steps, whose length depends on whether one thread or all train."""

    def __init__(self, workers: int, alone: float, together: float) -> None:
        self.now, self.used = 0.0, list[bool]()
        numbers = ThreadNumbers(workers, clock=lambda: self.now)
        for _ in range(ROUNDS + 4):
            one = numbers.one_is_enough(2, in_python=True)
            self.used.append(one)
            updates = [Update(client, 1, 5, {}) for client in (0, 1)]
            for _ in numbers.timed(self._played(updates, alone if one else together), one, in_python=True):
                pass

    def _played(self, updates: list[Update], seconds: float) -> Iterator[list[Update]]:
        for update in updates:
            self.now += seconds / len(updates)
            yield [update]


@pytest.mark.parametrize(
    ("alone", "together", "chosen"), [(0.010, 0.015, True), (0.010, 0.0104, False), (0.010, 0.006, False)]
)
def test_the_faster_number_is_kept(alone: float, together: float, chosen: bool) -> None:
    used = Rounds(2, alone, together).used
    assert used == [False] * (FIRST + TIMED) + [True] * TIMED + [chosen] * 4


@pytest.mark.parametrize(("workers", "together"), [(2, 0.021), (4, 0.011), (1, 0.001)])
def test_long_steps_and_a_single_thread_are_not_tried_otherwise(workers: int, together: float) -> None:
    assert Rounds(workers, 0.0, together).used == [False] * (ROUNDS + 4)


def test_rounds_of_one_client_and_of_programs_are_not_timed() -> None:
    numbers = ThreadNumbers(2, clock=iter(count()).__next__)
    for clients, in_python in [(1, True), (5, False)] * 20:
        assert not numbers.one_is_enough(clients, in_python=in_python)
        list(numbers.timed([[Update(c, 1, 5, {})] for c in range(clients)], False, in_python=in_python))
    assert not numbers.one_is_enough(5, in_python=True), "nothing is known yet"


def test_the_calling_thread_does_all_and_others_what_is_beside() -> None:
    threads: dict[str, set[str]] = {"work": set(), "beside": set()}
    begun, over = Event(), Event()

    def work(position: int) -> int:
        threads["work"].add(current_thread().name)
        assert begun.wait(60), "work beside is done at the same time"
        if position == 3:
            over.set()
        return position

    def other() -> None:
        threads["beside"].add(current_thread().name)
        begun.set()
        assert over.wait(60)

    beside: deque[Callable[[], None]] = deque([other, other])
    calls: list[int] = []

    def meanwhile() -> bool:
        calls.append(len(calls))
        return False

    with ThreadPoolExecutor(2, thread_name_prefix="other") as pool:
        assert list(in_order(pool, work, np.ones(4), 2, 4, beside, meanwhile, here=True)) == [0, 1, 2, 3]
    assert threads == {"work": {current_thread().name}, "beside": {"other_0"}}
    assert not beside
    assert calls == [0, 1, 2, 3]


def test_all_numbers_of_threads_give_the_same_bits(federation: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds with evaluations beside them, before and after the choice, in which one thread trains and several do."""
    used: list[bool] = []
    asked = ThreadNumbers.one_is_enough

    def noted(self: ThreadNumbers, clients: int, **given: Any) -> bool:
        used.append(asked(self, clients, **given))
        return used[-1]

    monkeypatch.setattr(ThreadNumbers, "one_is_enough", noted)

    model_of_all = as_model(Network())

    def played(workers: int) -> list[object]:
        algorithm, found = FedAvg(), list[object]()
        engine = LocalEngine(federation, model_of_all, Training(batch_size=8, lr=0.1), algorithm, 3, workers)
        with closing(engine):
            model = engine.initial_model()
            for t in range(1, ROUNDS + 8):  # some of them until it is known that there is no script
                tested = engine.evaluate_beside(model, "test")
                updates = list(engine.train(model, t, Cohort(np.array([4, 0, 2, 3])), algorithm))
                model = updates[t % 4].state
                found += [bits(model), tested().loss, [update.report for update in updates]]
        return found

    alone = played(1)
    assert played(2) == alone
    half = len(used) // 2
    assert not any(used[:half]), "a single worker trains as ever"
    assert sum(used[half:]) >= TIMED


def test_steps_in_python_are_known(federation: Federation) -> None:
    """A program takes all steps in one call, unless an algorithm takes part in each of them."""

    class Own(FedAvg):
        corrects = True

        def correct(self, problem: Problem, gradients: Tensors) -> None:
            for gradient in gradients.values():
                gradient.div_(1 + problem.steps)

    def in_python(network: nn.Module | Mlp, algorithm: Algorithm | None = None, **settings: Any) -> bool:
        model = as_model(network) if isinstance(network, nn.Module) else network
        engine = LocalEngine(federation, model, Training(batch_size=8, **settings), algorithm or FedAvg(), 0, 1)
        with closing(engine), engine._trainer() as trainer:
            trainer.train(engine.initial_model(), 1, 0, epochs=8)
            return trainer.steps_in_python

    assert in_python(Network())
    assert not in_python(Mlp(hidden=4))
    assert not in_python(Mlp(hidden=4), clip_norm=1.0)
    assert in_python(Mlp(hidden=4), Own())
    assert not in_python(nn.Sequential(nn.Linear(6, 4), nn.Softplus(), nn.Linear(4, 3))), "it has scripts"
