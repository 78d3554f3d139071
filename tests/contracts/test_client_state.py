"""An algorithm's hooks suffice for SCAFFOLD: its worked example (spec G6), with quadratic losses that need no data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from fedcohort.algorithms import Algorithm, Members, ModelState, Tensors, Update
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.testing.base import ControlVariates
from tests.problems import PartOfProblem

Gradient = Callable[[torch.Tensor], torch.Tensor]

GRADIENTS: dict[int, Gradient] = {0: lambda x: x - 1, 1: lambda x: 4 * (x + 3)}
"""F₁ = ½(x − 1)², F₂ = 2(x + 3)²."""


@dataclass
class OneNumber(PartOfProblem):
    """The local problem of a client with a model of one number; see :class:`fedcohort.algorithms.Problem`."""

    own: Gradient
    parameters: Tensors
    anchor: Tensors
    received: Mapping[str, Tensors]
    memory: Mapping[str, Tensors]
    lr: float | Tensor = 0.2
    steps: int | Tensor = 0
    t: int = 1
    training: Training = field(default_factory=Training)
    notes: dict[str, Any] = field(default_factory=dict)

    def gradient(self, at: Tensors | None = None) -> Tensors:
        return {"x": self.own((at or self.parameters)["x"])}


def play_rounds(algorithm: Algorithm, rounds: int, steps: int = 5) -> tuple[ModelState, dict[int, dict[str, Tensors]]]:
    """Train both clients in every round, starting from 0; returns the model and the clients' memories."""
    model = {"x": torch.zeros(1, dtype=torch.float64)}
    memories: dict[int, dict[str, Tensors]] = {0: {}, 1: {}}
    for _ in range(rounds):
        received, updates = algorithm.broadcast(), []
        for client, own in GRADIENTS.items():
            y = {"x": model["x"].clone()}
            problem = OneNumber(own, y, model, received, memories[client])
            for _ in range(steps):
                gradients = problem.gradient()
                if algorithm.corrects:
                    algorithm.correct(problem, gradients)
                y["x"] -= problem.lr * gradients["x"]
                problem.steps += 1
            extra, memories[client] = algorithm.finish(problem)
            updates.append(Update(client, 1, int(problem.steps), y, extra))
        model = algorithm.aggregate(model, updates, Members(num_clients=2, total_samples=2, k=2))
    return model, memories


def test_control_variates_reach_the_optimum_and_fedavg_does_not() -> None:
    assert play_rounds(ControlVariates(), 500)[0]["x"].item() == pytest.approx(-2.2, abs=1e-9)
    assert play_rounds(FedAvg(), 500)[0]["x"].item() == pytest.approx(-1.391579, abs=1e-6)


@pytest.mark.parametrize("rounds", [1, 2, 7])
def test_when_all_clients_train_the_server_variate_is_the_mean_of_the_client_variates(rounds: int) -> None:
    algorithm = ControlVariates()
    _, memories = play_rounds(algorithm, rounds)
    mean = (memories[0]["c"]["x"] + memories[1]["c"]["x"]) / 2
    assert algorithm.c["x"].item() == pytest.approx(mean.item(), rel=1e-12)


def test_the_first_round_equals_fedavg_with_equal_weights() -> None:
    assert torch.equal(play_rounds(ControlVariates(), 1)[0]["x"], play_rounds(FedAvg(weights="uniform"), 1)[0]["x"])
