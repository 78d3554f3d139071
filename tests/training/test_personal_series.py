"""Personal models of several clients that are trained in one call have the bits of those that are trained one at a time."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from torch import nn

from fedcohort.algorithms import Algorithm, Problem, Tensors
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.arrays import Values
from fedcohort.engines.base import ClientError
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.federation.federation import Federation
from fedcohort.models import as_model
from fedcohort.training import personal_models
from fedcohort.training.client_series import ClientSeries
from fedcohort.training.personal_models import PersonalAccuracy
from fedcohort.training.trainer import Trainer
from tests.training.own_corrections import Own
from tests.training.programs.test_plain_network import network
from tests.training.test_answers_together import federation as answering
from tests.training.test_client_series import OWN
from tests.training.test_outputs_of_programs import SIZES, federation

NUMBERS = nn.Sequential(nn.Linear(16, 30), nn.ReLU(), nn.Linear(30, 1))


def personal(
    data: Federation,
    module: nn.Module,
    algorithm: Algorithm | None = None,
    epochs: int = 2,
    workers: int = 1,
    **settings: Any,
) -> Values:
    """The accuracies of all clients before and after local epochs, asked three times: some networks have scripts by then."""
    training = Training(**{"batch_size": 16, **settings})
    engine = LocalEngine(data, as_model(module), training, algorithm or FedAvg(), 5, workers)
    model, clients = engine.initial_model(), np.arange(data.num_clients)
    found = [engine.answer(model, t, PersonalAccuracy(epochs), clients) for t in (1, 2, 3)]
    engine.close()
    return np.array(found)


def with_tests(data: Federation) -> Federation:
    """The same clients; some of them have test samples of their own."""
    return dataclasses.replace(data, test_clients=np.random.default_rng(0).integers(-1, 5, len(data.test)))


def case(name: str) -> tuple[Federation, nn.Module, dict[str, Any]]:
    """A federation, a network and settings."""
    if name == "numbers":
        return answering("numbers", 16), NUMBERS, {"loss": {"name": "mse"}}
    module, shape = OWN[name] if name in OWN else network(name.split(",")[0])
    data = with_tests(federation(shape)) if "tests" in name else federation(shape)
    return data, module, {"lr": 1e30} if "diverges" in name else {}


@pytest.mark.parametrize(
    "name", ["perceptron", "perceptron, tests", "perceptron, tests, diverges", "GELU and tanh", "chance", "numbers"]
)
def test_series_have_the_bits_of_single_clients(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data, module, settings = case(name)
    alone, train = list[int](), Trainer.train

    def noted(self: Trainer, model: Any, t: int, client: int, **others: Any) -> Any:
        alone.append(t)
        return train(self, model, t, client, **others)

    monkeypatch.setattr(Trainer, "train", noted)
    together = personal(data, module, **settings)
    measured = int(np.isfinite(together[0, :, 0]).sum())
    assert alone.count(3) < measured
    alone.clear()
    monkeypatch.setattr(ClientSeries, "possible", lambda *_: False)
    assert personal(data, module, **settings).tobytes() == together.tobytes()
    assert alone.count(3) == measured


def test_a_client_without_samples_to_be_measured_on_is_not_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    data, module, _ = case("perceptron, tests")
    trained, train = list[int](), ClientSeries.train

    def noted(self: ClientSeries, model: Any, t: int, clients: list[int], *others: Any) -> Any:
        trained.extend(clients)
        return train(self, model, t, clients, *others)

    monkeypatch.setattr(ClientSeries, "train", noted)
    found = personal(data, module)
    assert np.isnan(found[:, 5:]).all()
    assert np.isfinite(found[:, :5]).all()
    assert set(trained) == set(range(5))


def test_what_all_clients_share_is_prepared_once_for_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes time in proportion to the number of clients, and would be quadratic if each client had its own."""
    data, module, _ = case("perceptron")
    prepared, prepare = list[Federation](), personal_models.with_held_out

    def noted(given: Federation) -> Federation:
        prepared.append(given)
        return prepare(given)

    monkeypatch.setattr(personal_models, "with_held_out", noted)
    personal(data, module)
    assert len(prepared) < len(SIZES)


class Backward(Own):
    """An algorithm of a user whose steps go up the gradient."""

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        for gradient in gradients.values():
            gradient *= -5


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", ["perceptron", "convolutions"])
def test_a_correction_of_a_user_has_no_part_in_them(name: str, workers: int) -> None:
    data, module, _ = case(name)
    plain = personal(data, module)
    assert personal(data, module, Backward(), workers=workers).tobytes() == plain.tobytes()


class Limited(nn.Sequential):
    """Refuses the batches of one client only."""

    def forward(self, x: Any) -> Any:
        if len(x) == SIZES[0] - 1:
            raise ValueError("too few samples")
        return super().forward(x)


def test_an_error_names_the_client() -> None:
    module, shape = network("perceptron")
    with pytest.raises(ClientError, match="client 0"):
        personal(federation(shape), Limited(module))
