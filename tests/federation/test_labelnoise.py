"""Label noise: H8's rates, H9's matrices, exact counts, clean copies, and messages that name the row."""

import dataclasses
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import make
from fedcohort.core.random_streams import rng
from fedcohort.experiment import Experiment
from fedcohort.federation import LabelNoise, labelnoise, parameters
from fedcohort.federation.data.datasets import from_arrays
from fedcohort.federation.data.load_dataset import load
from fedcohort.federation.federation import Federation, gather
from fedcohort.federation.labelnoise import Beta, Constant, NoLabelNoise, SomeClients, corrupt, flip_matrix
from fedcohort.federation.partition import DirichletClass, Iid, partition

TRUCK, CAR, BIRD, PLANE, DEER, HORSE, CAT, DOG = 9, 1, 2, 0, 4, 7, 3, 5


def one_client_each(labels: Any, sizes: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, order and offsets of clients that hold the samples in a shuffled order."""
    labels = np.asarray(labels)
    return labels, np.random.default_rng(7).permutation(len(labels)), np.concatenate([[0], np.cumsum(sizes)])


def big(num_classes: int = 10, size: int = 60_000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One client with as many samples of every class."""
    return one_client_each(np.arange(size) % num_classes, [size])


def digits(noise: Any, **values: Any) -> Federation:
    data = load("digits")
    split = partition(DirichletClass(alpha=0.5), data.train_labels, 12, seed=3)
    return gather(data, split, validation=0.1, seed=3, label_noise=noise, **values)


# --- H8: rates ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("a", "deviation"), [(5, 0.0217), (10, 0.0299), (15, 0.0355), (20, 0.0398), (25, 0.0431)])
def test_beta_rates_have_the_mean_and_deviation_of_the_paper(a: int, deviation: float) -> None:
    n = 400_000
    rates = Beta(a=float(a)).rates(n, rng(0, "label-noise-rates"))
    assert rates.mean() == pytest.approx(a / 100, abs=5 * deviation / np.sqrt(n))
    assert rates.std() == pytest.approx(deviation, abs=1e-4)


def test_beta_at_its_ends() -> None:
    labels, order, offsets = one_client_each(np.arange(60) % 3, [20, 40])
    nothing = corrupt(Beta(a=0.0), labels, order, offsets, num_classes=3, seed=0)
    assert np.array_equal(nothing.noisy, labels[order])
    assert not nothing.flipped.any()
    assert corrupt(Beta(a=100.0), labels, order, offsets, num_classes=3, seed=0).flipped.all()


def test_a_clients_rate_does_not_depend_on_how_many_others_there_are() -> None:
    few, many = (Beta(a=20.0).rates(m, rng(4, "label-noise-rates")) for m in (10, 1_000))
    assert np.array_equal(few, many[:10])


def test_some_clients() -> None:
    rule = SomeClients(clients=0.3, rate=0.5)
    rates = rule.rates(50, rng(1, "label-noise-rates"))
    assert sorted(set(rates)) == [0.0, 0.5]
    assert np.count_nonzero(rates) == 15
    assert not np.array_equal(rates, rule.rates(50, rng(2, "label-noise-rates")))
    noise = digits(SomeClients(clients=0.25, rate=1.0)).noise
    assert noise is not None
    assert np.count_nonzero(noise.rates) == 3


@pytest.mark.parametrize("rule", [Beta(a=25.0), Constant(rate=0.37), SomeClients(), Beta(a=40.0, flip="pairflip")])
def test_the_number_of_changed_labels_is_exact(rule: LabelNoise) -> None:
    federation = digits(rule)
    noise, labels = federation.noise, federation.train.labels.numpy()
    assert noise is not None
    for client, size in enumerate(federation.num_samples):
        mine = slice(federation.offsets[client], federation.offsets[client + 1])
        assert np.count_nonzero(labels[mine] != noise.clean[mine]) == round(noise.rates[client] * size)


def test_bernoulli_counts_are_binomial() -> None:
    m, size = 2_000, 50
    labels, order, offsets = one_client_each(np.arange(m * size) % 10, [size] * m)
    noise = corrupt(Constant(rate=0.3, bernoulli=True), labels, order, offsets, num_classes=10, seed=0)
    counts = noise.flipped.reshape(m, size).sum(axis=1)
    assert counts.mean() == pytest.approx(15, abs=5 * np.sqrt(10.5 / m))
    assert counts.var() == pytest.approx(10.5, rel=0.15)


def test_whose_labels_are_wrong_is_chance() -> None:
    """Every sample of a client is chosen equally often over seeds, wherever it stands."""
    labels, order, offsets = one_client_each(np.zeros(20, dtype=np.int64), [8, 12])
    seeds = 2_000
    often = sum(
        corrupt(Constant(rate=0.25), labels, order, offsets, num_classes=2, seed=s).flipped for s in range(seeds)
    )
    assert np.abs(np.asarray(often) / seeds - 0.25).max() < 5 * np.sqrt(0.1875 / seeds)


# --- H9: where labels go -----------------------------------------------------------------------------------------------------


def transitions(rule: LabelNoise, num_classes: int) -> np.ndarray:
    """Shares of the new label for every old one, [K, K]."""
    labels, order, offsets = big(num_classes)
    noise = corrupt(rule, labels, order, offsets, num_classes=num_classes, seed=5)
    counts = np.bincount(noise.clean * num_classes + noise.noisy, minlength=num_classes**2)
    return counts.reshape(num_classes, num_classes) / (len(labels) / num_classes)


@pytest.mark.parametrize("rho", [0.1, 0.2, 0.7])
def test_pairflip_of_three_classes(rho: float) -> None:
    """H9's matrix: rows (1−ρ, ρ, 0), (0, 1−ρ, ρ), (ρ, 0, 1−ρ)."""
    expected = np.array([[1 - rho, rho, 0], [0, 1 - rho, rho], [rho, 0, 1 - rho]])
    M = flip_matrix(Constant(flip="pairflip"), 3)
    assert np.allclose((1 - rho) * np.eye(3) + rho * M, expected, atol=1e-15)
    assert np.allclose(transitions(Constant(rate=rho, flip="pairflip"), 3), expected, atol=0.01)


@pytest.mark.parametrize("num_classes", [2, 10, 62])
def test_symmetric_flips_always_change_the_label_and_spread_evenly(num_classes: int) -> None:
    shares = transitions(Constant(rate=0.4), num_classes)
    off = ~np.eye(num_classes, dtype=bool)
    error = 6 * np.sqrt(0.4 * num_classes / 60_000)
    assert np.diag(shares) == pytest.approx(0.6, abs=error)
    assert shares[off] == pytest.approx(0.4 / (num_classes - 1), abs=error)
    assert transitions(Constant(rate=1.0), num_classes).diagonal().max() == 0


def test_asymmetric_flips_of_cifar10_touch_the_affected_classes_only() -> None:
    shares = transitions(Constant(rate=0.3, flip="asymmetric_cifar10"), 10)
    pairs = {TRUCK: CAR, BIRD: PLANE, DEER: HORSE, CAT: DOG, DOG: CAT}
    for c in range(10):
        if c in pairs:
            assert shares[c, pairs[c]] == pytest.approx(0.3, abs=0.03)
            assert shares[c, c] == pytest.approx(1 - shares[c, pairs[c]])
        else:
            assert shares[c, c] == 1.0
    assert shares[list(pairs), list(pairs.values())].mean() == pytest.approx(0.3, abs=1e-9)  # of those, exactly ρ


def test_the_asymmetric_table_is_cifar10s() -> None:
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    M = flip_matrix(Constant(flip="asymmetric_cifar10"), 10)
    went = {names[c]: names[int(M[c].argmax())] for c in range(10) if M[c, c] == 0}
    assert went == {"truck": "automobile", "bird": "airplane", "deer": "horse", "cat": "dog", "dog": "cat"}


def test_an_own_matrix_at_rate_one_is_the_whole_transition_matrix() -> None:
    own = [[0.9, 0.1, 0.0], [0.0, 1.0, 0.0], [0.25, 0.25, 0.5]]
    shares = transitions(Constant(rate=1.0, flip="matrix", matrix=own), 3)
    assert np.allclose(shares, own, atol=0.02)
    assert np.array_equal(shares == 0, np.array(own) == 0)
    assert shares[1, 1] == 1.0


def test_an_own_matrix_at_a_rate_says_where_chosen_labels_go() -> None:
    own = [[0.0, 1.0], [0.5, 0.5]]
    shares = transitions(Constant(rate=0.2, flip="matrix", matrix=own), 2)
    assert np.allclose(shares, [[0.8, 0.2], [0.1, 0.9]], atol=0.01)


# --- what holds for every rule ------------------------------------------------------------------------------------------------

RULES = st.one_of(
    st.builds(Beta, a=st.floats(0, 100), flip=st.sampled_from(["symmetric", "pairflip"]), bernoulli=st.booleans()),
    st.builds(Constant, rate=st.floats(0, 1), flip=st.sampled_from(["symmetric", "pairflip", "asymmetric_cifar10"])),
    st.builds(SomeClients, clients=st.floats(0, 1), rate=st.floats(0, 1)),
)


@settings(max_examples=150, deadline=None)
@given(
    rule=RULES,
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=12).filter(any),
    num_classes=st.integers(2, 12),
    seed=st.integers(0, 2**32),
)
def test_counts_ranges_and_determinism(rule: LabelNoise, sizes: list[int], num_classes: int, seed: int) -> None:
    if rule.flip == "asymmetric_cifar10":
        num_classes = 10
    labels, order, offsets = one_client_each(np.random.default_rng(seed).integers(0, num_classes, sum(sizes)), sizes)
    before = labels.copy()
    noise = corrupt(rule, labels, order, offsets, num_classes=num_classes, seed=seed)
    again = corrupt(dataclasses.replace(rule), labels.copy(), order, offsets, num_classes=num_classes, seed=seed)
    assert np.array_equal(noise.noisy, again.noisy)
    assert np.array_equal(labels, before)
    assert np.array_equal(noise.clean, labels[order])
    assert noise.noisy.dtype == np.int64
    assert 0 <= noise.noisy.min() <= noise.noisy.max() < num_classes
    stays = flip_matrix(rule, num_classes).diagonal()
    for i, rate in enumerate(noise.rates):
        mine = slice(offsets[i], offsets[i + 1])
        affected = np.count_nonzero(stays[noise.clean[mine]] < 1)
        changed = np.count_nonzero(noise.flipped[mine])
        assert changed <= affected
        assert rule.bernoulli or changed == round(rate * affected)


