"""Evaluations and answers by a network's program: the bits of the network itself, in few calls."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.federation.federation import Federation, Samples
from fedcohort.models import as_model
from fedcohort.selection import Cohort, LocalLoss
from fedcohort.testing.base import bits
from fedcohort.training import evaluation, local_setup
from fedcohort.training.programs import plain_network
from fedcohort.training.programs.plain_network import program_of
from tests.training.programs.test_plain_network import NETWORKS, network

SIZES = [5, 40, 300, 1, 131, 64, 64]


def federation(shape: tuple[int, ...], tested: int = 300) -> Federation:
    draw = np.random.default_rng(0)
    count = sum(SIZES)
    features = torch.from_numpy(draw.standard_normal((count + tested, *shape)).astype(np.float32))
    labels = torch.from_numpy(draw.integers(0, 4, count + tested))
    train, test = Samples(features[:count], labels[:count]), Samples(features[count:], labels[count:])
    ones = [1] * (len(shape) - 1)
    shift, scale = torch.full((shape[0], *ones), 0.1), torch.full((shape[0], *ones), 0.7)
    return Federation(train, np.cumsum([0, *SIZES]), test[:77], test, ("a", "b", "c", "d"), shift, scale)


def results(module: nn.Module, data: Federation, workers: int = 2, **settings: Any) -> list[Any]:
    """Everything that an engine says about a model."""
    engine = LocalEngine(data, as_model(module), Training(**settings), FedAvg(), 0, workers)
    model = engine.initial_model()
    found: list[Any] = [engine.answer(model, 1, LocalLoss(), np.arange(len(SIZES))).tobytes()]
    for split in ("test", "validation"):
        one = engine.evaluate(model, split)
        arrays = (one.right, one.total, one.losses, one.hits)
        found += [one.loss, *(array.tobytes() for array in arrays), *(str(array.dtype) for array in arrays)]
    engine.close()
    return found


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_have_the_bits_of_the_network(name: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, shape = network(name)
    data = federation(shape)
    with_it = results(module, data, precision=precision)
    monkeypatch.setattr(local_setup.LocalSetup, "outputs_program", lambda _: None)
    assert results(module, data, precision=precision) == with_it


def test_outputs_without_torchscript(monkeypatch: pytest.MonkeyPatch) -> None:
    module, shape = network("convolutions")
    data = federation(shape)
    with_it = results(module, data)
    monkeypatch.setattr(plain_network, "_without_python", dict)
    assert results(module, data, workers=1) == with_it


class Own(nn.Module):
    """A network for images as people write it, with group norms and average pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm1, self.norm2 = nn.GroupNorm(4, 8), nn.GroupNorm(2, 8)
        self.head = nn.Linear(72, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.avg_pool2d(functional.relu(self.norm1(self.conv1(x))), 2)
        x = functional.max_pool2d(functional.relu(self.norm2(self.conv2(x))), 2)
        logits: Tensor = self.head(torch.flatten(x, 1))
        return logits


def test_norms_and_average_pooling_in_own_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    module, data = Own(), federation((3, 12, 12))
    assert program_of(copy.deepcopy(module), (3, 12, 12)) is not None
    with_it = results(module, data), learned(module, data)
    monkeypatch.setattr(local_setup, "program_of", lambda *_: None)
    assert (results(module, data), learned(module, data)) == with_it


def learned(module: nn.Module, data: Federation) -> list[Any]:
    """The models that clients learn."""
    engine = LocalEngine(data, as_model(module), Training(batch_size=8, lr=0.05), FedAvg(), 0, 2)
    updates = engine.train(engine.initial_model(), 1, Cohort(np.arange(len(SIZES))), FedAvg())
    found = [bits(update.state) for update in updates]
    engine.close()
    return found


class Watched(nn.Module):
    """A perceptron as people write it."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(432, 6), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.two(torch.relu(self.one(x.flatten(1))))
        return logits


def test_blocks_and_clients_share_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    data, calls = federation((3, 12, 12), tested=1000), []
    real = plain_network.Program.outputs

    def counted(self: plain_network.Program, inputs: Tensor, edges: list[int]) -> Tensor:
        calls.append(len(edges) - 1)
        return real(self, inputs, edges)

    monkeypatch.setattr(plain_network.Program, "outputs", counted)
    engine = LocalEngine(data, as_model(Watched), Training(), FedAvg(), 0, 1)
    model = engine.initial_model()
    calls.clear()
    engine.evaluate(model, "test")
    assert calls == [8]
    calls.clear()
    engine.answer(model, 1, LocalLoss(), np.array([4, 5, 0, 1]))
    assert calls == [5]  # a client of 131 samples has two blocks
    monkeypatch.setattr(evaluation, "TOGETHER", 1)
    calls.clear()
    engine.evaluate(model, "test")
    assert calls == [1] * 8
    calls.clear()
    module = engine._trainers.get()
    module.module.register_forward_hook(lambda *_: None)
    engine._trainers.put(module)
    engine.evaluate(model, "test")
    assert calls == []
    engine.close()


def test_probabilities_are_evaluated_block_by_block() -> None:
    module, shape = network("perceptron")
    engine = LocalEngine(federation(shape), as_model(module), Training(), FedAvg(), 0, 1)
    model = engine.initial_model()
    whole = engine.evaluate_beside(model, "test", predictions=True)()
    assert whole.predictions is not None
    assert whole.predictions.shape == (300, 4)
    assert whole.losses.tobytes() == engine.evaluate(model, "test").losses.tobytes()
    engine.close()
