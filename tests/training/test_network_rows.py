"""Networks recognized by what they compute: the bits of autograd for every one of them, and only for rows of layers."""

import copy
import itertools
import math
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import relu

import fedcohort
from fedcohort.algorithms.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.federation.federation import Federation, Samples
from fedcohort.models import as_model
from fedcohort.selection import Cohort
from fedcohort.testing.base import bits
from fedcohort.training import network_rows, plain_network
from fedcohort.training.forward_code import only_computes
from fedcohort.training.local_setup import LocalSetup
from fedcohort.training.matrix_products import quick_products
from fedcohort.training.network_rows import row_of
from fedcohort.training.plain_network import program_of
from fedcohort.training.stack.stacked_networks import Chain, Vectorized, network_of
from tests.experiments import small
from tests.training.test_plain_network import by_autograd

SHAPE = (1, 8, 8)
HIDDEN = 20


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, HIDDEN), nn.Linear(HIDDEN, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(functional.relu(self.first(x.flatten(1))))


class BySize(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(x.view(x.size(0), -1))))


class ByShape(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        batch, *sizes = x.shape
        return self.last(self.first(x.reshape((batch, math.prod(sizes)))).relu())


class ByNumbers(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        assert x.dim() == 4
        assert x.shape[1:] == SHAPE, "images"
        return self.last(relu(self.first(x.view(-1, 64)), inplace=True))


class ByHelpers(Perceptron):
    def __init__(self) -> None:
        super().__init__()
        self.activation = functional.relu

    def hidden(self, x: Tensor) -> Tensor:
        return self.activation(self.first(flat(x)))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.hidden(x))


def flat(x: Tensor) -> Tensor:
    return torch.flatten(x, start_dim=1)


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(1, 6, 3, padding=1), nn.Conv2d(6, 8, 3, padding=1)
        self.pool, self.last = nn.MaxPool2d(2), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(functional.relu(self.one(x)))
        x = functional.relu(functional.max_pool2d(self.two(x), kernel_size=2))
        return self.last(torch.flatten(x, 1))


class Viewing(Convolutions):
    """Needs channels first."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(functional.relu(self.one(x)))
        x = self.pool(functional.relu(self.two(x)))
        return self.last(x.view(-1, 32))


class WithoutPooling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.last = nn.Conv2d(1, 4, 3, stride=2), nn.Linear(36, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(functional.relu(self.one(x)).flatten(1))


class Laid(WithoutPooling):
    """Says which layout it needs."""

    def forward(self, x: Tensor) -> Tensor:
        return self.last(functional.relu(self.one(x)).contiguous().view(x.size(0), -1))


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.ReLU(inplace=True), nn.Sequential(nn.MaxPool2d(2), nn.Identity())
        )
        self.head = WithHead()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class WithHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(36, 12), nn.Linear(12, 12)])
        self.last, self.drop = nn.Linear(12, 10), nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        for layer in self.layers:
            x = self.drop(functional.relu(layer(x)))
        return self.last(functional.dropout(x, 0.0, self.training))


class Own(nn.Sequential):
    """A class of one's own."""


ROWS: dict[str, Callable[[], nn.Module]] = {
    "perceptron": Perceptron,
    "view by size": BySize,
    "reshape by shape": ByShape,
    "view by numbers": ByNumbers,
    "helpers": ByHelpers,
    "convolutions": Convolutions,
    "view of channels": Viewing,
    "without pooling": WithoutPooling,
    "contiguous": Laid,
    "nested": Nested,
    "own class of Sequential": lambda: Own(nn.Flatten(), nn.Linear(64, 10)),
    "module in Sequential": lambda: nn.Sequential(Perceptron(), nn.ReLU(), nn.Linear(10, 10)),
}


class Residual(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        x = self.last(self.first(x.flatten(1)))
        return x + functional.relu(x)


class Branching(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return super().forward(-x if x.sum() > 0 else x)


class BranchingByBatch(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x.flatten(1))
        return self.last(hidden if x.shape[0] > 10 else functional.relu(hidden))


class BranchingByLength(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x.flatten(1))
        return self.last(hidden if len(x) > 10 else functional.relu(hidden))


class ForTwo(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.view(2, -1))


class BranchingByTraining(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x.flatten(1))
        return self.last(functional.relu(hidden) if self.training else hidden)


class Chance(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        return self.last(functional.dropout(functional.relu(self.first(x.flatten(1))), 0.5, self.training))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(64, 64), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layer(functional.relu(self.layer(x.flatten(1)))))


class OneMore(Perceptron):
    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(1))


class Unused(Perceptron):
    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Linear(3, 3)


class Constant(Perceptron):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(1))


class Counting(Constant):
    def forward(self, x: Tensor) -> Tensor:
        self.mean += 1
        return super().forward(x)


class CountingInPython(Perceptron):
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x)


