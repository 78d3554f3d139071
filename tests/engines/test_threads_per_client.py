"""Clients that are trained with several intra-op threads each: bits that depend on this number alone, and nothing else in the run."""

import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedcohort
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.errors import UsageError
from fedcohort.core.processor import cores
from fedcohort.core.threads import intra_op_threads, one_thread
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.experiment import Experiment
from fedcohort.federation.federation import Federation, Samples
from fedcohort.models import as_model
from fedcohort.selection import Cohort, LocalLoss, UpdateNorm
from fedcohort.testing.base import bits
from fedcohort.training.local_setup import LocalSetup
from fedcohort.training.matrix_products import short_batch
from fedcohort.training.personal_models import PersonalAccuracy
from tests.experiments import blobs, cell, small

CLIENTS = np.arange(4)
TRAINING = Training(batch_size=8, epochs=2, lr=0.05)


class Residual(nn.Module):
    """A network that has scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.norm, self.head = nn.BatchNorm2d(16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.first(x)))
        logits: Tensor = self.head((x + self.second(x)).mean((2, 3)))
        return logits


class Watching(nn.Module):
    """Notes how many intra-op threads its forward passes have, in training and otherwise; Python runs it."""

    def __init__(self, training: set[int], otherwise: set[int]) -> None:
        super().__init__()
        self.layer, self.seen = nn.Linear(3 * 16 * 16, 4), (training, otherwise)

    def forward(self, x: Tensor) -> Tensor:
        self.seen[0 if self.training else 1].add(torch.get_num_threads())
        logits: Tensor = self.layer(x.flatten(1))
        return logits


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "perceptron": lambda: nn.Sequential(nn.Flatten(), nn.Linear(768, 200), nn.ReLU(), nn.Linear(200, 4)),
    "convolutions": lambda: nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.2), nn.Flatten(), nn.Linear(2048, 4)
    ),
    "residual": Residual,
}


@pytest.fixture(scope="module")
def pictures() -> Federation:
    """Clients of 40, 8, 60 and 20 images, as bytes."""
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (148, 3, 16, 16), dtype=torch.uint8, generator=draw)
    samples = Samples(images, torch.arange(148) % 4)
    offsets = np.array([0, 40, 48, 108, 128])
    shift, scale = torch.full((3, 1, 1), 120.0), torch.full((3, 1, 1), 0.01)
    return Federation(samples, offsets, samples[128:], samples[128:], ("a", "b", "c", "d"), shift, scale)


def engine_for(federation: Federation, network: Callable[[], nn.Module], **settings: Any) -> LocalEngine:
    return LocalEngine(federation, as_model(network), TRAINING, FedAvg(), 3, **settings)


def played(federation: Federation, network: Callable[[], nn.Module], **settings: Any) -> list[object]:
    """Updates of two rounds, and answers that need training."""
    with closing(engine_for(federation, network, **settings)) as engine:
        model, found = engine.initial_model(), list[object]()
        for t in (1, 2):  # scripts are made after 16 batches of a size
            updates = list(engine.train(model, t, Cohort(CLIENTS), FedAvg()))
            found += [(bits(update.state), update.report) for update in updates]
            model = updates[0].state
        questions = UpdateNorm(), PersonalAccuracy(1)
        return found + [engine.answer(model, 3, one, CLIENTS, FedAvg()).tobytes() for one in questions]


@pytest.mark.parametrize("name", NETWORKS)
def test_bits_depend_on_the_number_of_threads_of_a_client_alone(name: str, pictures: Federation) -> None:
    """Not on how many clients are trained at the same time, nor on the setting of the program that starts the run."""
    torch.manual_seed(0)
    expected = played(pictures, NETWORKS[name], plan="loop", threads_per_client=2)
    before = torch.get_num_threads()
    torch.set_num_threads(5)
    try:
        assert played(pictures, NETWORKS[name], workers=3, threads_per_client=2) == expected
        assert torch.get_num_threads() == 5
    finally:
        torch.set_num_threads(before)


def test_only_trainings_have_more_threads(pictures: Federation) -> None:
    """Those for a question, too; other answers and evaluations have the bits that they have without."""
    training, otherwise = set[int](), set[int]()
    with closing(
        engine_for(pictures, lambda: Watching(training, otherwise), threads_per_client=3, workers=2)
    ) as engine:
        model = engine.initial_model()
        training.clear(), otherwise.clear()  # type: ignore[func-returns-value]
        for clients in (CLIENTS, CLIENTS[:1]):  # a single client is trained by the calling thread
            list(engine.train(model, 1, Cohort(clients), FedAvg()))
        engine.answer(model, 1, UpdateNorm(), CLIENTS, FedAvg())
        assert training == {3}
        assert not otherwise
        engine.answer(model, 1, LocalLoss(), CLIENTS)
        engine.evaluate(model, "test")
        assert training == {3}
        assert otherwise == {1}


@pytest.mark.parametrize(("number", "left_to_pytorch"), [(1, 0), (2, 64)])
def test_no_measurement_chooses_a_library_whose_bits_may_differ(
    number: int, left_to_pytorch: int, pictures: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gradients of weights have the same bits in both libraries with one thread only."""
    monkeypatch.setattr("fedcohort.training.matrix_products._quick_for_short_batches", lambda: True)
    with intra_op_threads(number):
        assert short_batch(784) == left_to_pytorch
    with one_thread():  # as a trainer is made
        setup = LocalSetup(pictures, NETWORKS["perceptron"](), TRAINING, FedAvg(), 3, threads_per_client=number)
    assert setup.program is not None
    assert {layer.short for layer in setup.program._layers if layer.kind == "linear"} == {left_to_pytorch}


