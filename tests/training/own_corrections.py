"""Algorithms of users that take part in each step: corrections that only compute, and others."""

from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedcohort.algorithms import Members, ModelState, Problem, Tensors, Update
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.methods.fedprox import FedProx
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


class InGrad(Own):
    """Changes ``.grad`` of the parameters, which need gradients."""

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        for parameter in problem.parameters.values():
            if parameter.requires_grad and parameter.grad is not None:
                parameter.grad.mul_(0.5)


class LimitingSome(Own):
    """Limits the norm of some gradients, which only the later ones exceed."""

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        some = [gradient for gradient in gradients.values() if gradient.dim() > 1]
        norm = torch.stack(torch._foreach_norm(some)).norm()
        torch._foreach_mul_(some, (1.3 / (norm + 1e-6)).clamp(max=1.0))


class Called(Own):
    """Counts the calls of itself."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, gradient: Tensor) -> Tensor:
        self.calls += 1
        return gradient / self.calls

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        for name in list(gradients):
            gradients[name] = self(gradients[name])


class Turned(Own):
    """Gives gradients another memory layout in place."""

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        for gradient in gradients.values():
            if gradient.dim() == 2 and gradient.shape[0] == gradient.shape[1]:
                gradient.t_()


class Checked(Own):
    """Makes a call that raises an error for what the server sends in round 3."""

    def __init__(self) -> None:
        self.rounds = 0

    def broadcast(self) -> dict[str, Tensors]:
        self.rounds += 1
        return {"shared": {"matrix": torch.eye(3) * (2.5 - self.rounds)}}

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        factor = torch.linalg.cholesky(problem.received["shared"]["matrix"])[0, 0]
        for gradient in gradients.values():
            gradient.mul_(factor.to(gradient))


class Beyond(Checked):
    """Reads an entry that a table does not have in round 3."""

    def broadcast(self) -> dict[str, Tensors]:
        self.rounds += 1
        return {"shared": {"round": torch.tensor([self.rounds])}}

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        factor = torch.ones(3).index_select(0, problem.received["shared"]["round"])
        for gradient in gradients.values():
            gradient.mul_(factor.to(gradient))


class Random(Own):
    """Adds random numbers of PyTorch's global generator."""

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        for gradient in gradients.values():
            gradient.add_(torch.randn_like(gradient))


class Fading(Own):
    """Gets an attribute between two rounds that hides that of its class."""

    factor: ClassVar[float | None] = 1.0

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        for gradient in gradients.values():
            if self.factor is not None:
                gradient.mul_(self.factor)

    def aggregate(self, model: ModelState, updates: Iterable[Update], members: Members) -> ModelState:
        self.change()
        return super().aggregate(model, updates, members)

    def change(self) -> None:
        vars(self)["factor"] = 0.5


class Cleared(Fading):
    """As before, an attribute that is None."""

    factor = 0.5

    def change(self) -> None:
        vars(self)["factor"] = None


class Computed(Own):
    """Computes an attribute when it is read."""

    def __getattr__(self, name: str) -> Any:
        if name != "factor":
            raise AttributeError(name)
        return 0.5 ** vars(self).get("rounds", 0)

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        for gradient in gradients.values():
            gradient.mul_(self.factor)

    def aggregate(self, model: ModelState, updates: Iterable[Update], members: Members) -> ModelState:
        vars(self)["rounds"] = vars(self).get("rounds", 0) + 1
        return super().aggregate(model, updates, members)


class Replaced(Fading):
    """Gets another correction."""

    def change(self) -> None:
        def correct(problem: Problem, gradients: Tensors) -> None:
            for gradient in gradients.values():
                gradient.mul_(0.1)

        vars(self)["correct"] = correct


class Empty(Fading):
    """Sends a kind without tensors from round 2 on."""

    def change(self) -> None:
        vars(self)["later"] = {"late": {}}

    def broadcast(self) -> dict[str, Tensors]:
        found: dict[str, Tensors] = vars(self).get("later", {})
        return found

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        if "late" in problem.received:
            for gradient in gradients.values():
                gradient.mul_(0.5)


class Relaying(Own):
    """Sends models in another memory layout from round 2 on."""

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        for name in list(gradients):
            gradients[name] = 0.1 * problem.anchor[name] + gradients[name]

    def aggregate(self, model: ModelState, updates: Iterable[Update], members: Members) -> ModelState:
        new = super().aggregate(model, updates, members)
        return {name: value.t().contiguous().t() if value.dim() == 2 else value for name, value in new.items()}
