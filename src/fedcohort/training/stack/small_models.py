"""The models of a stack of small networks, for which single calls for each client would take longer than the arithmetic."""

from collections.abc import Mapping

import torch

from fedcohort.algorithms import ModelState, Tensors
from fedcohort.core.sums import for_sums

__all__ = ["SMALL", "SmallModels"]

SMALL = 2**15
"""Maximum number of values of a small model. The mean of larger ones is quicker one by one, in the processor's cache."""


class SmallModels:
    """Models of a stack of which all trained entries are stored (:class:`fedcohort.algorithms.updates.ModelGroup`).

    Args:
        received: the model that all clients began with.
        trained: the entries that each client trains, [g, …] by name.
    """

    def __init__(self, received: ModelState, trained: Tensors) -> None:
        self.received, self.trained = received, trained
        self.size = len(next(iter(trained.values())))
        self.num_bytes = sum(value.nbytes for value in received.values())
        self.mixed_with = 0
        self._finite: list[bool] = []

    @staticmethod
    def of(received: ModelState, trained: Tensors) -> "SmallModels | None":
        """These models; None if they are large, or nothing is trained."""
        if not trained or sum(value.numel() for value in received.values()) > SMALL:
            return None
        return SmallModels(received, trained)

    def state_of(self, position: int) -> ModelState:
        """The model of the client at this position."""
        return {
            name: self.trained[name][position].detach() if name in self.trained else value.clone()
            for name, value in self.received.items()
        }

    def is_finite(self, position: int) -> bool:
        """Whether all entries of the client's model are finite."""
        return self._finite[position]

    def settle(self) -> None:
        """Compute what :meth:`is_finite` needs, in the thread that did the last step."""
        others = [value for name, value in self.received.items() if name not in self.trained]
        if not all(value.isfinite().all() for value in others):
            self._finite = [False] * self.size
            return
        rows = [value.reshape(self.size, -1) for value in self.trained.values()]  # a parameter may be a single number
        self._finite = torch.stack([row.sum(1) for row in rows]).isfinite().all(0).tolist()
        if not all(self._finite):  # finite numbers may also sum to infinity
            self._finite = torch.stack([row.isfinite().all(1) for row in rows]).all(0).tolist()

    def mean(self, weights: Mapping[int, float]) -> ModelState:
        """Σ a_i w_i/Σ a_i, computed from differences in float64, so that the mean of identical models is that model exactly."""
        total = sum(weights.values())
        positions = list(weights)
        every = positions == list(range(self.size))
        found: ModelState = {}
        for name, received in self.received.items():
            if name not in self.trained:
                found[name] = received.clone()
                continue
            values = for_sums(self.trained[name] if every else self.trained[name][positions])
            shares = torch.tensor([a / total for a in weights.values()], dtype=values.dtype, device=values.device)
            mean = values[0] + torch.tensordot(shares, values - values[0], dims=1)
            found[name] = mean.to(received.dtype)
        return found
