"""How many clients a stack has: little work is one stack, and no stack is too large for a cache or for memory."""

from contextlib import closing

import numpy as np
import pytest
import torch

from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.engines import stacked_cohort
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.engines.work_splitting import largest_stack
from fedcohort.models import Mlp
from fedcohort.selection import Cohort
from fedcohort.testing.base import small_federation

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("model_bytes", "chain", "step_values", "expected"),
    [
        (4, True, 1, 256),
        (4, False, 1, 64),
        (2**20, True, 1, 16),
        (2**30, True, 1, 1),
        (4, True, 2**20, 16),
        (4, False, 2**30, 1),
        (4, True, 0, 256),
    ],
)
def test_a_stack_on_a_cpu_is_limited(model_bytes: int, chain: bool, step_values: int, expected: int) -> None:
    assert largest_stack(CPU, model_bytes, chain=chain, step_values=step_values) == expected


def test_a_stack_on_a_gpu_may_be_larger() -> None:
    assert largest_stack(torch.device("cuda"), 2**22, chain=False, step_values=2**30) == 512


@pytest.mark.parametrize(("enough", "sizes"), [(None, [12]), ("half", [6, 6]), ("any", [3, 3, 3, 3])])
def test_each_stack_has_enough_work_for_a_thread(
    enough: str | None, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve small clients are one stack by default, and two if half of their work is worth a thread."""
    settings, data = Training(batch_size=4, epochs=2), small_federation([8] * 12, trouble=False)
    with closing(LocalEngine(data, Mlp(hidden=5), settings, FedAvg(), 0, 1, plan="stacked")) as engine:
        assert engine.groups is not None
        costs = np.full(12, 16.0)
        if enough is not None:
            half = int(costs.sum()) * engine.groups.stack.num_parameters // 2
            monkeypatch.setattr(stacked_cohort, "STACK_WORK", half if enough == "half" else 1)
        groups = engine.groups.groups(Cohort(np.arange(12)), costs, 4)
    assert [len(group) for group in groups] == sizes
    assert np.concatenate(groups).tolist() == list(range(12))
