"""Partitions that cannot succeed are recognized by the sizes of clients alone; those that succeed are the same as without that."""

import dataclasses
import itertools
import re
from typing import Any

import numpy as np
import pytest

from fedcohort.core import random_streams
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.federation import partition as partition_module
from fedcohort.federation.partition import partition
from fedcohort.federation.partition_chance import (
    can_still_succeed,
    defines_with_assign,
    drawn_sizes,
    is_hopeless,
    many_are_short,
)
from fedcohort.federation.partitions.dirichlet_class import DirichletClass
from fedcohort.federation.partitions.dirichlet_client import DirichletClient
from fedcohort.federation.partitions.iid import Iid
from fedcohort.federation.partitions.quantity import Quantity
from fedcohort.federation.partitions.random_fractions import RandomFractions

LABELS = np.repeat(np.arange(5), [50, 400, 300, 0, 250])
CLASS_SIZES = np.bincount(LABELS)
RULES: list[Any] = [
    DirichletClass(alpha=0.2, min_size=15),
    DirichletClass(alpha=0.2, variant="plain", min_size=9),
    RandomFractions(min_size=60),
    RandomFractions(law="exp", min_size=30),
    Quantity(beta=0.7, min_size=7),
    Quantity(law="lognormal", sigma=1.2, min_size=12),
    DirichletClient(sizes="dirichlet", size_beta=0.7, min_size=7),
    DirichletClient(sizes="lognormal", size_sigma=1.2, min_size=12),
]


def shown(rule: Any) -> str:
    """The class and its variant, as the name of a case."""
    return "-".join(
        [type(rule).__name__, *(getattr(rule, name) for name in ("variant", "law", "sizes") if hasattr(rule, name))]
    )


def first_that_suffices(rule: Any, seed: int) -> tuple[np.ndarray, int]:
    """The clients in the first of the seed's draws in which every client has enough samples, and the number of that draw."""
    rng = random_streams.rng(seed, "partition")
    for draw in itertools.count(1):
        clients = rule.assign(LABELS, 10, rng)
        if np.bincount(clients, minlength=10).min() >= rule.min_size:
            return clients, draw
    raise AssertionError


@pytest.mark.parametrize("many", [100_000, 0], ids=["estimate after one draw", "estimate before"])
@pytest.mark.parametrize("rule", RULES, ids=shown)
def test_a_partition_that_succeeds_is_the_first_draw_that_suffices(rule, many, monkeypatch):
    monkeypatch.setattr(partition_module, "MANY_SAMPLES", many)
    most = 0
    for seed in range(6):
        expected, draw = first_that_suffices(rule, seed)
        most = max(most, draw)
        split = partition(rule, LABELS, 10, seed)
        clients = np.repeat(np.arange(10), split.sizes)[np.argsort(split.order)]
        assert np.array_equal(clients, expected)
    assert most >= 3, "choose a rule that needs several draws"


@pytest.mark.parametrize("rule", RULES, ids=shown)
def test_drawn_sizes_are_distributed_like_those_of_assigned_samples(rule):
    rng = np.random.default_rng(1)
    assigned = np.array([np.bincount(rule.assign(LABELS, 10, rng), minlength=10) for _ in range(400)])
    drawn = rule.sizes_of_draws(CLASS_SIZES, 10, 400, rng)
    assert drawn.shape == (400, 10)
    assert (drawn.sum(axis=1) == len(LABELS)).all()
    assert drawn.std() == pytest.approx(assigned.std(), rel=0.1)
    for size in (4, 12, 30):
        assert np.mean(drawn < size) == pytest.approx(np.mean(assigned < size), abs=0.04)
    assert np.mean(drawn.min(axis=1)) == pytest.approx(np.mean(assigned.min(axis=1)), abs=0.1 * len(LABELS) / 10)


@parameters
class Halves(DirichletClass):
    """A rule of a user, with the sizes of equal parts."""

    def assign(self, labels, num_clients, rng, writers=None):
        return np.arange(len(labels)) % num_clients


def test_a_class_with_another_assign_is_not_judged_by_the_sizes_of_the_class_that_it_extends():
    rule = Halves(alpha=1e-4, min_size=100)
    assert not defines_with_assign(rule, "sizes_of_draws")
    assert not defines_with_assign(rule, "assign_on_demand")
    assert drawn_sizes(rule, CLASS_SIZES, 10, 0, 5) is None
    assert partition(rule, LABELS, 10, seed=0).sizes.tolist() == [100] * 10
    assert drawn_sizes(Iid(), CLASS_SIZES, 10, 0, 5) is None


