"""SCAFFOLD: control variates correct the client drift of local training.

    client i    g ← g − c_i + c                     at every step; c from the server, c_i of the client (0 at first)
                c_i⁺ by option:                     after H_i steps from w to y
                  II   c_i − c + (w − y)/(H_i η)
                  I    ∇F_i(w), one more pass over its data
                sends y − w and c_i⁺ − c_i
    server      w ← w + s·mean(y − w)
                c ← c + |R|/m · mean(c_i⁺ − c_i)     R the admitted among all m clients

For plain SGD, option II is the mean of the raw gradients g of the client's steps. With momentum, Adam or AdamW the formula would be
wrong, so that mean is computed directly, and the optimizer receives the corrected gradient. This is our extension, and such runs are
labeled accordingly: "SCAFFOLD+Adam (ours)". A client that is not admitted keeps its old c_i, and so does a client without a step. The
mean of the changes of c has no weights, and a client that was drawn several times counts once in it.

If a strategy rarely selects some clients, their c_i become stale. With ``c_decay`` below 1, c_i is multiplied by ``c_decay`` for
each round that the client missed. The client still sends c_i⁺ minus the c_i that the server's c contains, so that c is the mean of
all clients' c_i after every round, regardless of which clients took part.

Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", 2020, arXiv:1910.06378; code ``WwZzz/easyFL``,
``flgo/algorithm/scaffold.py``.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Le
from torch import Tensor

from fedcohort.algorithms.base import Algorithm, Correction, WeightMode
from fedcohort.algorithms.local_problem import Problem, per_client
from fedcohort.algorithms.training_settings import Training
from fedcohort.algorithms.updates import Members, ModelState, Tensors, Update
from fedcohort.algorithms.weighted_means import RunningMean
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.core.sums import for_sums

__all__ = ["Scaffold"]


@parameters
class Scaffold(Algorithm):
    """Local steps corrected for drift by control variates. The name stands for stochastic controlled averaging."""

    weights: WeightMode = "uniform"
    """How models are weighted, see FedAvg; the paper uses uniform. The mean of the control variates' changes has no weights."""
    option: Literal["II", "I"] = "II"
    """How a client updates c_i: from its steps (II), or by the gradient of the received model over all its data (I)."""
    c_decay: Annotated[float, Ge(0), Le(1)] = 1.0
    """Factor on c_i for each round that a client missed."""

    card: ClassVar[Card] = Card(
        source="Karimireddy et al. 2020, arXiv:1910.06378; WwZzz/easyFL",
        status="code",
        discloses="the change of its mean gradient (its control variate)",
        cost="O(kP)",
    )
    corrects: ClassVar[bool] = True
    stacks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.c: Tensors = {}

    def title(self, training: Training) -> str:
        """Marks optimizers other than plain SGD as ours."""
        if _plain(training):
            return "SCAFFOLD"
        names = {"sgd": "momentum", "adam": "Adam", "adamw": "AdamW"}
        return f"SCAFFOLD+{names[training.optimizer]} (ours)"

    # The client half.

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        """g ← g − c_i + c; if c_i⁺ has no explicit formula, the raw gradients are also summed."""
        self._note_shift(problem)
        if self._sums_gradients(problem.training):
            total = problem.notes.setdefault("total", {})
            for name, gradient in gradients.items():
                total[name] = total[name].add_(gradient) if name in total else gradient.clone()
        for name, shift in problem.notes["shift"].items():
            if name in gradients:
                gradients[name].add_(shift)

    def correction(self, problem: Problem) -> Correction | None:
        """c − c_i, unless the raw gradients are summed."""
        if self._sums_gradients(problem.training):
            return None
        self._note_shift(problem)
        return Correction(shift=problem.notes["shift"])

    def _sums_gradients(self, training: Training) -> bool:
        return self.option == "II" and not _plain(training)

    def _note_shift(self, problem: Problem) -> None:
        if "shift" not in problem.notes:
            problem.notes["shift"] = self._shift(problem)

    def finish(self, problem: Problem) -> tuple[dict[str, Tensors], dict[str, Tensors]]:
        """Send c_i⁺ − c_i, and keep c_i⁺."""
        means = self._mean_gradient(problem)
        c_i = problem.memory.get("c") or {name: _zeros(new) for name, new in means.items()}
        kept = _of_those_with_steps(problem, means, c_i)
        changes = torch._foreach_sub(list(kept.values()), [c_i[name] for name in kept])
        sent = {name: change.contiguous() for name, change in zip(kept, changes, strict=True)}
        memory = {"c": kept}
        if self.c_decay < 1:
            memory["round"] = {"last": torch.full_like(torch.as_tensor(problem.steps), problem.t)}
        return {"c": sent}, memory

    def _shift(self, problem: Problem) -> Tensors:
        """c − c_i; empty while both are 0."""
        c, c_i = problem.received.get("c", {}), problem.memory.get("c", {})
        if not c and not c_i:
            return {}
        decay: float | Tensor = 1.0
        if self.c_decay < 1 and "round" in problem.memory:
            missed = for_sums((problem.t - 1 - problem.memory["round"]["last"]).clamp(min=0))
            decay = self.c_decay**missed
        if isinstance(decay, float) and c.keys() == c_i.keys() == problem.anchor.keys():
            return _differences(c, c_i, problem.anchor)
        shift = {}
        for name, w in problem.anchor.items():
            if name not in c_i:
                shift[name] = (c[name].clone() if name in c else -torch.zeros_like(w)).to(w.dtype)
                continue
            own = c_i[name] if isinstance(decay, float) else c_i[name] * per_client(decay, c_i[name])
            shift[name] = (c[name] - own if name in c else -own).to(w.dtype)
        return shift

    def _mean_gradient(self, problem: Problem) -> Tensors:
        """The client's mean gradient under the option; arbitrary for a client without a step."""
        if self.option == "I":
            return problem.full_gradient(problem.anchor)
        steps = torch.as_tensor(problem.steps, device=_device(problem)).clamp(min=1)
        values = {name: value.detach() for name, value in problem.parameters.items()}
        if not _plain(problem.training):
            total = problem.notes.get("total", {})
            return {n: total.get(n, torch.zeros_like(y)) / per_client(steps.to(y.dtype), y) for n, y in values.items()}
        moved = torch._foreach_sub([problem.anchor[name] for name in values], list(values.values()))
        distances = {dtype: (steps.to(dtype) * problem.lr).to(dtype) for dtype in {y.dtype for y in moved}}
        torch._foreach_div_(moved, [torch.as_tensor(per_client(distances[y.dtype], y)) for y in moved])
        if shift := problem.notes.get("shift", {}):
            torch._foreach_sub_(moved, [shift[name] for name in values])
        return dict(zip(values, moved, strict=True))

    # The server half.

    def broadcast(self) -> dict[str, Tensors]:
        """c; empty while it is 0."""
        return {"c": self.c} if self.c else {}

    def begin(self, model: ModelState, members: Members) -> tuple[RunningMean, RunningMean]:
        """Start a mean of models and a mean of changes of control variates."""
        return RunningMean(), RunningMean()

    def add(self, fold: tuple[RunningMean, RunningMean], update: Update, weight: float) -> None:
        """Add the model with its weight, and the change without one."""
        super().add(fold[0], update, weight)
        fold[1].add(update.extra["c"], 1.0)

    def coefficients(self, weights: Mapping[int, float]) -> Mapping[int, float]:
        """Those of the weighted mean, which this class merges in addition to its own state."""
        return super().coefficients(weights)

    def end(self, fold: tuple[RunningMean, RunningMean], model: ModelState, members: Members) -> ModelState:
        """c ← c + |R|/m · mean(Δc_i), and the mean of models."""
        models, changes = fold
        share = changes.total / members.num_clients
        self.c = {name: self.c.get(name, 0.0) + share * change for name, change in changes.result().items()}
        return super().end(models, model, members)


