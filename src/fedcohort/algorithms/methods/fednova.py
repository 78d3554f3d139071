"""FedNova: every update is divided by its effective number of local steps, so that clients with more steps do not count more.

    Δ_i   = w_i − w^t = −η Σ_h a_i,h g_i,h         (for a linear local optimizer; a_i holds the weights of the H_i gradients)
    τ     = Σ p_i ‖a_i‖₁,     p_i = N_i / Σ_{j admitted} N_j
    w^{t+1} = w^t + τ Σ p_i Δ_i/‖a_i‖₁

The client sends ‖a_i‖₁ with its update. It is Σ_h |r_h|, where −η·r_h is the distance that a single unit gradient has moved the
model h steps later. This gives H_i for plain SGD, Σ (1 − ρ^h)/(1 − ρ) with momentum ρ, and (1 − (1 − ημ)^{H_i})/(ημ) with a proximal
term. Momentum with a proximal term (which passes through the momentum here, as in FedProx) and Nesterov momentum follow from the
same recursion. Adam is not linear; for Adam, H_i takes the place of ‖a_i‖₁ (ours). Clients without a step are left out. Entries that
are not trained (batch-norm statistics) are averaged without normalization.

Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization", 2020, arXiv:2007.07481; code
``JYWa/FedNova``, ``distoptim/FedNova.py``. That code differs in two points, which ``norm = "code"`` reproduces: it has a different
recursion for momentum with a proximal term, and with a proximal term it uses τ = Σ p_i H_i.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Lt
from torch import Tensor

from fedcohort.algorithms.base import Algorithm, Correction
from fedcohort.algorithms.local_problem import Problem
from fedcohort.algorithms.methods.fedprox import add_proximal_gradient
from fedcohort.algorithms.server_optimizer import difference, moved
from fedcohort.algorithms.training_settings import Training
from fedcohort.algorithms.updates import Members, ModelState, Tensors, Update
from fedcohort.algorithms.weighted_means import RunningMean, blend
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.core.sums import for_sums, sum_type

__all__ = ["FedNova", "effective_steps"]


@parameters
class FedNova(Algorithm):
    """Normalized averaging: updates per local step. With equal numbers of local steps it is FedAvg."""

    mu: Annotated[float, Ge(0)] = 0.0
    """Strength of a proximal term in the local objective, as in FedProx; 0 means none."""
    gmf: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Server momentum: v ← gmf·v + step, and the model moves by v; 0 means none."""
    norm: Literal["paper", "code"] = "paper"
    """How ‖a_i‖₁ and τ are computed with a proximal term: as the paper defines them, or as its authors' code computes them."""

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
        """Marks Adam and AdamW as ours, because the paper does not define their effective steps."""
        return {"sgd": "FedNova", "adam": "FedNova+Adam (ours)", "adamw": "FedNova+AdamW (ours)"}[training.optimizer]

    # The client half.

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        """g ← g + μ·(y − w)."""
        add_proximal_gradient(problem, gradients, self.mu)

    def correction(self, problem: Problem) -> Correction:
        """μ."""
        return Correction(proximal=self.mu)

    def finish(self, problem: Problem) -> tuple[dict[str, Tensors], dict[str, Tensors]]:
        """Send ‖a_i‖₁."""
        norm = effective_steps(problem.training, problem.steps, problem.lr, self.mu, as_code=self.norm == "code")
        return {"effective": {"steps": norm}}, {}

    # The server half.

    def weigh(self, update: Update, members: Members) -> float:
        """The weight under the weight mode; clients without a step are left out."""
        return super().weigh(update, members) if update.steps > 0 else 0.0

    def begin(self, model: ModelState, members: Members) -> "_Fold":
        """Start with empty sums."""
        return _Fold(members)

    def add(self, fold: "_Fold", update: Update, weight: float) -> None:
        """Weight trained entries by b_i = p_i/‖a_i‖₁, and all others by p_i."""
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
    """The sums of a round; ``sums`` has Σ p_i, Σ p_i‖a_i‖₁ and Σ b_i of each trained entry.

    All norms are divided by the first client's norm, so that equal norms are exactly 1.
    """

    members: Members
    unit: float = 0.0
    trained: RunningMean = field(default_factory=RunningMean)
    others: RunningMean = field(default_factory=RunningMean)
    sums: dict[str, tuple[float, float, float]] = field(default_factory=dict)


def effective_steps(
    training: Training, steps: int | Tensor, lr: float | Tensor, mu: float = 0.0, *, as_code: bool = False
) -> Tensor:
    """‖a_i‖₁ of one client, or of each client of a stack, in the format of sums (float64).

    Args:
        training: settings of the local optimizer.
        steps: H_i, a number or [clients].
        lr: η, a number or [clients].
        mu: strength of the proximal term.
        as_code: use the recursion of the authors' code, which ignores Nesterov momentum.
    """
    horizon = torch.as_tensor(steps)
    if training.optimizer != "sgd" or (training.momentum == 0 and mu == 0):
        return for_sums(horizon)
    pull = torch.as_tensor(lr, dtype=sum_type(horizon.device), device=horizon.device) * mu
    total = torch.zeros_like(horizon * pull)
    responses = _norms_of_code(training.momentum, pull, mu > 0) if as_code else _impulse_response(training, pull)
    for h, value in zip(range(1, int(horizon.max()) + 1), responses, strict=False):
        total = torch.where(h <= horizon, value if as_code else total + value, total)
    return total


def _impulse_response(training: Training, pull: Tensor) -> Iterator[Tensor]:
    """|r_1|, |r_2|, …: the first gradient is 1, and all later gradients come only from the proximal term."""
    velocity, position, gradient = torch.zeros_like(pull), torch.zeros_like(pull), torch.ones_like(pull)
    while True:
        velocity = training.momentum * velocity + gradient
        position = position + (gradient + training.momentum * velocity if training.nesterov else velocity)
        gradient = -pull * position
        yield position.abs()


def _norms_of_code(momentum: float, pull: Tensor, proximal: bool) -> Iterator[Tensor]:
    """The norm after 1, 2, … steps, as ``distoptim/FedNova.py`` computes it."""
    counter, norm = 0.0, torch.zeros_like(pull)
    while True:
        if momentum:
            counter = momentum * counter + 1
            norm = norm + counter
        if proximal:
            norm = norm * (1 - pull) + 1
        yield norm
