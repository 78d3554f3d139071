"""Models in arrays of bytes: every bit returns, rows are used again only when nobody holds them, and Ray's memory is not filled."""

import numpy as np
import pytest
import torch

from fedcohort.algorithms import ModelState
from fedcohort.engines.cluster.flat_arrays import ModelLayout, ReusedRows, SharedModels


def state(seed: int) -> ModelState:
    generator = torch.Generator().manual_seed(seed)
    return {
        "weight": torch.randn(3, 5, generator=generator),
        "wide": torch.randn(2, 2, generator=generator, dtype=torch.float64),
        "half": torch.randn(7, generator=generator).bfloat16(),
        "steps": torch.tensor(seed),
        "none": torch.empty(0, 4),
        "columns": torch.randn(4, 6, generator=generator).t(),
    }


def same(first: ModelState, second: ModelState) -> bool:
    return list(first) == list(second) and all(
        value.dtype == second[name].dtype and torch.equal(value, second[name]) for name, value in first.items()
    )


@pytest.mark.parametrize("method", ["states", "states_in_place"])
def test_every_bit_of_every_format_returns(method: str) -> None:
    layout, states = ModelLayout(state(0)), [state(seed) for seed in (1, 2, 3)]
    rows = layout.flat(states)
    rows.setflags(write=False)
    back = getattr(layout, method)(rows)
    assert all(same(one, other) for one, other in zip(states, back, strict=True))
    assert layout.states(rows[:0]) == []


def test_a_model_without_entries() -> None:
    layout = ModelLayout({})
    assert layout.states(layout.flat([{}, {}])) == [{}, {}]


def test_rows_are_used_again_only_when_nobody_holds_them() -> None:
    rows = ReusedRows(8)
    first = rows.take(3)
    address = first.ctypes.data
    view = torch.from_numpy(first)[1]
    del first
    second = rows.take(3)
    assert second.ctypes.data != address
    del view
    assert rows.take(2).ctypes.data == address
    assert rows.take(5).shape == (5, 8)


def test_models_are_copied_when_too_much_of_rays_memory_is_held() -> None:
    layout = ModelLayout(state(0))
    sent = [layout.flat([state(seed), state(seed + 1)]) for seed in (1, 3)]
    models = SharedModels(layout, limit=sent[0].nbytes)
    shared, copied = models.states(sent[0]), models.states(sent[1])
    assert np.shares_memory(shared[0]["weight"].numpy(), sent[0])
    assert not np.shares_memory(copied[0]["weight"].numpy(), sent[1])
    assert same(copied[1], state(4))
    kept = shared[1]["weight"]
    del shared
    assert not np.shares_memory(models.states(sent[1])[0]["weight"].numpy(), sent[1])
    del kept
    assert np.shares_memory(models.states(sent[1])[0]["weight"].numpy(), sent[1])
