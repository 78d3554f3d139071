"""Buffers and parameters that forward passes replace: clients send them, and no client sees those of another."""

from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedcohort.algorithms import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.algorithms.updates import is_finite
from fedcohort.core.errors import UsageError
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.models import as_model
from fedcohort.selection import Cohort
from fedcohort.testing.base import bits
from fedcohort.training.networks.network_buffers import NetworkBuffers
from tests.training.scripted_networks import Base
from tests.training.scripts.test_scripted_passes import federation
from tests.training.test_client_series import facts


class Averaging(Base):
    """Keeps the mean of the samples, by putting another tensor in the place of the buffer, or in the buffer."""

    mean: Tensor

    def __init__(self, *, assigns: bool, persistent: bool = True) -> None:
        super().__init__()
        self.assigns = assigns
        self.register_buffer("mean", torch.zeros(64), persistent=persistent)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        if self.training and self.assigns:
            self.mean = self.mean * 0.9 + x.mean(0) * 0.1
        elif self.training:
            self.mean.mul_(0.9).add_(x.mean(0) * 0.1)
        return self.layer(self.norm(x - self.mean))


class Limited(Base):
    """Limits the norms of weights, by giving them other memory, or in place."""

    def __init__(self, *, assigns: bool) -> None:
        super().__init__()
        self.assigns = assigns

    def forward(self, x: Tensor) -> Tensor:
        weight = self.layer.weight
        limited = torch.renorm(weight.data, 2, 0, 0.5)
        if self.training and self.assigns:
            weight.data = limited
        elif self.training:
            weight.data.copy_(limited)
        return super().forward(x)


class Masked(Base):
    """Has a constant with infinite numbers, such as the mask of an attention; it may change in some step of each client."""

    mask: Tensor
    steps: Tensor

    def __init__(self, *, persistent: bool = True, changes: bool = False) -> None:
        super().__init__()
        self.changes = changes
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf]), persistent=persistent)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.changes:
            self.steps += 1
            self.mask[0] = float(self.steps > 5)
        return super().forward(x) + self.mask.exp()[0]


def learned(workers: int, kind: type[Base] = Averaging, **settings: bool) -> list[Any]:
    """What clients send in two rounds."""
    torch.manual_seed(0)
    algorithm, training = FedAvg(), Training(batch_size=4, epochs=2, lr=0.05)
    with closing(LocalEngine(federation(), as_model(kind(**settings)), training, algorithm, 5, workers)) as engine:
        model, found = engine.initial_model(), []
        for t in (1, 2):
            updates = list(engine.train(model, t, Cohort(np.array([3, 0, 5, 2, 4, 1])), algorithm))
            found += [(facts(update), bits(update.state)) for update in updates]
            model = updates[0].state
    return found


def test_assigned_buffers_are_sent_as_changed_ones_are() -> None:
    changed = learned(1, assigns=False)
    assert changed == learned(1, assigns=True)
    assert changed == learned(2, assigns=False)
    assert changed == learned(2, assigns=True)


def test_parameters_with_other_memory_are_sent_as_changed_ones_are() -> None:
    changed = learned(1, Limited, assigns=False)
    assert changed == learned(1, Limited, assigns=True)
    assert changed == learned(2, Limited, assigns=True)


@pytest.mark.parametrize("assigns", [False, True])
def test_buffers_that_are_not_sent_are_each_clients_own(assigns: bool) -> None:
    alone = learned(1, assigns=assigns, persistent=False)
    assert alone == learned(2, assigns=assigns, persistent=False)
    assert alone[0] != learned(1, assigns=assigns)[0]


@pytest.mark.parametrize("changes", [False, True])
def test_a_buffer_with_infinite_numbers_is_not_sent(changes: bool) -> None:
    """Otherwise no update would be finite, and none would enter the model."""
    sent = learned(1, Masked, changes=changes)
    assert sent == learned(2, Masked, changes=changes) == learned(1, Masked, persistent=False, changes=changes)
    with closing(LocalEngine(federation(), as_model(Masked()), Training(epochs=1, lr=0.05), FedAvg(), 5)) as engine:
        model = engine.initial_model()
        updates = list(engine.train(model, 1, Cohort(np.array([3, 0])), FedAvg()))
        assert "mask" not in model
        assert all(is_finite(update) for update in updates)
        assert engine.whole(model)["mask"].tolist() == [0.0, -torch.inf]


def test_a_buffer_that_begins_with_infinity_and_changes_is_sent() -> None:
    """Such as the smallest value so far."""

    class Smallest(Base):
        least: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("least", torch.tensor(torch.inf))

        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                self.least.copy_(torch.minimum(self.least, x.min()))
            return super().forward(x)

    with closing(LocalEngine(federation(), as_model(Smallest()), Training(epochs=1, lr=0.05), FedAvg(), 5)) as engine:
        [update] = engine.train(engine.initial_model(), 1, Cohort(np.array([3])), FedAvg())
    assert is_finite(update)
    assert "least" in update.state


def test_a_buffer_of_another_shape_is_refused() -> None:
    module = Averaging(assigns=True)
    buffers = NetworkBuffers(module)
    module.mean = torch.zeros(3, 64)
    with pytest.raises(UsageError, match=r"^model: its forward pass made the buffer 'mean' \[3, 64\]; .* \[64\]$"):
        buffers.gather()


def test_a_parameter_of_another_shape_is_refused() -> None:
    module = Averaging(assigns=True)
    buffers = NetworkBuffers(module)
    module.layer.weight.data = torch.zeros(3, 3)
    with pytest.raises(UsageError, match=r"^model: its forward pass made the parameter 'layer\.weight' \[3, 3\]; "):
        buffers.gather()
