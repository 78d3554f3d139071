"""Copies of networks that keep tensors which autograd has computed."""

import copy
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

import fedcohort
from fedcohort.core.errors import UsageError
from fedcohort.core.network_copies import copy_of
from fedcohort.models import as_model
from fedcohort.training.networks.random_layers import draws_at_random
from tests.experiments import small


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


class Compiled(nn.Module):
    """A part is compiled; one of its parameters is not trained."""

    def __init__(self) -> None:
        super().__init__()
        part = nn.Linear(6, 4)
        part.bias.requires_grad_(False)
        self.part = torch.jit.script(part)
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.layer(self.part(x))
        return outputs


def compiled() -> nn.Module:
    module: nn.Module = torch.jit.script(nn.Linear(6, 3))
    return module


@pytest.mark.parametrize("make", [Normed, pruned, Compiled, compiled])
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


@pytest.mark.parametrize("make", [Compiled, compiled])
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
def test_parameters_of_compiled_parts_are_trained_in_copies(make: type[nn.Module], mode: type[torch.no_grad]) -> None:
    module = make()
    with mode():
        twin = copy_of(module)
    trained = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
    assert [name for name, parameter in twin.named_parameters() if parameter.requires_grad] == trained
    twin(torch.ones(2, 6)).sum().backward()
    assert [name for name, parameter in twin.named_parameters() if parameter.grad is not None] == trained


def test_a_compiled_network_learns_what_it_would_learn_otherwise(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    plain = fedcohort.run(small(rounds=2), model=network, runs=tmp_path / "plain").rounds
    compiled = fedcohort.run(small(rounds=2), model=torch.jit.script(network), runs=tmp_path / "compiled").rounds
    assert compiled.test_loss.to_list() == plain.test_loss.to_list()
    assert plain.test_loss.iloc[1] < plain.test_loss.iloc[0]


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