def test_noise_belongs_to_samples_not_to_places() -> None:
    """A client's wrong labels do not change when other clients' data do, or the order of its own."""
    labels, order = np.arange(100) % 10, np.random.default_rng(1).permutation(100)
    noises = []
    for mine, offsets in ((order, [0, 40, 100]), (order[:60], [0, 40, 60]), (order[:40][::-1], [0, 40])):
        noise = corrupt(Constant(rate=0.5), labels, mine, np.array(offsets), num_classes=10, seed=0)
        noises.append(noise.noisy[:40])
    assert np.array_equal(noises[0], noises[1])
    assert np.array_equal(noises[0], noises[2][::-1])


@pytest.mark.parametrize("flip", ["symmetric", "pairflip"])
def test_the_lowest_and_the_highest_draw_flip_too(flip: Any) -> None:
    flips, labels = flip_matrix(Constant(flip=flip), 62), np.arange(62)
    for draw in (0.0, np.nextafter(1.0, 0)):
        new = labelnoise._flipped(flips, labels, np.full(62, draw))
        assert (flips[labels, new] > 0).all()


def test_another_seed_is_other_noise_and_the_same_share() -> None:
    one, other = (corrupt(Constant(rate=0.5), *big(), num_classes=10, seed=s) for s in (0, 1))
    assert one.flipped.sum() == other.flipped.sum() == 30_000
    assert not np.array_equal(one.flipped, other.flipped)


