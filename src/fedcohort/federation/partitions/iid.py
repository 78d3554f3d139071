"""IID: equal shares with the same class mixture, a federation without heterogeneity. McMahan et al. 2017, arXiv:1602.05629."""

from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from fedcohort.core.arrays import Indices
from fedcohort.core.parameters import parameters
from fedcohort.federation.partitions.pools import shuffled_by_class

__all__ = ["Iid"]


@parameters
class Iid:
    """Random parts of equal size (IID). A random permutation of all samples is cut into m parts with sizes that differ by at most
    1.

    McMahan et al. 2017, arXiv:1602.05629.
    """

    stratified: bool = False
    """Deal every class round-robin, so that the counts of each class also differ by at most 1 between clients."""

    min_size: Annotated[int, Ge(0)] = 1
    """Smallest number of samples per client; shares are equal, so all clients have at least this number or none has."""

    evens_out: ClassVar[str | None] = None

    def assign(
        self, labels: Indices, num_clients: int, rng: np.random.Generator, writers: Indices | None = None
    ) -> Indices:
        """Deal samples in random order to the clients in turn; see :meth:`Rule.assign`."""
        in_turn = np.arange(len(labels)) % num_clients
        if not self.stratified:
            return rng.permutation(in_turn)
        clients = np.empty(len(labels), np.int64)
        clients[shuffled_by_class(labels, rng)[0]] = in_turn
        return clients
