"""Natural clients: one client for each client, or writer, that the data come from. LEAF, arXiv:1812.01097."""

from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from fedcohort.core.arrays import Indices
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters

__all__ = ["Natural", "by_writer"]


@parameters
class Natural:
    """Each client is one of the data: a hospital, or a writer. It has all samples of this client, and differs from others as they
    do.

    Clients of the data with fewer than ``min_size`` samples are left out. Of the others, m are drawn at random and numbered in the
    order of their ids; if there are exactly m, all take part. The samples of the others are not used.

    LEAF, arXiv:1812.01097, where clients are the writers of handwriting. The server's test set holds samples of all clients of the
    data, including those that do not take part.
    """

    min_size: Annotated[int, Ge(0)] = 10
    """Smallest number of samples of a client of the data that takes part."""

    evens_out: ClassVar[str | None] = None

    def assign(
        self, labels: Indices, num_clients: int, rng: np.random.Generator, writers: Indices | None = None
    ) -> Indices:
        """Assign each sample to its writer's client; see :meth:`Rule.assign`."""
        return by_writer(writers, num_clients, self.min_size, rng, "federation.partition = 'natural'")


def by_writer(
    writers: Indices | None, num_clients: int, min_size: int, rng: np.random.Generator, setting: str
) -> Indices:
    """Client of each sample, int64 [N]: m writers that have at least ``min_size`` samples; −1 for samples of other writers.

    Raises:
        UsageError: too few such writers, or data without writers; ``setting`` is the setting that requires them.
    """
    if writers is None:
        raise UsageError(
            f"{setting}: the data do not say which client a sample comes from; use a table with a column client, "
            "from_arrays(…, clients=…), data with a column writer_id such as 'femnist', or another partition"
        )
    if writers.max() >= 4 * len(writers):  # avoid a long list of sizes for ids with large gaps
        writers = np.unique(writers, return_inverse=True)[1].astype(np.int64, copy=False)
    sizes = np.bincount(writers)
    eligible = np.flatnonzero(sizes >= max(min_size, 1))
    if len(eligible) < num_clients:
        num_writers = np.count_nonzero(sizes)
        held = "1 client" if num_writers == 1 else f"{num_writers} clients"
        if num_writers < num_clients:
            raise UsageError(
                f"federation.clients = {num_clients}: the data have {held}, {len(eligible)} of them with at least "
                f"federation.partition.min_size = {min_size} samples; use at most {len(eligible) or num_writers}"
            )
        raise UsageError(
            f"federation.partition.min_size = {min_size}: {len(eligible)} of {num_writers} clients of the data have as many samples; "
            f"use at most {np.sort(sizes)[-num_clients]}"
            + (f", or federation.clients of at most {len(eligible)}" if len(eligible) else "")
        )
    chosen = eligible if len(eligible) == num_clients else np.sort(rng.permutation(eligible)[:num_clients])
    number = np.full(len(sizes), -1)
    number[chosen] = np.arange(num_clients)
    clients: Indices = number[writers]
    return clients
