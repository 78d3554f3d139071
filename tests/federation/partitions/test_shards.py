"""H4: shards of sorted samples."""

import numpy as np
import pytest

from fedcohort.core.errors import UsageError
from fedcohort.federation.partition import describe, partition
from fedcohort.federation.partitions.shards import Shards


def test_mcmahan_setting():
    labels = np.random.default_rng(0).permutation(np.arange(60_000) % 10)
    report = describe(labels, partition(Shards(), labels, 100, seed=0), 10)
    assert (report.sizes == 600).all()
    assert report.num_classes.max() <= 2  # 300 divides 6,000: no shard straddles two classes
    assert set(np.unique(report.counts)) == {0, 300, 600}
    assert report.dropped == 0


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_straddling_shards_hold_at_most_two_classes_each(shards):
    labels = np.repeat(np.arange(7), [130, 97, 111, 142, 99, 101, 151])  # 831 samples
    for seed in range(20):
        report = describe(labels, partition(Shards(shards=shards), labels, 12, seed), 7)
        assert report.num_classes.max() <= 2 * shards
        assert len(set(report.sizes.tolist())) == 1


def test_the_remainder_is_dropped_at_random_and_reported():
    labels = np.arange(1_019) % 10
    lost = np.zeros(10, int)
    for seed in range(300):
        split = partition(Shards(), labels, 10, seed)
        report = describe(labels, split, 10)
        assert (report.sizes == 100).all()
        assert report.dropped == 19  # < m·s = 20
        lost += np.bincount(labels, minlength=10) - report.counts.sum(axis=0)
    assert lost.sum() == 300 * 19
    assert np.abs(lost - 570).max() < 4.5 * np.sqrt(570)  # no class in particular


def test_impossible_shards_are_named():
    with pytest.raises(
        UsageError, match=r"federation\.partition\.shards = 30: 300 shards .* 200 samples; use at most 20"
    ):
        partition(Shards(shards=30), np.zeros(200, int), 10, seed=0)
    assert partition(Shards(shards=20, min_size=0), np.zeros(200, int), 10, seed=0).sizes.min() == 20
    with pytest.raises(
        UsageError,
        match=r"min_size = 19: 15 shards of 1 sample are 15; use at most that, or federation\.partition\.shards = 1",
    ):
        partition(Shards(shards=15, min_size=19), np.zeros(200, int), 10, seed=0)
    assert partition(Shards(shards=1, min_size=19), np.zeros(200, int), 10, seed=0).sizes.min() == 20
