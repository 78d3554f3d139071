"""Partitions: what holds for every rule, the numbers of each paper's rule, and messages that say what would work."""

import dataclasses
import math
import re
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcohort.core import random_streams
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import make
from fedcohort.federation import Rule, parameters
from fedcohort.federation.partition import DirichletClass, Iid, Partition, describe, effective_alpha, partition
from fedcohort.federation.partitions import PARTITIONS
from fedcohort.federation.partitions.dirichlet_client import DirichletClient
from fedcohort.federation.partitions.dominant_class import DominantClass
from fedcohort.federation.partitions.natural import Natural
from fedcohort.federation.partitions.pools import grouped
from fedcohort.federation.partitions.quantity import Quantity
from fedcohort.federation.partitions.random_fractions import RandomFractions
from fedcohort.federation.partitions.shards import Shards

BALANCED_10 = np.arange(50_000) % 10  # the class sizes of CIFAR-10


def sizes_without_redraw(rule, labels, num_clients, seeds):
    """Sizes of the raw draws, int [seeds, m]: what the rule gives before anybody asks for a minimum."""
    draws = (rule.assign(labels, num_clients, np.random.default_rng(seed)) for seed in range(seeds))
    return np.array([np.bincount(clients, minlength=num_clients) for clients in draws])


def test_samples_are_grouped_by_keys_that_do_not_fit_into_16_bits():
    samples, begins = grouped(np.array([4, 7, 9]), np.array([65_537, 2, 1]), 70_000)
    assert samples.tolist() == [9, 7, 4]
    assert begins[[1, 2, 3, 65_537, 65_538]].tolist() == [0, 1, 2, 2, 3]


def test_a_client_with_exactly_its_share_of_the_samples_gets_no_more():
    """With a tiny alpha, one of two clients receives a whole class, half of all samples; the other class goes to the other client."""
    labels = np.repeat([0, 1], 10)
    assert (sizes_without_redraw(DirichletClass(alpha=1e-7, min_size=0), labels, 2, seeds=20) == 10).all()


def test_samples_beside_the_dominant_class_go_to_other_classes_in_every_cycle():
    """Of 10 samples, 7 are of the dominant class, one of each other class, and one more of one of them: of either in two cycles."""
    counts = DominantClass(share=0.7)._counts(6, 10, np.full(3, 100), 10, np.random.default_rng(0))
    assert sorted(counts.tolist()) == [[1, 2, 7], [1, 7, 2], [2, 1, 7], [2, 7, 1], [7, 1, 2], [7, 2, 1]]


# --- every rule ------------------------------------------------------------------------------------------------------------

ALPHA, MIN_SIZE, SHARE = st.floats(1e-7, 1e4), st.integers(0, 12), st.floats(0, 1)
RULES = st.one_of(
    st.builds(Iid, stratified=st.booleans()),
    st.builds(DirichletClass, alpha=ALPHA, variant=st.sampled_from(["balanced", "plain"]), min_size=MIN_SIZE),
    st.builds(
        DirichletClient,
        alpha=ALPHA,
        convention=st.sampled_from(["alpha_total", "alpha_each"]),
        sizes=st.sampled_from(["equal", "dirichlet", "lognormal"]),
        size_beta=ALPHA,
        size_sigma=st.floats(1e-6, 20),
        min_size=MIN_SIZE,
    ),
    st.builds(Shards, shards=st.integers(1, 20), min_size=MIN_SIZE),
    st.builds(RandomFractions, law=st.sampled_from(["uniform", "exp"]), min_size=MIN_SIZE),
    st.builds(DominantClass, frac=SHARE, share=st.floats(0.01, 1), natural=st.booleans(), min_size=MIN_SIZE),
    st.builds(Natural, min_size=MIN_SIZE),
    st.builds(
        Quantity,
        law=st.sampled_from(["dirichlet", "lognormal"]),
        beta=ALPHA,
        sigma=st.floats(1e-6, 20),
        min_size=MIN_SIZE,
    ),
)


