"""Scale the sizes and class counts of clients so that they fit a data set."""

import numpy as np

from fedcohort.core.arrays import Indices, Values

__all__ = ["scaled_counts", "scaled_sizes"]

STEP = 0.99
"""Factor by which the scale is lowered as long as rounded numbers need more samples than there are."""
TRIES = 500
"""Largest number of such steps."""


def scaled_sizes(sizes: Indices, available: int) -> Indices | None:
    """Sizes in the same proportions with a sum of at most ``available``, each at least 1; None if there are more clients than samples.

    Sizes that fit stay as they are.

    Args:
        sizes: samples of each client, int64 [m], at least 1.
        available: number of samples.
    """
    counts = scaled_counts(sizes[:, None], np.array([available]))
    return None if counts is None else counts[:, 0]


def scaled_counts(counts: Indices, available: Indices) -> Indices | None:
    """Counts in the same proportions that fit the data; None if even one sample for each client does not fit.

    All counts are multiplied by one factor of at most 1. Sizes are rounded, to at least 1, and the counts of a client by the method of
    largest remainders. Where remainders are small, those of earlier clients decide, so that the classes keep their shares over all
    clients.

    Args:
        counts: samples of each class at each client, int64 [m, K]; every client has at least one.
        available: samples of each class in the data, int64 [K].
    """
    needed, sizes = counts.sum(axis=0), counts.sum(axis=1)
    scale = min(1.0, float(np.min(available[needed > 0] / needed[needed > 0])))
    for _ in range(TRIES):
        wanted = sizes if scale == 1 else np.maximum(np.rint(sizes * scale), 1).astype(np.int64)
        exact, whole = _rounded_down(counts, sizes, wanted)
        if wanted.sum() <= available.sum() and (whole.sum(axis=0) <= available).all():
            rounded = counts if scale == 1 else _completed(exact, whole, wanted)
            if (rounded.sum(axis=0) <= available).all():
                return rounded
        if (wanted == 1).all():
            return None
        scale *= STEP
    return None


def _rounded_down(counts: Indices, sizes: Indices, wanted: Indices) -> tuple[Values, Indices]:
    """The counts of clients that have as many samples as ``wanted``, exactly and rounded down: two [m, K]."""
    exact: Values = counts * (wanted / sizes)[:, None]
    whole: Indices = np.floor(exact + 1e-9).astype(np.int64)
    return exact, whole


def _completed(exact: Values, whole: Indices, wanted: Indices) -> Indices:
    """The counts ``whole``, with what is missing of the ``wanted`` sizes by the largest remainders; see :func:`scaled_counts`.

    This goes through the clients one by one, so it is only done for counts that can fit.
    """
    owed = np.zeros(whole.shape[1])  # samples of each class that earlier clients received too few of
    for client in range(len(whole)):
        remainders = exact[client] - whole[client]
        missing = int(wanted[client] - whole[client].sum())
        candidates = np.flatnonzero(remainders > 1e-9)
        chosen = candidates[np.argsort(-(remainders + owed)[candidates], kind="stable")[:missing]]
        whole[client, chosen] += 1
        owed += exact[client] - whole[client]
    return whole
