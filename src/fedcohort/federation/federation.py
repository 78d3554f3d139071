"""The federation: the data of all clients in one list of samples, sorted by client, with one offset per client.

Each client adds only its offset to the memory. A client's data are the slice ``offsets[i]:offsets[i + 1]``: first its training part,
then its held-out part, for strategies and algorithms that validate or calibrate on the client. In all other modules, "the client's
data" (sizes, histograms, latency, reports) means the training part.

Labels are packed: stored in that order. Features stay in the arrays of the data set (mostly a file that all processes map), the list
holds the row of each sample, and features are copied when they are needed. They are packed as well if a feature shift changes them,
and on a GPU.
"""

import dataclasses
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.core.random_streams import rng
from fedcohort.core.sums import moved_to
from fedcohort.core.token_shape import TokenShape
from fedcohort.federation.client_test_parts import clients_of_test_samples
from fedcohort.federation.data.datasets import Dataset
from fedcohort.federation.data.numeric_labels import NumericLabels, label_scale
from fedcohort.federation.featureshift import FeatureShift, NoFeatureShift, Space, shift_features, shift_test
from fedcohort.federation.labelnoise import LabelNoise, Noise, NoLabelNoise, corrupt
from fedcohort.federation.partition import Partition
from fedcohort.federation.position_labels import label_counts, strata
from fedcohort.federation.standardization import is_far_from_zero, shift_and_scale

