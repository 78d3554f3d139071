"""Some clients have a dominant class, and the others are balanced. FLASH, arXiv:2402.08769."""

from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Gt, Le

from fedcohort.core.arrays import Indices
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.federation.partitions.natural import by_writer
from fedcohort.federation.partitions.pools import deal, grouped

__all__ = ["DominantClass"]


@parameters
class DominantClass:
    """Some clients have one dominant class; sizes are equal. The others divide the remaining samples of each class evenly.

    round(frac·m) clients, chosen at random, are skewed: round(share·n) of their n = ⌊N/m⌋ samples are of one class, and the rest is
    spread evenly over the other classes. Dominant classes are assigned round-robin from a random permutation of the classes. The
    remaining samples of each class are divided evenly among the other clients. The remainder of N/m, a random choice of samples, is
    not used.

    With ``natural``, clients are writers as in the partition of that name. A skewed writer keeps all samples of its most frequent
    class and a random part of its other samples, so that the dominant class has the share ``share``; the other writers keep all
    their samples.

    The numbers of samples per class follow FLASH, arXiv:2402.08769; the choice of samples and the option ``natural`` are ours.
    """

    frac: Annotated[float, Ge(0), Le(1)] = 0.3
    """Share of skewed clients; 0.3 is FLASH's "30% non-IIDness"."""

    share: Annotated[float, Gt(0), Le(1)] = 0.8
    """Share of the dominant class among a skewed client's samples."""

    natural: bool = False
    """Use writers as clients; skewed writers use only a part of their samples."""

    min_size: Annotated[int, Ge(0)] = 10
    """Smallest number of samples per client; sizes are equal, so all clients have at least this number or none has. With ``natural``,
    the smallest number of samples of a writer that becomes a client, also after the samples of a skewed writer were reduced."""

    evens_out: ClassVar[str | None] = None

    def assign(
        self, labels: Indices, num_clients: int, rng: np.random.Generator, writers: Indices | None = None
    ) -> Indices:
        """Assign samples to skewed clients first, then to the others; see :meth:`Rule.assign`."""
        num_skewed = round(self.frac * num_clients)
        if self.natural:
            setting = "federation.partition.natural = true"
            clients = by_writer(writers, num_clients, self.min_size, rng, setting)
            return self._skew_writers(clients, labels, num_skewed, rng)
        size = len(labels) // num_clients
        kept = rng.permutation(len(labels))[: size * num_clients]
        samples, starts = grouped(kept, labels[kept], int(labels.max()) + 1)
        present = np.flatnonzero(np.diff(starts))
        pools = np.diff(starts)[present]
        at_random = rng.permutation(num_clients)
        skewed, others = at_random[:num_skewed], at_random[num_skewed:]
        counts = self._counts(len(skewed), size, pools, num_clients, rng)

        clients = np.full(len(labels), -1)
        deal(clients, samples, starts[present], skewed, counts)
        left = samples[
            clients[samples] < 0
        ]  # still sorted by class, so dealing them in turn divides every class evenly
        if len(others):
            clients[left] = others[np.arange(len(left)) % len(others)]
        return clients

    def _counts(
        self, num_skewed: int, size: int, pools: Indices, num_clients: int, rng: np.random.Generator
    ) -> Indices:
        """Number of samples of each class for each skewed client, int64 [skewed, K]."""
        num_classes, main = len(pools), round(self.share * size)
        spread, more = divmod(size - main, max(num_classes - 1, 1))
        if num_skewed and num_classes == 1 and size > main:
            raise UsageError(
                f"federation.partition.share = {self.share:g}: there is only one class; use federation.partition.share = 1, or "
                "federation.partition.frac = 0"
            )
        order, turn = rng.permutation(num_classes), np.arange(num_skewed)
        position = turn % num_classes
        counts = np.full((num_skewed, num_classes), spread)
        # The samples that remain after the even division go to the classes after the dominant one, to other classes in every cycle, so
        # that a complete cycle takes the same number of samples of every class.
        step = (turn // num_classes * more)[:, None] + np.arange(more)
        counts[turn[:, None], order[(position[:, None] + 1 + step % max(num_classes - 1, 1)) % num_classes]] += 1
        counts[turn, order[position]] = main
        if (counts.sum(axis=0) > pools).any():
            eligible = int((np.cumsum(counts, axis=0) <= pools).all(axis=1).sum())
            c = int((counts.sum(axis=0) - pools).argmax())
            raise UsageError(
                f"federation.partition.frac = {self.frac:g}: {num_skewed} of {num_clients} clients with {main} of {size} samples "
                f"(share = {self.share:g}) from one class need {counts[:, c].sum()} samples of a class that has {pools[c]}; "
                f"use at most federation.partition.frac = {eligible / num_clients:.6g}, or a smaller federation.partition.share"
            )
        return counts

    def _skew_writers(self, clients: Indices, labels: Indices, num_skewed: int, rng: np.random.Generator) -> Indices:
        """``clients`` with −1 for the samples that skewed writers do not use."""
        num_clients, num_classes = int(clients.max()) + 1, int(labels.max()) + 1
        held = clients >= 0
        cells = np.bincount(clients[held] * num_classes + labels[held], minlength=num_clients * num_classes)
        counts = cells.reshape(num_clients, num_classes)
        dominant, main = counts.argmax(axis=1), counts.max(axis=1)
        spare = np.rint(main * (1 - self.share) / self.share).astype(np.int64)
        eligible = np.flatnonzero(np.minimum(main + spare, counts.sum(axis=1)) >= self.min_size)
        if len(eligible) < num_skewed:
            raise UsageError(
                f"federation.partition.frac = {self.frac:g}: {num_skewed} of {num_clients} writers should be skewed, but only "
                f"{len(eligible)} keep min_size = {self.min_size} samples; use at most federation.partition.frac = "
                f"{len(eligible) / num_clients:.6g}, or a smaller federation.partition.min_size or federation.partition.share"
            )
        skewed = np.zeros(num_clients, bool)
        skewed[rng.permutation(eligible)[:num_skewed]] = True
        minority = np.flatnonzero(held & skewed[clients] & (labels != dominant[clients]))
        minority = rng.permutation(minority)
        samples, starts = grouped(minority, clients[minority], num_clients)
        rank = np.arange(len(samples)) - np.repeat(starts[:-1], np.diff(starts))
        clients = clients.copy()
        unused = samples[rank >= spare[clients[samples]]]
        clients[unused] = -1
        return clients
