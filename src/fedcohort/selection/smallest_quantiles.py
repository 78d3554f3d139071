"""The updates of a round with the smallest conformal quantiles, of a stream of which only these are kept in memory."""

import heapq
import math
from collections.abc import Iterator
from typing import Generic

from fedcohort.core.arrays import Values
from fedcohort.selection.selector import UpdateT

__all__ = ["SmallestQuantiles"]


class SmallestQuantiles(Generic[UpdateT]):
    """The ``count`` updates of a stream with the smallest finite q̂, in stream order; ties by the clients' random keys (R2)."""

    def __init__(self, count: int, keys: Values | None) -> None:
        self._count, self._keys, self._position = count, keys, 0
        self._heap: list[tuple[float, float, int, UpdateT]] = []

    def offer(self, update: UpdateT) -> None:
        """Keep the update if it is among the smallest so far; a client with an infinite q̂ does not report one."""
        self._position += 1
        quantile = update.report.get("q_hat", math.inf)
        if not self._count or not math.isfinite(quantile):
            return
        key = 0.0 if self._keys is None else float(self._keys[update.client])
        heapq.heappush(self._heap, (-quantile, key, self._position, update))
        if len(self._heap) > self._count:
            heapq.heappop(self._heap)

    def clear(self) -> None:
        """Drop all updates."""
        self._heap.clear()

    def __iter__(self) -> Iterator[UpdateT]:
        for _, _, _, update in sorted(self._heap, key=lambda entry: entry[2]):
            yield update
