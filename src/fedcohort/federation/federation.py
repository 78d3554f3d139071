"""The federation: who the clients are. All samples in one tensor, sorted by client, one offset per client.

A million clients cost a million integers. A client's data is the slice ``offsets[i]:offsets[i + 1]``.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcohort.arrays import Indices
from fedcohort.errors import UsageError
from fedcohort.federation.datasets import Dataset
from fedcohort.federation.partition import Partition
from fedcohort.streams import rng

__all__ = ["Federation", "Samples", "gather"]


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples and labels on the device.

    Attributes:
        features: uint8 images [N, C, H, W], or floats [N, d] or [N, C, H, W].
        labels: int64 [N].
    """

    features: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Federation:
    """Packed training data of all clients, and the server's validation and test sets.

    Attributes:
        train: training samples of all clients, sorted by client.
        offsets: int64 [m + 1].
        validation: the server's validation set, for rewards and early stopping; may be empty.
        test: the server's test set, for reporting only.
        classes: names of the K classes.
        shift, scale: a feature x enters the model as (x − shift)·scale; per channel for images, per column for tables.
    """

    train: Samples
    offsets: Indices
    validation: Samples
    test: Samples
    classes: tuple[str, ...]
    shift: Tensor
    scale: Tensor

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
        """N_i, int64 [m]."""
        return np.diff(self.offsets)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return tuple(self.train.features.shape[1:])

    def client(self, client: int) -> Samples:
        """The training samples of one client, as views."""
        start, stop = int(self.offsets[client]), int(self.offsets[client + 1])
        return Samples(self.train.features[start:stop], self.train.labels[start:stop])

    def prepare(self, features: Tensor, dtype: torch.dtype) -> Tensor:
        """Raw features as the model sees them: floats, standardised, images channels-last."""
        values = features.to(dtype)
        values = (values - self.shift.to(dtype)).mul_(self.scale.to(dtype))
        return values.contiguous(memory_format=torch.channels_last) if values.dim() == 4 else values

    def histogram(self) -> Indices:
        """Label counts, int64 [m, K]."""
        owner = np.repeat(np.arange(self.num_clients), self.num_samples)
        flat = owner * self.num_classes + self.train.labels.cpu().numpy()
        return np.bincount(flat, minlength=self.num_clients * self.num_classes).reshape(self.num_clients, -1)


def gather(dataset: Dataset, partition: Partition, *, validation: float, seed: int, device: str = "cpu") -> Federation:
    """Pack a data set that was partitioned over clients.

    Args:
        dataset: the data.
        partition: which training sample belongs to whom.
        validation: share of the test set that becomes the server's validation set, stratified by class; never reported on.
        seed: decides that split.
        device: where the tensors live.
    """
    held, kept = _split(dataset.test_labels, validation, seed)
    shift, scale = _standardise(dataset.train_features)

    def samples(features: np.ndarray, labels: np.ndarray, index: np.ndarray) -> Samples:
        return Samples(
            torch.from_numpy(np.take(features, index, axis=0)).to(device), torch.from_numpy(labels[index]).to(device)
        )

    return Federation(
        train=samples(dataset.train_features, dataset.train_labels, partition.order),
        offsets=partition.offsets,
        validation=samples(dataset.test_features, dataset.test_labels, held),
        test=samples(dataset.test_features, dataset.test_labels, kept),
        classes=dataset.classes,
        shift=torch.from_numpy(shift).to(device),
        scale=torch.from_numpy(scale).to(device),
    )


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
