"""Public samples: unlabeled data at the server, for algorithms in which models learn from each other's outputs.

The samples are either another data set with samples of the same shape (a proxy, such as Fashion-MNIST for MNIST), or a random part
of the training samples that is set aside before the partition (a hold-out). A hold-out has the same distribution as the clients'
data, which is an advantage: report it, and set the same part aside for all algorithms that you compare. Labels are discarded in
both cases.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcohort.core.arrays import Indices
from fedcohort.core.errors import UsageError, shown
from fedcohort.core.random_streams import rng
from fedcohort.federation.data.array_checks import as_array
from fedcohort.federation.data.datasets import Dataset, from_arrays

__all__ = ["PublicSet", "choose_public", "take_away", "unlabeled_dataset"]


@dataclass(frozen=True, eq=False)
class PublicSet:
    """The public samples of the server, and the training samples that remain for the clients.

    Attributes:
        source: features as stored in the data set that contains the public samples.
        chosen: positions of the public samples in ``source``; None means all.
        rest: positions of the training samples that are divided among clients, ascending.
        fingerprint: fingerprint of all data of the run.
    """

    source: NDArray[Any]
    chosen: Indices | None
    rest: Indices
    fingerprint: str

    def features(self, device: str = "cpu") -> Tensor:
        """Features of the public samples, [n, …]."""
        values = np.array(self.source) if self.chosen is None else np.take(self.source, self.chosen, axis=0)
        return torch.from_numpy(values).to(device)


def choose_public(name: str, share: float, dataset: Dataset, seed: int, load: Callable[[str], Dataset]) -> PublicSet:
    """The public samples of an experiment.

    Args:
        name: ``none``, ``holdout``, or the name of a data set.
        share: size of a hold-out, as a share of the training samples.
        dataset: the clients' data.
        seed: the experiment's seed.
        load: loads a data set by name.

    Raises:
        UsageError: a hold-out of that share is not possible, or the other data set has samples of another type or shape.
    """
    all_samples = np.arange(dataset.num_train)
    if name == "none":
        return PublicSet(dataset.train_features[:0], None, all_samples, dataset.fingerprint)
    if name == "holdout":
        return PublicSet(dataset.train_features, *take_away(share, dataset.num_train, seed), dataset.fingerprint)
    try:
        proxy = load(name)
    except UsageError as error:  # which names the setting of the clients' data
        raise UsageError(str(error).replace("data.name", "public.name", 1)) from error
    _check(proxy, dataset, name)
    return PublicSet(proxy.train_features, None, all_samples, f"{dataset.fingerprint}+{proxy.fingerprint}")


def unlabeled_dataset(features: Any) -> Dataset:
    """A data set of unlabeled samples [N, …], in any form that :func:`fedcohort.from_arrays` accepts; every label is 0.

    Raises:
        UsageError: they are no samples.
    """
    name = "public samples"
    features = as_array(features, name)
    if not features.ndim or not len(features):
        raise UsageError(f"{name}: {shown(features.tolist())}; give an array of samples [N, …], or a data set")
    labels = np.zeros(len(features), dtype=np.int64)
    return from_arrays((features, labels), (features[:1], labels[:1]), name=name, standardise=True)


def take_away(share: float, num_train: int, seed: int) -> tuple[Indices, Indices]:
    """Positions of the public samples and of the rest, both ascending.

    >>> public, rest = take_away(0.1, 1000, seed=0)
    >>> len(public), len(rest), len(set(public.tolist()) & set(rest.tolist()))
    (100, 900, 0)

    Raises:
        UsageError: fewer than two public samples, or no samples left for the clients.
    """
    size = round(share * num_train)
    if not 2 <= size < num_train:
        raise UsageError(
            f"public.share = {share:g}: is {size} of {num_train} training samples; use a share that gives 2 to {num_train - 1}"
        )
    order = rng(seed, "public").permutation(num_train)
    return np.sort(order[:size]), np.sort(order[size:])


def _check(proxy: Dataset, dataset: Dataset, name: str) -> None:
    if proxy.fingerprint == dataset.fingerprint:
        raise UsageError(f"public.name = {name!r}: has the same samples as the clients' data; use 'holdout'")
    sample_types = [f"{data.train_features.dtype} {list(data.train_features.shape[1:])}" for data in (proxy, dataset)]
    if sample_types[0] != sample_types[1]:
        raise UsageError(
            f"public.name = {name!r}: its samples are {sample_types[0]}, the clients' are {sample_types[1]}; "
            "use a data set of the same shape, or 'holdout'"
        )
