"""Shards: few classes per client, from samples that are sorted by label. McMahan et al. 2017, arXiv:1602.05629."""

from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from fedcohort.core.arrays import Indices
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.federation.partitions.pools import grouped

__all__ = ["Shards"]


@parameters
class Shards:
    """Few classes per client, and equal sizes. Every client receives a few shards of the samples sorted by label.

    The samples are sorted by label and cut into m·s shards of ⌊N/(m·s)⌋ samples; each client receives s shards at random. A shard that
    is not larger than the smallest class holds at most 2 classes, so that a client has at most 2·s classes, or s if every shard holds
    one class. The remainder of N/(m·s), a random choice of samples, is not used.

    McMahan et al. 2017, arXiv:1602.05629: MNIST, m = 100, s = 2, 200 shards of 300.
    """

    shards: Annotated[int, Ge(1)] = 2
    """Shards per client (s)."""

    min_size: Annotated[int, Ge(0)] = 10
    """Smallest number of samples per client; sizes are equal, so all clients have at least this number or none has."""

    evens_out: ClassVar[str | None] = None

    def assign(
        self, labels: Indices, num_clients: int, rng: np.random.Generator, writers: Indices | None = None
    ) -> Indices:
        """Deal shards of sorted samples to clients at random; see :meth:`Rule.assign`."""
        num_shards = num_clients * self.shards
        size = len(labels) // num_shards
        if size == 0:
            raise UsageError(
                f"federation.partition.shards = {self.shards}: {num_shards} shards for {num_clients} clients cannot be cut from "
                f"{len(labels)} samples; use at most {len(labels) // num_clients}"
            )
        if self.shards * size < self.min_size:
            raise UsageError(
                f"federation.partition.min_size = {self.min_size}: {self.shards} shards of {size} sample{'s' * (size != 1)} are "
                f"{self.shards * size}; use at most that, or federation.partition.shards = 1"
            )
        kept = rng.permutation(len(labels))[: num_shards * size]
        by_label, _ = grouped(kept, labels[kept], int(labels.max()) + 1)
        owners = rng.permutation(np.repeat(np.arange(num_clients), self.shards))
        clients = np.full(len(labels), -1)
        clients[by_label] = np.repeat(owners, size)
        return clients
