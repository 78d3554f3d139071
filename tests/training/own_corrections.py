"""Algorithms of users that take part in each step: corrections that only compute, and others."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from fedcohort.algorithms import Problem, Tensors
from fedcohort.algorithms.fedavg import FedAvg
from fedcohort.algorithms.fedprox import FedProx
from fedcohort.core.parameters import parameters

SEEN: list[float] = []


class Own(FedAvg):
    """The base of the others."""

    corrects: ClassVar[bool] = True


@parameters
class Proximal(Own):
    """Changes gradients in place, with a number of its own."""

    mu: float = 0.3

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        for name, gradient in gradients.items():
            gradient += self.mu * (problem.parameters[name].detach() - problem.anchor[name])


class Replacing(Own):
    """Sets entries, of the settings of the experiment as well."""

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        with torch.no_grad():
            for name in list(gradients):
                gradients[name] = gradients[name] * problem.training.lr + problem.lr * problem.parameters[name]


class Scaling(Own):
    """Limits the norm of all gradients together."""

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        limit(list(gradients.values()))


def limit(gradients: list[Tensor]) -> None:
    """Scale these gradients to a norm of at most 0.3."""
    norm = torch.stack(torch._foreach_norm(gradients)).norm()
    torch._foreach_mul_(gradients, (0.3 / (norm + 1e-6)).clamp(max=1.0))


class Variates(Own):
    """Uses what the server sent and what the client remembers: SCAFFOLD by hand."""

    def broadcast(self) -> dict[str, Tensors]:
        return {"shared": {"factor": torch.tensor(0.1)}}

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        factor = problem.received["shared"]["factor"]
        for name, gradient in gradients.items():
            gradient.add_(factor * problem.anchor[name])
            if "last" in problem.memory:
                gradient.sub_(problem.memory["last"][name] * 0.2)

    def finish(self, problem: Problem) -> tuple[dict[str, Tensors], dict[str, Tensors]]:
        return {}, {"last": {name: value.detach() - problem.anchor[name] for name, value in problem.parameters.items()}}


class Doubled(FedProx):
    """Changes what FedProx does."""

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        for gradient in gradients.values():
            gradient.mul_(2)


class Relaid(Own):
    """Sets the same gradients in another memory layout."""

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        for name in list(gradients):
            gradients[name] = gradients[name].flatten().view(gradients[name].shape)


class ByStep(Own):
    """Depends on the number of the step."""

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        for gradient in gradients.values():
            gradient.div_(1 + problem.steps)


class ByRound(Own):
    """Depends on the round."""

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        for gradient in gradients.values():
            gradient.div_(problem.t)


class Noisy(Own):
    """Adds random numbers."""

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        for gradient in gradients.values():
            gradient.add_(torch.from_numpy(problem.rng.standard_normal(gradient.shape)).to(gradient.dtype))


class Branching(Own):
    """Reads a number of the gradients."""

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        for gradient in gradients.values():
            if float(gradient.abs().max()) > 0.1:
                gradient.mul_(0.5)


@parameters
class Counting(Own):
    """Counts its calls."""

    def __post_init__(self) -> None:
        self.calls = 0

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        self.calls += 1
        for gradient in gradients.values():
            gradient.mul_(0.5)


class Noting(Own):
    """Appends to a list."""

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        SEEN.append(1.0)
        for gradient in gradients.values():
            gradient.mul_(0.5)


class Remembering(Own):
    """Keeps a momentum in the notes."""

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        moments: dict[str, Any] = problem.notes.setdefault("moments", {})
        for name, gradient in gradients.items():
            moments[name] = gradient + 0.5 * moments.get(name, 0.0)
            gradient.copy_(moments[name])


class Overwriting(Own):
    """Changes the parameters."""

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        with torch.no_grad():
            for name, parameter in problem.parameters.items():
                parameter.mul_(0.9)
                gradients[name] = gradients[name] * 1.0
