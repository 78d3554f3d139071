"""Clients' data: a list sorted by client of rows that stay where they are, one offset per client, standardised on the fly."""

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedcohort.core.errors import UsageError
from fedcohort.federation.data.cache_entries import map_array
from fedcohort.federation.data.datasets import Dataset, from_arrays
from fedcohort.federation.data.load_dataset import load
from fedcohort.federation.featureshift import Gauss
from fedcohort.federation.federation import Federation, gather
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
    federation = of(load("digits"))
    mine, everybody = federation.client(2), federation.train
    assert mine.source is everybody.source
    assert mine.rows is not None
    assert everybody.rows is not None
    for own, whole in ((mine.rows, everybody.rows), (mine.labels, everybody.labels)):
        assert own.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
    packed = of(load("digits"), feature_shift=Gauss(sigma=0.1))
    mine, everybody = packed.client(2), packed.train
    assert mine.features.untyped_storage().data_ptr() == everybody.features.untyped_storage().data_ptr()


# --- features stay where the data set has them -----------------------------------------------------------------------------


def of(data: Dataset, **how: Any) -> Federation:
    split = partition(Iid(), data.train_labels, 4, seed=0)
    return gather(data, split, validation=0.1, seed=0, **how)


@pytest.fixture
def mapped(tmp_path: Path) -> Dataset:
    """A megabyte of images in files, as the cache has them."""
    rng = np.random.default_rng(0)
    features, labels = rng.integers(0, 256, (400, 3, 32, 32), dtype=np.uint8), np.arange(400) % 10
    data = from_arrays((features, labels), (features[:100], labels[:100]))
    for name in ("train_features", "test_features"):
        np.save(tmp_path / f"{name}.npy", getattr(data, name))
    return dataclasses.replace(
        data,
        train_features=map_array(tmp_path / "train_features.npy"),
        test_features=map_array(tmp_path / "test_features.npy"),
    )


def pages_of(file: Path) -> dict[str, int]:
    """What the kernel says of this process's map of a file: KiB by kind."""
    found: dict[str, int] = {}
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, *values = line.split()
        if not name.endswith(":"):
            inside = line.endswith(f" {file}")
        elif inside and values[-1] == "kB":
            found[name[:-1]] = found.get(name[:-1], 0) + int(values[0])
    return found


def test_processes_share_what_is_mapped(mapped: Dataset, tmp_path: Path) -> None:
    """After every sample was read, no page of the file is this process's own."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns of read-only arrays
        federation = of(mapped)
    assert federation.train.source.data_ptr() == mapped.train_features.ctypes.data
    assert federation.test.source.data_ptr() == mapped.test_features.ctypes.data
    for client in range(4):
        assert federation.prepare(federation.client(client).features, torch.float32).isfinite().all()
    pages = pages_of(tmp_path / "train_features.npy")
    assert pages["Rss"] >= mapped.train_features.nbytes / 1024
    assert pages["Anonymous"] == 0


def test_who_writes_all_the_same_writes_to_a_copy(mapped: Dataset, tmp_path: Path) -> None:
    """The map is read-only as an array; torch does not know that, but nothing reaches the file."""
    before = (tmp_path / "train_features.npy").read_bytes()
    with pytest.raises(ValueError, match="read-only"):
        mapped.train_features[0] = 0
    of(mapped).train.source[:10] = 0
    assert pages_of(tmp_path / "train_features.npy")["Anonymous"] > 0
    assert (tmp_path / "train_features.npy").read_bytes() == before


def read_only(data: Dataset) -> Dataset:
    features = data.train_features.copy()
    features.flags.writeable = False
    return dataclasses.replace(data, train_features=features.view())


def mapped_for_reading(data: Dataset) -> Dataset:
    assert isinstance(data.train_features, np.memmap)
    assert data.train_features.filename is not None
    return dataclasses.replace(data, train_features=np.load(data.train_features.filename, mmap_mode="r"))


def every_other(data: Dataset) -> Dataset:
    return dataclasses.replace(data, train_features=np.repeat(data.train_features, 2, axis=0)[::2])


@pytest.mark.parametrize("change", [read_only, mapped_for_reading, every_other])
def test_what_a_tensor_cannot_hold_is_packed(change: Any, mapped: Dataset) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        packed, there = of(change(mapped)), of(mapped)
    assert packed.train.rows is None
    assert packed.train.features.equal(there.train.features)


@pytest.mark.parametrize("matched", [False, True])
def test_what_is_shifted_is_packed(matched: bool, mapped: Dataset) -> None:
    before = mapped.train_features.copy(), mapped.test_features.copy()
    shifted, plain = of(mapped, feature_shift=Gauss(sigma=0.3, matched_test=matched)), of(mapped)
    assert shifted.train.rows is None
    assert not shifted.train.features.equal(plain.train.features)
    assert (shifted.test.rows is None) == matched
    assert shifted.test.features.equal(plain.test.features) != matched
    assert np.array_equal(mapped.train_features, before[0])
    assert np.array_equal(mapped.test_features, before[1])


def test_some_of_the_samples(mapped: Dataset) -> None:
    federation = of(mapped, holdout=0.2)
    packed = dataclasses.replace(federation, train=federation.train.to(torch.device("meta")))
    assert packed.train.rows is None  # another device holds copies
    packed = dataclasses.replace(federation, train=dataclasses.replace(
        federation.train, source=federation.train.features, rows=None
    ))  # fmt: skip
    assert federation.to("cpu").train is federation.train
    positions = torch.tensor([5, 0, 5, 17])
    for one, other in zip(
        (federation.train, federation.client(1), federation.held_out(3)),
        (packed.train, packed.client(1), packed.held_out(3)),
        strict=True,
    ):
        assert one.labels.equal(other.labels)
        assert one.features.equal(other.features)
        assert one.pick(positions).equal(other.pick(positions))
        assert one.pick(positions).equal(one.features[positions])
        for which in (positions, slice(3, 9), slice(2, None)):
            assert one[which].features.equal(other[which].features)
            assert one[which].labels.equal(other[which].labels)
            assert len(one[which]) == len(other[which])


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_images_are_standardised_per_channel(dtype: type) -> None:
    rng = np.random.default_rng(0)
    images: np.ndarray = rng.integers(0, 256, (300, 3, 8, 8)).astype(dtype)
    images[:, 1] = images[:, 1] // 4
    data = from_arrays((images, np.arange(300) % 2), (images[:20], np.arange(20) % 2), standardise=True)
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


@pytest.mark.parametrize("kind", ["float64", "int64"])
def test_values_far_from_zero_are_standardised_before_they_become_float32(kind: str) -> None:
    draw = np.random.default_rng(0)
    seconds = (1.7e9 + draw.normal(0, 60, (120, 1))).astype(kind)
    huge = 1e40 * draw.normal(size=(120, 1))
    for features in (seconds, huge) if kind == "float64" else (seconds,):
        data = from_arrays((features[:100], np.arange(100) % 2), (features[100:], np.arange(20) % 2), standardise=True)
        federation = of(data)
        mine = federation.client(1).features
        expected = (mine.double() - features[:100].mean()) / features[:100].std()
        assert torch.allclose(federation.standardised(mine, torch.float32).double(), expected, rtol=1e-5, atol=1e-6)
        into = torch.empty(mine.shape, dtype=torch.float32)
        assert torch.equal(federation.standardised(mine, torch.float32, into), federation.prepare(mine, torch.float32))
