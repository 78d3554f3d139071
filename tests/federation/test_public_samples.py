"""Public samples: taken away from the clients, or from another data set."""

from typing import Any

import numpy as np
import pytest

from fedcohort.core.errors import UsageError
from fedcohort.federation.data.datasets import Dataset, from_arrays
from fedcohort.federation.data.load_dataset import load
from fedcohort.federation.public_samples import choose_public, take_away, unlabeled_dataset


def data(num_train: int = 50, shape: tuple[int, ...] = (1, 4, 4), seed: int = 0) -> Dataset:
    draw = np.random.default_rng(seed)
    features: Any = draw.integers(0, 256, (num_train + 10, *shape), dtype=np.uint8)
    labels = np.arange(num_train + 10) % 3
    return from_arrays((features[:num_train], labels[:num_train]), (features[num_train:], labels[num_train:]))


def never(name: str) -> Dataset:
    raise AssertionError("nothing is to be loaded")


def test_none() -> None:
    found = choose_public("none", 0.1, data(), 0, never)
    assert found.features().shape == (0, 1, 4, 4)
    assert found.rest.tolist() == list(range(50))
    assert found.fingerprint == data().fingerprint


def test_a_holdout_is_a_random_part_that_clients_do_not_get() -> None:
    dataset = data()
    found = choose_public("holdout", 0.2, dataset, 0, never)
    public = found.features().numpy()
    assert len(public) == 10
    assert len(found.rest) == 40
    both = np.concatenate([public, dataset.train_features[found.rest]]).reshape(50, -1)
    assert np.array_equal(np.unique(both, axis=0), np.unique(dataset.train_features.reshape(50, -1), axis=0))
    again, other = (choose_public("holdout", 0.2, dataset, seed, never) for seed in (0, 1))
    assert np.array_equal(again.rest, found.rest)
    assert not np.array_equal(other.rest, found.rest)


def test_a_larger_holdout_contains_the_smaller() -> None:
    small, large = (take_away(share, 200, 3)[0] for share in (0.1, 0.3))
    assert set(small.tolist()) < set(large.tolist())


@pytest.mark.parametrize(("share", "n"), [(0.01, 50), (0.99, 50), (0.5, 1)])
def test_holdouts_that_cannot_be(share: float, n: int) -> None:
    with pytest.raises(UsageError, match=rf"^public\.share = {share:g}: is \d+ of {n} training samples"):
        take_away(share, n, 0)


def test_another_data_set() -> None:
    dataset, proxy = data(), data(30, seed=1)
    found = choose_public("other", 0.1, dataset, 0, lambda name: {"other": proxy}[name])
    assert np.array_equal(found.features().numpy(), proxy.train_features)
    assert len(found.rest) == 50
    assert found.fingerprint == f"{dataset.fingerprint}+{proxy.fingerprint}"


def test_a_data_set_that_cannot_be_loaded_is_that_of_public() -> None:
    """Its error named the setting of the clients' data."""
    with pytest.raises(UsageError, match=r"^public\.name = 'x': unknown name, and no such folder; "):
        choose_public("x", 0.1, data(), 0, load)


def test_data_sets_that_do_not_fit() -> None:
    with pytest.raises(
        UsageError, match=r"'other': its samples are uint8 \[3, 4, 4\], the clients' are uint8 \[1, 4, 4\]"
    ):
        choose_public("other", 0.1, data(), 0, lambda name: data(30, (3, 4, 4)))
    with pytest.raises(UsageError, match="has the same samples as the clients' data; use 'holdout'"):
        choose_public("other", 0.1, data(), 0, lambda name: data())


@pytest.mark.parametrize("samples", [3, 2.5, True, {}, object(), []])
def test_what_are_no_samples_is_refused_in_one_line(samples: Any) -> None:
    with pytest.raises(UsageError, match=r"^public samples: "):
        unlabeled_dataset(samples)
