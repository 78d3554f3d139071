"""Local problems without data for tests of algorithms: losses of one number, for one client or a stack of clients."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedcohort.algorithms import Algorithm, Members, ModelState, Tensors, Update
from fedcohort.algorithms.training_settings import Training
from tests.problems import PartOfProblem

Gradient = Callable[[Tensor], Tensor]

PLAIN = Training(momentum=0.0, lr=0.2, precision="float64")


@dataclass
class OneNumber(PartOfProblem):
    """The local problem of a client with the number x, [1], as its model; see :class:`fedcohort.algorithms.Problem`."""

    own: Gradient
    parameters: Tensors
    anchor: Tensors
    received: Mapping[str, Tensors] = field(default_factory=dict)
    memory: Mapping[str, Tensors] = field(default_factory=dict)
    training: Training = field(default_factory=lambda: PLAIN)
    lr: float | Tensor = 0.2
    steps: int | Tensor = 0
    t: int = 1
    notes: dict[str, Any] = field(default_factory=dict)

    def full_gradient(self, at: Tensors) -> Tensors:
        return {"x": self.own(at["x"])}


def train_locally(algorithm: Algorithm, problem: OneNumber, steps: int) -> None:
    """Train with torch's implementation of the optimizer in the problem's settings."""
    settings, x = problem.training, problem.parameters["x"].requires_grad_()
    match settings.optimizer:
        case "sgd":
            optimizer: torch.optim.Optimizer = torch.optim.SGD(
                [x], problem.lr, momentum=settings.momentum, nesterov=settings.nesterov
            )
        case "adam":
            optimizer = torch.optim.Adam([x], problem.lr)
        case "adamw":
            optimizer = torch.optim.AdamW([x], problem.lr, weight_decay=settings.weight_decay)
    for _ in range(steps):
        gradients = {"x": problem.own(x.detach())}
        if algorithm.corrects:
            algorithm.correct(problem, gradients)
        x.grad = gradients["x"]
        optimizer.step()
        problem.steps += 1


Memory = dict[str, Tensors]


def play_rounds(
    algorithm: Algorithm,
    gradients: Sequence[Gradient],
    rounds: int,
    *,
    steps: Sequence[int],
    training: Training = PLAIN,
    cohort: Callable[[int], Sequence[int]] | None = None,
) -> tuple[ModelState, dict[int, Memory]]:
    """Play rounds from x = 0 with all clients, or with the ``cohort`` of each round; returns the model and the clients' memories."""
    model: ModelState = {"x": torch.zeros(1, dtype=torch.float64)}
    all_clients = range(len(gradients))
    memories: dict[int, Memory] = {client: {} for client in all_clients}
    for t in range(1, rounds + 1):
        received, updates = algorithm.broadcast(), []
        chosen = all_clients if cohort is None else cohort(t)
        for client in chosen:
            problem = OneNumber(
                gradients[client],
                {"x": model["x"].clone()},
                model,
                received,
                memories[client],
                training,
                training.lr,
                t=t,
            )
            train_locally(algorithm, problem, steps[client])
            extra, memories[client] = algorithm.finish(problem)
            state = {"x": problem.parameters["x"].detach()}
            updates.append(Update(client, 1, int(problem.steps), state, extra))
        members = Members(num_clients=len(gradients), total_samples=len(gradients), k=len(chosen), t=t)
        model = algorithm.aggregate(model, updates, members)
    return model, memories


def number(model: ModelState) -> float:
    return float(model["x"])
