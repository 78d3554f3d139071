"""Building blocks of partitions: pools of samples by class, random shares, sizes from shares, and dealing samples.

No function loops over clients or samples, so that a million clients and ten million samples take seconds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedcohort.core.arrays import Indices, Values

__all__ = [
    "Draw",
    "cut",
    "deal",
    "dirichlet",
    "dirichlet_logs",
    "grouped",
    "random_sizes",
    "shares_of",
    "shuffled_by_class",
]

SMALL = 20_000
"""Number of samples below which numpy's argsort of 64-bit integers is faster than a counting sort."""

FEW_KEYS, FEW_SAMPLES = 2**8, 200_000
"""Up to this number of keys and samples, numpy's radix sort of 8-bit integers is as fast, and scipy need not be imported."""


def grouped(samples: Indices, keys: Indices, num_keys: int) -> tuple[Indices, Indices]:
    """``samples`` in a stable order by their keys 0…num_keys−1, and the position at which each key begins, int64 [num_keys + 1].

    For many samples, a counting sort is several times faster than numpy's stable argsort. Numpy has none, but scipy's conversion of a
    sparse matrix from row order to column order is a counting sort if every row has one entry.
    """
    few = num_keys <= FEW_KEYS and len(samples) <= FEW_SAMPLES
    if len(samples) < SMALL or few:
        order = np.argsort(keys.astype(np.uint16) if few else keys, kind="stable")
        return samples[order], np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=num_keys))])
    from scipy.sparse import csr_array  # slow to import

    one_per_row = csr_array((samples, keys, np.arange(len(samples) + 1)), shape=(len(samples), num_keys))
    by_key = one_per_row.tocsc()
    return by_key.data, by_key.indptr.astype(np.int64)


def shuffled_by_class(labels: Indices, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """All samples sorted by class, in random order inside each class, and the position at which each class begins, int64 [K + 1]."""
    shuffled = rng.permutation(len(labels))
    return grouped(shuffled, labels[shuffled], int(labels.max()) + 1)


@dataclass(frozen=True, eq=False)
class Draw:
    """One draw of a partition, before samples are assigned.

    Attributes:
        sizes: samples of each client, int64 [m].
        assign: gives the client of each sample, int64 [N]; it draws no random numbers.
    """

    sizes: Indices
    assign: Callable[[], Indices]


def deal(clients: Indices, pools: Indices, starts: Indices, owners: Indices, counts: Indices) -> Indices:
    """Assign the next ``counts[j, c]`` samples of every class c to client ``owners[j]``.

    Args:
        clients: client of each sample; changed in place.
        pools: samples by class, see :func:`shuffled_by_class`.
        starts: the next sample of each class in ``pools``, int64 [K].
        owners: clients, int64 [j].
        counts: number of samples of each class for each of these clients, int64 [j, K].

    Returns:
        The next sample of each class afterwards.
    """
    totals = counts.sum(axis=0)
    before = np.cumsum(totals) - totals
    positions = np.arange(totals.sum()) + np.repeat(starts - before, totals)
    clients[pools[positions]] = np.repeat(np.tile(owners, len(starts)), counts.T.ravel())
    return np.asarray(starts + totals)


def dirichlet_logs(alpha: float | Values, shape: tuple[int, ...], rng: np.random.Generator) -> tuple[Values, float]:
    """Logarithms of Gamma(alpha) draws G up to a factor: log G = logs/scale. Shares G/ΣG are Dirichlet(alpha), see :func:`shares_of`.

    For alpha below about 0.01, draws G underflow to 0, and for smaller alpha all of them do. They are therefore drawn as logarithms,
    log G = log Gamma(alpha + 1) − Exponential/alpha, and scaled by min(alpha, 1) to stay finite.

    Args:
        alpha: concentration, one number or one for each entry of the last axis.
        shape: shape of the draws.
        rng: source of the random numbers.
    """
    concentration = np.asarray(alpha, np.float64)
    scale = min(float(concentration.min()), 1.0)
    logs = scale * np.log(rng.standard_gamma(concentration + 1.0, shape))
    logs -= scale / concentration * rng.standard_exponential(shape)
    return logs, scale


def shares_of(logs: Values, scale: float) -> Values:
    """exp(logs/scale), normalized along the last axis. The largest is exp(0) before normalization, so the sum is never 0."""
    relative = np.minimum(logs - logs.max(axis=-1, keepdims=True), 0.0)
    with np.errstate(over="ignore"):  # −∞ is the correct logarithm of a share that is too small
        shares = np.exp(relative / scale)
    normalized: Values = shares / shares.sum(axis=-1, keepdims=True)
    return normalized


def dirichlet(alpha: float, shape: tuple[int, ...], rng: np.random.Generator) -> Values:
    """Dirichlet(alpha·1) shares along the last axis of ``shape``, for any alpha > 0."""
    return shares_of(*dirichlet_logs(alpha, shape, rng))


def cut(shares: Values, total: int) -> Indices:
    """Sizes of the parts if ``total`` samples are cut at ⌊cumsum(shares)·total⌋, along the last axis.

    A rounding error goes to the last part with a share above 0.
    """
    cuts = np.floor(np.cumsum(shares, axis=-1) * total).astype(np.int64)
    num_parts = shares.shape[-1]
    last = num_parts - 1 - np.argmax(shares[..., ::-1] > 0, axis=-1)
    cuts[np.arange(num_parts) >= last[..., None]] = total
    return np.diff(np.minimum(cuts, total), prepend=0)


def random_sizes(
    law: Literal["equal", "dirichlet", "lognormal"],
    beta: float,
    sigma: float,
    total: int,
    shape: tuple[int, ...],
    rng: np.random.Generator,
) -> Indices:
    """Sizes that add up to ``total`` along the last axis of ``shape``, which is m: N/m, or proportional to Dirichlet_m(beta·1) or
    log-normal(0, sigma) draws."""
    if law == "dirichlet":
        return cut(dirichlet(beta, shape, rng), total)
    if law == "lognormal":
        with np.errstate(over="ignore"):
            logs = np.clip(sigma * rng.standard_normal(shape), -1e300, 1e300)  # differences must not overflow
        return cut(shares_of(logs, 1.0), total)
    sizes = total // shape[-1] + (np.arange(shape[-1]) < total % shape[-1])
    return np.broadcast_to(sizes, shape)
