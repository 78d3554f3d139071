"""FedProx: clients stay near the model they received.

    client i minimises  F_i(y) + (μ/2)‖y − w^t‖²,   that is, g ← g + μ·(y − w^t) at every step
    server              as FedAvg

A client that has time for fewer steps sends what it has (γ-inexact solutions): strategies say so with ``Cohort.epochs``. With μ = 0
it is FedAvg, bit for bit. The paper's heuristic that changes μ with the global loss is not implemented: nobody measures that loss
in a round of partial participation.

Li et al., "Federated Optimization in Heterogeneous Networks", 2020, arXiv:1812.06127; code ``adap/flower``, baseline fedprox.
"""

from typing import Annotated, ClassVar

from annotated_types import Ge

from fedcohort.algorithms.base import Algorithm, Problem, Tensors
from fedcohort.parameters import parameters
from fedcohort.plugins import Card

__all__ = ["FedProx", "pull_back"]


@parameters
class FedProx(Algorithm):
    """FedAvg with a proximal term in the local objective."""

    mu: Annotated[float, Ge(0)] = 0.01
    """Strength of the proximal term (μ); 0 is FedAvg. Usual values: 0.001, 0.01, 0.1, 1."""

    card: ClassVar[Card] = Card(source="Li et al. 2020, arXiv:1812.06127; adap/flower", status="code", cost="O(kP)")
    corrects: ClassVar[bool] = True
    stacks: ClassVar[bool] = True

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        """g ← g + μ·(y − w)."""
        pull_back(problem, gradients, self.mu)


def pull_back(problem: Problem, gradients: Tensors, mu: float) -> None:
    """Add the gradient of (μ/2)‖y − w‖² to ``gradients``, in place."""
    if mu == 0:  # not even 0·∞ may change a bit of FedAvg
        return
    for name, gradient in gradients.items():
        gradient.add_(problem.parameters[name].detach() - problem.anchor[name], alpha=mu)
