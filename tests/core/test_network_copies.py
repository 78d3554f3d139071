"""Copies of networks that keep tensors which autograd has computed."""

import copy
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from fedcohort.core.errors import UsageError
from fedcohort.core.network_copies import copy_of
from fedcohort.models import as_model
from fedcohort.training.random_layers import draws_at_random


class Normed(nn.Module):
    """The older weight norm of PyTorch, Dropout, and an activation that is kept."""

    def __init__(self) -> None:
        super().__init__()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # there is a newer one
            self.layer = nn.utils.weight_norm(nn.Linear(6, 3))
        self.dropout = nn.Dropout(0.5)
        self.kept: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.kept = self.layer(x)
        outputs: Tensor = self.dropout(self.kept)
        return outputs


def pruned() -> nn.Module:
    layer = nn.Linear(6, 3)
    prune.random_unstructured(layer, "weight", 0.5)
    return layer


@pytest.mark.parametrize("make", [Normed, pruned])
def test_copies_compute_the_same_and_share_nothing(make: type[nn.Module]) -> None:
    module, inputs = make().eval(), torch.ones(2, 6)
    expected = module(inputs)
    for twin in (copy_of(module), copy.deepcopy(as_model(module)).build((6,), 3)):
        assert torch.equal(twin(inputs), expected)
        twin(inputs).sum().backward()
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter.zero_()
        assert torch.equal(module(inputs), expected)
        assert all(parameter.grad is None for parameter in module.parameters())


def test_a_network_with_computed_weights_draws() -> None:
    assert draws_at_random(Normed(), torch.ones(2, 6))
    assert not draws_at_random(pruned(), torch.ones(2, 6))


class Open(nn.Linear):
    """An open file cannot be copied."""

    def __init__(self) -> None:
        super().__init__(6, 3)
        self.file = Path(__file__).open()  # noqa: SIM115


def test_what_cannot_be_copied_is_refused_in_one_line() -> None:
    module = Open()
    with pytest.raises(
        UsageError, match=r"^model = Open: cannot be copied \(TypeError: .*\); give its class, or a function .*$"
    ):
        as_model(module).build((6,), 3)
    assert draws_at_random(module, torch.ones(2, 6))
    module.file.close()