@pytest.mark.parametrize(
    "rule", [Quantity(law="lognormal", sigma=1e308), DirichletClient(sizes="lognormal", size_sigma=1e308)]
)
def test_the_widest_sizes_are_still_sizes(rule: Any) -> None:
    clients = rule.assign(np.arange(40) % 4, 5, np.random.default_rng(0))
    assert np.bincount(clients, minlength=5).sum() == 40


def expected_samples(rule, num_samples, num_clients):
    """How many samples somebody gets; None where that depends on the writers."""
    if isinstance(rule, Natural) or getattr(rule, "natural", False):
        return None
    parts = {Shards: lambda: num_clients * rule.shards, DominantClass: lambda: num_clients}.get(type(rule), lambda: 1)()
    return num_samples // parts * parts


@settings(max_examples=200, deadline=None)
@given(
    rule=RULES,
    samples=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), min_size=1, max_size=200).map(np.array),
    num_clients=st.integers(1, 12),
    seed=st.integers(0, 2**32),
)
def test_every_sample_has_one_client_or_the_error_names_a_parameter(rule, samples, num_clients, seed):
    labels, writers = samples.T
    try:
        split, message = partition(rule, labels, num_clients, seed, writers), ""
    except UsageError as error:
        split, message = None, str(error)
    if split is None:
        fields = "|".join(type(rule).__pydantic_fields__)
        assert re.match(rf"federation\.(clients|partition\.({fields})) = .* (works|at most|use)\b", message), message
        assert "\n" not in message
        return
    assert split.order.dtype == split.offsets.dtype == np.int64
    assert split.offsets[0] == 0
    assert split.offsets[-1] == len(split.order)
    kept = np.sort(split.order)
    assert (np.diff(kept) > 0).all()  # disjoint
    expected = expected_samples(rule, len(labels), num_clients)
    if expected is not None:
        assert len(kept) == expected  # nobody is missing
    assert split.num_clients == num_clients
    assert split.sizes.min() >= rule.min_size
    again = partition(rule, labels, num_clients, seed, writers)
    assert np.array_equal(split.order, again.order)
    assert np.array_equal(split.offsets, again.offsets)
    report = describe(labels, split, 7)
    for client in range(num_clients):
        assert np.array_equal(report.counts[client], np.bincount(labels[split.samples(client)], minlength=7))
    assert np.array_equal(report.counts.sum(axis=0), np.bincount(labels[kept], minlength=7))
    assert report.dropped == len(labels) - len(kept)
    assert math.isnan(report.effective_alpha) or report.effective_alpha >= -1e-9


@pytest.mark.parametrize("name", list(PARTITIONS))
def test_another_seed_gives_another_partition(name):
    given: dict[str, dict[str, Any]] = {
        "given_counts": {"counts": [[9] * 10] * 10},
        "given_sizes": {"sizes": [90] * 10},
    }
    rule = PARTITIONS.find(name, "federation.partition.name")(**given.get(name, {}))
    first, second = (partition(rule, BALANCED_10[:1000], 10, seed, np.arange(1000) % 20) for seed in (0, 1))
    assert not np.array_equal(first.order, second.order)


@pytest.mark.parametrize(
    "rule", [Iid(), Iid(stratified=True), DirichletClass(alpha=1.0), DirichletClient(), Shards(), DominantClass()]
)
def test_samples_are_shuffled_inside_a_client(rule):
    split = partition(rule, np.sort(BALANCED_10[:5000]), 10, seed=0)
    for client in range(10):
        samples = split.samples(client)
        rank = np.argsort(np.argsort(samples))
        assert abs(np.corrcoef(rank, np.arange(len(rank)))[0, 1]) < 4 / math.sqrt(len(rank))


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
def test_any_integer_labels_give_the_same_lists(dtype):
    labels = BALANCED_10[:500]
    expected = partition(DirichletClass(), labels, 4, seed=3)
    assert np.array_equal(partition(DirichletClass(), labels.astype(dtype), 4, seed=3).order, expected.order)