# --- in the federation -------------------------------------------------------------------------------------------------------


def test_clean_copies_are_kept_and_server_sets_are_clean() -> None:
    data, clean, noisy = load("digits"), digits(None), digits(Constant(rate=0.4))
    assert clean.noise is None
    assert noisy.noise is not None
    assert np.array_equal(noisy.noise.clean, clean.train.labels.numpy())
    assert np.array_equal(noisy.noise.noisy, noisy.train.labels.numpy())
    assert np.array_equal(noisy.noise.flipped, (noisy.train.labels != clean.train.labels).numpy())
    assert noisy.train.features.equal(clean.train.features)
    for split in ("validation", "test"):
        assert getattr(noisy, split).labels.equal(getattr(clean, split).labels)
    assert np.array_equal(data.train_labels, load("digits").train_labels)  # and the data set is as it was


@pytest.mark.parametrize("rule", [NoLabelNoise(), Beta(a=0.0), Constant(rate=0.0), SomeClients(clients=0.0)])
def test_no_noise_changes_nothing(rule: Any) -> None:
    assert digits(rule).train.labels.equal(digits(None).train.labels)


def test_the_histogram_counts_labels_as_the_client_sees_them() -> None:
    federation = digits(Constant(rate=0.5))
    counted = [np.bincount(federation.client(i).labels.numpy(), minlength=10) for i in range(12)]
    assert np.array_equal(federation.histogram(), counted)
    assert not np.array_equal(federation.histogram(), digits(None).histogram())


