"""Memory: nothing waits for the garbage collector, nothing grows with the rounds or with the cohort."""

import gc
import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedcohort.algorithms import Members
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.federation.federation import Federation, Samples
from fedcohort.models import Mlp
from fedcohort.selection import Cohort
from fedcohort.training.client_problem import ClientProblem
from fedcohort.training.client_session import Session
from fedcohort.training.stack.client_group import Group
from fedcohort.training.stack.stack_problem import StackProblem


def one_sample(clients: int, each: int, pixels: int) -> Federation:
    """Clients whose samples are all the same one, which lies in memory once."""
    train = Samples(
        torch.ones(1, pixels).expand(clients * each, pixels), torch.zeros(clients * each, dtype=torch.int64)
    )
    few, unit = Samples(torch.ones(4, pixels), torch.zeros(4, dtype=torch.int64)), torch.ones(pixels)
    return Federation(train, np.arange(clients + 1) * each, few, few, tuple("0123456789"), 0 * unit, unit)


@pytest.mark.parametrize("plan", ["threads", "stacked"])
def test_a_round_leaves_no_cycles(plan: Any) -> None:
    """With the garbage collector off, what a client's training worked with is gone when it is over, and so is the model."""
    engine = LocalEngine(one_sample(8, 6, 5), Mlp(hidden=4), Training(batch_size=4), FedAvg(), 0, 2, plan=plan)
    model = engine.initial_model()
    gc.collect()
    gc.disable()
    try:
        for update in engine.train(model, 1, Cohort(np.arange(8)), FedAvg()):
            assert update.failure is None
        del update
        begun = [weakref.ref(value) for value in model.values()]
        del model
        assert all(value() is None for value in begun), "the model waits for the garbage collector"
        engine.close()
        work = (ClientProblem, Session, StackProblem, Group)
        left = [type(one).__name__ for one in gc.get_objects() if type(one) in work]
        assert not left, f"{left} wait for the garbage collector"
    finally:
        gc.enable()


def resident() -> float:
    """Bytes of this process in memory."""
    return float(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["threads", "stacked"])
def test_300_rounds_do_not_grow(plan: Any) -> None:
    """W2: 100 of 1,000 clients with 60 samples, a perceptron 784-200-10."""
    federation, training = one_sample(1000, 60, 784), Training(batch_size=20, lr=0.01, momentum=0.0)
    algorithm = FedAvg()
    engine = LocalEngine(federation, Mlp(hidden=200), training, algorithm, 0, plan=plan)
    model, seen = engine.initial_model(), {}
    draw = np.random.default_rng(0)
    for t in range(1, 301):
        cohort = Cohort(draw.choice(1000, 100, replace=False))
        members = Members(1000, 60_000, 100, t=t, trainable=engine.trainable)
        model = algorithm.aggregate(model, engine.train(model, t, cohort, algorithm), members)
        if t in (60, 300):
            seen[t] = resident()
    engine.close()
    assert seen[300] <= 1.05 * seen[60]


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["threads", "stacked"])
def test_memory_does_not_grow_with_the_cohort(plan: Any) -> None:
    """A model of 45 MB and 120 selected clients, whose updates are 5 GB together: under 2 GB above the data.
    ``benchmarks/overheads.py --only memory`` does it with 1,000."""
    algorithm = FedAvg()
    engine = LocalEngine(
        one_sample(1000, 2, 784), Mlp(hidden=14_100), Training(batch_size=2), algorithm, 0, 2, plan=plan
    )
    model, before, most = engine.initial_model(), resident(), 0.0
    assert sum(value.nbytes for value in model.values()) > 44e6

    def watched() -> Any:
        nonlocal most
        for update in engine.train(model, 1, Cohort(np.arange(120)), algorithm):
            most = max(most, resident())
            yield update

    algorithm.aggregate(model, watched(), Members(1000, 2000, 120, trainable=engine.trainable))
    engine.close()
    assert most - before < 2e9
