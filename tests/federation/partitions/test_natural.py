"""H7: one client per writer, also on the real writers of FEMNIST where they are at hand."""

import os
from pathlib import Path

import numpy as np
import pytest

from fedcohort.core.errors import UsageError
from fedcohort.federation.data import load_dataset
from fedcohort.federation.partition import Iid, describe, partition
from fedcohort.federation.partitions.dominant_class import DominantClass
from fedcohort.federation.partitions.natural import Natural

WRITERS = np.repeat([3, 5, 8, 9], [20, 4, 30, 12])  # there is no writer 0, 1, 2, 4, 6, 7
LABELS = np.arange(66) % 3


def test_every_writer_is_a_client():
    split = partition(Natural(min_size=0), LABELS, 4, 0, WRITERS)
    assert split.sizes.tolist() == [20, 4, 30, 12]
    for client, writer in enumerate((3, 5, 8, 9)):
        assert np.array_equal(np.sort(split.samples(client)), np.flatnonzero(writer == WRITERS))


def test_writers_with_too_few_samples_are_left_out():
    split = partition(Natural(min_size=12), LABELS, 3, 0, WRITERS)
    assert split.sizes.tolist() == [20, 30, 12]
    assert describe(LABELS, split, 3).dropped == 4


def test_fewer_clients_than_writers_are_drawn_at_random():
    seen = np.zeros(4)
    for seed in range(200):
        split = partition(Natural(min_size=0), LABELS, 2, seed, WRITERS)
        writers = [set(WRITERS[split.samples(i)]) for i in range(2)]
        assert all(len(ids) == 1 for ids in writers)
        first, second = (ids.pop() for ids in writers)
        assert first < second
        seen[[[3, 5, 8, 9].index(writer) for writer in (first, second)]] += 1
    assert np.abs(seen - 100).max() < 4.5 * np.sqrt(50)


def test_writer_ids_may_be_any_numbers():
    huge = WRITERS * 10**15
    assert np.array_equal(
        partition(Natural(), LABELS, 3, 0, huge).order, partition(Natural(), LABELS, 3, 0, WRITERS).order
    )


@pytest.mark.parametrize(
    ("min_size", "m", "message"),
    [
        (10, 5, r"federation\.clients = 5: the data have 4 clients, 3 of them .*min_size = 10 samples; use at most 3"),
        (
            10,
            4,
            r"federation\.partition\.min_size = 10: 3 of 4 clients of the data .*; use at most 4, or federation\.clients of at most 3",
        ),
        (31, 2, r"federation\.partition\.min_size = 31: 0 of 4 clients of the data .*; use at most 20$"),
    ],
)
def test_too_few_writers_are_named(min_size, m, message):
    with pytest.raises(UsageError, match=message):
        partition(Natural(min_size=min_size), LABELS, m, 0, WRITERS)


@pytest.mark.parametrize(
    ("rule", "setting"), [(Natural(), " = 'natural'"), (DominantClass(natural=True), ".natural = true")]
)
def test_data_without_writers_are_named(rule, setting):
    with pytest.raises(UsageError, match=rf"federation\.partition{setting}: .* writer_id such as 'femnist'"):
        partition(rule, LABELS, 2, 0)


# --- the real writers ------------------------------------------------------------------------------------------------------

MIRROR = os.environ.get("FEDCOHORT_DATA")


@pytest.fixture(scope="module")
def femnist(tmp_path_factory):
    if not MIRROR or not (Path(MIRROR) / "femnist-105-writers").is_dir():
        pytest.skip("FEDCOHORT_DATA names no mirror with femnist-105-writers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDCOHORT_CACHE", str(tmp_path_factory.mktemp("cache")))
        return load_dataset.load("femnist")


def test_the_105_writers_of_femnist(femnist):
    split = partition(Natural(min_size=0), femnist.train_labels, 105, 0, femnist.writers)
    report = describe(femnist.train_labels, split, 62)
    assert (report.sizes.min(), np.median(report.sizes), report.sizes.max()) == (4, 152, 165)
    assert report.sizes.sum() == 14_708
    assert report.dropped == 0
    assert np.array_equal(split.sizes, np.bincount(femnist.writers))
    assert (
        report.effective_alpha > 1_000
    )  # everybody copied the same form: labels are as even as in a random split, or evener
    iid = describe(femnist.train_labels, partition(Iid(), femnist.train_labels, 105, 0), 62)
    assert np.median(report.distance) < np.median(iid.distance)


def test_femnist_writers_with_ten_images_or_more(femnist):
    split = partition(Natural(), femnist.train_labels, 101, 0, femnist.writers)
    assert split.sizes.min() == 28
    assert describe(femnist.train_labels, split, 62).dropped == 4 + 4 + 4 + 7
    with pytest.raises(
        UsageError,
        match=r"min_size = 10: 101 of 105 clients of the data .*; use at most 7, or federation\.clients of at most 101",
    ):
        partition(Natural(), femnist.train_labels, 102, 0, femnist.writers)


def test_flash_on_femnist_writers(femnist):
    split = partition(DominantClass(natural=True), femnist.train_labels, 101, 0, femnist.writers)
    report = describe(femnist.train_labels, split, 62)
    skewed = report.dominant_share > 0.7
    assert skewed.sum() == 30
    assert (np.abs(report.dominant_share[skewed] - 0.8) <= 1 / report.sizes[skewed]).all()
    assert report.sizes.min() >= 10
