"""Weighted means of models, in float64."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial, reduce
from itertools import repeat

import torch
from torch import Tensor

from fedcohort.algorithms.updates import ModelGroup, ModelState, Tensors, Update
from fedcohort.core.sums import for_sums, sum_type
from fedcohort.core.threads import SHARED, in_background, in_two_threads

__all__ = ["RunningMean", "blend"]

PIECE = 2**16
"""Number of values of a large entry that are included at a time: in float64, they fit into a core's cache."""
WHOLE = 2**18
"""Number of values below which an entry is included at once: more calls would take longer than a smaller cache does."""
TOGETHER = 2
"""Number of updates with large models that are included together: the mean is written to memory once for all of them."""


class RunningMean:
    """Weighted mean of model states, one at a time, in float64: mean ← mean + (x − mean)·a/A.

    The mean of identical models is exactly that model. Floating-point entries are averaged, each over the clients that sent it;
    integer counters take the maximum. ``total`` is the sum of all weights.

    Models that are still in a :class:`~fedcohort.algorithms.updates.ModelGroup` are collected until the group is complete, or until
    the next group begins; then the mean of the group is included in one step. A group that is mixed with others is collected until it
    is complete, or until more groups are collected than are mixed. Every second group mean is computed in another thread while the
    next group is handled. Up to :data:`TOGETHER` updates with large models wait to be included together, which gives the same bits.
    """

    def __init__(self) -> None:
        self.total = 0.0
        self._totals: dict[str, float] = {}
        self.mean: Tensors = {}
        self._dtypes: dict[str, torch.dtype] = {}
        self._only: ModelState | None = None  # a copy of the state that was included, as long as it is the only one
        # entries of large models by name, each with its share of all weights
        self._waiting: dict[str, list[tuple[Tensor, float]]] = {}
        self._group: ModelGroup | None = None
        self._group_weights: dict[int, float] = {}
        self._mixed: dict[int, tuple[ModelGroup, dict[int, float]]] = {}  # by the group's id
        self._in_thread: tuple[Future[ModelState], float] | None = None

    def include(self, update: Update, weight: float) -> None:
        """Include the model of ``update``, or the entries that were sent."""
        if update.pending is None or update.sent is not None:
            self._join()
            self._add(update.state, weight, update.sent, wait=True)
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

    def _add(
        self, state: ModelState, weight: float, names: frozenset[str] | None = None, *, wait: bool = False
    ) -> None:
        """As :meth:`add`; a large state can ``wait`` if nothing will change its memory."""
        if self.total == 0 and names is None and _numel(state) < SHARED:
            self.total, self._only = weight, {name: value.clone() for name, value in state.items()}
            return
        self._include_only()
        self._include(state, weight, names, wait=wait)

    def _include_only(self) -> None:
        """Begin the mean with the state that was the only one so far."""
        if self._only is not None:
            first, self._only, weight, self.total = self._only, None, self.total, 0.0
            self._include(first, weight)

    def _include(
        self, state: ModelState, weight: float, names: frozenset[str] | None = None, *, wait: bool = False
    ) -> None:
        if max(map(len, self._waiting.values()), default=0) == TOGETHER:
            self._include_waiting()
        self.total += weight
        included = {name: value for name, value in state.items() if names is None or name in names}
        for name, value in included.items():
            self._totals[name] = self._totals.get(name, 0.0) + weight
            self._dtypes.setdefault(name, value.dtype)
            self._waiting.setdefault(name, []).append((value, weight / self._totals[name]))
        if not wait or _numel(included) < SHARED:
            self._include_waiting()

    def _include_waiting(self) -> None:
        """Include the entries that wait."""
        waiting, self._waiting = self._waiting, {}

        def with_waiting(name: str) -> Tensor:
            mean = self.mean.get(name)
            return _included(mean, waiting[name], _empty(waiting[name][0][0]) if mean is None else mean)

        self.mean.update(_of_each(with_waiting, {name: first for name, ((first, _), *_) in waiting.items()}))

    def result(self) -> ModelState:
        """The mean, in the dtypes of the states that were included."""
        self._close_group()
        for group, weights in self._mixed.values():
            self._include_group(group, weights)
        self._mixed = {}
        self._join()
        if self._only is not None:  # the way to float64 and back would not change a value
            return self._only

        def in_own_type(name: str) -> Tensor:
            mean, waiting = self.mean.get(name), self._waiting.get(name, [])
            if mean is not None and not waiting:
                return mean.to(self._dtypes[name])
            return _included(mean, waiting, torch.empty_like(waiting[0][0], dtype=self._dtypes[name]))

        entries = {name: self.mean[name] if name in self.mean else self._waiting[name][0][0] for name in self._dtypes}
        return _of_each(in_own_type, entries)


def _empty(value: Tensor) -> Tensor:
    """Memory for the mean of an entry."""
    return torch.empty_like(value, dtype=sum_type(value.device) if value.is_floating_point() else value.dtype)


def _numel(state: ModelState) -> int:
    """Number of values of a model."""
    return sum(value.numel() for value in state.values())


def _included(mean: Tensor | None, values: Sequence[tuple[Tensor, float]], result: Tensor) -> Tensor:
    """Include ``values`` in the mean of an entry, and write the new mean to ``result``, which may be ``mean`` itself.

    A large entry is included in pieces: all values of one piece, then those of the next.

    Args:
        mean: the mean before, in the format of sums; None if there is none.
        values: values of the entry, each with its share of all weights so far; at least one.
        result: has the shape of the values, and their format or that of sums.
    """
    tensors = [value for value, _ in values] + [result] + ([] if mean is None else [mean])
    if result.numel() < WHOLE or result.device.type != "cpu" or not all(map(Tensor.is_contiguous, tensors)):
        return _included_at_once(mean, values, result)
    shares = [share for _, share in values]
    means = repeat(None) if mean is None else mean.view(-1).split(PIECE)
    pieces = zip(*(value.view(-1).split(PIECE) for value, _ in values), strict=True)
    for part, own, before in zip(result.view(-1).split(PIECE), pieces, means, strict=False):
        _included_at_once(before, list(zip(own, shares, strict=True)), part)
    return result


def _included_at_once(mean: Tensor | None, values: Sequence[tuple[Tensor, float]], result: Tensor) -> Tensor:
    """As :func:`_included`, in one piece."""
    first, rest = (values[0][0], values[1:]) if mean is None else (mean, values)
    if not result.is_floating_point():
        return result.copy_(reduce(torch.maximum, [value for value, _ in rest], first))
    exact = sum_type(result.device)
    new = result if result.dtype == exact else torch.empty_like(result, dtype=exact)
    if new is not first:
        new.copy_(first)
    for value, share in rest:
        new.lerp_(for_sums(value), share)
    return result if new is result else result.copy_(new)


def _of_each(work: Callable[[str], Tensor], entries: ModelState) -> ModelState:
    """The results of ``work`` for the names of these entries, in order; on a CPU, two threads share much work."""
    sizes = [value.numel() if value.device.type == "cpu" else 0 for value in entries.values()]
    return dict(zip(entries, in_two_threads(work, list(entries), sizes), strict=True))


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
