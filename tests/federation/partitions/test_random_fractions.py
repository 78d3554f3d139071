"""H5: random fractions of each class."""

import numpy as np
import pytest

from fedcohort.federation.partition import describe, partition
from fedcohort.federation.partitions.random_fractions import RandomFractions
from tests.repetitions import slow_after


def fractions(law, m, classes=4_000, per_class=2_000):
    """Fraction of each class that each client gets, float [classes, m]."""
    labels = np.repeat(np.arange(classes), per_class)
    clients = RandomFractions(law=law).assign(labels, m, np.random.default_rng(0))
    return np.bincount(labels * m + clients, minlength=classes * m).reshape(classes, m) / per_class


@pytest.mark.parametrize(
    ("law", "m", "deviation"),
    slow_after(2, [("uniform", 5, 0.113), ("exp", 10, 0.090), ("uniform", 10, 0.058), ("uniform", 15, 0.038), ("exp", 5, 0.163),
                   ("exp", 15, 0.062)]),
)  # fmt: skip
def test_moments_of_the_fractions(law, m, deviation):
    found = fractions(law, m)
    assert found.sum(axis=1) == pytest.approx(1)  # each sample once
    assert found.mean(axis=0) == pytest.approx(np.full(m, 1 / m), abs=4.5 * deviation / np.sqrt(len(found)) + 1e-3)
    assert found.std() == pytest.approx(deviation, abs=0.0015)


def test_largest_and_smallest_of_ten_uniform_fractions():
    found = fractions("uniform", 10)
    assert found.max(axis=1).mean() == pytest.approx(0.187, abs=0.002)
    assert found.min(axis=1).mean() == pytest.approx(0.017, abs=0.002)


def test_clients_see_all_classes():
    labels = np.arange(60_000) % 10
    report = describe(labels, partition(RandomFractions(), labels, 10, seed=0), 10)
    assert report.num_classes.min() >= 9  # but for a fraction below 1/6,000
    assert np.median(report.num_classes) == 10
    assert report.dropped == 0
    assert 10 < report.effective_alpha < 100  # mild
