"""Deal samples to clients that each have a size and a mixture of classes of their own."""

import numpy as np

from fedcohort.core.arrays import Indices, Values
from fedcohort.federation.partitions.pools import deal, dirichlet_logs, shares_of

__all__ = ["deal_mixtures"]

CELLS = 2_000_000
"""Largest number of clients × classes that are drawn at once; it limits the memory. Changing it changes the draws."""


def deal_mixtures(
    clients: Indices,
    samples: Indices,
    starts: Indices,
    sizes: Indices,
    alpha: float,
    each: bool,
    rng: np.random.Generator,
) -> None:
    """Let every client, in random order, draw its mixture of classes and then its samples.

    Args:
        clients: client of each sample; changed in place.
        samples, starts: samples by class, see :func:`~fedcohort.federation.partitions.pools.shuffled_by_class`.
        sizes: samples of each client, int64 [m]; together at most as many as there are.
        alpha: concentration of the mixtures: Dirichlet(alpha, …, alpha) over the classes that occur if ``each``, and otherwise
            Dirichlet(alpha·p), with p the class shares in all data.
        each: see ``alpha``.
        rng: source of the random numbers.
    """
    present = np.flatnonzero(np.diff(starts))
    pools, following = np.diff(starts)[present], starts[present]
    concentration = np.full(len(pools), alpha) if each else alpha * pools / pools.sum()
    concentration = np.maximum(concentration, np.finfo(np.float64).smallest_subnormal)
    client_order = rng.permutation(len(sizes))
    at_once = max(1, CELLS // len(pools))
    for start in range(0, len(sizes), at_once):
        owners = client_order[start : start + at_once]
        logs, scale = dirichlet_logs(concentration, (len(owners), len(pools)), rng)
        counts = _draw(sizes[owners], logs, scale, pools, rng)
        following = deal(clients, samples, following, owners, counts)


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