def test_classes_without_samples_and_clients_without_samples() -> None:
    labels, order, offsets = one_client_each([4, 4, 4, 4], [0, 4, 0])
    noise = corrupt(Constant(rate=0.5), labels, order, offsets, num_classes=6, seed=0)
    assert noise.flipped.sum() == 2
    unaffected = one_client_each([0, 1, 6], [3])
    noise = corrupt(Constant(rate=1.0, flip="asymmetric_cifar10"), *unaffected, num_classes=10, seed=0)
    assert not noise.flipped.any()


# --- messages ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        ({"name": "beta", "a": 101.0}, r"^federation\.label_noise\.a = 101\.0: should be at most 100$"),
        ({"name": "beta", "a": -1}, r"^federation\.label_noise\.a = -1: should be at least 0$"),
        ({"name": "constant", "rate": 1.5}, r"^federation\.label_noise\.rate = 1\.5: should be at most 1$"),
        ({"name": "some_clients", "clients": -0.1}, r"^federation\.label_noise\.clients = -0\.1: should be at least 0"),
        ({"name": "constant", "flip": "pair"}, r"^federation\.label_noise\.flip = 'pair': should be 'symmetric', 'pairflip'"),
        ({"name": "none", "rate": 0.1}, r"^federation\.label_noise\.rate: unknown key for 'none'"),
        ({"name": "betta"}, r"^federation\.label_noise\.name = 'betta': no such label noise; did you mean 'beta'\?"),
        ({"name": "constant", "flip": "matrix"}, r"^federation\.label_noise\.matrix: required with flip = 'matrix'"),
        ({"name": "constant", "matrix": [[1]]}, r"^federation\.label_noise\.matrix: requires flip = 'matrix', but flip = 'symm"),
        (
            {"name": "constant", "flip": "matrix", "matrix": [[1, 0], [0.5, 0.4]]},
            r"^federation\.label_noise\.matrix: row 1 sums to 0\.9; every row must sum to 1$",
        ),
        (
            {"name": "constant", "flip": "matrix", "matrix": [[1, 0], [1.5, -0.5]]},
            r"^federation\.label_noise\.matrix: row 1 has the entry -0\.5; probabilities are in \[0, 1\]$",
        ),
        (
            {"name": "constant", "flip": "matrix", "matrix": [[0, 1, 0], [1, 0]]},
            r"^federation\.label_noise\.matrix: row 0 has 3 entries, but there are 2 rows; it must be square$",
        ),
        ({"name": "constant", "flip": "matrix", "matrix": []}, r"^federation\.label_noise\.matrix: required with flip"),
        ({"name": "constant", "flip": "matrix", "matrix": [[float("nan")]]}, r"matrix\.0\.0 = nan: should be a finite"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_before_anything_starts(noise: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Experiment(federation={"label_noise": noise})


def test_flips_that_do_not_fit_the_classes() -> None:
    labels, order, offsets = big(3, 30)
    with pytest.raises(
        UsageError, match=r"^federation\.label_noise\.matrix: is 2×2, but the data have 3 classes; give 3 rows of 3"
    ):
        corrupt(Constant(flip="matrix", matrix=[[1.0, 0.0], [0.0, 1.0]]), labels, order, offsets, num_classes=3, seed=0)
    with pytest.raises(UsageError, match=r"flip = 'asymmetric_cifar10': is for the 10 classes of CIFAR-10, not 3"):
        corrupt(Constant(flip="asymmetric_cifar10"), labels, order, offsets, num_classes=3, seed=0)
    with pytest.raises(UsageError, match=r"flip = 'symmetric': with 1 class there is no wrong label"):
        corrupt(Constant(), labels * 0, order, offsets, num_classes=1, seed=0)
    features = np.zeros((30, 2), dtype=np.float32)
    data = from_arrays((features, labels), (features, labels))
    with pytest.raises(UsageError, match=r"asymmetric_cifar10"):
        gather(
            data,
            partition(Iid(), labels, 3, 0),
            validation=0.0,
            seed=0,
            label_noise=Constant(flip="asymmetric_cifar10"),
        )


def test_a_rule_of_ones_own_is_checked() -> None:
    @parameters
    class Mine(LabelNoise):
        high: float = 2.0

        def rates(self, num_clients: int, rng: np.random.Generator) -> np.ndarray:
            return np.linspace(0, self.high, num_clients)

    labels, order, offsets = one_client_each(np.arange(30) % 3, [10, 10, 10])
    with pytest.raises(UsageError, match=r"^federation\.label_noise: client 2 has the rate 2; rates are in \[0, 1\]"):
        corrupt(Mine(), labels, order, offsets, num_classes=3, seed=0)
    noise = corrupt(make(Mine, {"high": 1.0}, ""), labels, order, offsets, num_classes=3, seed=0)
    assert noise.flipped.reshape(3, 10).sum(axis=1).tolist() == [0, 5, 10]


def test_toml_round_trip_and_hash() -> None:
    noise = {"name": "beta", "a": 20, "flip": "matrix", "matrix": [[0.5, 0.5], [0, 1]]}
    experiment = Experiment(federation={"label_noise": noise})
    again = Experiment(**experiment.to_dict())
    assert again == experiment
    assert 'name = "beta"' in experiment.to_toml()
    assert experiment.key() != Experiment().key()
    assert experiment.federation.label_noise.build() == Beta(a=20.0, flip="matrix", matrix=[[0.5, 0.5], [0.0, 1.0]])
    assert experiment.with_overrides({"federation": {"label_noise": "none"}}).key() == Experiment().key()


# --- size ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_ten_million_labels_of_a_million_clients_take_no_call_per_client() -> None:
    m, n = 1_000_000, 10_000_000
    labels = np.arange(n) % 10
    sizes = np.bincount(np.random.default_rng(0).integers(0, m, n), minlength=m)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        noise = corrupt(Beta(a=20.0), labels, np.arange(n), offsets, num_classes=10, seed=0)
    finally:
        sys.setprofile(before)
    assert calls < 10_000  # a few hundred, however many clients there are
    changed = np.add.reduceat(noise.flipped, offsets[:-1][sizes > 0], dtype=np.int64)
    assert np.array_equal(changed, np.rint(noise.rates * sizes)[sizes > 0])
