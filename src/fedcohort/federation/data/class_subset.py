"""A data set with only the first of its classes."""

from dataclasses import replace

import numpy as np

from fedcohort.core.arrays import Indices
from fedcohort.core.errors import UsageError
from fedcohort.federation.data.datasets import Dataset, clients_in

__all__ = ["first_classes"]


def first_classes(dataset: Dataset, number: int | None) -> Dataset:
    """The samples of the first ``number`` classes; None means all of them.

    Raises:
        UsageError: the data have fewer classes, or their labels are no classes of samples.
    """
    if number is None or (number == dataset.num_classes and dataset.train_numbers is None):
        return dataset
    train, test = _samples_of(dataset, number)
    return replace(
        dataset,
        train_features=dataset.train_features[train],
        train_labels=dataset.train_labels[train],
        test_features=dataset.test_features[test],
        test_labels=dataset.test_labels[test],
        classes=dataset.classes[:number],
        **clients_in(dataset, train, test),
        fingerprint=f"{dataset.fingerprint}:{number} classes",
    )


def _samples_of(dataset: Dataset, number: int) -> tuple[Indices, Indices]:
    """The training samples and the test samples of the first ``number`` classes.

    Raises:
        UsageError: see :func:`first_classes`.
    """
    where = f"data.classes = {number}"
    if dataset.train_numbers is not None or dataset.train_labels.ndim > 1:
        kind = "numbers" if dataset.train_numbers is not None else "tokens"
        raise UsageError(
            f"{where}: the labels of {dataset.name} are {kind}; leave it out, or use data with one class a sample"
        )
    if number > dataset.num_classes:
        raise UsageError(
            f"{where}: {dataset.name} has {dataset.num_classes} classes; use at most {dataset.num_classes}"
        )
    train, test = (np.flatnonzero(labels < number) for labels in (dataset.train_labels, dataset.test_labels))
    if not (len(train) and len(test)):
        raise UsageError(f"{where}: {dataset.name} has no training or no test samples of these classes; use more")
    return train, test
