"""Test samples of single clients: which client each test sample belongs to, and the accuracy of a model on each client's part."""

import numpy as np
from numpy.typing import NDArray

from fedcohort.core.arrays import Indices, Values
from fedcohort.federation.data.datasets import Dataset
from fedcohort.federation.partition import Partition

__all__ = ["accuracy_by_client", "clients_of_test_samples"]


def clients_of_test_samples(dataset: Dataset, partition: Partition, tested: Indices) -> Indices | None:
    """The client of each test sample, if clients of the federation are clients of the data set.

    Args:
        dataset: the data set.
        partition: division of its training samples among the clients.
        tested: positions of the samples in the test set of the data set, int64 [n].

    Returns:
        int64 [n], −1 for samples of no client. None if the data set does not say which client test samples belong to, or if the
        partition gives a client the samples of several clients of the data set, or splits them.
    """
    if dataset.writers is None or dataset.test_clients is None:
        return None
    writers = dataset.writers[partition.order]
    client = np.repeat(np.arange(partition.num_clients), partition.sizes)
    pairs = np.unique(np.stack([client, writers]), axis=1)
    if len(np.unique(pairs[0])) < pairs.shape[1] or len(np.unique(pairs[1])) < pairs.shape[1]:
        return None
    client_of = np.full(dataset.num_writers + 1, -1)  # the last entry is that of samples without a client
    client_of[pairs[1]] = pairs[0]
    found: Indices = client_of[dataset.test_clients[tested]].astype(np.int64, copy=False)
    return found


def accuracy_by_client(hits: NDArray[np.bool_], clients: Indices, num_clients: int) -> Values:
    """Accuracy on the test samples of each client, float64 [num_clients]; NaN for clients without test samples.

    Args:
        hits: whether the prediction for each test sample is correct [n].
        clients: the client of each test sample, int64 [n]; −1 for none.
        num_clients: number of clients m.

    >>> accuracy_by_client(np.array([True, False, True, True]), np.array([0, 0, 2, -1]), 3).tolist()
    [0.5, nan, 1.0]
    """
    own = clients >= 0
    right, total = (
        np.bincount(clients[chosen], minlength=num_clients).astype(np.float64) for chosen in (own & hits, own)
    )
    shares: Values = np.divide(right, total, out=np.full(num_clients, np.nan), where=total > 0)
    return shares
