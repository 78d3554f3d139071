"""Natural clients: one client per writer of the samples. LEAF, arXiv:1812.01097."""

from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from fedcohort.core.arrays import Indices
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters

__all__ = ["Natural", "by_writer"]


@parameters
class Natural:
    """Every client is one writer with all samples of that writer; sizes, labels and handwriting differ as they do in the data.

    Writers with fewer than ``min_size`` samples are left out. Of the others, m are drawn at random and numbered in the order of their
    ids; if there are exactly m, all become clients. The samples of other writers are not used.

    LEAF, arXiv:1812.01097. The server's test set holds samples of all writers, including those that are not clients.
    """

    min_size: Annotated[int, Ge(0)] = 10
    """Smallest number of samples of a writer that becomes a client."""

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
            f"{setting}: the data set has no writers of its samples; use data with a column writer_id such as 'femnist', "
            "use from_arrays(…, writers=…), or choose a partition that needs no writers"
        )
    if writers.max() >= 4 * len(writers):  # avoid a long list of sizes for ids with large gaps
        writers = np.unique(writers, return_inverse=True)[1].astype(np.int64, copy=False)
    sizes = np.bincount(writers)
    eligible = np.flatnonzero(sizes >= max(min_size, 1))
    if len(eligible) < num_clients:
        num_writers = np.count_nonzero(sizes)
        if num_writers < num_clients:
            raise UsageError(
                f"federation.clients = {num_clients}: the data have {num_writers} writers, {len(eligible)} of them with at least "
                f"federation.partition.min_size = {min_size} samples; use at most {len(eligible) or num_writers}"
            )
        raise UsageError(
            f"federation.partition.min_size = {min_size}: {len(eligible)} of {num_writers} writers have that many samples; "
            f"use at most {np.sort(sizes)[-num_clients]}"
            + (f", or federation.clients of at most {len(eligible)}" if len(eligible) else "")
        )
    chosen = eligible if len(eligible) == num_clients else np.sort(rng.permutation(eligible)[:num_clients])
    number = np.full(len(sizes), -1)
    number[chosen] = np.arange(num_clients)
    clients: Indices = number[writers]
    return clients
