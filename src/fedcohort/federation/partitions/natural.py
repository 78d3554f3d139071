"""The clients that the data came from: one per writer. LEAF, arXiv:1812.01097."""

from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from fedcohort.core.arrays import Indices
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters

__all__ = ["Natural", "by_writer"]


@parameters
class Natural:
    """Every client is one writer with all of that writer's samples: sizes, labels and handwriting differ as they did.

    Writers with fewer than ``min_size`` samples are left out. Of the others, m are drawn at random, in the order of their ids; with m
    equal to their number, all take part. The samples of other writers belong to nobody.

    LEAF, arXiv:1812.01097. The server's test set holds samples of all writers, whoever takes part.
    """

    min_size: Annotated[int, Ge(0)] = 10
    """Samples that a writer must have to be a client."""

    evens_out: ClassVar[str | None] = None

    def assign(
        self, labels: Indices, num_clients: int, rng: np.random.Generator, writers: Indices | None = None
    ) -> Indices:
        """The writer of each sample; see :meth:`Rule.assign`."""
        return by_writer(writers, num_clients, self.min_size, rng, "federation.partition = 'natural'")


def by_writer(
    writers: Indices | None, num_clients: int, min_size: int, rng: np.random.Generator, setting: str
) -> Indices:
    """Client of each sample, int64 [N]: m writers that have at least ``min_size`` samples; −1 for the samples of others.

    Raises:
        UsageError: there are not so many, or no writers at all; ``setting`` is what asked for them.
    """
    if writers is None:
        raise UsageError(
            f"{setting}: these data do not say who wrote a sample; use data with a column writer_id such as 'femnist', "
            "give from_arrays(…, writers=…), or choose a partition that needs no writers"
        )
    if writers.max() >= 4 * len(writers):  # numbered with gaps
        writers = np.unique(writers, return_inverse=True)[1].astype(np.int64, copy=False)
    sizes = np.bincount(writers)
    able = np.flatnonzero(sizes >= max(min_size, 1))
    if len(able) < num_clients:
        everybody = np.count_nonzero(sizes)
        if everybody < num_clients:
            raise UsageError(
                f"federation.clients = {num_clients}: the data have {everybody} writers, {len(able)} of them with at least "
                f"federation.partition.min_size = {min_size} samples; use at most {len(able) or everybody}"
            )
        raise UsageError(
            f"federation.partition.min_size = {min_size}: {len(able)} of {everybody} writers have that many samples; use at most "
            f"{np.sort(sizes)[-num_clients]}" + (f", or at most {len(able)} federation.clients" if len(able) else "")
        )
    chosen = able if len(able) == num_clients else np.sort(rng.permutation(able)[:num_clients])
    number = np.full(len(sizes), -1)
    number[chosen] = np.arange(num_clients)
    clients: Indices = number[writers]
    return clients
