"""Data sets: train and test samples of a classification task as plain arrays, before they are divided among clients."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcohort.core.errors import UsageError, shown
from fedcohort.core.notebook_display import Bundle, bundle
from fedcohort.core.random_streams import rng
from fedcohort.core.words.formatted_values import counted
from fedcohort.federation.data.array_checks import (
    brief,
    check_classes,
    check_different,
    check_features,
    check_finite,
    check_labels,
    mention_untrained_class,
    numbered,
)
from fedcohort.federation.data.client_ids import numbers_of_clients
from fedcohort.federation.data.image_layout import mention_channels_last
from fedcohort.federation.data.numeric_labels import bin_edges, bin_names, binned, check_numbers, readable

__all__ = [
    "MAX_NAME",
    "Dataset",
    "clients_in",
    "fingerprint_of_content",
    "from_arrays",
    "held_out",
    "part",
    "standardised",
]


FEATURE_TYPES = ("uint8", "int64", "float32", "float64")
"""The types that features can have."""
MAX_NAME = 1000
"""Maximum number of characters of a data set's name."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Train and test samples of one classification task. Arrays may be read-only maps of files; do not write to them.

    Raises:
        UsageError: arrays that do not fit together; :func:`from_arrays` converts arrays of other types.
    """

    name: str
    """What messages, tables and records call the data."""
    train_features: NDArray[Any]
    """Images: uint8 [N, C, H, W], or float32 from :func:`from_arrays`. Tables: float32, float64 or int64 [N, d]."""
    train_labels: NDArray[np.int64]
    """[N], 0..K-1."""
    test_features: NDArray[Any]
    """Features of the test samples, of the same type and shape as those of the training samples."""
    test_labels: NDArray[np.int64]
    """Labels of the test samples, 0..K-1."""
    classes: tuple[str, ...]
    """The names of the K classes."""
    fingerprint: str
    """sha256 of the content (arrays, types, shapes and class names) and of ``standardise``. It does not depend on the source of the
    samples."""
    writers: NDArray[np.int64] | None = None
    """[N], 0..W-1: the client (in data sets of handwriting, the writer) that each training sample comes from, for partitions with
    natural clients; None if unknown."""
    test_clients: NDArray[np.int64] | None = None
    """[number of test samples]: the client of each test sample, numbered as in ``writers``; −1 for a client without training samples.
    None if unknown."""
    standardise: bool = True
    """Whether features enter the model with mean 0 and standard deviation 1 over the training samples, per channel of images and per
    column of tables. Otherwise, the model sees them as they are."""
    train_numbers: NDArray[np.float64] | None = None
    """Numeric labels (regression) [N]; None if labels are classes. ``train_labels`` and ``classes`` are then quantile bins."""
    test_numbers: NDArray[np.float64] | None = None
    """Numeric labels of the test samples; None if labels are classes."""
    client_names: tuple[str, ...] = ()
    """Names of the clients in ``writers``, in the order of their numbers; empty if unknown. They are not part of ``fingerprint``."""

    def __post_init__(self) -> None:
        where = brief(self.name)
        for split, features, labels in self._splits():
            _check_types(features, labels, f"{where}: {split}")
            if len(features) != len(labels):
                raise UsageError(f"{where}: {split} has {len(features)} samples but {len(labels)} labels")
            if len(labels) == 0:
                raise UsageError(f"{where}: {split} split: has no samples; at least one is needed")
            check_finite(features, f"{where}: {split} features")
        _check_same_samples(self.train_features, self.test_features, where)
        check_classes(self.classes, self.train_labels, self.test_labels, where)
        _check_numbers_of(self, where)
        if self.writers is not None and len(self.writers) != self.num_train:
            raise UsageError(f"{where}: {self.num_train} training samples but {len(self.writers)} ids of clients")
        if self.test_clients is not None:
            if self.writers is None:
                raise UsageError(f"{where}: test_clients without clients; give the client of each training sample, too")
            if len(self.test_clients) != len(self.test_labels):
                raise UsageError(
                    f"{where}: {len(self.test_labels)} test samples but {len(self.test_clients)} test_clients"
                )

    def _splits(self) -> "list[tuple[str, NDArray[Any], NDArray[np.int64]]]":
        """The name, features and labels of both splits."""
        return [
            ("train", self.train_features, self.train_labels),
            ("test", self.test_features, self.test_labels),
        ]

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.train_features.shape[1:])) or "1"
        return (
            f"<Dataset {self.name}: {self.num_train:,} training and {len(self.test_labels):,} test samples of shape {shape}, "
            f"{self.labels_in_words}>"
        )

    def _repr_mimebundle_(self, **_: object) -> Bundle:
        """What a notebook displays: the samples of each class."""
        counts = [np.bincount(labels, minlength=self.num_classes) for labels in (self.train_labels, self.test_labels)]
        names = readable(self.classes, self.train_numbers is not None)
        rows = [[name, f"{train:,}", f"{test:,}"] for name, train, test in zip(names, *counts, strict=True)]
        total = ["all", f"{self.num_train:,}", f"{len(self.test_labels):,}"]
        shape = "×".join(map(str, self.train_features.shape[1:])) or "1"
        kind = f"Samples of shape {shape}, {self.train_features.dtype.name}."
        writers = "" if self.writers is None else f"{len(np.unique(self.writers)):,} writers."
        return bundle(
            repr(self), self.name, ["class", "training samples", "test samples"], [total, *rows], [kind, writers]
        )

    @property
    def labels_in_words(self) -> str:
        """What the labels are: ``10 classes``, or ``numeric labels``."""
        return counted(self.num_classes, "class", "classes") if self.train_numbers is None else "numeric labels"

    @property
    def num_classes(self) -> int:
        """Number of classes K."""
        return len(self.classes)

    @property
    def num_train(self) -> int:
        """Number of training samples N."""
        return len(self.train_labels)

    @property
    def is_image(self) -> bool:
        """Whether samples are images, of shape [C, H, W]."""
        return self.train_features.ndim == 4

    @property
    def num_writers(self) -> int:
        """Number of clients that the training samples come from; 0 if they are unknown."""
        return 0 if self.writers is None else int(self.writers.max()) + 1


def from_arrays(
    train: tuple[Any, Any],
    test: tuple[Any, Any],
    *,
    classes: Sequence[str] | None = None,
    name: str = "arrays",
    clients: Any = None,
    test_clients: Any = None,
    standardise: bool = False,
    writers: Any = None,
    numeric: bool = False,
) -> Dataset:
    """Make a data set from your own arrays: numpy arrays, torch tensors or nested lists.

    The model sees the features as they are, unless ``standardise`` is set.

    Args:
        train, test: (features, labels). Labels are integers 0..K-1 [N]. Features are

            * tables [N, d]: float32 and float64 keep their type, integers become int64 (built-in models read them as floats, your
              own model reads them as they are, such as tokens for ``nn.Embedding``), and all other numbers become float32;
            * images of integers 0..255, [N, H, W], [N, C, H, W] or [N, H, W, C] with C 1 or 3 (if both fit: the former):
              become uint8 [N, C, H, W]; likewise images of booleans, as 0 and 255;
            * images of floats, [N, H, W] or [N, C, H, W]: become float32 [N, C, H, W].
        classes: names of the K classes; default: ``"0"`` up to the highest label.
        name: name of the data set in messages and tables.
        clients: the client that each training sample comes from [N], integers or strings; numbered 0..W-1 in sorted order. Unless the
            experiment names a partition, each of them becomes a client.
        test_clients: the client that each test sample comes from, with the same ids; the accuracy of every client on its own test
            samples is then recorded, too.
        standardise: give features mean 0 and standard deviation 1 over the training samples (of all clients), per channel of
            images and per column of tables.
        writers: another name of ``clients``.
        numeric: labels are numbers [N], for regression. Partitions by label use quantile bins in place of classes.

    Arrays that already have the right type are not copied; do not change them afterwards.

    Raises:
        UsageError: an array that cannot be used; the message names the array and the problem.
    """
    where = brief(name)
    for split, pair in (("train", train), ("test", test)):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise UsageError(f"{where}: {split} = {shown(pair)}: should be a pair (features, labels)")
    train_features = check_features(train[0], f"{where}: train")
    test_features = check_features(test[0], f"{where}: test")
    mention_channels_last(train_features, where)
    numbers: tuple[NDArray[np.float64] | None, NDArray[np.float64] | None] = (None, None)
    if numeric:
        if classes is not None:
            raise UsageError(f"{where}: numeric = True: numeric labels have no classes; leave out classes or numeric")
        numbers = check_numbers(train[1], f"{where}: train"), check_numbers(test[1], f"{where}: test")
        edges = bin_edges(numbers[0])
        train_labels, test_labels = binned(numbers[0], edges), binned(numbers[1], edges)
        classes = bin_names(edges.tolist())
    else:
        check_different(classes, where)
        train_labels, test_labels = check_labels(train[1], f"{where}: train"), check_labels(test[1], f"{where}: test")
    for split, features, labels in (("train", train_features, train_labels), ("test", test_features, test_labels)):
        if len(features) != len(labels):
            raise UsageError(f"{where}: {split} has {len(features)} samples but {len(labels)} labels")
    _check_same_samples(train_features, test_features, where)
    classes = check_classes(classes, train_labels, test_labels, where)
    mention_untrained_class(classes, train_labels, test_labels, where, are_images=train_features.ndim > 2)
    train_ids, test_ids, client_names = numbers_of_clients(clients, test_clients, writers, where)
    arrays = (train_features, train_labels, test_features, test_labels)
    numeric_labels = numbers if numeric else ()
    extra = [array for array in (test_ids, *numeric_labels) if array is not None]
    content = fingerprint_of_content(classes, *arrays, train_ids, *extra)
    made = Dataset(
        brief(name, MAX_NAME), *arrays, classes, content, train_ids, test_ids, True, *numbers, client_names=client_names
    )
    return standardised(made, standardise)


def standardised(dataset: Dataset, standardise: bool) -> Dataset:
    """The data set with features that are standardized, or seen by the model as they are; the fingerprint says which.

    >>> labels = np.array([0, 1])
    >>> raw = from_arrays((np.eye(2), labels), (np.eye(2), labels))
    >>> standardised(standardised(raw, True), False).fingerprint == raw.fingerprint != standardised(raw, True).fingerprint
    True
    """
    if dataset.standardise == standardise:
        return dataset
    content = dataset.fingerprint
    if standardise:
        parts = (dataset.test_clients, dataset.train_numbers, dataset.test_numbers)
        extra = [part for part in parts if part is not None]
        arrays = (dataset.train_features, dataset.train_labels, dataset.test_features, dataset.test_labels)
        content = fingerprint_of_content(dataset.classes, *arrays, dataset.writers, *extra)
    else:
        content = hashlib.sha256(f"{content} as given".encode()).hexdigest()
    return replace(dataset, standardise=standardise, fingerprint=content)


def fingerprint_of_content(classes: Sequence[str], *arrays: NDArray[np.generic] | None) -> str:
    """sha256 of the class names, and of type, shape and content of the arrays, in the order of :class:`Dataset`'s fields."""
    digest = hashlib.sha256(json.dumps(classes).encode())
    for array in arrays:
        digest.update(b"none" if array is None else f"{array.dtype.str}{array.shape}".encode())
        digest.update(b"" if array is None else np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _check_numbers_of(dataset: Dataset, where: str) -> None:
    """Refuse numeric labels that do not fit the samples."""
    pairs = [(dataset.train_numbers, dataset.train_labels), (dataset.test_numbers, dataset.test_labels)]
    if all(numbers is None for numbers, _ in pairs):
        return
    if any(numbers is None or numbers.dtype != np.float64 or numbers.shape != bins.shape for numbers, bins in pairs):
        raise UsageError(
            f"{where}: numeric labels must be float64 [N] in both splits; make the data set with from_arrays"
        )


def _check_types(features: object, labels: object, where: str) -> None:
    """Refuse arrays of types that no model can be trained on."""
    hint = "make the data set with fedcohort.from_arrays, which converts arrays"
    if not isinstance(features, np.ndarray) or features.ndim not in (2, 4) or features.dtype.name not in FEATURE_TYPES:
        raise UsageError(f"{where} features: {_kind(features)}; must be [N, d] or [N, C, H, W]; {hint}")
    if not isinstance(labels, np.ndarray) or labels.ndim != 1 or labels.dtype != np.int64:
        raise UsageError(f"{where} labels: {_kind(labels)}; must be int64 [N]; {hint}")


def _kind(array: object) -> str:
    """The type and shape of an array, or the type of anything else."""
    return f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__


def _check_same_samples(train: NDArray[np.generic], test: NDArray[np.generic], where: str) -> None:
    """Refuse splits with samples of different types or shapes."""
    sample_types = [f"{features.dtype} {list(features.shape[1:])}" for features in (train, test)]
    if sample_types[0] != sample_types[1]:
        raise UsageError(
            f"{where}: a train sample is {sample_types[0]}, a test sample {sample_types[1]}; both need the same type and shape"
        )


def part(dataset: Dataset, share: float) -> Dataset:
    """The data set with only a share of its training samples.

    Each class keeps the same share, at least one sample, and always the same samples. The test set stays complete. The remaining
    samples are copied into memory; ``share = 1`` returns the data set itself.

    Raises:
        UsageError: a share outside (0, 1].
    """
    if not 0 < share <= 1:
        raise UsageError(f"share = {share:g}: use a share of the training samples above 0, at most 1")
    if share == 1:
        return dataset
    groups = dataset.train_labels if dataset.train_labels.ndim == 1 else np.zeros(dataset.num_train, dtype=np.int64)
    kept = np.flatnonzero(_draw(groups, share, "datasets.part", least=1))
    return replace(
        dataset,
        train_features=dataset.train_features[kept],
        train_labels=dataset.train_labels[kept],
        train_numbers=None if dataset.train_numbers is None else dataset.train_numbers[kept],
        **clients_in(dataset, kept, slice(None)),
        fingerprint=f"{dataset.fingerprint}:{share:g}",
    )


def clients_in(dataset: Dataset, train: NDArray[np.int64], test: NDArray[np.int64] | slice) -> dict[str, Any]:
    """The fields about clients of a data set that keeps only these training and test samples; clients are numbered anew."""
    if dataset.writers is None:
        return {}
    kept, tested, names = dataset.writers[train], dataset.test_clients, dataset.client_names
    return {
        "writers": numbered(kept),
        "test_clients": None if tested is None else numbered(tested[test], known=kept),
        "client_names": tuple(names[number] for number in np.unique(kept).tolist()) if names else (),
    }


def held_out(groups: NDArray[np.int64], share: float) -> NDArray[np.bool_]:
    """True for the test samples of a data set without a test split, bool [N]: ``share`` of each group, always the same samples."""
    return _draw(groups, share, "datasets.split")


def _draw(groups: NDArray[np.int64], share: float, purpose: str, least: int = 0) -> NDArray[np.bool_]:
    """True for ``share`` of each group, rounded, but at least ``least`` samples; independent of the experiment's seed."""
    _, group, counts = np.unique(groups, return_inverse=True, return_counts=True)
    order = np.lexsort((rng(0, purpose).random(len(group)), group))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.asarray(rank < np.maximum(np.floor(share * counts + 0.5), least)[group])
