"""Packed data: one tensor sorted by client, one offset per client, standardised on the fly."""

import numpy as np
import pytest
import torch

from fedcohort.errors import UsageError
from fedcohort.federation.datasets import from_arrays, load
from fedcohort.federation.federation import gather
from fedcohort.federation.partition import DirichletClass, Iid, partition


def test_every_client_holds_its_own_samples() -> None:
    data = load("digits")
    split = partition(DirichletClass(alpha=0.5), data.train_labels, 7, seed=3)
    federation = gather(data, split, validation=0.1, seed=3)
    for client in range(7):
        mine = federation.client(client)
        assert np.array_equal(mine.features.numpy(), data.train_features[split.samples(client)])
        assert np.array_equal(mine.labels.numpy(), data.train_labels[split.samples(client)])
    assert np.array_equal(federation.num_samples, split.sizes)
    expected = [np.bincount(data.train_labels[split.samples(i)], minlength=10) for i in range(7)]
    assert np.array_equal(federation.histogram(), expected)


def test_a_clients_data_is_a_view() -> None:
    data = load("digits")
    federation = gather(data, partition(Iid(), data.train_labels, 4, 0), validation=0.1, seed=0)
    assert federation.client(2).features.data_ptr() != 0
    assert (
        federation.client(2).features.untyped_storage().data_ptr()
        == federation.train.features.untyped_storage().data_ptr()
    )


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_images_are_standardised_per_channel(dtype: type) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (300, 3, 8, 8)).astype(dtype)
    images[:, 1] = images[:, 1] // 4
    data = from_arrays((images, np.arange(300) % 2), (images[:20], np.arange(20) % 2))
    federation = gather(data, partition(Iid(), data.train_labels, 3, 0), validation=0.0, seed=0)
    ready = federation.prepare(federation.train.features, torch.float64)
    assert torch.allclose(ready.mean((0, 2, 3)), torch.zeros(3, dtype=torch.float64), atol=1e-9)
    assert torch.allclose(ready.std((0, 2, 3), correction=0), torch.ones(3, dtype=torch.float64), atol=1e-9)
    assert ready.is_contiguous(memory_format=torch.channels_last)


def test_constant_columns_do_not_divide_by_zero() -> None:
    features = np.ones((40, 2), dtype=np.float32)
    features[:, 0] = np.arange(40)
    data = from_arrays((features, np.arange(40) % 2), (features, np.arange(40) % 2))
    federation = gather(data, partition(Iid(), data.train_labels, 2, 0), validation=0.1, seed=0)
    assert torch.isfinite(federation.prepare(federation.train.features, torch.float32)).all()


def test_validation_is_a_stratified_part_of_the_test_set() -> None:
    data = load("digits")
    split = partition(Iid(), data.train_labels, 4, 0)
    one, two = (gather(data, split, validation=0.2, seed=seed) for seed in (0, 1))
    assert not torch.equal(one.validation.features, two.validation.features)
    for federation in (one, two):
        counts = np.bincount(federation.validation.labels.numpy(), minlength=10)
        expected = np.round(0.2 * np.bincount(data.test_labels, minlength=10))
        assert np.array_equal(counts, expected)
        assert len(federation.validation) + len(federation.test) == len(data.test_labels)
    assert len(gather(data, split, validation=0.0, seed=0).validation) == 0


def test_a_validation_share_that_leaves_no_test_set() -> None:
    features, labels = np.zeros((10, 2), dtype=np.float32), np.arange(10) % 2
    data = from_arrays((features, labels), (features, labels))
    with pytest.raises(UsageError, match=r"data\.validation = 0\.95: leaves no test samples"):
        gather(data, partition(Iid(), labels, 2, 0), validation=0.95, seed=0)