@pytest.mark.parametrize(
    ("labels", "num_clients", "message"),
    [
        (np.zeros(5, int), 6, r"federation\.clients = 6: there are only 5 samples; use at most 5"),
        (np.zeros(5, int), 0, r"federation\.clients = 0"),
        (np.zeros(0, int), 1, r"federation\.clients = 1: there are only 0 samples"),
        (np.zeros(5), 2, r"labels: .* not float64 \[5\]"),
        (np.zeros((5, 1), int), 2, r"labels: .* not int64 \[5, 1\]"),
        (np.array([0, -1]), 2, r"labels: -1"),
    ],
)
def test_what_cannot_be_partitioned_is_named(labels, num_clients, message):
    with pytest.raises(UsageError, match=message):
        partition(Iid(), labels, num_clients, seed=0)


def test_writers_must_match_labels():
    with pytest.raises(UsageError, match="writers: 3 writers for 4 labels"):
        partition(Iid(), np.zeros(4, int), 2, seed=0, writers=np.zeros(3, int))


def test_samples_of_an_unknown_client_are_an_error():
    split = partition(Iid(), np.zeros(4, int), 2, seed=0)
    for client in (-1, 2):
        with pytest.raises(IndexError, match=f"client {client}: there are clients 0 to 1"):
            split.samples(client)


@parameters
class EveryOther:
    """A rule as a user would write it: it drops every second sample and gives the others by a table."""

    bad: int = 0
    """1: clients that do not exist; 2: a wrong type."""

    min_size: int = 0
    """Samples that every client must have at least."""

    evens_out: ClassVar[str | None] = None

    def assign(self, labels, num_clients, rng, writers=None):
        """Even samples to the clients in turn, odd ones to nobody."""
        clients = np.where(np.arange(len(labels)) % 2 == 0, np.arange(len(labels)) // 2 % num_clients, -1)
        if self.bad == 1:
            clients[0] = num_clients
        return clients.astype(np.int32 if self.bad == 2 else np.int64)


def test_dropped_samples_belong_to_nobody():
    rule: Rule = EveryOther()
    split = partition(rule, np.zeros(20, int), 3, seed=0)
    assert np.array_equal(np.sort(split.order), np.arange(0, 20, 2))
    assert [sorted(split.samples(i).tolist()) for i in range(3)] == [[0, 6, 12, 18], [2, 8, 14], [4, 10, 16]]


@pytest.mark.parametrize(("bad", "message"), [(1, "clients outside −1…2"), (2, r"int32 \[20\]; it must return int64")])
def test_a_rule_that_returns_nonsense_is_named(bad, message):
    with pytest.raises(UsageError, match=f"^federation.partition: EveryOther.assign returned {message}"):
        partition(EveryOther(bad=bad), np.zeros(20, int), 3, seed=0)


def test_an_infeasible_rule_without_parameters_names_min_size():
    with pytest.raises(
        UsageError,
        match=r"min_size = 5: no draw .* works: federation\.partition\.min_size = 3 or 0 .* or federation\.partition = 'iid'$",
    ):
        partition(EveryOther(min_size=5), np.zeros(20, int), 3, seed=0)


# --- H1 IID ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stratified", [False, True])
def test_iid_sizes_differ_by_at_most_one(stratified):
    split = partition(Iid(stratified=stratified), BALANCED_10[:1003], 10, seed=0)
    assert sorted(split.sizes.tolist()) == [100] * 7 + [101] * 3


@settings(max_examples=40, deadline=None)
@given(labels=st.lists(st.integers(0, 4), min_size=20, max_size=300).map(np.array), num_clients=st.integers(1, 20))
def test_stratified_iid_deals_every_class_evenly(labels, num_clients):
    report = describe(labels, partition(Iid(stratified=True), labels, num_clients, seed=0), 5)
    assert np.ptp(report.counts, axis=0).max() <= 1
    assert np.ptp(report.sizes) <= 1


def test_iid_is_a_uniform_draw():
    # each client's count of a class is hypergeometric: mean n_c/m, variance n_c/m (1 − 1/m) (N − n_c)/(N − 1)
    labels = np.repeat([0, 1], [40, 160])
    counts = np.array([describe(labels, partition(Iid(), labels, 4, seed), 2).counts[:, 0] for seed in range(500)])
    variance = 40 / 4 * (3 / 4) * 160 / 199
    assert np.allclose(counts.mean(axis=0), 10, atol=4.5 * math.sqrt(variance / 500))
    assert counts.var(axis=0).mean() == pytest.approx(variance, rel=0.12)


def test_iid_min_size_is_met_or_impossible():
    labels = np.zeros(100, int)
    assert partition(Iid(min_size=9), labels, 11, seed=0).sizes.min() == 9
    with pytest.raises(
        UsageError, match=r"min_size = 10: 11 clients .* use at most 9, or federation\.clients of at most 10"
    ):
        partition(Iid(min_size=10), labels, 11, seed=0)


# --- H2 Dirichlet per class ------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    labels=st.lists(st.integers(0, 5), min_size=10, max_size=300).map(np.array),
    num_clients=st.integers(1, 10),
    alpha=st.sampled_from([1e-6, 1e-3, 0.05, 0.5, 5.0]),
    seed=st.integers(0, 1000),
)
def test_balanced_bounds_the_largest_client(labels, num_clients, alpha, seed):
    split = partition(DirichletClass(alpha=alpha, min_size=0), labels, num_clients, seed)
    assert split.sizes.max() < len(labels) / num_clients + np.bincount(labels).max()


