"""Partitions that shuffle each class and cut it into one part for each client."""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from fedcohort.core.arrays import Indices
from fedcohort.federation.partitions.pools import Draw, grouped

__all__ = ["ClassCuts"]


class ClassCuts:
    """A partition rule that cuts each class, shuffled, into one part for each client. A rule says in ``cuts`` how large they are."""

    heavy_tails: ClassVar[bool] = False

    def cuts(self, class_sizes: Indices, num_clients: int, repeats: int, rng: np.random.Generator) -> Iterator[Indices]:
        """For each class in turn, the number of its samples that each client gets in several draws, int64 [repeats, m].

        Args:
            class_sizes: samples of each class, int64 [K].
            num_clients: number of clients m.
            repeats: number of independent draws.
            rng: source of all random numbers.
        """
        raise NotImplementedError

    def assign(
        self, labels: Indices, num_clients: int, rng: np.random.Generator, writers: Indices | None = None
    ) -> Indices:
        """One cut per class; see :meth:`Rule.assign`."""
        return self.assign_on_demand(labels, num_clients, rng).assign()

    def assign_on_demand(self, labels: Indices, num_clients: int, rng: np.random.Generator) -> Draw:
        """One draw, before samples are assigned; see :class:`AssignsOnDemand`."""
        shuffled = rng.permutation(len(labels))
        class_sizes = np.bincount(labels)
        sizes = np.zeros(num_clients, np.int64)
        owners, parts = [], []
        for (counts,) in self.cuts(class_sizes, num_clients, 1, rng):
            sizes += counts
            owners.append(np.flatnonzero(counts))
            parts.append(counts[owners[-1]])

        def assign() -> Indices:
            clients = np.empty(len(labels), np.int64)
            samples, _ = grouped(shuffled, labels[shuffled], len(class_sizes))
            clients[samples] = np.repeat(np.concatenate(owners), np.concatenate(parts))
            return clients

        return Draw(sizes, assign)

    def sizes_of_draws(self, class_sizes: Indices, num_clients: int, repeats: int, rng: np.random.Generator) -> Indices:
        """Sizes of the clients in several draws; see :class:`DrawsSizes`."""
        sizes = np.zeros((repeats, num_clients), np.int64)
        for counts in self.cuts(class_sizes, num_clients, repeats, rng):
            sizes += counts
        return sizes
