"""The clients' models of a round, coordinate by coordinate, for algorithms that compare values instead of averaging models."""

from collections.abc import Callable

import torch
from torch import Tensor

from fedcohort.algorithms.base import WeightMode
from fedcohort.algorithms.updates import ModelState, Update
from fedcohort.core.errors import UsageError
from fedcohort.core.sums import for_sums

__all__ = ["Coordinates", "check_one_vote"]

BLOCK = 1 << 16
"""Coordinates that are merged at a time, so that the copies in float64 stay small."""

VALUES = 1 << 27
"""Values of all models that are merged at a time, 1 GiB in float64; a block has fewer coordinates if there are very many models."""


class Coordinates:
    """The fold of a round: the values that the clients sent for every entry of the model, kept until the end of the round."""

    def __init__(self) -> None:
        self._sent: dict[str, list[Tensor]] = {}

    def include(self, update: Update, weight: float) -> None:
        """Keep the entries that were sent; :meth:`Algorithm.add` calls this.

        Weights are uniform: that of a client is how many times it was drawn (R5), and it counts as many times.
        """
        for name, value in update.state.items():
            if update.sent is None or name in update.sent:
                self._sent.setdefault(name, []).extend([value] * round(weight))

    def merge(self, model: ModelState, rule: Callable[[Tensor], Tensor]) -> ModelState:
        """The merged model. Entries that no client sent keep their value in ``model``; integer counters take the maximum.

        Args:
            model: the model before the round.
            rule: float64 [n, P] of n clients, every column in ascending order → float64 [P].
        """
        return {**model, **{name: _merged(values, rule) for name, values in self._sent.items()}}


def _merged(values: list[Tensor], rule: Callable[[Tensor], Tensor]) -> Tensor:
    """One entry of the merged model."""
    merged = values[0].clone()
    if not merged.is_floating_point():
        for value in values:
            torch.maximum(merged, value, out=merged)
        return merged
    result, columns = merged.view(-1), [value.reshape(-1) for value in values]
    length = max(1, min(BLOCK, VALUES // len(values)))
    for start in range(0, len(result), length):
        block = for_sums(torch.stack([column[start : start + length] for column in columns]))
        result[start : start + length] = rule(block.sort(dim=0).values)
    return merged


def check_one_vote(weights: WeightMode, algorithm: str) -> None:
    """Check the weight mode of an algorithm that counts every client once, as its source does.

    Raises:
        UsageError: the mode gives clients different weights.
    """
    if weights != "uniform":
        raise UsageError(
            f"algorithm.weights = {weights!r}: {algorithm} counts every client once; use uniform (its default)"
        )
