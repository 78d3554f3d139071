"""H6: some clients with a dominant class."""

import re

import numpy as np
import pytest

from fedcohort.core.errors import UsageError
from fedcohort.federation.partition import describe, partition
from fedcohort.federation.partitions.dominant_class import DominantClass

CIFAR10 = np.arange(50_000) % 10


@pytest.mark.parametrize("frac", [0.0, 0.1, 0.2, 0.3, 0.4])
def test_flash_setting(frac):
    for seed in range(5):
        report = describe(CIFAR10, partition(DominantClass(frac=frac), CIFAR10, 50, seed), 10)
        skewed = report.dominant_share > 0.5
        assert (report.sizes == 1_000).all()
        assert skewed.sum() == round(frac * 50)
        assert (report.counts[skewed].max(axis=1) == 800).all()
        others = np.sort(report.counts[skewed], axis=1)[:, :-1]
        assert ((others >= 22) & (others <= 23)).all()  # 200 over 9 classes
        assert report.dominant_share[~skewed].max() < 0.15
        assert np.ptp(report.counts[~skewed], axis=0).max() <= 1  # evenly
        per_class = np.bincount(report.dominant[skewed], minlength=10)
        assert np.ptp(per_class) <= 1  # round-robin
    if frac == 0.3:  # the pool of the others, as in the specification
        left = np.sort(report.counts[~skewed].sum(axis=0))
        assert left[:5] == pytest.approx(3_110, abs=12)
        assert left[5:] == pytest.approx(3_890, abs=12)


@pytest.mark.parametrize(("num_samples", "m"), [(1_437, 12), (997, 15), (5_003, 40)])
def test_sizes_are_equal_and_the_share_is_met_to_a_sample(num_samples, m):
    labels = np.random.default_rng(1).permutation(np.arange(num_samples) % 10)
    for seed in range(10):
        report = describe(labels, partition(DominantClass(), labels, m, seed), 10)
        n = num_samples // m
        assert (report.sizes == n).all()
        assert report.dropped == num_samples - m * n
        skewed = report.dominant_share > 0.5
        assert skewed.sum() == round(0.3 * m)
        assert report.dominant_share[skewed] == pytest.approx(0.8, abs=1 / n)
        assert np.ptp(report.counts[~skewed], axis=0).max() <= 1


def test_who_is_skewed_and_to_which_class_is_random():
    reports = [describe(CIFAR10, partition(DominantClass(frac=0.36), CIFAR10, 50, seed), 10) for seed in range(100)]
    skewed = np.array([report.dominant_share > 0.5 for report in reports])  # 18 of 50: 2 classes have 1 of them
    classes = np.array([np.bincount(r.dominant[row], minlength=10) for r, row in zip(reports, skewed, strict=True)])
    assert np.abs(skewed.sum(axis=0) - 36).max() < 4.5 * np.sqrt(36 * 0.64)
    assert np.abs((classes == 1).sum(axis=0) - 20).max() < 4.5 * np.sqrt(20 * 0.8)


def test_an_oversubscribed_class_is_an_error_that_says_how_far_one_can_go():
    labels = np.repeat(np.arange(5), [1_000, 1_000, 1_000, 150, 150])
    with pytest.raises(
        UsageError, match=r"federation\.partition\.frac = 0\.8: .* of a class that has \d+; use at most"
    ) as caught:
        partition(DominantClass(frac=0.8), labels, 20, seed=0)
    match = re.search(
        r"use at most federation\.partition\.frac = (\S+), or a smaller federation\.partition\.share", str(caught.value)
    )
    assert match is not None
    works = float(match[1])
    assert 0 <= works < 0.8
    report = describe(labels, partition(DominantClass(frac=works), labels, 20, seed=0), 5)
    assert np.count_nonzero(report.counts.max(axis=1) == round(0.8 * 165)) >= round(works * 20)
    with pytest.raises(UsageError, match=r"frac"):
        partition(DominantClass(frac=works + 1 / 20), labels, 20, seed=0)


def test_one_class_has_no_others():
    with pytest.raises(
        UsageError,
        match=r"federation\.partition\.share = 0\.8: there is only one class; use federation\.partition\.share = 1",
    ):
        partition(DominantClass(), np.zeros(100, int), 5, seed=0)
    assert (partition(DominantClass(share=1.0), np.zeros(100, int), 5, seed=0).sizes == 20).all()


def test_everybody_may_be_skewed():
    labels = np.arange(10_000) % 10
    report = describe(labels, partition(DominantClass(frac=1.0), labels, 10, seed=0), 10)
    assert (report.counts.max(axis=1) == 800).all()


# --- writers ---------------------------------------------------------------------------------------------------------------


def test_writers_are_skewed_by_giving_samples_up():
    rng = np.random.default_rng(0)
    writers, labels = rng.integers(0, 40, 4_000), rng.choice(10, 4_000, p=[0.28, *[0.08] * 9])
    whole = np.bincount(writers * 10 + labels, minlength=400).reshape(40, 10)
    for seed in range(10):
        split = partition(DominantClass(frac=0.25, natural=True), labels, 40, seed, writers)
        report = describe(labels, split, 10)
        skewed = report.sizes < whole.sum(axis=1)
        assert skewed.sum() == 10
        assert np.array_equal(report.counts[~skewed], whole[~skewed])
        assert np.array_equal(report.dominant[skewed], whole[skewed].argmax(axis=1))
        assert np.array_equal(report.counts[skewed].max(axis=1), whole[skewed].max(axis=1))
        assert (np.abs(report.dominant_share[skewed] - 0.8) <= 1 / report.sizes[skewed]).all()
        assert (report.counts[skewed] <= whole[skewed]).all()
        assert report.dropped == (whole.sum(axis=1) - report.sizes).sum()
        for client in range(40):
            assert set(writers[split.samples(client)]) == {client}


def test_writers_that_would_keep_too_little_are_not_skewed():
    # writers 0 and 1 have 8 of their class and keep 8 + 2; the others have 4 of each class and would keep 4 + 1
    labels = np.concatenate([[0] * 8 + [1] * 4, [2] * 8 + [1] * 4, *[[0] * 4 + [1] * 4 + [2] * 4] * 4])
    writers = np.repeat(np.arange(6), 12)
    report = describe(labels, partition(DominantClass(frac=1 / 3, natural=True), labels, 6, 0, writers), 3)
    assert report.sizes.tolist() == [10, 10, 12, 12, 12, 12]
    with pytest.raises(
        UsageError,
        match=r"frac = 0\.5: 3 of 6 writers .* only 2 keep .* at most federation\.partition\.frac = 0\.333333",
    ):
        partition(DominantClass(frac=0.5, natural=True), labels, 6, 0, writers)
