"""Label skew with controlled sizes: each client draws its own mixture of classes.

Hsu, Qi, Brown 2019, arXiv:1909.06335; FedCor, ``Yoruko-Tang/FedCor`` ``src/sampling.py``.
"""

from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge, Gt

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.parameters import parameters
from fedcohort.federation.partitions.pools import deal, dirichlet_logs, random_sizes, shares_of, shuffled_by_class

__all__ = ["DirichletClient"]

CELLS = 2_000_000
"""Largest number of clients × classes that are drawn at once; it limits the memory. Changing it changes the draws."""


@parameters
class DirichletClient:
    """Each client draws its own mixture of classes from a Dirichlet law; sizes are equal, or random with ``sizes``.

    In random order, each client i draws q_i ~ Dirichlet_K and takes N_i samples one by one, without replacement: the class is drawn
    from q_i, renormalized over the classes that still have samples, and the sample at random. All samples are used, so the last
    clients receive the remaining samples, whatever their q_i. Two conventions of alpha differ by a factor K for balanced classes:
    ``alpha_total`` = 0.1 is ``alpha_each`` = 0.01 with 10 classes. With ``alpha_each`` and K = 10, one class has more than 80% in
    88% of the mixtures for 0.01, in 53% for 0.05, and in 28% for 0.1.

    Hsu, Qi, Brown 2019, arXiv:1909.06335. FedCor instead fits the sizes to the class sizes with a quadratic program.
    """

    alpha: Annotated[float, Gt(0)] = 0.5
    """Concentration of the mixtures, in the convention below; small values give nearly one class per client."""

    convention: Literal["alpha_total", "alpha_each"] = "alpha_total"
    """Meaning of alpha: ``alpha_total`` for Dirichlet(alpha·p) with p the class shares in all data, ``alpha_each`` for
    Dirichlet(alpha, …, alpha) over the classes that occur."""

    sizes: Literal["equal", "dirichlet", "lognormal"] = "equal"
    """Sizes of the clients: N/m (equal), or random as in the partition ``quantity``."""

    size_beta: Annotated[float, Gt(0)] = 0.5
    """Concentration for ``sizes = "dirichlet"``."""

    size_sigma: Annotated[float, Gt(0)] = 1.0
    """Standard deviation of the logarithm of the sizes for ``sizes = "lognormal"``."""

    min_size: Annotated[int, Ge(0)] = 10
    """Smallest number of samples per client; draws that give a client fewer are repeated."""

    @property
    def evens_out(self) -> str | None:
        """See :attr:`Rule.evens_out`."""
        return {"equal": None, "dirichlet": "size_beta", "lognormal": "-size_sigma"}[self.sizes]

    @property
    def heavy_tails(self) -> bool:
        """See :class:`DrawsSizes`."""
        return self.sizes == "lognormal"

    def assign(
        self, labels: Indices, num_clients: int, rng: np.random.Generator, writers: Indices | None = None
    ) -> Indices:
        """Draw mixtures, then samples of each class; see :meth:`Rule.assign`."""
        samples, starts = shuffled_by_class(labels, rng)
        sizes = random_sizes(self.sizes, self.size_beta, self.size_sigma, len(labels), (num_clients,), rng)
        present = np.flatnonzero(np.diff(starts))
        pools, following = np.diff(starts)[present], starts[present]
        alpha = (
            self.alpha * pools / pools.sum() if self.convention == "alpha_total" else np.full(len(pools), self.alpha)
        )
        alpha = np.maximum(alpha, np.finfo(np.float64).smallest_subnormal)
        clients = np.empty(len(labels), np.int64)
        client_order = rng.permutation(num_clients)
        at_once = max(1, CELLS // len(pools))
        for start in range(0, num_clients, at_once):
            owners = client_order[start : start + at_once]
            logs, scale = dirichlet_logs(alpha, (len(owners), len(pools)), rng)
            counts = _draw(sizes[owners], logs, scale, pools, rng)
            following = deal(clients, samples, following, owners, counts)
        return clients

    def sizes_of_draws(self, class_sizes: Indices, num_clients: int, repeats: int, rng: np.random.Generator) -> Indices:
        """Sizes of the clients in several draws; see :class:`DrawsSizes`."""
        shape = (repeats, num_clients)
        return random_sizes(self.sizes, self.size_beta, self.size_sigma, int(class_sizes.sum()), shape, rng)


def _draw(sizes: Indices, logs: Values, scale: float, pools: Indices, rng: np.random.Generator) -> Indices:
    """Number of samples of each class that each client takes, one client after another, int64 [clients, K]; changes ``pools``.

    The counts have the same distribution as draws sample by sample. As long as no pool runs out, a client's counts are multinomial
    and independent of the other clients', so all clients are drawn at once. Let i be the first client for which a pool runs out: the
    clients before i keep their draws, client i takes what is left of that pool and draws the missing samples from the other classes,
    and the clients after i are drawn again without the empty pool. This happens at most K times.
    """
    counts = np.zeros(logs.shape, np.int64)
    done, ahead = 0, len(sizes)
    while done < len(sizes) and pools.any():  # clients after the last sample have size 0
        left = np.flatnonzero(pools)
        now = slice(done, done + ahead)
        draws = rng.multinomial(sizes[now], shares_of(logs[now, left], scale))
        exceeds = (np.cumsum(draws, axis=0) > pools[left]).any(axis=1)
        num_met = int(exceeds.argmax()) if exceeds.any() else len(draws)
        counts[done : done + num_met, left] = draws[:num_met]
        pools[left] -= draws[:num_met].sum(axis=0)
        ahead = 2 * ahead
        if num_met < len(draws):
            client = done + num_met
            counts[client, left] = _take(draws[num_met], logs[client, left], scale, pools[left], rng)
            pools -= counts[client]
            ahead = max(1, num_met)  # the next pool may run out as soon
            num_met += 1
        done += num_met
    return counts


def _take(draws: Indices, logs: Values, scale: float, pools: Indices, rng: np.random.Generator) -> Indices:
    """Samples of each class for one client if some pools are too small for its draw, int64 [K]; the rest comes from other classes."""
    taken = np.minimum(draws, pools)
    while short := int(draws.sum() - taken.sum()):
        left = np.flatnonzero(pools > taken)
        more = rng.multinomial(short, shares_of(logs[left], scale))
        taken[left] += np.minimum(more, (pools - taken)[left])
    return taken