@pytest.mark.parametrize("variant", ["balanced", "plain"])
@pytest.mark.parametrize("alpha", [1e7, 1e300])
def test_large_alpha_tends_to_equal_shares(variant, alpha):
    report = describe(BALANCED_10, partition(DirichletClass(alpha=alpha, variant=variant), BALANCED_10, 10, seed=0), 10)
    if variant == "plain":  # balanced leaves out whoever is one sample ahead before the last class
        assert np.abs(report.counts - 500).max() <= 2
    assert np.abs(report.counts[:, :9] - 500).max() <= 60
    plain_distance = describe(BALANCED_10, partition(DirichletClass(alpha=0.5), BALANCED_10, 10, seed=0), 10).distance
    assert report.distance.max() < plain_distance.min()


@pytest.mark.parametrize("variant", ["balanced", "plain"])
def test_small_alpha_gives_several_clients_with_a_dominant_class(variant):
    for seed in range(10):
        split = partition(DirichletClass(alpha=0.05, variant=variant), BALANCED_10, 12, seed)
        report = describe(BALANCED_10, split, 10)
        assert np.count_nonzero(report.dominant_share > 0.8) >= 2


@pytest.mark.parametrize(
    ("variant", "reaches_min_size", "median_largest", "just_above_share"),
    [("balanced", 0.86, 7_800, 3.4), ("plain", 0.78, 10_700, 1.2)],
)
def test_sizes_of_the_cifar10_setting(variant, reaches_min_size, median_largest, just_above_share):
    sizes = sizes_without_redraw(DirichletClass(alpha=0.05, variant=variant), BALANCED_10, 12, seeds=300)
    chance = np.mean(sizes.min(axis=1) >= 10)
    assert chance == pytest.approx(reaches_min_size, abs=4 * math.sqrt(reaches_min_size * (1 - reaches_min_size) / 300))
    largest = sizes.max(axis=1)
    assert np.median(largest) == pytest.approx(median_largest, abs=4 * 1.2533 * largest.std() / math.sqrt(300))
    between = np.count_nonzero((sizes >= 4_167) & (sizes <= 5_000), axis=1)
    assert between.mean() == pytest.approx(just_above_share, abs=4 * between.std() / math.sqrt(300) + 0.05)


