"""Clients that are trained several in one call learn the bits of clients that are trained one at a time."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedcohort.algorithms import Algorithm, Members, Problem, Tensors, Update
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.methods.fednova import FedNova
from fedcohort.algorithms.methods.fedprox import FedProx
from fedcohort.algorithms.methods.scaffold import Scaffold
from fedcohort.algorithms.training_settings import Training
from fedcohort.algorithms.updates import is_finite
from fedcohort.engines import work_splitting
from fedcohort.engines.base import ClientError
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.engines.work_splitting import series_of_clients
from fedcohort.models import as_model
from fedcohort.selection import Cohort
from fedcohort.testing.base import bits
from fedcohort.training import client_series
from fedcohort.training.client_series import ClientSeries
from fedcohort.training.programs.plain_network import Program
from tests.training.example_networks import HeadFirst
from tests.training.programs.test_plain_network import network
from tests.training.test_outputs_of_programs import SIZES, federation

ROUNDS = 3

WIDE = nn.Sequential(nn.Linear(704, 100), nn.ReLU(), nn.Linear(100, 4))
"""A network whose products are large enough for oneDNN, and whose samples begin at multiples of 64 bytes."""
DEEP = nn.Sequential(nn.Linear(704, 120), nn.Tanh(), nn.Linear(120, 704, bias=False), nn.GELU(), nn.Linear(704, 4))
"""A network with two layers of this kind, of which the second also needs the gradient of its inputs by oneDNN."""


CHANCE = nn.Sequential(
    nn.Dropout(0.1), nn.Linear(7, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 5), nn.Tanh(), nn.Dropout(0.3), nn.Linear(5, 4)
)  # fmt: skip
"""A network that draws random numbers in training."""
OWN: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "wide": (WIDE, (704,)),
    "deep": (DEEP, (704,)),
    "chance": (CHANCE, (7,)),
    "head first": (HeadFirst(), (1, 8, 8)),
}


class LastGradient(FedAvg):
    """An algorithm of a user: sends the gradient of the last batch, and keeps the number of steps."""

    stacks = True

    def finish(self, problem: Problem) -> tuple[dict[str, Tensors], dict[str, Tensors]]:
        gradients = {name: p.grad.clone() for name, p in problem.parameters.items() if p.grad is not None}
        before = problem.memory.get("seen", {"steps": torch.zeros(())})["steps"]
        return {"last": gradients}, {"seen": {"steps": before + problem.steps}}


class Halved(FedAvg):
    """An algorithm of a user: clients send half of their parameters, and the one with the most samples sends infinite ones."""

    stacks = True

    def finish(self, problem: Problem) -> tuple[dict[str, Tensors], dict[str, Tensors]]:
        for parameter in problem.parameters.values():
            parameter.detach().mul_(0.5 if int(problem.num_samples) < max(SIZES) else torch.inf)
        return {}, {}


def learned(
    module: nn.Module, shape: tuple[int, ...], algorithm: Algorithm, training: Training, epochs: Any, workers: int = 2
) -> list[Any]:
    """Everything that clients send in some rounds, and what they keep."""
    engine = LocalEngine(federation(shape), as_model(module), training, algorithm, 5, workers)
    model, found = engine.initial_model(), list[Any]()
    cohort = Cohort(np.array([6, 0, 2, 3, 1, 5, 4]), epochs=epochs)
    for t in range(1, ROUNDS + 1):
        updates = list(engine.train(model, t, cohort, algorithm))
        found += [facts(update) for update in updates]
        engine.commit([update.client for update in updates][:5])
        members = Members(num_clients=len(SIZES), total_samples=sum(SIZES), k=7, t=t, trainable=engine.trainable)
        model = algorithm.aggregate(model, updates, members)
    found += [bits(model), {client: nested(engine.memories.get(client)) for client in range(len(SIZES))}]
    engine.close()
    return found


def nested(groups: Mapping[str, Tensors]) -> dict[str, Any]:
    return {name: bits(tensors) for name, tensors in groups.items()}


def facts(update: Update) -> tuple[Any, ...]:
    numbers = update.client, update.num_samples, update.steps, update.passes, update.work, update.failure
    return *numbers, update.report, bits(update.state), nested(update.extra)


CASES: dict[str, tuple[str, Callable[[], Algorithm], dict[str, Any]]] = {
    "plain": ("perceptron", FedAvg, {"momentum": 0.0}),
    "momentum": ("flattened images", FedAvg, {"nesterov": True, "weight_decay": 0.01}),
    "weight decay": ("GELU and tanh", FedAvg, {"momentum": 0.0, "weight_decay": 0.1}),
    "Adam": ("softmax", FedAvg, {"optimizer": "adam", "lr": 0.01, "precision": "float64"}),
    "AdamW": ("GELU and tanh", FedAvg, {"optimizer": "adamw", "lr": 0.01, "weight_decay": 0.1}),
    "FedProx": ("perceptron", lambda: FedProx(mu=0.3), {"lr_schedule": "exponential"}),
    "SCAFFOLD": ("perceptron", Scaffold, {"momentum": 0.0}),
    "SCAFFOLD, option I": ("perceptron", lambda: Scaffold(option="I", c_decay=0.5), {"momentum": 0.0}),
    "oneDNN": ("wide", FedAvg, {}),
    "oneDNN in two layers": ("deep", FedProx, {"optimizer": "adam", "lr": 0.01}),
    "own class": ("head first", FedAvg, {"momentum": 0.0}),
    "FedNova": ("perceptron", lambda: FedNova(mu=0.1), {"momentum": 0.5}),
    "own": ("perceptron", LastGradient, {"momentum": 0.5}),
    "own model": ("perceptron", Halved, {"momentum": 0.0}),
    "clipped": ("GELU and tanh", FedAvg, {"momentum": 0.0, "clip_norm": 0.3}),
    "FedProx, clipped": ("perceptron", lambda: FedProx(mu=0.3), {"optimizer": "adam", "clip_norm": 0.3}),
    "Dropout": ("chance", FedAvg, {"momentum": 0.5}),
    "SCAFFOLD, option I, Dropout": ("chance", lambda: Scaffold(option="I"), {"momentum": 0.0}),
}
"""A network, an algorithm and settings."""


def test_whether_a_program_holds_is_asked_once_for_a_single_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a round takes a millisecond, and each look at the network takes a part of it."""
    module, shape = network("perceptron")
    engine = LocalEngine(federation(shape), as_model(module), Training(batch_size=16), FedAvg(), 5, 1)
    asked, holds = list[bool](), Program.holds

    def noted(program: Program) -> bool:
        asked.append(holds(program))
        return asked[-1]

    monkeypatch.setattr(Program, "holds", noted)
    list(engine.train(engine.initial_model(), 1, Cohort(np.array([2])), FedAvg()))
    engine.close()
    assert asked == [True]


