"""Given sizes: every client has as many samples as a table says, of classes that are drawn."""

from dataclasses import field
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Gt

from fedcohort.core.arrays import Indices
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.federation.partitions.given_counts import check_given
from fedcohort.federation.partitions.mixtures import deal_mixtures
from fedcohort.federation.partitions.pools import shuffled_by_class

__all__ = ["GivenSizes"]


@parameters
class GivenSizes:
    """Every client has a given number of samples. It draws its own mixture of classes from a Dirichlet law.

    In random order, each client i draws q_i ~ Dirichlet(alpha, …, alpha) over the classes that occur, and takes its samples one by one
    as in the partition ``dirichlet_client``. Samples that no client needs are not used.

    The mixtures follow Hsu, Qi, Brown 2019, arXiv:1909.06335; the given sizes are ours.
    """

    sizes: list[Annotated[int, Ge(0)]] = field(default_factory=list)
    """Number of samples of each client, such as [120, 40, 300] for three clients."""

    alpha: Annotated[float, Gt(0)] = 0.5
    """Concentration of the mixtures: 0.05 gives nearly one class per client, 100 nearly equal shares of all classes."""

    min_size: ClassVar[int] = 0
    evens_out: ClassVar[str | None] = None

    def assign(
        self, labels: Indices, num_clients: int, rng: np.random.Generator, writers: Indices | None = None
    ) -> Indices:
        """Draw mixtures, then samples of each class; see :meth:`Rule.assign`."""
        check_given("sizes", "number", self.sizes, num_clients)
        sizes = np.array(self.sizes, np.int64)
        total = int(sizes.sum())
        if total > len(labels):
            raise UsageError(
                f"federation.partition.sizes: the clients have {total} samples, the data {len(labels)}; multiply all sizes by at most "
                f"{len(labels) / total:.4g}, or use other data"
            )
        samples, starts = shuffled_by_class(labels, rng)
        clients = np.full(len(labels), -1)
        deal_mixtures(clients, samples, starts, sizes, self.alpha, True, rng)
        return clients
