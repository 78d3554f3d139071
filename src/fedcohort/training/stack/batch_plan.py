"""The work of every client of a stack: its batches in order, the same as in the loop."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedcohort.core.arrays import Indices

__all__ = ["Plan", "batches", "sample_counts"]


@dataclass(frozen=True)
class Plan:
    """The training of one client.

    Attributes:
        client: id.
        size: number of training samples.
        batch: size of a batch; the last batch of an epoch may be smaller.
        rows: the batch of every step, as positions in the client's training samples.
    """

    client: int
    size: int
    batch: int
    rows: list[np.ndarray]

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.rows)

    @property
    def per_pass(self) -> int:
        """Number of steps of one epoch."""
        return -(-self.size // self.batch)


def batches(order: np.random.Generator, size: int, epochs: int, batch: int) -> list[np.ndarray]:
    """A client's batches: ``order`` shuffles its ``size`` samples anew in every epoch."""
    rows: list[np.ndarray] = []
    for _ in range(epochs):
        shuffled = order.permutation(size)
        rows.extend(shuffled[start : start + batch] for start in range(0, size, batch))
    return rows


def sample_counts(plans: Sequence[Plan]) -> Indices:
    """Number of samples in every step of every client, int64 [clients, steps]; 0 where a client has fewer steps.

    The first client has the most steps. There is at least one column.
    """
    counts = np.zeros((len(plans), max(1, plans[0].steps)), dtype=np.int64)
    for i, plan in enumerate(plans):
        counts[i, : plan.steps] = [len(row) for row in plan.rows]
    return counts
