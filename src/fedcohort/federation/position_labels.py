"""Labels of sequences: one for each sequence [N], or one for each position of each sequence [N, L], as in next-token prediction.

Sequences with a label for each position have no class of their own. Sets are then drawn from all of them alike, and counts of labels
are counts of positions.
"""

import numpy as np
from numpy.typing import NDArray

from fedcohort.core.arrays import Indices
from fedcohort.federation.partition import Partition

__all__ = ["by_position", "label_counts", "strata"]


def strata(labels: NDArray[np.int64]) -> Indices:
    """The group of each sample from which stratified draws take equal shares, int64 [N]: its class, or 0 if each position has a label.

    >>> strata(np.array([3, 1])).tolist(), strata(np.array([[3, 1], [1, 2]])).tolist()
    ([3, 1], [0, 0])
    """
    return labels if labels.ndim == 1 else np.zeros(len(labels), dtype=np.int64)


def by_position(labels: NDArray[np.int64], partition: Partition) -> tuple[Indices, Partition]:
    """Labels and a partition in which every position of every sequence counts as a sample; unchanged for labels [N]."""
    if labels.ndim == 1:
        return labels, partition
    length = labels.shape[1]
    order = (partition.order[:, None] * length + np.arange(length)).ravel()
    return labels.ravel(), Partition(order=order, offsets=partition.offsets * length)


def label_counts(labels: NDArray[np.int64], sizes: Indices, num_classes: int) -> Indices:
    """Number of labels of each class at each client, int64 [m, K].

    Args:
        labels: labels of the clients' samples, sorted by client, [N] or [N, L].
        sizes: number of samples of each client, int64 [m].
        num_classes: number of classes K.
    """
    per_sample = labels.shape[1] if labels.ndim == 2 else 1
    flat = np.repeat(np.arange(len(sizes)), sizes * per_sample) * num_classes + labels.ravel()
    return np.bincount(flat, minlength=len(sizes) * num_classes).reshape(len(sizes), -1)
