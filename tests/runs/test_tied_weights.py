"""Networks in which two layers share a weight give the results of networks that have it once."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

import fedcohort
from fedcohort.training.networks.omitted_entries import second_names
from tests.experiments import IID, blobs, small


class Tied(nn.Module):
    """The last layer has the transposed weight of the first, and an own name for it."""

    def __init__(self, shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(shape[0], shape[0])
        self.second = nn.Linear(shape[0], shape[0], bias=False)
        self.second.weight = self.first.weight
        self.last = nn.Linear(shape[0], num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.again(functional.relu(self.first(x))))

    def again(self, x: Tensor) -> Tensor:
        """The layer with the weight of the first one."""
        return self.second(x)


class Once(Tied):
    """The same without the second name."""

    def __init__(self, shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__(shape, num_classes)
        del self.second

    def again(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.first.weight)


@pytest.mark.parametrize(
    "settings",
    [
        {"algorithm": {"name": "fedadam", "server_lr": 0.05}},
        {"algorithm": {"name": "fedavgm", "beta": 0.9}},
        {"algorithm": {"name": "fedadagrad"}},
        {"algorithm": {"name": "fedyogi"}},
        {"algorithm": "scaffold"},
        {"selection": {"name": "pyramidfl", "k": 3}},
    ],
    ids=str,
)
def test_a_shared_weight_has_one_value(settings: dict[str, Any], tmp_path: Path) -> None:
    experiment = small(rounds=3, **{**IID, **settings})
    tied, once = (
        fedcohort.run(experiment, data=blobs(), model=kind, runs=tmp_path / kind.__name__) for kind in (Tied, Once)
    )
    model, expected = (load_file(run.path / "model.safetensors") for run in (tied, once))
    assert torch.equal(model["second.weight"], model["first.weight"])
    assert all(torch.equal(model[name], value) for name, value in expected.items())
    assert tied.rounds["test_loss"].tolist() == once.rounds["test_loss"].tolist()
    assert tied.ledger["bytes_up"].tolist() == once.ledger["bytes_up"].tolist()


def test_second_names() -> None:
    assert second_names(Tied((4,), 3)) == {"second.weight": "first.weight"}
    assert second_names(Once((4,), 3)) == {}