def test_few_draws_are_made_with_many_clients():
    for classes, num_clients, num_draws in (([1000], 10, 100), ([500_000, 0, 500_000], 5_000, 15), ([10**6], 10**6, 1)):
        sizes = drawn_sizes(Quantity(), np.array(classes), num_clients, 0, 100)
        assert sizes is not None
        assert len(sizes) == num_draws


@pytest.mark.parametrize(
    ("short", "tries", "hopeless"),
    [
        # 25 draws, 100 clients: λ = (S − 4√S)/25; the chance in all tries is at most tries·(1 − λ/100)^100
        (0, 1000, False),
        (20, 1000, False),  # less than 4 standard errors
        (256, 1000, False),  # λ = 7.68, 1000·0.9232^100 = 0.34
        (289, 1000, False),  # λ = 8.84, 1000·0.9116^100 = 0.096
        (324, 1000, True),  # λ = 10.08, 1000·0.8992^100 = 0.024
        (256, 10, True),  # 10·0.9232^100 = 0.0034
    ],
)
def test_hopeless_is_a_chance_below_one_in_twenty(short, tries, hopeless):
    sizes = np.full((25, 100), 10)
    sizes.ravel()[:short] = 9
    assert is_hopeless(sizes, 10, tries) == hopeless


def test_heavy_tails_make_a_success_likelier():
    sizes = np.full((25, 100), 10)
    sizes.ravel()[:400] = 9  # λ = 12.8, 0.872^100 = 1.1e-6
    assert is_hopeless(sizes, 10, 1000)
    assert not is_hopeless(sizes, 10, 1000, heavy_tails=True)  # 1000·√1.1e-6 = 1.06
    sizes.ravel()[:729] = 9  # λ = 24.84, 0.7516^100 = 4.0e-13
    assert is_hopeless(sizes, 10, 1000, heavy_tails=True)
    rules = [rule for rule in RULES if rule.heavy_tails]
    assert [shown(rule) for rule in rules] == ["Quantity-lognormal", "DirichletClient-lognormal"]


def test_draws_go_on_while_a_success_is_likely():
    assert can_still_succeed([1] * 9, 100, 900)
    assert not can_still_succeed([60] * 3, 100, 900)
    assert not can_still_succeed([9] * 10, 100, 900)  # 900·(1 − 0.09)^100 = 0.07
    assert can_still_succeed([5] * 10, 100, 900)  # 900·0.95^100 = 5.3


@pytest.mark.parametrize("rule", [DirichletClass(alpha=0.03, variant="plain"), Quantity(beta=0.1)], ids=shown)
def test_a_hopeless_partition_is_refused_after_one_draw(rule, draws):
    with pytest.raises(UsageError, match=r"no draw gives each of 100 clients"):
        partition(rule, np.arange(60_000) % 10, 100, seed=0)
    assert len(draws) == 1


def test_only_federations_with_many_clients_are_scaled_down():
    equal, skewed = DirichletClass(alpha=1e4), DirichletClass(alpha=0.05)
    classes = np.full(10, 60_000)
    assert many_are_short(skewed, classes, 50_000, 0, 10)
    assert not many_are_short(skewed, classes, 50_000, 0, 0)
    assert not many_are_short(equal, classes, 50_000, 0, 10)
    assert not many_are_short(skewed, classes, 500, 0, 10)
    assert not many_are_short(Halves(), classes, 50_000, 0, 10)


@pytest.mark.parametrize(
    ("rule", "name"),
    [(DirichletClass(alpha=0.03, variant="plain", min_size=30), "alpha"), (Quantity(beta=0.1, min_size=30), "beta")],
    ids=["dirichlet_class", "quantity"],
)
def test_what_the_sizes_alone_propose_works_with_every_seed(rule, name):
    labels = np.arange(6_000) % 10
    with pytest.raises(UsageError) as caught:
        partition(rule, labels, 40, seed=0)
    proposed = re.search(rf"what works: federation.partition.{name} = ([^\s,]+)", str(caught.value))
    assert proposed is not None
    changed = dataclasses.replace(rule, **{name: float(proposed[1])})
    for seed in range(5):
        assert partition(changed, labels, 40, seed).sizes.min() >= 30
