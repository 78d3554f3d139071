"""Weighted means of models, in float64."""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

import torch
from torch import Tensor

from fedcohort.algorithms.updates import ModelGroup, ModelState, Tensors, Update
from fedcohort.core.sums import for_sums, sum_type
from fedcohort.core.threads import SHARED, in_background, in_two_threads

__all__ = ["RunningMean", "blend"]

PIECE = 2**16
"""Number of values of a large entry that are included at a time: in float64, they fit into a core's cache."""


class RunningMean:
    """Weighted mean of model states, one at a time, in float64: mean ← mean + (x − mean)·a/A.

    The mean of identical models is exactly that model. Floating-point entries are averaged, each over the clients that sent it;
    integer counters take the maximum. ``total`` is the sum of all weights.

    Models that are still in a :class:`~fedcohort.algorithms.updates.ModelGroup` are collected until the group is complete, or until
    the next group begins; then the mean of the group is included in one step. A group that is mixed with others is collected until it
    is complete, or until more groups are collected than are mixed. Every second group mean is computed in another thread while the
    next group is handled.
    """

    def __init__(self) -> None:
        self.total = 0.0
        self._totals: dict[str, float] = {}
        self.mean: Tensors = {}
        self._dtypes: dict[str, torch.dtype] = {}
        self._only: ModelState | None = None  # a copy of the state that was included, as long as it is the only one
        self._group: ModelGroup | None = None
        self._group_weights: dict[int, float] = {}
        self._mixed: dict[int, tuple[ModelGroup, dict[int, float]]] = {}  # by the group's id
        self._in_thread: tuple[Future[ModelState], float] | None = None

    def include(self, update: Update, weight: float) -> None:
        """Include the model of ``update``, or the entries that were sent."""
        if update.pending is None or update.sent is not None:
            self.add(update.state, weight, update.sent)
            return
        group, position = update.pending
        if group.mixed_with:
            self._include_mixed(group, position, weight)
            return
        if group is not self._group or position in self._group_weights:
            self._close_group()
        self._group = group
        self._group_weights[position] = weight
        if len(self._group_weights) == group.size:  # do not wait for the next group, which may take long
            self._close_group()

    def _include_mixed(self, group: ModelGroup, position: int, weight: float) -> None:
        """Include the model at this position of a group that is mixed with others."""
        _, weights = self._mixed.setdefault(id(group), (group, {}))
        if len(self._mixed) > group.mixed_with:  # clients of an earlier group were lost
            self._include_group(*self._mixed.pop(next(iter(self._mixed))))
        if position in weights:
            self._include_group(group, {position: weight})
            return
        weights[position] = weight
        if len(weights) == group.size:
            self._include_group(*self._mixed.pop(id(group)))

    def _close_group(self) -> None:
        """Include the mean of the current group."""
        if self._group is not None:
            self._include_group(self._group, self._group_weights)
        self._group, self._group_weights = None, {}

    def _include_group(self, group: ModelGroup, weights: dict[int, float]) -> None:
        """Include the mean of these models of a group, or start to compute it in another thread."""
        mean, total = partial(group.mean, weights), sum(weights.values())
        if self._in_thread is None:
            self._in_thread = in_background(mean), total
        else:
            group_mean = mean()
            self._join()
            self._add(group_mean, total)

    def _join(self) -> None:
        """Include the mean that was computed in another thread."""
        if self._in_thread is not None:
            mean, total = self._in_thread
            self._in_thread = None
            self._add(mean.result(), total)

    def add(self, state: ModelState, weight: float, names: frozenset[str] | None = None) -> None:
        """Include ``state``, or only its entries ``names``, with ``weight`` > 0."""
        self._join()
        self._add(state, weight, names)

    def _add(self, state: ModelState, weight: float, names: frozenset[str] | None = None) -> None:
        if self.total == 0 and names is None and sum(value.numel() for value in state.values()) < SHARED:
            self.total, self._only = weight, {name: value.clone() for name, value in state.items()}
            return
        self._include_only()
        self._include(state, weight, names)

    def _include_only(self) -> None:
        """Begin the mean with the state that was the only one so far."""
        if self._only is not None:
            first, self._only, weight, self.total = self._only, None, self.total, 0.0
            self._include(first, weight)

    def _include(self, state: ModelState, weight: float, names: frozenset[str] | None = None) -> None:
        self.total += weight
        included = [name for name in state if names is None or name in names]
        shares: dict[str, float] = {}
        for name in included:
            self._totals[name] = self._totals.get(name, 0.0) + weight
            shares[name] = weight / self._totals[name]

        def with_state(name: str) -> Tensor:
            return _included(self.mean.get(name), state[name], shares[name])

        for name, mean in zip(included, _of_each(with_state, included, state), strict=True):
            self._dtypes.setdefault(name, state[name].dtype)
            self.mean[name] = mean

    def result(self) -> ModelState:
        """The mean, in the dtypes of the states that were included."""
        self._close_group()
        for group, weights in self._mixed.values():
            self._include_group(group, weights)
        self._mixed = {}
        self._join()
        if self._only is not None:  # the way to float64 and back would not change a value
            return self._only
        names = list(self.mean)
        return dict(
            zip(names, _of_each(lambda name: self.mean[name].to(self._dtypes[name]), names, self.mean), strict=True)
        )


def _included(mean: Tensor | None, value: Tensor, share: float) -> Tensor:
    """The mean of an entry after ``value`` is included with this share of all weights; ``mean`` may be changed in place."""
    if mean is None:
        return value.to(sum_type(value.device), copy=True) if value.is_floating_point() else value.clone()
    if not value.is_floating_point():
        return torch.maximum(mean, value, out=mean)
    if value.numel() < 2 * PIECE or value.device.type != "cpu" or not (mean.is_contiguous() and value.is_contiguous()):
        return mean.lerp_(for_sums(value), share)
    for part, own in zip(mean.view(-1).split(PIECE), value.view(-1).split(PIECE), strict=True):
        part.lerp_(for_sums(own), share)
    return mean


def _of_each(work: Callable[[str], Tensor], names: list[str], entries: ModelState) -> list[Tensor]:
    """The results of ``work`` for these entries, in order; on a CPU, two threads share much work."""
    sizes = [entries[name].numel() if entries[name].device.type == "cpu" else 0 for name in names]
    return in_two_threads(work, names, sizes)


def blend(start: ModelState, end: ModelState, share: float) -> ModelState:
    """(1 − share)·start + share·end over floating-point entries, in float64; integer entries are those of ``end``.

    >>> import torch
    >>> blend({"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([0.8, 2.4])}, 0.5)["w"]
    tensor([0.9000, 2.2000])
    """
    if share == 1.0:
        return end
    return {
        name: torch.lerp(for_sums(start[name]), for_sums(value), share).to(value.dtype)
        if value.is_floating_point()
        else value
        for name, value in end.items()
    }
