"""Networks recognized by what they compute: the bits of autograd for every one of them, and only for rows of layers."""

import copy
import itertools
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedcohort
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.federation.federation import Federation, Samples
from fedcohort.models import as_model
from fedcohort.selection import Cohort
from fedcohort.testing.base import bits
from fedcohort.training import local_setup
from fedcohort.training.code_reading.forward_code import only_computes
from fedcohort.training.local_setup import LocalSetup
from fedcohort.training.matrix_products import quick_products
from fedcohort.training.programs import plain_network
from fedcohort.training.programs.network_rows import row_of
from fedcohort.training.programs.plain_network import program_of
from fedcohort.training.scripts.network_scripts import Scripts
from fedcohort.training.stack import stacked_networks
from fedcohort.training.stack.stacked_networks import Chain, Vectorized, network_of
from tests.experiments import small
from tests.repetitions import slow_after, slow_unless
from tests.training.example_networks import (
    HIDDEN,
    KEPT,
    OTHERS,
    ROWS,
    SHAPE,
    ByHelpers,
    ByNumbers,
    ByShape,
    Chance,
    Convolutions,
    Nested,
    Perceptron,
    Residual,
    Viewing,
)
from tests.training.programs.test_plain_network import by_autograd


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
    """Train by autograd and by vmap."""
    monkeypatch.setattr(local_setup, "program_of", lambda *_: None)
    monkeypatch.setattr(stacked_networks, "program_of", lambda *_: None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ROWS)
def test_recognized_networks_have_the_bits_of_autograd(name: str, dtype: torch.dtype) -> None:
    setup = LocalSetup(
        images(), built(ROWS[name]), Training(precision="float64" if dtype == torch.float64 else "float32"), FedAvg(), 0
    )
    module, program = setup.module, setup.program
    assert program is not None
    for size, weighted in itertools.product((1, 2, 5, 16, 40), (False, True)):
        inputs = torch.randn(size, *SHAPE[1:], SHAPE[0], dtype=dtype).permute(0, 3, 1, 2)
        labels = torch.randint(0, 10, (size,))
        weights = torch.rand(size, dtype=torch.float64) if weighted else None
        losses, hits, gradients = by_autograd(module, inputs, labels, weights, size + 1)
        found, right, own = program.gradients(inputs.clone(), labels, weights, size + 1)
        assert torch.equal(found, losses)
        assert right == hits
        assert all(map(torch.equal, own, gradients))
        assert [g.stride() for g in own] == [p.stride() for p in module.parameters()]


def test_a_class_of_ones_own_has_the_program_of_a_sequential() -> None:
    """So that it is as fast."""

    def layers(make: Callable[[], nn.Module]) -> list[Any]:
        program = LocalSetup(images(), built(make), Training(), FedAvg(), 0).program
        assert program is not None
        return program._layers

    def convolutions() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 8, 3, padding=1), nn.ReLU(),
            nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32, 10),
        )  # fmt: skip

    assert layers(Perceptron) == layers(perceptron)
    assert layers(Convolutions) == layers(Viewing) == layers(convolutions)


class Averaging(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 6, 3), nn.Linear(6, 10)

    def forward(self, x: Tensor) -> Tensor:
        maps = nn.functional.adaptive_avg_pool2d(nn.functional.relu(self.first(x)), (1, 1))
        return self.last(nn.functional.dropout(maps.flatten(1), 0.3, self.training))


@pytest.mark.parametrize("make", [Chance, Averaging], ids=lambda make: make.__name__)
def test_functions_that_drop_and_average_are_recognized(make: type[nn.Module], monkeypatch: pytest.MonkeyPatch) -> None:
    """That the bits are those of autograd is decided by a trial in :func:`program_of`, and tested here once more."""
    found = []
    for recognized in (True, False):
        if not recognized:
            unrecognized(monkeypatch)
            monkeypatch.setattr(Scripts, "possible", False)
        engine = LocalEngine(images(), as_model(make), Training(batch_size=16), FedAvg(), 0, 2)
        updates = list(engine.train(engine.initial_model(), 1, Cohort(np.arange(4)), FedAvg()))
        engine.close()
        assert engine.takes_turns is not recognized
        found.append([(bits(update.state), update.report) for update in updates])
    assert found[0] == found[1]


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10))