def test_plain_sizes_have_the_moments_of_the_dirichlet_law():
    # N_i = Σ_c π_{c,i} n_c with Var π = (1/m)(1 − 1/m)/(m·alpha + 1)
    alpha, m, n_c = 0.3, 6, np.array([200, 700, 1100])
    labels = np.repeat([0, 1, 2], n_c)
    sizes = sizes_without_redraw(DirichletClass(alpha=alpha, variant="plain"), labels, m, seeds=3000)
    variance = (1 / m) * (1 - 1 / m) / (m * alpha + 1) * (n_c**2).sum()
    assert np.allclose(sizes.mean(axis=0), 2000 / m, atol=4.5 * math.sqrt(variance / 3000) + 2)
    assert sizes.var(axis=0).mean() == pytest.approx(variance, rel=0.06)


def dirichlet_by_hand(alpha, variant, labels, m, rng):
    """The rule once more, written out sample by sample with numpy's own Dirichlet law: counts [m][K]."""
    num_classes = int(max(labels)) + 1
    counts = [[0] * num_classes for _ in range(m)]
    for c in range(num_classes):
        n_c = sum(1 for label in labels if label == c)
        while True:
            pi = list(rng.dirichlet([alpha] * m))
            if variant == "balanced":
                pi = [p if sum(counts[i]) < len(labels) / m else 0.0 for i, p in enumerate(pi)]
            if sum(pi) > 0:
                break
        edges, total = [0], 0.0
        for p in pi:
            total += p / sum(pi)
            edges.append(math.floor(total * n_c + 1e-9))
        for i in range(m):
            counts[i][c] = edges[i + 1] - edges[i]
    return np.array(counts)


@pytest.mark.parametrize("variant", ["balanced", "plain"])
@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_agrees_with_the_rule_written_out_by_hand(variant, alpha):
    labels, m, seeds = np.repeat(np.arange(4), [50, 100, 100, 150]), 5, 250
    rule = DirichletClass(alpha=alpha, variant=variant)

    def statistics(counts):
        sizes, classes = counts.sum(axis=1), np.count_nonzero(counts, axis=1)
        last_class_to_largest = counts[sizes.argmax(), 3]
        spread = [sizes.var(), sizes.max(), sizes.min(), classes.mean(), counts.var(), last_class_to_largest]
        shares = (counts / np.maximum(sizes, 1)[:, None]).ravel()
        return [*sizes, *sizes**2, *shares, *shares**2, *spread]

    def drawn(seed):
        clients = rule.assign(labels, m, np.random.default_rng(seed))
        return np.bincount(clients * 4 + labels, minlength=4 * m).reshape(m, 4)

    ours = np.array([statistics(drawn(seed)) for seed in range(seeds)])
    by_hand = [
        dirichlet_by_hand(alpha, variant, labels, m, np.random.default_rng(10_000 + seed)) for seed in range(seeds)
    ]
    theirs = np.array([statistics(counts) for counts in by_hand])
    error = np.sqrt((ours.var(axis=0) + theirs.var(axis=0)) / seeds)
    assert np.all(np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) < 4.5 * error)


@pytest.mark.parametrize("variant", ["balanced", "plain"])
@pytest.mark.parametrize("alpha", [1e-4, 1e-6, 5e-324])
def test_tiny_alpha_gives_each_class_to_one_client_at_random(variant, alpha):
    labels = np.arange(400) % 4
    winners = []
    with np.errstate(all="raise", under="ignore"):
        for seed in range(200):
            clients = DirichletClass(alpha=alpha, variant=variant).assign(labels, 4, np.random.default_rng(seed))
            counts = np.bincount(clients * 4 + labels, minlength=16).reshape(4, 4)
            assert np.array_equal(counts.sum(axis=0), [100] * 4)
            if alpha < 1e-5:
                assert np.count_nonzero(counts) == 4
            winners.append(counts.argmax(axis=0))
            if variant == "balanced" and alpha < 1e-5:
                assert sorted(winners[-1]) == [0, 1, 2, 3]  # whoever holds N/m = 100 samples is out
    wins = np.bincount(np.array(winners)[:, 3], minlength=4)
    assert np.abs(wins - 50).max() < 4.5 * math.sqrt(200 * 3 / 16)