@pytest.mark.parametrize("epochs", [None, np.array([1, 2, 1, 3, 1, 1, 2])], ids=["one epoch", "different epochs"])
@pytest.mark.parametrize("case", CASES)
def test_series_have_the_bits_of_single_clients(case: str, epochs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name, make, settings = CASES[case]
    module, shape = OWN[name] if name in OWN else network(name)
    training = Training(**{"batch_size": 16, "epochs": 1, **settings})
    calls = counted(monkeypatch)
    together = learned(module, shape, make(), training, epochs)
    assert sum(calls) == (0 if make().corrects and epochs is not None else ROUNDS * len(SIZES))
    assert not calls or max(calls) > 1
    monkeypatch.setattr(ClientSeries, "possible", lambda *_: False)
    assert together == learned(module, shape, make(), training, epochs, workers=1)


def test_diverged_clients_of_a_series_are_seen() -> None:
    """What the algorithm does to a model after the training counts, too."""
    module, shape = network("perceptron")
    for algorithm, usual in ((FedAvg(), True), (Halved(), False)):
        engine = LocalEngine(federation(shape), as_model(module), Training(batch_size=16), algorithm, 5, 2)
        start = engine.initial_model()
        updates = list(engine.train(start, 1, Cohort(np.arange(len(SIZES))), algorithm))
        engine.close()
        largest = [update.client for update in updates if update.num_samples == max(SIZES)]
        assert [update.client for update in updates if not is_finite(update)] == ([] if usual else largest)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of clients of each series that is trained."""
    train, calls = ClientSeries.train, list[int]()

    def noted(self: ClientSeries, model: Any, t: int, clients: list[int], *others: Any) -> Any:
        found = train(self, model, t, clients, *others)
        calls.extend([len(clients)] if found is not None else [])
        return found

    monkeypatch.setattr(ClientSeries, "train", noted)
    monkeypatch.setattr(work_splitting, "SERIES_PER_THREAD", 1)
    return calls


def test_other_networks_and_settings_are_trained_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(monkeypatch)
    for name, settings in (
        ("convolutions", {}),
        ("flattened images", {"augment": "flip"}),
        ("perceptron", {"batch_size": 0}),
    ):
        module, shape = network(name)
        learned(module, shape, FedAvg(), Training(**settings), None)
    assert not calls


def test_clients_that_cannot_join_a_series_do_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients without epochs, and samples that are too many for one call, leave the others together."""
    module, shape = network("perceptron")
    algorithm, training = FedAvg(), Training(batch_size=16)
    engine = LocalEngine(federation(shape), as_model(module), training, algorithm, 5, 1)
    monkeypatch.setattr(client_series, "AT_ONCE", 200 * 7)  # 200 samples
    clients, epochs = [6, 0, 2, 3, 1, 5, 4], [1, 1, 1, 1, 0, 1, 1]
    with engine._trainer() as trainer:
        cut = trainer.series.slices(clients, epochs)
    assert [clients[part] for part in cut] == [[6, 0], [2], [3], [1], [5, 4]]
    assert engine.federation.num_samples[[6, 0, 2, 3, 1, 5, 4]].tolist() == [64, 5, 300, 1, 40, 64, 131]
    calls = counted(monkeypatch)
    list(engine.train(engine.initial_model(), 1, Cohort(np.array(clients), epochs=np.array(epochs)), algorithm))
    assert sorted(calls) == [1, 2, 2]
    engine.close()


def test_an_error_names_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    module, shape = network("perceptron")
    data = federation(shape)
    data.train.labels[int(data.offsets[4])] = 7  # there are four classes
    engine = LocalEngine(data, as_model(module), Training(batch_size=16), FedAvg(), 5, 2)
    with pytest.raises(ClientError, match=r"^client 4: "):
        list(engine.train(engine.initial_model(), 1, Cohort(np.arange(len(SIZES))), FedAvg()))
    engine.close()


@pytest.mark.parametrize(
    ("costs", "parameters", "sizes"),
    [
        ([60.0] * 100, 159_010, [7, 7, 6, 7, 7, 6, 7, 7, 6, 7, 7, 6, 7, 7, 6]),  # by their work
        ([50.0] * 50, 159_010, [6, 6, 6, 6, 7, 6, 6, 7]),  # enough for all threads
        ([10.0] * 40, 159_010, [20, 20]),  # less work: fewer calls, equally many for each thread
        ([10.0] * 10, 159_010, [10]),
        ([10.0] * 100, 7_850, [50, 50]),  # not too many at a time
        ([10.0] * 400, 50, [57] * 6 + [58]),
        ([60.0] * 3, 10**8, [1, 1, 1]),
    ],
)
def test_sizes_of_series(costs: list[float], parameters: int, sizes: list[int]) -> None:
    parts = series_of_clients(np.array(costs), parameters, workers=2)
    assert [position for part in parts for position in range(len(costs))[part]] == list(range(len(costs)))
    assert sorted(part.stop - part.start for part in parts) == sorted(sizes)
