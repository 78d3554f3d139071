"""Equal shares of the same mixture: the federation without heterogeneity. McMahan et al. 2017, arXiv:1602.05629."""

from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from fedcohort.core.arrays import Indices
from fedcohort.core.parameters import parameters
from fedcohort.federation.partitions.pools import shuffled_by_class

__all__ = ["Iid"]


@parameters
class Iid:
    """Equal shares: a random permutation of all samples, cut into m parts whose sizes differ by at most 1.

    McMahan et al. 2017, arXiv:1602.05629.
    """

    stratified: bool = False
    """Deal every class round-robin, so that the counts of each class, too, differ by at most 1 between clients."""

    min_size: Annotated[int, Ge(0)] = 1
    """Samples that every client must have at least; shares are equal, so this is met or impossible."""

    evens_out: ClassVar[str | None] = None

    def assign(
        self, labels: Indices, num_clients: int, rng: np.random.Generator, writers: Indices | None = None
    ) -> Indices:
        """Clients in turn, to samples in random order; see :meth:`Rule.assign`."""
        in_turn = np.arange(len(labels)) % num_clients
        if not self.stratified:
            return rng.permutation(in_turn)
        clients = np.empty(len(labels), np.int64)
        clients[shuffled_by_class(labels, rng)[0]] = in_turn
        return clients