KEPT: list[int] = []


class Keeping(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        KEPT.append(1)
        return self.last(functional.relu(self.first(x.flatten(1))))


class Inherits(Keeping):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)


class Printing(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        print("forward")
        return self.last(functional.relu(self.first(x.flatten(1))))


class Drawing(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        depth = int(np.random.randint(1, 2))  # noqa: NPY002
        return self.last(functional.relu(self.first(x.flatten(depth))))


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.relu(x)

    @staticmethod
    def backward(ctx: Any, *delta: Tensor) -> Tensor:
        return delta[0]


class OwnGradient(Perceptron):
    def __init__(self) -> None:
        super().__init__()
        self.activation = StraightThrough.apply

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.activation(self.first(x.flatten(1))))


class OwnGradientUnseen(Perceptron):
    """The code does not show it, only the run."""

    activation: Any = torch.relu

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.activation(self.first(x.flatten(1))))


class Frozen(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            x = self.first(x.flatten(1))
        return self.last(functional.relu(x))


class Detached(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        return self.last(functional.relu(self.first(x.flatten(1)).detach()))


class Doubling(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x.flatten(1))
        x.register_hook(lambda gradient: 2 * gradient)
        return self.last(functional.relu(x))


class Clipping(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        self.first.weight.data.clamp_(-1, 1)
        return self.last(functional.relu(self.first(x.flatten(1))))


class Another(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        hidden = functional.relu(self.first(x.flatten(1)))
        self.last(hidden)
        return hidden


class Catching(Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        try:
            x = 2 * x
        except Exception:
            x = x.flatten(1)
        return self.last(functional.relu(self.first(x.flatten(1))))


class ByInstance(Perceptron):
    def __init__(self) -> None:
        super().__init__()
        self.forward = lambda x: self.last(self.first(x.flatten(1)))  # type: ignore[method-assign]


def watched() -> nn.Module:
    module = Nested()
    module.head.layers[0].register_forward_hook(lambda *_: None)
    return module


def tied() -> nn.Module:
    module = WithHead()
    module.layers[0], module.last = nn.Linear(64, 12), nn.Linear(12, 12)
    module.last.weight = module.layers[1].weight
    return module


OTHERS: dict[str, Callable[[], nn.Module]] = {
    "residual": Residual,
    "branch by values": Branching,
    "branch by batch": BranchingByBatch,
    "branch by length": BranchingByLength,
    "two samples": ForTwo,
    "branch by training": BranchingByTraining,
    "Dropout": Chance,
    "a layer twice": Twice,
    "a weight twice": tied,
    "a parameter more": OneMore,
    "a layer that is not used": Unused,
    "a buffer": Constant,
    "a buffer that changes": Counting,
    "counts in Python": CountingInPython,
    "keeps something": Keeping,
    "inherits what keeps something": Inherits,
    "prints": Printing,
    "draws": Drawing,
    "own gradient": OwnGradient,
    "own gradient, class attribute": OwnGradientUnseen,
    "without gradient": Frozen,
    "detached": Detached,
    "hook on activations": Doubling,
    "changes parameters": Clipping,
    "returns another result": Another,
    "catches errors": Catching,
    "forward of the instance": ByInstance,
    "hook on a layer": watched,
}


def laid(module: nn.Module) -> nn.Module:
    return quick_products(module).to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def built(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return make()


def images(seed: int = 0) -> Federation:
    """Clients of 5, 40, 300, 1 and no images."""
    sizes = [5, 40, 300, 1, 0]
    draw = np.random.default_rng(seed)
    features = torch.from_numpy(draw.integers(0, 256, (sum(sizes), *SHAPE), dtype=np.uint8))
    samples = Samples(features, torch.from_numpy(draw.integers(0, 10, sum(sizes))))
    shift, scale = torch.full((1, 1, 1), 100.0), torch.full((1, 1, 1), 0.02)
    classes = tuple(map(str, range(10)))
    return Federation(samples, np.cumsum([0, *sizes]), samples[:4], samples[:4], classes, shift, scale)


def unrecognized(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_rows, "traced_row", lambda *_: None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ROWS)
def test_recognized_networks_have_the_bits_of_autograd(name: str, dtype: torch.dtype) -> None:
    setup = LocalSetup(
        images(), built(ROWS[name]), Training(precision="float64" if dtype == torch.float64 else "float32"), FedAvg(), 0
    )
    module, program = setup.module, setup.program
    assert program is not None
    for size, weighted in itertools.product((1, 2, 5, 16, 40), (False, True)):
        inputs = torch.randn(size, *SHAPE, dtype=dtype).contiguous(memory_format=torch.channels_last)
        labels = torch.randint(0, 10, (size,))
        weights = torch.rand(size, dtype=torch.float64) if weighted else None
        losses, hits, gradients = by_autograd(module, inputs, labels, weights, size + 1)
        found, right, own = program.gradients(inputs.clone(), labels, weights, size + 1)
        assert torch.equal(found, losses)
        assert right == hits
        assert all(map(torch.equal, own, gradients))
        assert [g.stride() for g in own] == [p.stride() for p in module.parameters()]


@pytest.mark.parametrize("name", OTHERS)
def test_other_networks_are_not_recognized(name: str) -> None:
    if name == "own gradient, class attribute":
        OwnGradientUnseen.activation = staticmethod(StraightThrough.apply)
    module = laid(built(OTHERS[name]))
    assert program_of(module, SHAPE) is None
    assert not isinstance(network_of(module, module.state_dict(), SHAPE), Chain)


@pytest.mark.parametrize("name", [*ROWS, *OTHERS])
def test_nothing_is_changed_by_looking(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither the network nor a generator nor what its code counts."""
    module = laid(built((ROWS | OTHERS)[name]))
    before, attributes = copy.deepcopy(module.state_dict()), [vars(part).copy() for part in module.modules()]
    layouts = [p.stride() for p in module.parameters()]
    KEPT.clear()
    states = torch.random.get_rng_state(), np.random.get_state()[1].copy(), threading.active_count()  # type: ignore[index]  # noqa: NPY002
    module.eval()
    row_of(module, SHAPE)
    program_of(module, SHAPE)
    assert not module.training
    assert torch.equal(torch.random.get_rng_state(), states[0])
    assert np.array_equal(np.random.get_state()[1], states[1])  # type: ignore[index]  # noqa: NPY002
    assert list(module.state_dict()) == list(before)
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    assert [p.stride() for p in module.parameters()] == layouts
    for part, own in zip(module.modules(), attributes, strict=True):
        assert {key: value for key, value in vars(part).items() if key != "training"} == {
            key: value for key, value in own.items() if key != "training"
        }
    assert not KEPT
    assert not capsys.readouterr().out


def test_layers_of_the_network_are_the_layers_themselves() -> None:
    module = Nested()
    row = row_of(module, SHAPE)
    assert row is not None
    assert [type(layer).__name__ for layer in row] == [
        "Conv2d", "ReLU", "MaxPool2d", "Flatten", "Linear", "ReLU", "Linear", "ReLU", "Linear",
    ]  # fmt: skip
    assert row[0] is module.body[0]
    assert row[4] is module.head.layers[0]


def test_code_that_does_more_than_computing() -> None:
    assert all(only_computes(build()) for build in ROWS.values())
    effects = (
        "counts in Python",
        "keeps something",
        "inherits what keeps something",
        "prints",
        "draws",
        "a buffer that changes",
    )
    assert not any(only_computes(OTHERS[name]()) for name in effects)


def test_other_threads_run_their_networks_meanwhile() -> None:
    """Layers that other threads run do not become part of the row."""
    other, stop, failures = Convolutions(), threading.Event(), []

    def work() -> None:
        while not stop.is_set():
            try:
                other(torch.zeros(3, *SHAPE))
            except Exception as error:
                failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        rows = [row_of(Nested(), SHAPE) for _ in range(20)]
    finally:
        stop.set()
        thread.join()
    assert not failures
    assert all(row is not None and len(row) == 9 for row in rows)


@pytest.mark.parametrize(
    "settings", [{}, {"momentum": 0.0}, {"optimizer": "adam"}, {"clip_norm": 0.5}, {"augment": "crop_flip"}]
)
@pytest.mark.parametrize("name", ["perceptron", "convolutions", "view of channels", "without pooling", "nested"])
def test_clients_learn_the_same_bits(name: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def trained(expected: bool) -> list[Any]:
        training = Training(**{"batch_size": 8, "epochs": 2, **settings})
        engine = LocalEngine(images(), as_model(built(ROWS[name])), training, FedAvg(), 3, 2)
        with engine._trainer() as trainer:
            assert (trainer.program is not None) == expected
        updates = engine.train(engine.initial_model(), 1, Cohort(np.arange(5)), FedAvg())
        told = [(bits(update.state), update.report, update.steps, update.passes) for update in updates]
        engine.close()
        return told

    recognized = trained(True)
    unrecognized(monkeypatch)
    assert trained(False) == recognized


def digits(plan: str = "threads") -> fedcohort.Experiment:
    return small(rounds=2, federation={"clients": 5}, selection={"name": "uniform", "k": 3}, engine={"plan": plan})


@pytest.mark.parametrize("plan", ["threads", "stacked"])
@pytest.mark.parametrize(
    "make", [Perceptron, ByNumbers, Convolutions, Viewing, Nested, Chance, Residual], ids=lambda make: make.__name__
)
def test_runs_have_the_same_digest(
    make: type[nn.Module], plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Except for perceptrons in stacks, which round as an ``nn.Sequential`` of the same layers does."""
    calls: list[int] = []
    whole = plain_network.Program.descend
    monkeypatch.setattr(
        plain_network.Program,
        "descend",
        lambda *given: calls.append(1) or whole(*given),  # type: ignore[func-returns-value]
    )
    odd = (
        pytest.warns(UserWarning, match="clients are trained by threads")
        if plan == "stacked" and make is Chance
        else nullcontext()
    )
    with odd:
        recognized = fedcohort.run(digits(plan), model=make, runs=tmp_path / "recognized")
    assert bool(calls) == (plan == "threads" and make not in (Chance, Residual))
    is_chain = plan == "stacked" and issubclass(make, Perceptron) and make not in (Chance, Residual)
    if is_chain:
        layers = lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10))  # noqa: E731
        other = fedcohort.run(digits(plan), model=layers, runs=tmp_path / "other")
        assert recognized.rounds["test_loss"].tolist() == other.rounds["test_loss"].tolist()
        return
    unrecognized(monkeypatch)
    calls.clear()
    with odd:
        other = fedcohort.run(digits(plan), model=make, runs=tmp_path / "other")
    assert not calls
    assert recognized.digest() == other.digest()


@pytest.mark.parametrize("make", [Perceptron, ByShape, ByHelpers], ids=lambda make: make.__name__)
def test_perceptrons_are_chains_in_stacks(make: type[nn.Module]) -> None:
    module = make()
    chain = network_of(module, module.state_dict(), SHAPE)
    assert isinstance(chain, Chain)
    assert chain.parameters == ("first.weight", "first.bias", "last.weight", "last.bias")
    inputs = torch.randn(1, 6, *SHAPE)
    stacked = {name: value[None] for name, value in module.state_dict().items()}
    torch.testing.assert_close(chain.logits(stacked, inputs)[0], module(inputs[0]))
    vectorized = Vectorized(module, SHAPE)
    both = [network.gradients(stacked, inputs, torch.ones_like) for network in (chain, vectorized)]
    torch.testing.assert_close(*both)


def test_stacked_runs_of_own_networks_have_names_of_their_own(tmp_path: Path) -> None:
    """Their rounding changed when their layers were recognized."""
    from fedcohort.models import Mlp
    from fedcohort.runs.given_objects import Given
    from fedcohort.runs.run_data import key_of

    own, builtin = Given(model=Perceptron), Given(model=Mlp)
    assert key_of(digits(), own) == digits().key(own.key())
    assert key_of(digits("stacked"), builtin) == digits("stacked").key(builtin.key())
    assert key_of(digits("stacked"), Given()) == digits("stacked").key()
    assert key_of(digits("stacked"), own) != digits("stacked").key(own.key())


def test_dropout_that_drops_nothing_is_stacked() -> None:
    chain = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Dropout(0.0), nn.ReLU(), nn.Linear(5, 10))
    assert isinstance(network_of(chain, chain.state_dict(), SHAPE), Chain)
    other = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Dropout(0.0), nn.Tanh(), nn.Linear(5, 10)).train()
    network = network_of(other, other.state_dict(), SHAPE)
    assert isinstance(network, Vectorized)
    inputs = torch.randn(1, 6, *SHAPE)
    stacked = {name: value[None] for name, value in other.state_dict().items()}
    torch.testing.assert_close(network.logits(stacked, inputs)[0], other(inputs[0]))
    assert other[2].training


class ViewingAndAdding(Viewing):
    """Needs channels first, and is no row of layers."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + 0.0)


@pytest.mark.parametrize("make", [Viewing, ViewingAndAdding])
def test_a_network_that_needs_channels_first_is_evaluated_and_trained_alike(make: type[nn.Module]) -> None:
    """``view`` of the outputs of a convolution does not work with channels last."""
    setup = LocalSetup(images(), built(make), Training(), FedAvg(), 0)
    inputs = torch.randn(3, *SHAPE).contiguous(memory_format=torch.channels_last)
    for module in (setup.module, copy.deepcopy(setup.module)):
        torch.testing.assert_close(module(inputs), built(make)(inputs.contiguous()))
    assert (setup.program is not None) == (make is Viewing)
    assert list(setup.entries) == list(make().state_dict())
    assert type(setup.module).__name__ == make.__name__
    assert isinstance(setup.module, make)
    assert inputs.view_as(inputs).shape == inputs.shape
    with pytest.raises(RuntimeError, match="view size"):
        inputs.expand(3, 2, 8, 8).view(3, -1)
    assert type(LocalSetup(images(), built(Convolutions), Training(), FedAvg(), 0).module) is Convolutions
