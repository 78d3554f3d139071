"""Algorithms as people write them, for the cases."""

from typing import ClassVar

from fedcohort.algorithms import Algorithm, Problem, Tensors

__all__ = ["OwnProx"]


class OwnProx(Algorithm):
    """FedProx (mu = 0.1), written by hand."""

    corrects: ClassVar[bool] = True

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        """Add the gradient of the proximal term."""
        for name, gradient in gradients.items():
            gradient += 0.1 * (problem.parameters[name].detach() - problem.anchor[name])