__all__ = ["Federation", "Samples", "gather", "split_locally"]


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples and labels on one device.

    Attributes:
        source: array that contains the features: uint8 images [M, C, H, W], floats [M, d] or [M, C, H, W], or int64 [M, d], such as
            tokens.
        labels: int64 [N], or [N, L] with a label for each position of a sequence; numeric labels are float64 [N], scaled to mean 0
            and standard deviation 1.
        rows: row of each sample in ``source``, int64 [N]; ``source`` is then shared, so do not write to it. None means that the rows
            of ``source`` are the samples, M = N.

    >>> samples = Samples(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([0, 1]), rows=torch.tensor([2, 0]))
    >>> samples.features.tolist(), samples[1:].features.tolist()
    ([[3.0], [1.0]], [[1.0]])
    """

    source: Tensor
    labels: Tensor
    rows: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, which: slice | Tensor) -> "Samples":
        """A slice of the samples, as views, or the samples at positions, int64 [n]."""
        if self.rows is None:
            return Samples(self.source[which], self.labels[which])
        return Samples(self.source, self.labels[which], self.rows[which])

    @property
    def features(self) -> Tensor:
        """The features of all these samples, [N, …]; a copy if there are ``rows``, so take a slice of the samples first."""
        return self.source if self.rows is None else self.source.index_select(0, self.rows)

    def pick(self, positions: Tensor, out: Tensor | None = None) -> Tensor:
        """Copies of the features of the samples at these positions, int64 [n]; written to ``out`` if given."""
        rows = positions if self.rows is None else self.rows.index_select(0, positions)
        return torch.index_select(self.source, 0, rows, out=out)

    def to(self, device: torch.device) -> "Samples":
        """The same samples on a device; they are packed if the device changes."""
        if self.labels.device == device:
            return self
        return Samples(moved_to(device, self.features), self.labels.to(device))


@dataclass(frozen=True, eq=False)
class Federation:
    """The training data of all clients, and the server's validation and test sets.

    Attributes:
        train: samples of all clients, sorted by client; each client's training part first, then its held-out part.
        offsets: begin and end of each client's samples, both parts together, int64 [m + 1].
        validation: the server's validation set, for rewards and early stopping; may be empty.
        test: the server's test set, only for reporting.
        classes: names of the K classes.
        shift, scale: a feature x enters the model as (x − shift)·scale; per channel for images, per column for tables. They are 0
            and 1 if the data set is not standardized.
        held: number of samples in each client's held-out part, int64 [m]; None if there are none.
        noise: effect of the label noise, with the clean labels, aligned with ``train``; None without noise. For analysis only: no
            strategy, algorithm or client has access to it.
        test_clients: the client of each sample in ``test``, int64 [n]; −1 for none. None if clients have no test samples.
        integers: whether int64 features enter the model as they are, and not as floats. Tokens always do.
        numbers: scale and quantile bins of numeric labels; None if labels are classes, and on hosts of a cluster. ``classes`` are
            then the names of the bins.
        vocabulary: number of different tokens if samples are sequences of tokens; otherwise 0.
    """

    train: Samples
    offsets: Indices
    validation: Samples
    test: Samples
    classes: tuple[str, ...]
    shift: Tensor
    scale: Tensor
    held: Indices | None = None
    noise: Noise | None = None
    test_clients: Indices | None = None
    integers: bool = False
    numbers: NumericLabels | None = None
    vocabulary: int = 0

    @property
    def is_numeric(self) -> bool:
        """Whether labels are numbers (regression)."""
        return self.train.labels.is_floating_point()

    @property
    def num_outputs(self) -> int:
        """Number of outputs of a model: K, or 1 if labels are numbers."""
        return 1 if self.is_numeric else self.num_classes

    @property
    def device(self) -> torch.device:
        """Device of the samples."""
        return self.train.labels.device

    def to(self, device: str | torch.device) -> "Federation":
        """The same samples on another device."""
        device = torch.device(device)
        return dataclasses.replace(
            self,
            train=self.train.to(device),
            validation=self.validation.to(device),
            test=self.test.to(device),
            shift=moved_to(device, self.shift),
            scale=moved_to(device, self.scale),
        )

    @property
    def num_clients(self) -> int:
        """Number of clients m."""
        return len(self.offsets) - 1

    @property
    def num_classes(self) -> int:
        """Number of classes K."""
        return len(self.classes)

    @property
    def num_samples(self) -> Indices:
        """Number of training samples N_i of each client, int64 [m]."""
        sizes = np.diff(self.offsets)
        return sizes if self.held is None else sizes - self.held

    @property
    def num_held_out(self) -> Indices:
        """Number of samples in the held-out part of each client, int64 [m]."""
        return np.zeros(self.num_clients, dtype=np.int64) if self.held is None else self.held.copy()

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one sample; a :class:`TokenShape` if samples are sequences of tokens."""
        shape = tuple(self.train.source.shape[1:])
        if not self.vocabulary:
            return shape
        return TokenShape(shape, self.vocabulary, each_position=self.train.labels.dim() == 2)

    def client(self, client: int) -> Samples:
        """The training samples of one client, without a copy."""
        return self.train[slice(*self.span(client))]

    def held_out(self, client: int) -> Samples:
        """The held-out samples of one client, for validation or calibration, without a copy; empty if the client has none."""
        return self.train[self._cut(client) : int(self.offsets[client + 1])]

    def span(self, client: int) -> tuple[int, int]:
        """Begin and end of the client's training samples in :attr:`train`."""
        return int(self.offsets[client]), self._cut(client)

    def _cut(self, client: int) -> int:
        """End of a client's training part."""
        return int(self.offsets[client + 1]) - (0 if self.held is None else int(self.held[client]))

    def prepare(self, features: Tensor, dtype: torch.dtype) -> Tensor:
        """Raw features as inputs of the model: floats, standardized if the data set is, images channels-last; or integers."""
        values = self.standardised(features, dtype)
        return values.contiguous(memory_format=torch.channels_last) if values.dim() == 4 else values

    def standardised(self, features: Tensor, dtype: torch.dtype, out: Tensor | None = None) -> Tensor:
        """Raw features as inputs of the model, in the layout that ``torch.func.vmap`` requires; written to ``out`` if given."""
        if self.integers and features.dtype == torch.int64:
            return features.clone() if out is None else out.copy_(features)
        if self._is_far_from_zero and features.dtype in (torch.float64, torch.int64):
            exact = (features.double() - self.shift.double()) * self.scale.double()
            return exact.to(dtype) if out is None else out.copy_(exact)
        values = features.to(dtype, copy=True) if out is None else out.copy_(features)
        return values.sub_(self.shift.to(dtype)).mul_(self.scale.to(dtype))

    @cached_property
    def _is_far_from_zero(self) -> bool:
        """See :func:`is_far_from_zero`; False on a GPU of a Mac, which has no float64."""
        return self.device.type != "mps" and is_far_from_zero(self.shift.cpu().numpy(), self.scale.cpu().numpy())

    def histogram(self) -> Indices:
        """Label counts of the training parts, including label noise, as clients would count them, int64 [m, K].

        With a label for each position of a sequence, every position counts. Numeric labels are counted by quantile bin.
        """
        labels = self.train.labels.cpu().numpy() if self.numbers is None else self.numbers.bins
        if self.held is not None:
            parts = np.stack([self.num_samples, self.held], axis=1)
            labels = labels[np.repeat(np.tile([True, False], self.num_clients), parts.ravel())]
        return label_counts(labels, self.num_samples, self.num_classes)


