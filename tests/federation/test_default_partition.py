"""Partitions that follow from the number of samples, and the time that impossible partitions take."""

import numpy as np
import pytest

from fedcohort.core.errors import UsageError
from fedcohort.federation.default_partition import default_partition
from fedcohort.federation.partition import draw, partition
from fedcohort.federation.partitions.dirichlet_class import DirichletClass


@pytest.mark.parametrize("num_classes", [1, 2, 3, 10, 40])
@pytest.mark.parametrize("num_samples", [12, 25, 60, 150, 1_000])
def test_default_partitions_of_small_data_work_under_every_seed(num_samples, num_classes):
    labels = np.arange(num_samples) % num_classes
    rule = default_partition(labels, 12)
    assert 0 <= rule.min_size <= 10
    for seed in range(8):
        assert partition(rule, labels, 12, seed).sizes.min() >= rule.min_size


@pytest.mark.parametrize("num_samples", [25, 60, 150, 240, 500])
def test_a_default_partition_works_within_ten_draws_in_each_of_three_trials(num_samples):
    labels = np.arange(num_samples) % 3
    rule = default_partition(labels, 12)
    assert all(draw(rule, labels, 12, seed, None, 10)[0] is not None for seed in range(3))


def test_clients_with_a_sample_each_have_no_smallest_size():
    assert default_partition(np.arange(12) % 3, 12) == DirichletClass(alpha=1.0, min_size=0)


def test_many_samples_of_many_classes_keep_the_usual_partition():
    assert default_partition(np.arange(20_000) % 50, 12) == DirichletClass()


def test_fewer_samples_give_smaller_or_more_equal_clients():
    labels = np.arange(20_000) % 10
    rules = [default_partition(labels[:number], 12) for number in (20_000, 1_000, 240, 60, 24)]
    assert [rule.min_size for rule in rules] == sorted((rule.min_size for rule in rules), reverse=True)
    assert rules[0].min_size == 10
    assert rules[-1].min_size <= 1
    assert rules[2].alpha >= rules[0].alpha


def test_the_default_partition_depends_on_nothing_random():
    labels = np.random.default_rng(0).integers(0, 3, 150)
    assert default_partition(labels, 12) == default_partition(labels, 12)


@pytest.mark.parametrize(
    ("rule", "num_samples", "num_clients"),
    [(DirichletClass(), 150, 12), (DirichletClass(), 1_400, 60), (DirichletClass(variant="plain"), 60_000, 100)],
)
def test_impossible_partitions_end_after_few_draws(rule, num_samples, num_clients, draws):
    with pytest.raises(UsageError, match=rf"no draw gives each of {num_clients} clients"):
        partition(rule, np.arange(num_samples) % 3, num_clients, seed=0)
    assert len(draws) <= 150