def _plain(training: Training) -> bool:
    """Whether the steps are y ← y − ηg, so that the distance from w to y gives the mean gradient."""
    return training.optimizer == "sgd" and training.momentum == 0


def _device(problem: Problem) -> torch.device:
    """The device of the client's training."""
    return next(iter(problem.parameters.values())).device


def _differences(c: Tensors, c_i: Tensors, like: Tensors) -> Tensors:
    """c − c_i of all parameters in one call, in the order and the number formats of ``like``."""
    found = torch._foreach_sub([c[name] for name in like], [c_i[name] for name in like])
    return {name: difference.to(like[name].dtype) for name, difference in zip(like, found, strict=True)}


def _zeros(value: Tensor) -> Tensor:
    """Zeros of the same shape, in the order of PyTorch's own tensors."""
    return torch.zeros_like(value, memory_format=torch.contiguous_format)


def _of_those_with_steps(problem: Problem, new: Tensors, old: Tensors) -> Tensors:
    """The new values of clients that took a step, and the old values of the others: without a step, nothing changes."""
    if isinstance(problem.steps, int) and isinstance(problem.lr, float):
        moved = problem.steps * problem.lr > 0
        return {name: (value if moved else old[name].clone()).contiguous() for name, value in new.items()}
    each = torch.as_tensor(problem.steps, device=_device(problem)) * problem.lr > 0
    return {
        name: torch.where(torch.as_tensor(per_client(each, value)), value, old[name]).contiguous()
        for name, value in new.items()
    }
