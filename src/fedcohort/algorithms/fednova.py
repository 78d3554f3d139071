"""FedNova: every update is divided by the effective number of its local steps, so that clients that do more do not count more.

    Δ_i   = w_i − w^t = −η Σ_h a_i,h g_i,h         (what a linear local optimiser does: a_i weighs the gradients of its H_i steps)
    τ     = Σ p_i ‖a_i‖₁,     p_i = N_i / Σ_{j admitted} N_j
    w^{t+1} = w^t + τ Σ p_i Δ_i/‖a_i‖₁

The client sends ‖a_i‖₁ with its update. It is Σ_h |r_h|, where r_h is how far a single unit gradient has moved the model, over −η,
h steps later. For plain SGD that is H_i, with momentum ρ it is Σ (1 − ρ^h)/(1 − ρ), with a proximal term (1 − (1 − ημ)^H_i)/(ημ);
momentum with proximal term (which passes through the momentum here, as in FedProx) and Nesterov momentum follow from the same
recursion. Adam is not linear: there H_i stands for it, which is ours. Clients without a step are left out. Entries that are not
trained (batch-norm statistics) are averaged plainly.

Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization", 2020, arXiv:2007.07481; code
``JYWa/FedNova``, ``distoptim/FedNova.py``. That code differs in two points, which ``norm = "code"`` reproduces: it has another
recursion for momentum with proximal term, and with a proximal term it takes τ = Σ p_i H_i.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Lt
from torch import Tensor

from fedcohort.algorithms.adaptive import difference, moved
from fedcohort.algorithms.base import Algorithm, Members, ModelState, Problem, RunningMean, Tensors, Update, blend
from fedcohort.algorithms.fedprox import pull_back
from fedcohort.algorithms.local import Training
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card

__all__ = ["FedNova", "effective_steps"]


@parameters
class FedNova(Algorithm):
    """Normalised averaging; for equal numbers of local steps it is FedAvg."""

    mu: Annotated[float, Ge(0)] = 0.0
    """Strength of a proximal term in the local objective, as in FedProx; 0 for none."""
    gmf: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Server momentum: v ← gmf·v + step, and the model moves by v; 0 for none."""
    norm: Literal["paper", "code"] = "paper"
    """How ‖a_i‖₁ and τ are taken with a proximal term: as the paper defines them, or as its authors' code computes them."""

    card: ClassVar[Card] = Card(
        source="Wang et al. 2020, arXiv:2007.07481; JYWa/FedNova",
        status="code",
        discloses="its number of local steps",
        cost="O(kP)",
    )
    corrects: ClassVar[bool] = True
    stacks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.velocity: Tensors = {}

    def title(self, training: Training) -> str:
        """Adam's effective steps are a guess of ours."""
        return {"sgd": "FedNova", "adam": "FedNova+Adam (ours)", "adamw": "FedNova+AdamW (ours)"}[training.optimizer]

    # the client half

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        """g ← g + μ·(y − w)."""
        pull_back(problem, gradients, self.mu)

    def finish(self, problem: Problem) -> tuple[dict[str, Tensors], dict[str, Tensors]]:
        """Sends ‖a_i‖₁."""
        norm = effective_steps(problem.training, problem.steps, problem.lr, self.mu, as_code=self.norm == "code")
        return {"effective": {"steps": norm}}, {}

    # the server half

    def weigh(self, update: Update, members: Members) -> float:
        """As the weight mode says; clients without a step are left out."""
        return super().weigh(update, members) if update.steps > 0 else 0.0

    def begin(self, model: ModelState, members: Members) -> "_Fold":
        """Nothing yet."""
        return _Fold(members)

    def add(self, fold: "_Fold", update: Update, weight: float) -> None:
        """Models are weighted by b_i = p_i/‖a_i‖₁, entries that are not trained by p_i."""
        norm = float(update.extra["effective"]["steps"])
        fold.unit = fold.unit or norm
        length = update.steps if self.norm == "code" and self.mu > 0 else norm
        trained = {name for name, value in update.state.items() if fold.members.trains(name, value)}
        sent = update.state.keys() if update.sent is None else update.sent
        fold.trained.add(update.state, weight * (fold.unit / norm), frozenset(trained & sent))
        fold.others.add(update.state, weight, frozenset(sent - trained))
        for name in trained & sent:
            p, lengths, b = fold.sums.get(name, (0.0, 0.0, 0.0))
            fold.sums[name] = p + weight, lengths + weight * (length / fold.unit), b + weight * (fold.unit / norm)

    def end(self, fold: "_Fold", model: ModelState, members: Members) -> ModelState:
        """w + τ Σ p_i Δ_i/‖a_i‖₁ = w + (τ Σ b_i)·(mean of Δ_i with weights b_i), for each entry over the clients that sent it."""
        mean = {**model, **fold.others.result()}
        for name, value in fold.trained.result().items():
            p, lengths, b = fold.sums[name]
            mean |= blend({name: model[name]}, {name: value}, (lengths / p) * (b / p))
        return self.scale(model, mean, fold.others.total)

    def step(self, model: ModelState, merged: ModelState, members: Members) -> ModelState:
        """Server momentum, then damping."""
        if self.gmf > 0:
            change = difference(model, merged, members)
            self.velocity = {name: d + self.gmf * self.velocity.get(name, 0.0) for name, d in change.items()}
            merged = moved(model, merged, self.velocity)
        return super().step(model, merged, members)