@pytest.mark.parametrize(("number", "workers"), [(1, cores()), (cores(), 1), (cores() + 5, 1)])
def test_threads_of_all_clients_have_a_core_each(number: int, workers: int, pictures: Federation) -> None:
    with closing(engine_for(pictures, Residual, threads_per_client=number)) as engine:
        assert engine.workers == workers


def test_a_run_says_its_number_of_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its hash, unless it is 1; `auto` means threads then, without a measurement."""
    monkeypatch.setattr("fedcohort.engines.plans.choose_plan", None)
    model = {"name": "mlp", "hidden": 512}
    assert small(engine={"threads_per_client": 1}).key() == small().key()
    assert len({small(engine={"threads_per_client": number}).key() for number in (1, 2, 3)}) == 3
    first = fedcohort.run(small(model=model, rounds=2), runs=tmp_path)
    run = fedcohort.run(small(model=model, rounds=2, engine={"threads_per_client": 2, "plan": "auto"}), runs=tmp_path)
    assert run.experiment.engine.plan == "threads"
    assert run.experiment.engine.threads_per_client == 2
    assert (run.path / "model.safetensors").read_bytes() != (first.path / "model.safetensors").read_bytes()


def test_runs_at_the_same_time_share_the_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from fedcohort.experiment.given_objects import Given
    from fedcohort.runs import parallel_runs

    seen: list[int] = []
    monkeypatch.setattr(parallel_runs, "run_cell", lambda cell, *_, **__: seen.append(cell.experiment.engine.workers))

    class Process:
        number, quiet = 0, True

        class over:  # noqa: N801
            value = 0

        def given(self, _: int) -> Given:
            return Given(data=blobs())

    monkeypatch.setattr(parallel_runs, "_process", [Process()])
    for number in (1, 2, 8):
        own = cell(small(engine={"threads_per_client": number}))
        parallel_runs._play(own, 0, tmp_path, 4, False)
    assert seen == [4, 2, 1]


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ({"plan": "stacked"}, "engine.plan = 'stacked' trains several clients in each call; use the plan 'threads', or leave it out"),
        ({"plan": "means", "name": "ray"}, "engine.plan = 'means' trains several clients in each call"),
        ({"device": "cuda:1"}, "engine.device = 'cuda:1' trains clients on a GPU; use the device 'cpu', or leave it out"),
    ],
)  # fmt: skip
def test_where_clients_have_no_threads_of_their_own_the_number_is_refused(engine: Any, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        Experiment(engine={"threads_per_client": 4, **engine})
    assert str(raised.value).startswith(f"engine.threads_per_client = 4: {message}")


def test_a_gpu_that_is_found_later_is_refused_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(UsageError, match=r"threads_per_client = 2: engine\.device = 'cuda' trains clients on a GPU"):
        fedcohort.run(small(engine={"threads_per_client": 2, "device": "auto"}), runs=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="PyTorch has no TorchScript for this Python")
@pytest.mark.parametrize(("number", "shares"), [(1, True), (2, False)])
def test_idle_threads_take_no_parts_of_their_work(number: int, shares: bool, pictures: Federation) -> None:
    """They have one intra-op thread each, and other bits."""
    module = NETWORKS["convolutions"]()
    setup = LocalSetup(pictures, module, TRAINING, FedAvg(), 3, threads_per_client=number)
    setup.share_work(torch.tensor(4))
    assert setup.shares_work is shares
