"""Members of a local problem, for fake problems that define only what a test needs."""

import numpy as np
from torch import Tensor

from fedcohort.algorithms import Tensors


class PartOfProblem:
    """A :class:`fedcohort.algorithms.Problem` whose methods raise; a subclass defines the other attributes and what it needs."""

    num_samples: int = 1
    batch: Tensor

    @property
    def held_out(self) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    @property
    def rng(self) -> np.random.Generator:
        raise NotImplementedError

    def backward(self, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def gradient(self, at: Tensors | None = None) -> Tensors:
        raise NotImplementedError

    def full_gradient(self, at: Tensors) -> Tensors:
        raise NotImplementedError

    def losses_and_gradient(self, at: Tensors, weights: Tensor | None = None) -> tuple[Tensor, Tensors]:
        raise NotImplementedError

    def cross_entropy_gradient(self, features: Tensor, labels: Tensor) -> Tensors:
        raise NotImplementedError

    @property
    def labels(self) -> Tensor:
        raise NotImplementedError

    def outputs(self, at: Tensors | None = None, part: str = "") -> Tensor:
        raise NotImplementedError

    def received_loss(self) -> float | Tensor:
        raise NotImplementedError