@dataclass
class _Fold:
    """A round's sums; ``sums`` has Σ p_i, Σ p_i‖a_i‖₁ and Σ b_i of each trained entry.

    All norms are in units of the first client's, so that equal norms are exactly 1.
    """

    members: Members
    unit: float = 0.0
    trained: RunningMean = field(default_factory=RunningMean)
    others: RunningMean = field(default_factory=RunningMean)
    sums: dict[str, tuple[float, float, float]] = field(default_factory=dict)


def effective_steps(
    training: Training, steps: int | Tensor, lr: float | Tensor, mu: float = 0.0, *, as_code: bool = False
) -> Tensor:
    """‖a_i‖₁ of one client, or of each client of a stack, float64.

    Args:
        training: local optimiser.
        steps: H_i, a number or [clients].
        lr: η, a number or [clients].
        mu: of the proximal term.
        as_code: follow the recursion of the authors' code, which ignores Nesterov.
    """
    horizon = torch.as_tensor(steps)
    if training.optimizer != "sgd" or (training.momentum == 0 and mu == 0):
        return horizon.to(torch.float64)
    pull = torch.as_tensor(lr, dtype=torch.float64) * mu
    total = torch.zeros_like(horizon * pull)
    walk = _as_code(training.momentum, pull, mu > 0) if as_code else _impulse(training, pull)
    for h, value in zip(range(1, int(horizon.max()) + 1), walk, strict=False):
        total = torch.where(h <= horizon, value if as_code else total + value, total)
    return total


def _impulse(training: Training, pull: Tensor) -> Iterator[Tensor]:
    """|r_1|, |r_2|, …: the first gradient is 1, all later ones come from the proximal term alone."""
    speed, place, gradient = torch.zeros_like(pull), torch.zeros_like(pull), torch.ones_like(pull)
    while True:
        speed = training.momentum * speed + gradient
        place = place + (gradient + training.momentum * speed if training.nesterov else speed)
        gradient = -pull * place
        yield place.abs()


def _as_code(momentum: float, pull: Tensor, proximal: bool) -> Iterator[Tensor]:
    """The norm after 1, 2, … steps, as ``distoptim/FedNova.py`` updates it."""
    counter, norm = 0.0, torch.zeros_like(pull)
    while True:
        if momentum:
            counter = momentum * counter + 1
            norm = norm + counter
        if proximal:
            norm = norm * (1 - pull) + 1
        yield norm