def gather(
    dataset: Dataset,
    partition: Partition,
    *,
    validation: float,
    seed: int,
    label_noise: LabelNoise | NoLabelNoise | None = None,
    holdout: float = 0.0,
    feature_shift: FeatureShift | NoFeatureShift | None = None,
    device: str = "cpu",
) -> Federation:
    """Make the federation of a partitioned data set, in this order: partition, label noise, local split, feature shift.

    Args:
        dataset: the data set.
        partition: division of its training samples among the clients.
        validation: share of the test set that becomes the server's validation set, stratified by class; it is not used for reports.
        seed: seed of all random draws.
        label_noise: wrong labels in both parts of the clients' data; the server's sets stay clean.
        holdout: share of each client's data in its held-out part, see :func:`split_locally`.
        feature_shift: shift of the samples in both parts of the clients' data.
        device: device of the tensors.

    Raises:
        UsageError: a share, the label noise or the feature shift is not possible with these data.
    """
    in_validation, in_test = _split(strata(dataset.test_labels), validation, seed)
    rule = None if isinstance(feature_shift, NoFeatureShift) else feature_shift
    shift, scale = shift_and_scale(dataset.train_features, dataset.standardise)
    labels: np.ndarray = dataset.train_labels
    tested: np.ndarray = dataset.test_labels
    noise, numbers = None, None
    if dataset.train_numbers is not None and dataset.test_numbers is not None:
        if label_noise is not None and not isinstance(label_noise, NoLabelNoise):
            raise UsageError("federation.label_noise: exchanges classes, and the labels are numbers; use 'none'")
        numbers = NumericLabels(*label_scale(dataset.train_numbers), labels[partition.order])
        labels, tested = numbers.scaled(dataset.train_numbers), numbers.scaled(dataset.test_numbers)
    vocabulary = getattr(dataset, "vocabulary", 0)
    if label_noise is not None and not isinstance(label_noise, NoLabelNoise):
        noise = corrupt(
            label_noise, labels, partition.order, partition.offsets, num_classes=len(dataset.classes), seed=seed
        )
    held_locally = split_locally(partition.sizes, holdout) if holdout else None
    train = _samples(
        dataset.train_features,
        partition.order,
        labels[partition.order] if noise is None else noise.noisy,
        packed=rule is not None,
    )
    test = _samples(dataset.test_features, in_test, tested[in_test], packed=rule is not None and rule.matched_test)
    if rule is not None:
        if dataset.train_features.dtype == np.int64:
            raise UsageError(
                "federation.feature_shift: the features are integers, which are not shifted; hand over floats, or use none"
            )
        space = Space(dataset.train_features.shape[1:], _unit(dataset.train_features), partition.num_clients)
        shift_features(rule, train.source.numpy(), partition.offsets, space, seed=seed, purpose="train")
        if rule.matched_test:
            shift_test(rule, test.source.numpy(), partition.sizes, space, seed=seed)
    return Federation(
        train=train,
        offsets=partition.offsets,
        validation=_samples(dataset.test_features, in_validation, tested[in_validation], packed=True),
        test=test,
        classes=dataset.classes,
        shift=torch.from_numpy(shift),
        scale=torch.from_numpy(scale),
        held=held_locally,
        noise=noise,
        test_clients=clients_of_test_samples(dataset, partition, in_test),
        integers=vocabulary > 0,
        numbers=numbers,
        vocabulary=vocabulary,
    ).to(device)


def _samples(features: np.ndarray, rows: Indices, labels: Indices | Values, *, packed: bool) -> Samples:
    """The samples in these rows of ``features``: as a view with row numbers, or packed.

    Torch has no read-only tensors. An array that cannot be made writable is packed; an array that is only marked as read-only, such
    as those of :func:`fedcohort.federation.load`, is used through a writable view.
    """
    if not packed and features.flags.c_contiguous:
        view = features.view()
        with suppress(ValueError):
            view.flags.writeable = True
            return Samples(torch.from_numpy(view), torch.from_numpy(labels), torch.from_numpy(rows))
    return Samples(torch.from_numpy(np.take(features, rows, axis=0)), torch.from_numpy(labels))


def split_locally(sizes: Indices, holdout: float) -> Indices:
    """Number of held-out samples of each client, int64 [m]: round(holdout·n) of n samples, but at least 1 stays for training.

    The held-out samples are the last of the client's samples, which the partition has shuffled. They are therefore a random part that
    does not depend on label noise, and a larger share adds samples to those of a smaller share.

    >>> split_locally(np.array([0, 1, 2, 7, 100]), 0.2)
    array([ 0,  0,  0,  1, 20])
    """
    if not 0 <= holdout < 1:
        raise UsageError(f"federation.holdout = {holdout}: should be a share of each client's data, from 0 to below 1")
    requested = np.rint(holdout * sizes).astype(np.int64)
    return np.asarray(np.minimum(requested, np.maximum(sizes - 1, 0)))


def _unit(features: np.ndarray) -> np.ndarray:
    """The unit of feature shifts, see :class:`Space`."""
    if features.ndim != 4:
        return np.asarray(1.0 / shift_and_scale(features, True, "federation.feature_shift")[1])
    span = float(features.max()) - float(features.min())
    return np.asarray(span if span > 0 else 1.0)


def _split(labels: np.ndarray, share: float, seed: int) -> tuple[Indices, Indices]:
    """Positions of the validation samples and of the test samples, both ascending; the same share of every class, rounded."""
    order = rng(seed, "validation").permutation(len(labels))
    parts = []
    for label in np.unique(labels):
        of_class = order[labels[order] == label]
        parts.append(of_class[: round(share * len(of_class))])
    chosen = np.sort(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.int64)
    if len(chosen) == len(labels):
        raise UsageError(f"data.validation = {share}: leaves no test samples; use a smaller share")
    mask = np.ones(len(labels), dtype=bool)
    mask[chosen] = False
    return chosen, np.flatnonzero(mask)
