"""Models that stay on the host that trained them until the next round."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from fedcohort.algorithms import ModelState, Update
from fedcohort.algorithms.updates import ModelGroup
from fedcohort.algorithms.weighted_means import RunningMean

__all__ = ["KeptModels", "KeptStack", "KeptStates"]


class KeptModels(Protocol):
    """The models of a call, by the position of the client in the call."""

    def state_of(self, position: int) -> ModelState:
        """The model of the client at this position."""

    def mean(self, weights: Mapping[int, float]) -> ModelState:
        """Σ a_i w_i/Σ a_i over the clients at these positions."""


class KeptStates:
    """Models that were computed; implements :class:`KeptModels`."""

    def __init__(self, states: Sequence[ModelState]) -> None:
        self._states = states

    def state_of(self, position: int) -> ModelState:
        """See :class:`KeptModels`."""
        return self._states[position]

    def mean(self, weights: Mapping[int, float]) -> ModelState:
        """See :class:`KeptModels`."""
        running = RunningMean()
        for position, weight in weights.items():
            running.add(self._states[position], weight)
        return running.result()


class KeptStack:
    """Models of a stack that computes their mean directly, without the single models; implements :class:`KeptModels`.

    Args:
        models: the models.
        positions: position of each client's model in ``models``.
    """

    def __init__(self, models: ModelGroup, positions: Sequence[int]) -> None:
        self._models, self._positions = models, positions

    @staticmethod
    def of(updates: Sequence[Update]) -> "KeptStack | None":
        """The models of these updates; None if they are not all in one group."""
        pending = [update.pending for update in updates if update.pending is not None]
        if not pending or len(pending) < len(updates) or len({id(models) for models, _ in pending}) > 1:
            return None
        return KeptStack(pending[0][0], [position for _, position in pending])

    def state_of(self, position: int) -> ModelState:
        """See :class:`KeptModels`."""
        return self._models.state_of(self._positions[position])

    def mean(self, weights: Mapping[int, float]) -> ModelState:
        """See :class:`KeptModels`."""
        return self._models.mean({self._positions[position]: weight for position, weight in weights.items()})
