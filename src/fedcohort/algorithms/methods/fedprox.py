"""FedProx: clients stay near the model that they received.

    client i minimizes  F_i(y) + (μ/2)‖y − w^t‖²,   that is, g ← g + μ·(y − w^t) at every step
    server              as FedAvg

A client can train for fewer epochs and send an inexact (γ-inexact) solution; strategies request this with ``Cohort.epochs``. With
μ = 0, the result has the same bits as FedAvg.

With ``dynamic``, μ starts at ``mu`` and changes with the global loss F, as the paper suggests:

    F(w^{t+1}) > F(w^t)                 μ ← μ + 0.1
    the fifth decrease of F in a row    μ ← max(0, μ − 0.1), and the count starts again

The paper takes F over the training data of all clients, which is not available in a round with partial participation; here F is the
loss on the server's validation set (ours). A round without admitted updates changes neither μ nor the count.

Li et al., "Federated Optimization in Heterogeneous Networks", 2020, arXiv:1812.06127; code ``adap/flower``, baseline fedprox.
"""

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge

from fedcohort.algorithms.base import Algorithm, Correction
from fedcohort.algorithms.local_problem import Problem
from fedcohort.algorithms.server_tools import ServerTools
from fedcohort.algorithms.updates import Members, ModelState, Tensors
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.core.threads import one_thread

__all__ = ["FedProx", "add_proximal_gradient"]

STEP = 0.1
"""Change of μ."""
FALLS = 5
"""Number of consecutive decreases of the loss that lower μ."""


@parameters
class FedProx(Algorithm):
    """FedAvg with a proximal term in the local objective."""

    mu: Annotated[float, Ge(0)] = 0.01
    """Strength of the proximal term (μ); 0 gives FedAvg. Usual values: 0.001, 0.01, 0.1, 1."""
    dynamic: bool = False
    """Change μ with the loss on the server's validation set: increase it by 0.1 when the loss rises, and decrease it by 0.1 when
    the loss has fallen five times in a row."""

    card: ClassVar[Card] = Card(source="Li et al. 2020, arXiv:1812.06127; adap/flower", status="code", cost="O(kP)")
    corrects: ClassVar[bool] = True
    stacks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.strength = self.mu
        self.loss: float | None = None
        self.falls = 0

    # The client half.

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        """g ← g + μ·(y − w), with the μ of the round."""
        add_proximal_gradient(problem, gradients, self._strength(problem))

    def correction(self, problem: Problem) -> Correction:
        """μ."""
        return Correction(proximal=self._strength(problem))

    def _strength(self, problem: Problem) -> float:
        """The μ of the round."""
        if self.dynamic and "mu" not in problem.notes:
            problem.notes["mu"] = float(problem.received["mu"]["mu"])
        strength: float = problem.notes.get("mu", self.mu)
        return strength

    # The server half.

    def prepare(self, tools: ServerTools) -> None:
        """Check that there is a validation set if μ changes."""
        super().prepare(tools)
        if self.dynamic and not len(tools.validation[1]):
            raise UsageError(
                "algorithm.dynamic = true: μ changes with the loss on the server's validation set, which is empty; "
                "use data.validation above 0, or dynamic = false"
            )

    def broadcast(self) -> dict[str, Tensors]:
        """μ, if it changes."""
        return {"mu": {"mu": torch.tensor(self.strength, dtype=torch.float64)}} if self.dynamic else {}

    def coefficients(self, weights: Mapping[int, float]) -> Mapping[int, float]:
        """Those of the weighted mean, which the damping and the choice of μ leave as they are."""
        return super().coefficients(weights)

    def step(self, model: ModelState, merged: ModelState, members: Members) -> ModelState:
        """Damping, then μ for the next round."""
        new = super().step(model, merged, members)
        if self.dynamic:
            self._update_strength(model, new)
        return new

    def _update_strength(self, model: ModelState, new: ModelState) -> None:
        """Set μ after a round that led from ``model`` to ``new``."""
        assert self.tools is not None, "prepare() comes first"
        with one_thread():
            before = self.tools.loss(self.tools.model(model)) if self.loss is None else self.loss
            after = self.tools.loss(self.tools.model(new))
        after = math.inf if math.isnan(after) else after
        self.falls = self.falls + 1 if after < before else 0
        if after > before:
            self.strength = round(self.strength + STEP, 10)
        if self.falls == FALLS:
            self.strength, self.falls = round(max(0.0, self.strength - STEP), 10), 0
        self.loss = after


def add_proximal_gradient(problem: Problem, gradients: Tensors, mu: float) -> None:
    """Add the gradient of (μ/2)‖y − w‖² to ``gradients``, in place."""
    if mu == 0:  # 0·∞ would be NaN, and FedAvg must have the same bits
        return
    for name, gradient in gradients.items():
        gradient.add_(problem.parameters[name].detach() - problem.anchor[name], alpha=mu)
