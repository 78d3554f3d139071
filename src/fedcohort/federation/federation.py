"""The federation: who the clients are. All samples in one list, sorted by client, one offset per client.

A million clients cost a million integers. A client's data is the slice ``offsets[i]:offsets[i + 1]``: first its training part,
then its held-out part, for strategies and algorithms that validate or calibrate on the client. Whatever counts or uses "the
client's data" elsewhere (sizes, histograms, latency, questions) means the training part.

Labels are packed in that order. Features stay where the data set has them, mostly a file that all processes map, and the list says
which row each sample is; they are picked out when they are needed. They are packed, too, where a shift changes them and on a GPU.
"""

import dataclasses
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcohort.core.arrays import Indices
from fedcohort.core.errors import UsageError
from fedcohort.core.streams import rng
from fedcohort.federation.datasets import Dataset
from fedcohort.federation.featureshift import FeatureShift, NoFeatureShift, Space, shift_features, shift_test
from fedcohort.federation.labelnoise import LabelNoise, Noise, NoLabelNoise, corrupt
from fedcohort.federation.partition import Partition

__all__ = ["Federation", "Samples", "gather", "split_locally"]


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples and labels on the device.

    Attributes:
        source: where the features are: uint8 images [M, C, H, W], or floats [M, d] or [M, C, H, W].
        labels: int64 [N].
        rows: which row of ``source`` each sample is, int64 [N]; others share it then, and nobody writes to it. None: the rows of
            ``source`` are the samples, M = N.

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
        """Some of the samples: a slice of them, as views, or those at positions, int64 [n]."""
        if self.rows is None:
            return Samples(self.source[which], self.labels[which])
        return Samples(self.source, self.labels[which], self.rows[which])

    @property
    def features(self) -> Tensor:
        """The features of these samples, [N, …]; a copy where there are rows: take the samples that are needed first."""
        return self.source if self.rows is None else self.source.index_select(0, self.rows)

    def pick(self, positions: Tensor, out: Tensor | None = None) -> Tensor:
        """Copies of the features of the samples at these positions, int64 [n]; in ``out`` if given."""
        rows = positions if self.rows is None else self.rows.index_select(0, positions)
        return torch.index_select(self.source, 0, rows, out=out)

    def to(self, device: torch.device) -> "Samples":
        """The same samples on another device, packed there."""
        if self.labels.device == device:
            return self
        return Samples(self.features.to(device), self.labels.to(device))