def test_log_space_draws_agree_with_numpy_where_numpy_is_safe():
    # the largest of 5 shares at alpha = 0.05, over 4,000 draws of one class of 10,000 samples
    labels = np.zeros(10_000, int)
    rule = DirichletClass(alpha=0.05, variant="plain")
    ours = sizes_without_redraw(rule, labels, 5, seeds=1000).max(axis=1) / 10_000
    theirs = np.random.default_rng(0).dirichlet([0.05] * 5, 20_000).max(axis=1)
    assert ours.mean() == pytest.approx(theirs.mean(), abs=4.5 * theirs.std() / math.sqrt(1000))
    assert ours.std() == pytest.approx(theirs.std(), rel=0.1)


def test_classes_without_samples_are_no_trouble():
    labels = np.repeat([3, 7], 50)
    report = describe(labels, partition(DirichletClass(alpha=1.0, min_size=1), labels, 3, seed=0), 9)
    assert report.counts.sum(axis=0).tolist() == [0, 0, 0, 50, 0, 0, 0, 50, 0]


def test_min_size_is_reached_by_drawing_again():
    rule = DirichletClass(alpha=0.05, variant="plain", min_size=10)
    raw = sizes_without_redraw(rule, BALANCED_10, 12, seeds=30)
    assert (raw.min(axis=1) < 10).any()  # without redraws some seeds fail
    for seed in range(30):
        assert partition(rule, BALANCED_10, 12, seed).sizes.min() >= 10


@pytest.mark.parametrize(
    ("rule", "num_samples", "num_clients"),
    [
        (DirichletClass(alpha=0.05), 1_437, 40),
        (DirichletClass(alpha=1e-4, variant="plain"), 1_000, 12),
        (DirichletClass(alpha=0.3, min_size=15), 3_000, 100),
    ],
)
def test_an_infeasible_alpha_is_named_and_what_is_proposed_works(rule, num_samples, num_clients):
    labels = BALANCED_10[:num_samples]
    with pytest.raises(UsageError) as caught:
        partition(rule, labels, num_clients, seed=0)
    message = str(caught.value)
    assert message.startswith(
        f"federation.partition.alpha = {rule.alpha:g}: no draw gives each of {num_clients} clients"
    )
    match = re.search(r"what works: federation.partition.alpha = ([^\s,]+)", message)
    assert match is not None
    alpha = float(match[1])
    wider = DirichletClass(alpha=alpha, variant=rule.variant, min_size=rule.min_size)
    assert partition(wider, labels, num_clients, seed=0).sizes.min() >= rule.min_size
    if other := re.search(r", federation\.partition\.min_size = (\d+) or 0 ", message):
        fewer = DirichletClass(alpha=rule.alpha, variant=rule.variant, min_size=int(other[1]))
        assert partition(fewer, labels, num_clients, seed=0).sizes.min() >= int(other[1])
    assert re.search(r", federation\.partition\.min_size = .*0 \(clients without samples never take part\), ", message)
    partition(DirichletClass(alpha=rule.alpha, variant=rule.variant, min_size=0), labels, num_clients, seed=0)
    if clients := re.search(r", federation\.clients = (\d+) or", message):
        assert partition(rule, labels, int(clients[1]), seed=0).sizes.min() >= rule.min_size
    assert message.endswith(" or federation.partition = 'iid'")
    partition(Iid(), labels, num_clients, seed=0)


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        (Quantity(beta=0.05), "beta"),
        (Quantity(law="lognormal", sigma=5.0), "sigma"),
        (DirichletClient(sizes="dirichlet", size_beta=0.05), "size_beta"),
        (DirichletClient(sizes="lognormal", size_sigma=5.0), "size_sigma"),
    ],
)
def test_infeasible_sizes_are_named_and_what_is_proposed_works(rule, name):
    labels = BALANCED_10[:2000]
    with pytest.raises(
        UsageError, match=rf"federation\.partition\.{name} = {getattr(rule, name):g}: no draw"
    ) as caught:
        partition(rule, labels, 50, seed=0)
    match = re.search(rf"what works: federation.partition.{name} = ([^\s,]+)", str(caught.value))
    assert match is not None
    works = float(match[1])
    assert (works < getattr(rule, name)) == name.endswith("sigma")
    assert partition(dataclasses.replace(rule, **{name: works}), labels, 50, seed=0).sizes.min() >= 10


