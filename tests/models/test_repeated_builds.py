"""A network that differs each time that it is built is refused if clients do not receive the difference, and named otherwise."""

import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedcohort
from fedcohort.core.errors import UsageError
from fedcohort.core.random_streams import torch_seeded
from fedcohort.models import built_repeatably
from tests.experiments import small

DRAWS: dict[str, Callable[[], Any]] = {
    "torch": lambda: torch.randn(64, 8),
    "seeded": lambda: np.random.default_rng(3).normal(size=(64, 8)),
    "entropy": lambda: np.random.default_rng().normal(size=(64, 8)),
    "python": lambda: np.array([[random.random() for _ in range(8)] for _ in range(64)]),
}


def from_numpy() -> Any:
    return np.random.normal(size=(64, 8))  # noqa: NPY002


class Features(nn.Module):
    """A linear layer on features that ``draw`` draws when the network is built; ``kept`` says where."""

    def __init__(self, draw: Callable[[], Any] = from_numpy, kept: str = "buffer") -> None:
        super().__init__()
        values = draw()
        tensor = torch.as_tensor(values, dtype=torch.float32)
        if kept in ("array", "attribute"):
            self.values = values if kept == "array" else tensor
        else:
            self.register_buffer("values", tensor, persistent=kept == "saved")
        self.register_buffer("nan", torch.tensor([float("nan"), -torch.inf]), persistent=False)
        self.layer = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.flatten(1) @ torch.as_tensor(self.values, dtype=x.dtype))


def build(draw: Callable[[], Any] = from_numpy, kept: str = "buffer") -> nn.Module:
    def seeded() -> nn.Module:
        with torch_seeded(0, torch.device("cpu")):
            return Features(draw, kept)

    return built_repeatably(seeded, lambda module: type(module).__name__)


def from_numpy_with_a_seed() -> Any:
    np.random.seed(5)  # noqa: NPY002
    return from_numpy()


@pytest.mark.parametrize("draw", [DRAWS["torch"], DRAWS["seeded"], from_numpy_with_a_seed])
@pytest.mark.parametrize("kept", ["buffer", "attribute", "array", "saved"])
def test_seeded_draws_are_as_good_as_any(draw: Callable[[], Any], kept: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build(draw, kept)


REFUSED = r"^model = Features: values is no part of the state dictionary, so that clients do not receive it, and differs each time"


@pytest.mark.parametrize("draw", [from_numpy, DRAWS["entropy"], DRAWS["python"]])
@pytest.mark.parametrize("kept", ["buffer", "attribute", "array"])
def test_tensors_that_are_not_sent_must_not_differ(draw: Callable[[], Any], kept: str) -> None:
    with pytest.raises(UsageError, match=REFUSED):
        build(draw, kept)


def test_weights_from_numpy_are_named() -> None:
    with pytest.warns(
        UserWarning, match=r"model = Features: begins with weights from numpy\.random, which FedCohort does not seed"
    ):
        build(kept="saved")


def test_a_run_with_such_a_network_does_not_begin(tmp_path: Path) -> None:
    """Each thread had features of its own, so that results depended on the number of threads."""
    with pytest.raises(UsageError, match=REFUSED):
        fedcohort.run(small(rounds=1), model=lambda shape, classes: Features(), runs=tmp_path)