@dataclass(frozen=True, eq=False)
class Federation:
    """The training data of all clients, and the server's validation and test sets.

    Attributes:
        train: samples of all clients, sorted by client; each client's training part first, then its held-out part.
        offsets: where each client's samples begin and end, both parts together, int64 [m + 1].
        validation: the server's validation set, for rewards and early stopping; may be empty.
        test: the server's test set, for reporting only.
        classes: names of the K classes.
        shift, scale: a feature x enters the model as (x − shift)·scale; per channel for images, per column for tables.
        held: samples in each client's held-out part, int64 [m]; None for none.
        noise: what label noise did, with the clean labels, aligned with ``train``; None without noise. For analysis only:
            nothing of it reaches a strategy, an algorithm or a client.
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

    @property
    def device(self) -> torch.device:
        """Where the samples live."""
        return self.train.labels.device

    def to(self, device: str | torch.device) -> "Federation":
        """The same samples on another device."""
        device = torch.device(device)
        return dataclasses.replace(
            self,
            train=self.train.to(device),
            validation=self.validation.to(device),
            test=self.test.to(device),
            shift=self.shift.to(device),
            scale=self.scale.to(device),
        )

    @property
    def num_clients(self) -> int:
        """m."""
        return len(self.offsets) - 1

    @property
    def num_classes(self) -> int:
        """K."""
        return len(self.classes)

    @property
    def num_samples(self) -> Indices:
        """N_i, the samples each client trains on, int64 [m]."""
        sizes = np.diff(self.offsets)
        return sizes if self.held is None else sizes - self.held

    @property
    def num_held_out(self) -> Indices:
        """Samples in the held-out part of each client, int64 [m]."""
        return np.zeros(self.num_clients, dtype=np.int64) if self.held is None else self.held.copy()

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return tuple(self.train.source.shape[1:])

    def client(self, client: int) -> Samples:
        """The training samples of one client; nothing is copied."""
        return self.train[slice(*self.span(client))]

    def held_out(self, client: int) -> Samples:
        """The samples that one client keeps for validation or calibration, likewise; no samples where there is no such part."""
        return self.train[self._cut(client) : int(self.offsets[client + 1])]

    def span(self, client: int) -> tuple[int, int]:
        """Where the client's training samples begin and end."""
        return int(self.offsets[client]), self._cut(client)

    def _cut(self, client: int) -> int:
        """Where a client's training part ends."""
        return int(self.offsets[client + 1]) - (0 if self.held is None else int(self.held[client]))

    def prepare(self, features: Tensor, dtype: torch.dtype) -> Tensor:
        """Raw features as the model sees them: floats, standardised, images channels-last."""
        values = self.standardised(features, dtype)
        return values.contiguous(memory_format=torch.channels_last) if values.dim() == 4 else values

    def standardised(self, features: Tensor, dtype: torch.dtype, out: Tensor | None = None) -> Tensor:
        """The same in the layout of the raw features, which is what ``torch.func.vmap`` can work with; written to ``out`` if given."""
        values = features.to(dtype, copy=True) if out is None else out.copy_(features)
        return values.sub_(self.shift.to(dtype)).mul_(self.scale.to(dtype))

    def histogram(self) -> Indices:
        """Label counts of the training parts, noise included, as clients would count them, int64 [m, K]."""
        labels = self.train.labels.cpu().numpy()
        if self.held is not None:
            parts = np.stack([self.num_samples, self.held], axis=1)
            labels = labels[np.repeat(np.tile([True, False], self.num_clients), parts.ravel())]
        flat = np.repeat(np.arange(self.num_clients), self.num_samples) * self.num_classes + labels
        return np.bincount(flat, minlength=self.num_clients * self.num_classes).reshape(self.num_clients, -1)


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
    """The clients of a data set that was partitioned: partition → label noise → local split → feature shift.

    Args:
        dataset: the data.
        partition: which training sample belongs to whom.
        validation: share of the test set that becomes the server's validation set, stratified by class; never reported on.
        seed: decides everything random in here.
        label_noise: wrong labels in the clients' data, in both parts of it; the server's sets stay clean.
        holdout: share of each client's data that it keeps for validation or calibration, see :func:`split_locally`.
        feature_shift: changes the samples in both parts of the clients' data.
        device: where the tensors live.

    Raises:
        UsageError: a share, a noise or a shift that these data cannot have.
    """
    held, kept = _split(dataset.test_labels, validation, seed)
    shift, scale = _standardise(dataset.train_features)
    labels, noise = dataset.train_labels, None
    if label_noise is not None and not isinstance(label_noise, NoLabelNoise):
        noise = corrupt(
            label_noise, labels, partition.order, partition.offsets, num_classes=len(dataset.classes), seed=seed
        )
    held_locally = split_locally(partition.sizes, holdout) if holdout else None
    rule = None if isinstance(feature_shift, NoFeatureShift) else feature_shift
    train = _samples(
        dataset.train_features,
        partition.order,
        labels[partition.order] if noise is None else noise.noisy,
        packed=rule is not None,
    )
    test = _samples(
        dataset.test_features, kept, dataset.test_labels[kept], packed=rule is not None and rule.matched_test
    )
    if rule is not None:
        space = Space(dataset.train_features.shape[1:], _unit(dataset.train_features, scale), partition.num_clients)
        shift_features(rule, train.source.numpy(), partition.offsets, space, seed=seed, purpose="train")
        if rule.matched_test:
            shift_test(rule, test.source.numpy(), partition.sizes, space, seed=seed)
    return Federation(
        train=train,
        offsets=partition.offsets,
        validation=_samples(dataset.test_features, held, dataset.test_labels[held], packed=True),
        test=test,
        classes=dataset.classes,
        shift=torch.from_numpy(shift),
        scale=torch.from_numpy(scale),
        held=held_locally,
        noise=noise,
    ).to(device)


