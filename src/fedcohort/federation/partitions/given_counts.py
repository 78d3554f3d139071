"""Given counts: every client has as many samples of every class as a table says."""

from collections.abc import Sequence
from dataclasses import field
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from fedcohort.core.arrays import Indices
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.core.words.formatted_values import counted
from fedcohort.federation.partitions.pools import deal, shuffled_by_class

__all__ = ["GivenCounts", "check_given"]


@parameters
class GivenCounts:
    """Every client has given numbers of samples of each class. This gives a federation the skew of a real one.

    Only which samples a client gets is random. Samples that no client needs are not used. ``fedcohort advise`` makes such a partition
    from a table of clients.

    The rule is ours.
    """

    counts: list[list[Annotated[int, Ge(0)]]] = field(default_factory=list)
    """Number of samples of each class: one list for each client, such as [[20, 0], [5, 15]] for two clients. Lists that are
    shorter than the number of classes have none of the last classes."""

    min_size: ClassVar[int] = 0
    evens_out: ClassVar[str | None] = None

    def __post_init__(self) -> None:
        if len({len(row) for row in self.counts}) > 1:
            short, long = min(map(len, self.counts)), max(map(len, self.counts))
            raise UsageError(
                f"federation.partition.counts: has lists of {short} to {long} numbers; give one number for each class to every client"
            )

    def assign(
        self, labels: Indices, num_clients: int, rng: np.random.Generator, writers: Indices | None = None
    ) -> Indices:
        """Deal every client its number of samples of each class; see :meth:`Rule.assign`."""
        check_given("counts", "list", self.counts, num_clients)
        samples, starts = shuffled_by_class(labels, rng)
        pools = np.diff(starts)
        given = np.array(self.counts, np.int64).reshape(num_clients, -1)
        needed = np.zeros(max(len(pools), given.shape[1]), np.int64)
        needed[: given.shape[1]] = given.sum(axis=0)
        held = np.zeros_like(needed)
        held[: len(pools)] = pools
        if (needed > held).any():
            c = int((needed - held).argmax())
            factor = np.min(held[needed > 0] / needed[needed > 0])
            works = f"multiply all counts by at most {factor:.4g}, or use" if factor else "use"
            raise UsageError(
                f"federation.partition.counts: clients have {needed[c]} samples of class {c}, the data {held[c]}; {works} other data"
            )
        counts = np.zeros((num_clients, len(pools)), np.int64)
        counts[:, : given.shape[1]] = given[:, : len(pools)]
        clients = np.full(len(labels), -1)
        deal(clients, samples, starts[:-1], np.arange(num_clients), counts)
        return clients


def check_given(parameter: str, one: str, given: Sequence[int | list[int]], num_clients: int) -> None:
    """Refuse a list with another length than the number of clients, and one in which no client has a sample.

    Args:
        parameter: name of the parameter.
        one: what it has for each client.
        given: its value.
        num_clients: number of clients.

    Raises:
        UsageError: the list is such a list.
    """
    where = f"federation.partition.{parameter}"
    if not given:
        raise UsageError(f"{where}: is empty; give {counted(num_clients, one)}, one for each client")
    if len(given) != num_clients:
        raise UsageError(
            f"{where}: has {counted(len(given), one)}, one for each client, and federation.clients = {num_clients}; "
            f"use federation.clients = {len(given)}"
        )
    if not np.any(given):
        raise UsageError(f"{where}: are all 0; give at least one client samples")
