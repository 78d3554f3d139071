"""What all threads of PyTorch share, random generators and the cache of autocast, does not change what clients learn."""

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.checkpoint import checkpoint as again

from fedcohort.algorithms import FedAvg
from fedcohort.algorithms.losses import CrossEntropy
from fedcohort.algorithms.training_settings import Training
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.models import as_model
from fedcohort.selection import Cohort
from fedcohort.training.networks.random_layers import recomputes
from fedcohort.training.scripts.network_scripts import Scripts
from tests.training.scripted_networks import Base
from tests.training.scripts.test_scripted_passes import federation
from tests.training.test_client_series import facts


class Checkpointed(Base):
    """Draws again in the backward pass."""

    def _inner(self, x: Tensor) -> Tensor:
        return functional.dropout(self.norm(x), 0.3, self.training)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(checkpoint(self._inner, x.flatten(1), use_reentrant=False))


class Renamed(Checkpointed):
    """Calls it by another name, and in its older form, in which PyTorch's operators are seen in both passes."""

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(again(self._inner, x.flatten(1), use_reentrant=True))


def passed_on(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return again(function, x, use_reentrant=True)


class PassedOn(Checkpointed):
    """Leaves it to a function."""

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(passed_on(self._inner, x.flatten(1)))


class Held(Checkpointed):
    """Has it as an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.run = partial(again, use_reentrant=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.run(self._inner, x.flatten(1)))


CACHED: list[bool] = []


class Autocast(Base):
    """Notes in training whether PyTorch keeps weights in bfloat16 for all threads."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            CACHED.append(torch.is_autocast_cache_enabled())
        return super().forward(x)


def learned(module: nn.Module, workers: int) -> tuple[int, list[Any]]:
    """The number of threads, and what clients send."""
    training = Training(batch_size=4, epochs=2, lr=0.05)
    with closing(LocalEngine(federation(), as_model(module), training, FedAvg(), 5, workers)) as engine:
        updates = engine.train(engine.initial_model(), 1, Cohort(np.array([3, 0, 5, 2, 4, 1])), FedAvg())
        return engine.workers, [facts(update) for update in updates]


@pytest.mark.parametrize("kind", [Checkpointed, Renamed, PassedOn, Held])
def test_clients_with_checkpointed_dropout_are_trained_one_at_a_time(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    module = kind()
    alone = learned(module, 1)
    with pytest.warns(
        UserWarning, match=r"^model: draws random numbers and uses torch\.utils\.checkpoint; clients are"
    ):
        assert learned(module, 3) == alone
    assert learned(Base(), 3)[0] == 3


class Unlike(Base):
    """Has something with a similar name."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(functional.relu(x))

    def save_checkpoint(self) -> None:
        """Nothing of PyTorch."""


def test_networks_that_draw_in_the_backward_pass_have_no_scripts() -> None:
    """A script would draw other numbers there, which a batch of one sample may not show."""
    for kind in (Checkpointed, Renamed, PassedOn, Held):
        assert recomputes(kind())
        assert not Scripts(kind(), {}, CrossEntropy(), draws=True).possible
    assert not recomputes(Unlike())
    assert Scripts(Unlike(), {}, CrossEntropy(), draws=True).possible


@pytest.mark.parametrize("workers", [1, 2])
def test_clients_are_trained_without_the_cache_of_autocast(workers: int) -> None:
    CACHED.clear()
    learned(Autocast(), workers)
    trained = CACHED[-10:]  # trial runs come first
    assert len(trained) == 10
    assert not any(trained)