@pytest.mark.parametrize(
    "rule",
    [DirichletClass(), Quantity(), RandomFractions(), DirichletClient(sizes="lognormal")],
    ids=lambda rule: type(rule).__name__,
)
def test_an_infeasible_partition_of_many_samples_is_refused_without_a_draw(rule, draws):
    with pytest.raises(UsageError, match=r"no draw gives each of 50000 clients"):
        partition(rule, np.arange(600_000) % 10, 50_000, seed=0)
    assert not draws  # a draw of 600,000 samples takes longer than the estimate of the sizes


def test_a_partition_that_few_seeds_would_have_is_refused_after_few_draws(draws):
    with pytest.raises(UsageError, match=r"alpha = 0\.05: no draw gives each of 100 .*\.min_size = .*0 \(clients"):
        partition(DirichletClass(), np.arange(60_000) % 10, 100, seed=0)
    assert len(draws) <= 100  # of 1,000: about 1 draw in 10,000 would give every client 10 samples


def test_a_partition_that_needs_hundreds_of_draws_is_found():
    rule, labels = DirichletClass(alpha=0.5), np.arange(2_000) % 10  # about 1 draw in 400 succeeds
    found: list[np.ndarray] = []
    rng = random_streams.rng(2, "partition")
    while not found or found[-1].min() < rule.min_size:
        found.append(np.bincount(rule.assign(labels, 100, rng), minlength=100))
    assert len(found) > 300
    assert np.array_equal(partition(rule, labels, 100, seed=2).sizes, found[-1])


def test_min_size_is_named_where_no_alpha_would_help():
    with pytest.raises(UsageError, match=r"federation\.partition\.min_size = 10: no draw"):
        partition(DirichletClass(alpha=0.5, variant="plain"), np.arange(1000) % 10, 100, seed=0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"alpha": 0.0}, r"federation\.partition\.alpha = 0\.0: should be above 0"),
        ({"alpha": math.inf}, r"federation\.partition\.alpha = inf"),
        ({"alfa": 0.1}, r"federation\.partition\.alfa: unknown key; did you mean 'alpha'"),
        ({"variant": "fair"}, r"federation\.partition\.variant = 'fair'"),
        ({"min_size": -1}, r"federation\.partition\.min_size = -1"),
    ],
)
def test_parameters_are_checked(values, message):
    with pytest.raises(UsageError, match=message):
        make(DirichletClass, values, "federation.partition")


# --- the report ------------------------------------------------------------------------------------------------------------