@pytest.mark.parametrize("name", OTHERS)
def test_other_networks_are_not_recognized(name: str) -> None:
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
    effects = ("counts in Python", "keeps something", "inherits what keeps something", "prints", "draws")
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


SETTINGS: tuple[dict[str, Any], ...] = (
    {}, {"momentum": 0.0}, {"optimizer": "adam"}, {"clip_norm": 0.5}, {"augment": "flip_shift"},
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "settings"),
    slow_unless(
        lambda both: both[0] == "perceptron" or not both[1] or both == ("nested", SETTINGS[1]),
        itertools.product(("perceptron", "convolutions", "view of channels", "without pooling", "nested"), SETTINGS),
    ),
)
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
    "make",
    slow_after(3, [Perceptron, Convolutions, Residual, ByNumbers, Viewing, Nested, Chance]),
    ids=lambda make: make.__name__,
)
def test_runs_have_the_same_digest(
    make: type[nn.Module], plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Except for perceptrons in stacks, which round as an ``nn.Sequential`` of the same layers does."""
    calls: list[int] = []
    for name in ("descend", "descend_series"):
        whole = getattr(plain_network.Program, name)

        def counted(*given: Any, whole: Any = whole, **settings: Any) -> Any:
            calls.append(1)
            return whole(*given, **settings)

        monkeypatch.setattr(plain_network.Program, name, counted)
    odd = (
        pytest.warns(UserWarning, match="clients are trained by threads")
        if plan == "stacked" and make is Chance
        else nullcontext()
    )
    with odd:
        recognized = fedcohort.run(digits(plan), model=make, runs=tmp_path / "recognized")
    assert bool(calls) == (make is Chance or (plan == "threads" and make is not Residual))
    is_chain = plan == "stacked" and issubclass(make, Perceptron) and make not in (Chance, Residual)
    if is_chain:
        other = fedcohort.run(digits(plan), model=perceptron, runs=tmp_path / "other")
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
    """Their rounding changed when their layers were recognized; that of all stacked runs, when stacks were cut by size."""
    from fedcohort.experiment.given_objects import Given
    from fedcohort.models import Mlp
    from fedcohort.runs.run_data import key_of

    own, builtin = Given(model=Perceptron), Given(model=Mlp)
    assert key_of(digits(), own) == digits().key(own.key())
    assert key_of(digits("stacked"), builtin) == digits("stacked").key(f"{builtin.key()}|stacks by size")
    assert key_of(digits("stacked"), Given()) == digits("stacked").key("stacks by size")
    assert key_of(digits("stacked"), own) == digits("stacked").key(
        f"{own.key()}|stacks by size|rows of layers in stacks"
    )


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
    inputs = torch.randn(3, *SHAPE[1:], SHAPE[0]).permute(0, 3, 1, 2)
    for module in (setup.module, copy.deepcopy(setup.module)):
        torch.testing.assert_close(module(inputs), built(make)(inputs.clone(memory_format=torch.contiguous_format)))
    assert (setup.program is not None) == (make is Viewing)
    assert list(setup.entries) == list(make().state_dict())
    assert type(setup.module).__name__ == make.__name__
    assert isinstance(setup.module, make)
    assert inputs.view_as(inputs).shape == inputs.shape
    with pytest.raises(RuntimeError, match="view size"):
        inputs.expand(3, 2, 8, 8).view(3, -1)
    assert type(LocalSetup(images(), built(Convolutions), Training(), FedAvg(), 0).module) is Convolutions