def _samples(features: np.ndarray, rows: Indices, labels: Indices, *, packed: bool) -> Samples:
    """These rows of features: where they are, or packed.

    There are no read-only tensors. What may not be written to at all is packed; an array that only says so, such as those of
    :func:`fedcohort.federation.datasets.load`, is not.
    """
    if not packed and features.flags.c_contiguous:
        where = features.view()
        with suppress(ValueError):
            where.flags.writeable = True
            return Samples(torch.from_numpy(where), torch.from_numpy(labels), torch.from_numpy(rows))
    return Samples(torch.from_numpy(np.take(features, rows, axis=0)), torch.from_numpy(labels))


def split_locally(sizes: Indices, holdout: float) -> Indices:
    """Held-out samples of each client, int64 [m]: round(holdout·n) of its n samples, but at least 1 stays for training.

    These are the last of the client's samples, which the partition has shuffled: a random part, the same whatever the noise, and
    part of what a larger share would hold out.

    >>> split_locally(np.array([0, 1, 2, 7, 100]), 0.2)
    array([ 0,  0,  0,  1, 20])
    """
    if not 0 <= holdout < 1:
        raise UsageError(f"federation.holdout = {holdout}: is a share of each client's data, from 0 to below 1")
    wanted = np.rint(holdout * sizes).astype(np.int64)
    return np.asarray(np.minimum(wanted, np.maximum(sizes - 1, 0)))


def _unit(features: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """What a feature shift counts as 1, see :class:`Space`."""
    if features.ndim != 4:
        return np.asarray(1.0 / scale)
    span = float(features.max()) - float(features.min())
    return np.asarray(span if span > 0 else 1.0)


def _split(labels: np.ndarray, share: float, seed: int) -> tuple[Indices, Indices]:
    """Positions of the validation part and of the rest, both ascending; the same share of every class, rounded."""
    order = rng(seed, "validation").permutation(len(labels))
    held = []
    for label in np.unique(labels):
        members = order[labels[order] == label]
        held.append(members[: round(share * len(members))])
    chosen = np.sort(np.concatenate(held)) if held else np.zeros(0, dtype=np.int64)
    if len(chosen) == len(labels):
        raise UsageError(f"data.validation = {share}: leaves no test samples; use a smaller share")
    mask = np.ones(len(labels), dtype=bool)
    mask[chosen] = False
    return chosen, np.flatnonzero(mask)


def _standardise(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shift and scale to mean 0 and deviation 1 on the training set, per channel or column; constant ones stay as they are."""
    shape = (features.shape[1], 1, 1) if features.ndim == 4 else (features.shape[1],)
    if features.ndim == 4 and features.dtype == np.uint8:
        counts = np.stack([_grey_levels(features, channel) for channel in range(features.shape[1])])
        levels = np.arange(256.0)
        total = counts.sum(axis=1)
        mean = counts @ levels / total
        deviation = np.sqrt(np.maximum(counts @ levels**2 / total - mean**2, 0))
    else:
        axes = (0, 2, 3) if features.ndim == 4 else (0,)
        mean, deviation = features.mean(axis=axes, dtype=np.float64), features.std(axis=axes, dtype=np.float64)
    scale = 1.0 / np.where(deviation > 1e-12, deviation, 1.0)
    return mean.reshape(shape), scale.reshape(shape)


def _grey_levels(features: np.ndarray, channel: int) -> np.ndarray:
    """How often each of the 256 levels occurs, a block of images at a time so that no second copy is made."""
    counts = np.zeros(256, dtype=np.int64)
    for start in range(0, len(features), 4096):
        counts += np.bincount(features[start : start + 4096, channel].reshape(-1), minlength=256)
    return counts