def test_describe_counts_by_hand():
    labels = np.array([0, 0, 0, 1, 1, 2, 2, 2])
    split = Partition(order=np.array([0, 1, 3, 5, 2, 4, 6]), offsets=np.array([0, 3, 7, 7]))  # sample 7 is dropped
    report = describe(labels, split, 3)
    assert report.counts.tolist() == [[2, 1, 0], [1, 1, 2], [0, 0, 0]]
    assert report.sizes.tolist() == [3, 4, 0]
    assert report.dominant.tolist() == [0, 2, -1]
    assert report.dominant_share == pytest.approx([2 / 3, 2 / 4, math.nan], nan_ok=True)
    assert report.num_classes.tolist() == [2, 3, 0]
    # kept: 3, 2, 2 of 7; client 0: ½(|2/3 − 3/7| + |1/3 − 2/7| + 2/7) = 2/7; client 1: ½(5/28 + 1/28 + 6/28) = 3/14
    assert report.distance == pytest.approx([2 / 7, 3 / 14, math.nan], nan_ok=True)
    assert {array.dtype.name for array in vars(report).values() if isinstance(array, np.ndarray)} == {
        "int64",
        "float64",
    }
    assert report.dropped == 1


def test_effective_alpha_by_hand():
    # pairs of one class: client 0: 1 of 3, client 1: 3 of 6, of different clients: 1 of 12
    rho = ((1 / 3 + 3 / 6) / 2 - 1 / 12) / (1 - 1 / 12)
    assert effective_alpha(np.array([[2, 1, 0], [0, 1, 3], [0, 0, 0]])) == pytest.approx(1 / rho - 1)


def test_effective_alpha_of_extremes():
    assert effective_alpha(np.eye(4, dtype=int) * 50) == pytest.approx(0)
    assert effective_alpha(np.full((4, 5), 20)) == math.inf  # more alike than chance
    assert math.isnan(effective_alpha(np.array([[3, 0], [5, 0]])))
    assert math.isnan(effective_alpha(np.array([[1, 0], [0, 1]])))  # nobody has two samples
    assert math.isnan(effective_alpha(np.array([[30, 70], [0, 0]])))  # nobody to differ from


@pytest.mark.parametrize("alpha", [0.1, 0.5, 3.0])
def test_effective_alpha_finds_the_alpha_of_independent_clients(alpha):
    prior = np.array([0.4, 0.3, 0.2, 0.1])
    rng = np.random.default_rng(0)
    for size in (5, 300):  # the estimate is not moved by sampling noise
        mixtures = rng.dirichlet(alpha * prior, 8000)
        assert effective_alpha(rng.multinomial(size, mixtures)) == pytest.approx(alpha, rel=0.06)


@pytest.mark.parametrize("clients", [3, 5, 20])
def test_effective_alpha_of_few_clients_is_not_too_high(clients):
    rng = np.random.default_rng(0)
    federations = rng.multinomial(200, rng.dirichlet(np.full(5, 1.0 / 5), (2000, clients)))
    skews = [1 / (1 + effective_alpha(counts)) for counts in federations]
    assert np.nanmean(skews) == pytest.approx(1 / (1 + 1), rel=0.05)


@pytest.mark.parametrize("alpha", [0.05, 0.5])
def test_effective_alpha_compares_the_two_dirichlet_partitions(alpha):
    labels = np.arange(200_000) % 10
    for rule in (DirichletClass(alpha=alpha, variant="plain", min_size=0), DirichletClient(alpha=10 * alpha)):
        report = describe(labels, partition(rule, labels, 400, 0), 10)
        assert report.effective_alpha / 10 == pytest.approx(alpha, rel=0.2)


def test_effective_alpha_of_a_random_split_is_beyond_any_skew():
    assert describe(BALANCED_10, partition(Iid(), BALANCED_10, 50, 0), 10).effective_alpha > 1_000


def test_describe_names_what_does_not_fit():
    split = partition(Iid(), np.array([0, 1, 2]), 2, seed=0)
    with pytest.raises(UsageError, match="labels: the largest is 2; with 2 classes, use 0 to 1"):
        describe(np.array([0, 1, 2]), split, 2)
    with pytest.raises(UsageError, match="labels: there are 2, but the partition holds sample 2"):
        describe(np.array([0, 1]), split, 2)
