"""Measures: values worked by hand, published values, and properties that hold for every input."""

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedcohort import measures
from fedcohort.core import random_streams
from fedcohort.core.errors import UsageError
from fedcohort.measures import (
    accuracy,
    best_accuracy,
    bytes_to,
    conformal,
    coverage,
    early_stop,
    entropy,
    final_accuracy,
    forgetting,
    gini,
    hindsight_regret,
    holm,
    jain,
    jain_random,
    largest_drop,
    macro_accuracy,
    mean_sd,
    over_clients,
    overall_accuracy,
    paired_interval,
    paired_p_value,
    participation,
    participation_random,
    regret,
    rounds_since,
    rounds_to,
    selection_counts,
    tail_sd,
    time_to,
    worst_accuracy,
)
from fedcohort.measures.seeds import least_p_value
from fedcohort.measures.uniform_chance import (
    MAX_SIMULATED,
    JainReference,
    _limit,
    _squares_by_client,
    _squares_by_count,
    jain_path,
    spread_path,
)

NAN, INF = math.nan, math.inf
COUNTS = st.lists(st.integers(0, 1000), min_size=1, max_size=50)

# --- accuracy (D1) ---------------------------------------------------------------------------------------------------------


def test_per_class_macro_and_overall_accuracy():
    correct, total = [9, 0, 0, 1], [10, 5, 0, 2]
    assert accuracy(correct, total) == pytest.approx([0.9, 0.0, NAN, 0.5], nan_ok=True)
    assert macro_accuracy(correct, total) == pytest.approx(1.4 / 3)
    assert overall_accuracy(correct, total) == pytest.approx(10 / 17)


def test_worst_accuracy_by_hand():
    accuracies = [0.9, 0.1, NAN, 0.8, 0.3, 0.7, 0.6, 0.5, 0.4, 0.95, 0.2]
    assert worst_accuracy(accuracies) == pytest.approx(0.1)  # one of the 10 clients with an accuracy
    assert worst_accuracy([*accuracies, 0.99]) == pytest.approx(0.15)  # ⌈1.1⌉ = 2 of 11
    assert worst_accuracy(accuracies, 0.3) == pytest.approx(0.2)
    assert worst_accuracy(accuracies, 1.0) == pytest.approx(0.545)
    assert worst_accuracy(np.arange(30), 0.1) == pytest.approx(1.0)  # 3 of 30
    assert worst_accuracy(np.arange(100), 0.07) == pytest.approx(3.0)  # 7, although 0.07·100 > 7 in floating point
    assert worst_accuracy([0.1, 0.2], 1e-12) == 0.1  # at least one client
    for share in (0.0, 1.1, NAN):
        with pytest.raises(UsageError, match="share = "):
            worst_accuracy([0.1], share)
    with pytest.raises(UsageError, match="per_client contains only NaN"):
        worst_accuracy([NAN])


def test_accuracy_over_clients_by_hand():
    """Of 11 clients with data, the worst tenth is two; the standard deviation has the divisor 11."""
    found = over_clients([0.0, 0.25, NAN, *[0.5] * 7, 0.75, 1.0])
    assert (found.mean, found.worst) == (0.5, 0.125)
    assert found.sd == pytest.approx(math.sqrt((2 * 0.5**2 + 2 * 0.25**2) / 11), rel=1e-12)
    assert np.isnan(over_clients([NAN, NAN])).all()
    assert np.isnan(over_clients([])).all()


def test_accuracy_without_samples_is_nan():
    assert math.isnan(macro_accuracy([0, 0], [0, 0]))
    assert math.isnan(overall_accuracy([0, 0], [0, 0]))


def test_accuracy_of_rounds_and_classes_keeps_its_shape():
    assert accuracy([[1, 2], [3, 4]], [[2, 2], [4, 4]]).tolist() == [[0.5, 1.0], [0.75, 1.0]]


def test_accuracy_of_one_sample():
    assert accuracy([1, 0], [1, 1]).tolist() == [1.0, 0.0]


@pytest.mark.parametrize(("correct", "total"), [([3], [2]), ([-1], [2]), ([1], [1, 1]), ([NAN], [1]), ([1, 3], [2, 2])])
def test_accuracy_of_impossible_counts_is_an_error(correct, total):
    for function in (accuracy, macro_accuracy, overall_accuracy):
        with pytest.raises(UsageError, match="correct"):
            function(correct, total)


def test_best_and_final_accuracy_ignore_rounds_without_a_measurement():
    assert best_accuracy([NAN, 0.3, 0.7, 0.5, NAN]) == 0.7
    assert final_accuracy([NAN, 0.3, 0.7, 0.5, NAN]) == 0.5


@pytest.mark.parametrize(
    ("validation", "patience", "min_delta", "round", "stopped"),
    [
        ([0.1, 0.5, 0.4, 0.3], 100, 0.0, 2, 4),  # patience never runs out
        ([0.1, 0.5, 0.4, 0.3, 0.9], 2, 0.0, 2, 4),  # stops before a later improvement
        ([0.1, 0.5, 0.4, 0.6, 0.3], 2, 0.0, 4, 5),  # improves in the last round that patience allows
        ([0.5, 0.5, 0.5], 100, 0.0, 1, 3),  # of equal rounds, the first counts
        ([0.5, 0.5, 0.5, 0.5], 2, 0.0, 1, 3),  # equal rounds are no improvement, and use up patience
        ([0.5, 0.75, 0.5, 0.5], 2, 0.25, 2, 3),  # neither is a difference of exactly min_delta
        ([0.5, 0.4, 0.9], 1, 0.0, 1, 2),
        ([0.50, 0.51, 0.52, 0.53, 0.54], 2, 0.05, 3, 3),  # improvements below min_delta: keeps the best round so far
        ([0.50, 0.53, 0.56, 0.53, 0.54], 2, 0.05, 3, 5),  # two small improvements together exceed min_delta
        ([NAN, 0.2, NAN, 0.1], 2, 0.0, 2, 4),  # rounds without a measurement use up patience
        ([NAN, NAN, NAN, 0.1], 2, 0.0, 4, 4),  # but only after the first measurement
    ],
)
def test_early_stop(validation, patience, min_delta, round, stopped):
    test = np.arange(1, len(validation) + 1) / 10
    result = early_stop(validation, test, patience, min_delta)
    assert result == (pytest.approx(round / 10), round, stopped)


def test_early_stop_depends_on_validation_only():
    assert early_stop([0.1, 0.9, 0.2], [0.99, 0.40, 0.98]).accuracy == 0.40


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.1], [0.1, 0.2]), "validation has 1 entries, test 2"),
        (([], []), "validation has the shape"),
        (([NAN], [0.1]), "validation contains only NaN"),
        (([0.1, NAN], [NAN, 0.1]), "validation and test: no round has both accuracies"),
        (([0.1], [0.1], 0), "patience = 0"),
        (([0.1], [0.1], 1, -0.1), "min_delta = -0.1"),
    ],
)
def test_early_stop_reports_wrong_input(arguments, message):
    with pytest.raises(UsageError, match=message):
        early_stop(*arguments)


# --- participation of clients ----------------------------------------------------------------------------------------------


def test_jain_of_the_published_result():
    counts = [8, 8, 2, 2, *[5] * 8]
    assert sum(counts) == 60
    assert jain(counts) == pytest.approx(25 / 28, abs=1e-15)
    assert jain(counts) == pytest.approx(0.892857, abs=1e-6)
    assert 1 / jain(counts) == pytest.approx(1.12)  # the source prints the inverse


@pytest.mark.parametrize(
    ("counts", "value"), [([0, 0, 0], 1.0), ([4, 4], 1.0), ([7, 0, 0, 0], 0.25), ([3, 3, 3, 0, 0], 0.6), ([5], 1.0)]
)
def test_jain_by_hand(counts, value):
    assert jain(counts) == pytest.approx(value)


def test_jain_of_large_counts_does_not_overflow():
    assert jain(np.full(1000, 2**40)) == pytest.approx(1.0)


def test_jain_of_random_selection_by_hand():
    reference = jain_random(12, 3, 20)
    # J takes few values: Σx² is even, so neighbouring quantiles are 3600/(12·Σx²) apart by about 0.006
    assert reference.mean == pytest.approx(0.871, abs=0.004)
    assert reference.q05 == pytest.approx(0.789, abs=0.007)
    assert reference.q50 == pytest.approx(0.877, abs=0.007)
    assert reference.q95 == pytest.approx(0.938, abs=0.007)


def test_both_simulations_of_random_selection_have_the_exact_mean_of_squares():
    # E Σ(x − mean)² = rounds · k (1 − k/m) in both simulations
    m, k, rounds = 40, 7, 25
    expected = (k * rounds) ** 2 / m + rounds * k * (1 - k / m)
    by_client = _squares_by_client(m, k, rounds, 4000, np.random.default_rng(0))[-1]
    by_count = _squares_by_count(m, k, rounds, 4000, np.random.default_rng(1))[-1]
    for squares in (by_client, by_count):
        assert squares.mean() == pytest.approx(expected, abs=4.5 * squares.std() / math.sqrt(4000))
    assert stats.ks_2samp(by_client, by_count).pvalue > 1e-4


def test_random_selection_of_a_million_clients_is_nearly_poisson():
    reference = jain_random(1_000_000, 10_000, 20, draws=200)
    # counts are nearly Poisson(λ = 0.2): J ≈ λ²/(λ² + λ)
    assert reference.mean == pytest.approx(0.2 / 1.2, rel=0.02)
    assert reference.q05 <= reference.q50 <= reference.q95


def test_random_selection_depends_only_on_its_arguments_and_seed():
    first = jain_random(12, 3, 20, seed=1)
    jain_path.cache_clear()
    assert jain_random(12, 3, 20, seed=1) == first
    assert jain_random(12, 3, 20, seed=2) != first


@pytest.mark.parametrize(("m", "k", "rounds"), [(100, 10, 61), (12, 3, 200), (1000, 50, 31), (3550, 355, 31)])
def test_the_limit_distribution_for_many_rounds_agrees_with_simulation(m, k, rounds):
    simulate = _squares_by_client if m <= 100 else _squares_by_count
    draws = 3000
    values = (k * rounds) ** 2 / (m * simulate(m, k, rounds, draws, np.random.default_rng(0))[-1])
    reference = JainReference(*_limit(m, k, rounds)[-1])
    assert reference.mean == pytest.approx(
        values.mean(), abs=4.5 * values.std() / math.sqrt(draws) + 5e-4 * values.mean()
    )
    for level, quantile in zip((0.05, 0.5, 0.95), reference[1:], strict=True):
        assert np.mean(values <= quantile) == pytest.approx(level, abs=0.035)
        assert quantile == pytest.approx(np.quantile(values, level), rel=0.005)


def test_after_one_round_of_the_limit_distribution_the_index_is_certain():
    """k of m clients have one selection, whichever they are: J = k²/(m·k)."""
    assert jain_path(100_000, 10, 40)[0] == pytest.approx([1e-4] * 4, rel=1e-12)


def test_the_limit_distribution_has_the_exact_mean_and_variance_of_two_rounds(monkeypatch):
    """One of three clients: counts are (2, 0, 0) in a third of the runs and otherwise (1, 1, 0), with Q = 8/3 and 2/3."""
    given = []
    monkeypatch.setitem(_limit.__globals__, "spread_path", lambda *arguments: given.append(arguments))
    _limit(3, 1, 2)
    m, totals, mean, variance = given[0]
    assert (m, totals.tolist()) == (3, [1, 2])
    assert mean == pytest.approx([2 / 3, 4 / 3])
    assert variance == pytest.approx([0, 8 / 9])


def test_a_small_spread_has_the_gamma_distribution_of_its_moments():
    law = stats.gamma(0.5**2 / 0.1, scale=0.1 / 0.5)
    found = spread_path(10, *np.array([[5.0], [0.5], [0.1]]))[0]
    spreads = law.ppf([0.95, 0.5, 0.05])
    assert found[1:] == pytest.approx(1 / (1 + 10 * spreads / 25))
    assert found[0] == pytest.approx(law.expect(lambda spread: 1 / (1 + 10 * spread / 25)), rel=1e-3)


def test_the_number_of_draws_of_random_selection_can_be_set():
    assert jain_random(12, 3, 5, draws=50) != jain_random(12, 3, 5)
    assert jain_random(12, 3, 5, draws=2_000) == jain_random(12, 3, 5)


def test_simulated_counts_have_the_exact_mean_and_variance_of_the_limit_distribution():
    # Q = Σ(x − T/m)²: E Q = n k (m − k)/m, Var Q = 2 n (n − 1) (k (m − k)/m)²/(m − 1)
    m, k, rounds, draws = 9, 4, 5, 40_000
    spread = _squares_by_client(m, k, rounds, draws, np.random.default_rng(0))[-1] - (k * rounds) ** 2 / m
    assert spread.mean() == pytest.approx(rounds * k * (m - k) / m, rel=0.01)
    assert spread.var() == pytest.approx(2 * rounds * (rounds - 1) * (k * (m - k) / m) ** 2 / (m - 1), rel=0.04)


class CountingGenerator:
    """Random numbers as of numpy's generator; ``drawn`` counts them."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.drawn = rng, 0

    def random(self, shape):
        values = self.rng.random(shape)
        self.drawn += values.size
        return values

    def hypergeometric(self, *arguments):
        values = self.rng.hypergeometric(*arguments)
        self.drawn += values.size
        return values


@pytest.mark.parametrize(
    ("arguments", "simulated"),
    [
        ((100, 10, 1000), False), ((3550, 710, 1000), False), ((1_000_000, 1000, 2000), False),
        ((3550, 1, 300), True), ((1_000_000, 1000, 30), True), ((60, 10, 100), True),
    ],
)  # fmt: skip
def test_random_selection_of_long_runs_draws_at_most_12_million_numbers(arguments, simulated, monkeypatch):
    counting = CountingGenerator(np.random.default_rng(0))
    monkeypatch.setattr(random_streams, "rng", lambda *_: counting)
    jain_path.cache_clear()
    reference = jain_random(*arguments)
    jain_path.cache_clear()
    assert reference.q05 <= reference.q50 <= reference.q95
    assert (counting.drawn > 0) == simulated
    assert counting.drawn <= MAX_SIMULATED == 12_000_000


@pytest.mark.parametrize(("m", "k", "rounds"), [(12, 3, 20), (7, 1, 3), (2, 1, 9), (30, 10, 11), (5, 4, 8)])
def test_random_participation_agrees_with_simulation(m, k, rounds):
    rng = np.random.default_rng(0)
    runs = []
    for _ in range(1500):
        selected = np.argsort(rng.random((rounds, m)), axis=1)[:, :k]
        runs.append(participation(np.bincount(selected.ravel(), minlength=m)))
    simulated, error = np.mean(runs, axis=0), np.std(runs, axis=0) / math.sqrt(1500)
    assert np.all(np.abs(simulated - participation_random(m, k, rounds)) < 4.5 * error + [0.01, 1e-12, 1e-12, 1e-4])


def test_random_participation_of_all_clients_no_rounds_one_round_and_one_client():
    assert participation_random(5, 9, 4) == pytest.approx((1.0, 0.0, math.log(5), 1.0))
    assert participation_random(5, 2, 0) == (1.0, 0.0, 0.0, 0.0) == participation([0] * 5)
    assert participation_random(8, 2, 1) == pytest.approx(participation([1, 1, 0, 0, 0, 0, 0, 0]))
    assert participation_random(1, 1, 3) == participation([3])


def test_counts_and_rounds_since_by_hand():
    selections = [[0, 2], [], [2, 2, 1], [0]]
    assert selection_counts(selections, 4).tolist() == [2, 1, 2, 0]
    assert rounds_since(selections, 4).tolist() == [0, 1, 1, INF]
    assert rounds_since([], 2).tolist() == [INF, INF]
    for function in (selection_counts, rounds_since):
        with pytest.raises(UsageError, match="selections: round 1 contains a client outside 0…1"):
            function(selections, 2)


@pytest.mark.parametrize("arguments", [(5, 5, 10), (5, 9, 10), (5, 2, 0)])
def test_random_selection_of_all_clients_or_in_no_round_is_fair(arguments):
    assert jain_random(*arguments) == (1.0, 1.0, 1.0, 1.0)


@pytest.mark.parametrize("arguments", [(0, 1, 1), (3, 0, 1), (3, 1, -1)])
def test_random_selection_rejects_impossible_sizes(arguments):
    with pytest.raises(UsageError, match="jain_random"):
        jain_random(*arguments)


@pytest.mark.parametrize(
    ("counts", "expected_gini", "expected_entropy", "expected_coverage"),
    [
        ([0, 0, 0], 0.0, 0.0, 0.0),
        ([2, 2, 2, 2], 0.0, math.log(4), 1.0),
        ([8, 0, 0, 0], 0.75, 0.0, 0.25),
        ([1, 3], 0.25, 0.25 * math.log(4) + 0.75 * math.log(4 / 3), 1.0),
        ([3, 0, 1], 0.5, 0.25 * math.log(4) + 0.75 * math.log(4 / 3), 2 / 3),
        ([0.1, 0.1], 0.0, math.log(2), 1.0),
        ([0.3, 0.0, 0.1], 0.5, 0.25 * math.log(4) + 0.75 * math.log(4 / 3), 2 / 3),
    ],
)
def test_gini_entropy_and_coverage_by_hand(counts, expected_gini, expected_entropy, expected_coverage):
    assert gini(counts) == pytest.approx(expected_gini, abs=1e-15)
    assert entropy(counts) == pytest.approx(expected_entropy)
    assert coverage(counts) == pytest.approx(expected_coverage)


def test_entropy_of_one_client_is_plus_zero():
    assert math.copysign(1, entropy([3])) == 1


@given(COUNTS, st.randoms())
def test_fairness_measures_stay_in_their_range_and_ignore_the_order_of_clients(counts, random):
    m, shuffled = len(counts), random.sample(counts, len(counts))
    for function, low, high in ((jain, 1 / m, 1), (gini, 0, 1 - 1 / m), (entropy, 0, math.log(m)), (coverage, 0, 1)):
        assert low - 1e-12 <= function(counts) <= high + 1e-12
        assert function(shuffled) == pytest.approx(function(counts), abs=1e-12)


@given(COUNTS)
def test_gini_is_half_the_relative_mean_difference(counts):
    x = np.array(counts)
    if x.any():
        assert gini(counts) == pytest.approx(np.abs(x[:, None] - x).sum() / (2 * len(x) * x.sum()), abs=1e-12)


@pytest.mark.parametrize("counts", [[], [[1, 2]], [-1, 2], [NAN], [INF]])
@pytest.mark.parametrize("function", [jain, gini, entropy, coverage])
def test_invalid_counts_are_rejected(function, counts):
    with pytest.raises(UsageError, match="counts"):
        function(counts)


# --- cost of a target (D4) -------------------------------------------------------------------------------------------------


def test_cost_of_a_target_by_hand():
    series, clock, round_bytes = [0.2, NAN, 0.5, 0.4, 0.6], [1.5, 2.0, 10.0, 10.0, 12.0], [10, 0, 30, 5, 20]
    for target, t, seconds, total in ((0.2, 1, 1.5, 10), (0.5, 3, 10.0, 40), (0.55, 5, 12.0, 65), (0.7, INF, INF, INF)):
        assert rounds_to(series, target) == t
        assert time_to(series, clock, target) == seconds
        assert bytes_to(series, round_bytes, target) == total


def test_cost_of_a_target_reports_wrong_input():
    with pytest.raises(UsageError, match="series has 2 entries, clock 1"):
        time_to([0.1, 0.2], [1.0], 0.1)
    with pytest.raises(UsageError, match="series has 2 entries, round_bytes 1"):
        bytes_to([0.1, 0.2], [1], 0.1)
    with pytest.raises(UsageError, match="not its duration"):
        time_to([0.1, 0.2, 0.3], [1.0, 2.0, 1.5], 0.1)
    with pytest.raises(UsageError, match="series has the shape"):
        rounds_to([], 0.1)


# --- regret (D5) -----------------------------------------------------------------------------------------------------------

REWARDS = [[1.0, 2.0, 3.0, 0.0], [4.0, 0.0, NAN, 1.0], [0.0, 0.0, 5.0, 1.0]]


def test_full_information_regret_by_hand():
    # round 1: (3 + 2) − (1 + 3); round 2: 4 − 0, client 2 was absent; round 3: (5 + 1) − (5 + 1)
    assert regret(REWARDS, [[0, 2], [1], [3, 2]]).tolist() == [1.0, 5.0, 5.0]
    assert regret(REWARDS, [[0, 2, 2], [], [3]]).tolist() == [1.0, 1.0, 5.0]


def test_hindsight_regret_by_hand():
    # seen: client 0: 1; client 1: 0; client 2: 3 and 5; client 3: 1; μ = 1, 0, 4, 1
    # best of size 2: 4 + 1; round 1: 5 − 4; round 2 (size 1): 4 − 0; round 3: 5 − 6
    assert hindsight_regret(REWARDS, [[0, 2], [1], [3, 2]]).tolist() == [1.0, 5.0, 4.0]


def test_hindsight_regret_depends_only_on_observed_rewards():
    selections = [[0, 2], [1, 2], [3, 2]]  # client 2 drops out in round 2
    assert hindsight_regret(REWARDS, selections).tolist() == [1.0, 5.0, 4.0]
    observed = np.full((3, 4), NAN)
    for t, clients in enumerate(selections):
        observed[t, clients] = np.array(REWARDS)[t, clients]
    assert hindsight_regret(observed, selections).tolist() == [1.0, 5.0, 4.0]
    assert hindsight_regret(np.full((2, 3), NAN), [[0], []]).tolist() == [0.0, 0.0]


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 5))
def test_regret_never_falls_and_the_best_cohorts_have_none(seed, m, n):
    rng = np.random.default_rng(seed)
    rewards = rng.normal(size=(n, m))
    k = rng.integers(1, m + 1)
    assert np.diff(regret(rewards, [rng.permutation(m)[:k] for _ in range(n)]), prepend=0.0).min() >= 0
    assert not regret(rewards, list(np.argsort(-rewards, axis=1)[:, :k])).any()


def test_the_best_fixed_cohort_has_no_hindsight_regret_at_the_end():
    rewards = np.random.default_rng(0).normal(size=(50, 6)) + np.arange(6)
    assert hindsight_regret(rewards, [[4, 5]] * 50)[-1] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("function", [regret, hindsight_regret])
def test_regret_reports_wrong_input(function):
    with pytest.raises(
        UsageError, match="selections has 1 rounds, rewards 3; give the clients and the rewards of the same rounds"
    ):
        function(REWARDS, [[0]])
    with pytest.raises(UsageError, match=r"selections: round 2 contains a client outside 0…3"):
        function(REWARDS, [[0], [4], [0]])
    with pytest.raises(UsageError, match=r"selections: round 3 contains a client outside 0…3"):
        function(REWARDS, [[0], [3], [-1]])
    for nothing in ([1.0], np.zeros((0, 4))):
        with pytest.raises(UsageError, match="rewards has the shape"):
            function(nothing, [[0]])
    with pytest.raises(UsageError, match="client 2 was selected in round 2, but has no reward"):
        regret(REWARDS, [[0], [1, 2], [0]])


@pytest.mark.parametrize("wrong", [[True, False, True, False], [0.9, 2.1]])
def test_a_mask_and_fractions_are_no_clients(wrong: list[float]) -> None:
    """They counted as clients 0 and 1, and as 0 and 2."""
    with pytest.raises(UsageError, match=r"^selections: round 2 is \[.*\]; give the ids of its clients, integers$"):
        selection_counts([[0, 1], wrong], 4)
    with pytest.raises(UsageError, match=r"^selections: round 1 is "):
        regret(np.ones((1, 4)), [np.array(wrong)])


# --- stability (D8) --------------------------------------------------------------------------------------------------------


def test_tail_sd_is_over_the_last_fifth_of_the_rounds():
    series = [0.0] * 8 + [0.6, 0.8]
    assert tail_sd(series) == pytest.approx(math.sqrt(0.02))
    assert tail_sd([*[0.0] * 8, 0.5, 0.6, 0.7]) == pytest.approx(0.1)  # ⌈11/5⌉ = 3
    assert tail_sd([*[0.0] * 12, 0.5, 0.7, 0.9]) == pytest.approx(0.2)  # 15/5 = 3, not 4
    assert math.isnan(tail_sd([0.1] * 5))  # a fifth of five rounds is one round, which has no deviation
    assert math.isnan(tail_sd([*[0.0] * 8, NAN, 0.8]))
    assert math.isnan(tail_sd([*[0.0] * 8, NAN, NAN]))


def test_largest_drop_by_hand():
    assert largest_drop([0.1, 0.5, 0.2, 0.6, 0.5]) == pytest.approx(0.3)
    assert str(largest_drop([0.5, 0.5])) == "0.0"  # not −0.0
    assert largest_drop([0.5, NAN, 0.1]) == pytest.approx(0.4)
    assert largest_drop([0.1, 0.2]) == 0.0
    assert largest_drop([0.1]) == 0.0


def test_forgetting_by_hand():
    per_class = [[0.5, 0.0], [0.3, 0.8], [0.6, 0.4]]
    assert forgetting(per_class) == pytest.approx([0.0, 0.1, 0.2])


def test_forgetting_ignores_rounds_in_which_a_class_was_not_measured():
    per_class = [[0.5, NAN, 0.9], [0.3, NAN, NAN], [NAN, NAN, NAN], [0.4, NAN, 0.5]]
    assert forgetting(per_class) == pytest.approx([0.0, 0.2, NAN, 0.25], nan_ok=True)


def test_stability_measures_reject_empty_series():
    for function in (tail_sd, largest_drop, best_accuracy, final_accuracy):
        with pytest.raises(UsageError, match="series"):
            function([])
    with pytest.raises(UsageError, match="per_class"):
        forgetting([])


# --- several seeds ---------------------------------------------------------------------------------------------------------


def test_mean_and_sample_sd():
    assert mean_sd([1.0, 2.0, 3.0, 4.0]) == pytest.approx((2.5, math.sqrt(5 / 3)))
    assert mean_sd([0.7]) == pytest.approx((0.7, NAN), nan_ok=True)
    with pytest.raises(UsageError, match="values"):
        mean_sd([])


def test_paired_interval_by_hand():
    # differences 1, 2, 3: mean 2, sd 1, t_{2, 0.975} = 4.302653
    mean, low, high = paired_interval([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert (mean, low, high) == pytest.approx((2.0, 2 - 4.302653 / math.sqrt(3), 2 + 4.302653 / math.sqrt(3)), abs=1e-6)


def test_paired_interval_agrees_with_scipy_and_has_its_coverage():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        a, b = rng.normal(0.3, 1, 5), rng.normal(0.0, 1, 5)
        mean, low, high = paired_interval(a, b, confidence=0.9)
        assert (low, high) == pytest.approx(tuple(stats.ttest_rel(a, b).confidence_interval(0.9)))
        assert low <= mean <= high
        covered += low <= 0.3 <= high
    assert covered / 400 == pytest.approx(0.9, abs=4 * math.sqrt(0.09 / 400))


def test_a_paired_interval_ends_at_what_is_possible():
    """Two seeds: mean 0.092 and Student's t 12.7."""
    a, b = [0.60, 0.61], [0.50, 0.526]
    mean, low, high = paired_interval(a, b)
    assert low < 0 < high
    assert paired_interval(a, b, limits=(-0.005, 0.1)) == (mean, -0.005, 0.1)
    assert paired_interval(a, b, limits=measures.ACCURACY_DIFFERENCES) == (mean, low, high)
    assert paired_interval([1.0, 0.0], [0.0, 0.0], limits=measures.ACCURACY_DIFFERENCES) == (0.5, -1.0, 1.0)


def test_p_value_of_paired_signs_by_hand():
    """d = (1, 2, 3): of eight signs, |Σ ±d| ≥ 6 for two. d = (1, 2, −3): Σ d = 0. d = (3, 1, −1): 3 or more for six."""
    assert paired_p_value([1, 2, 3], [0, 0, 0]) == 2 / 8
    assert paired_p_value([0, 0, 0], [1, 2, 3]) == 2 / 8
    assert paired_p_value([1, 2, 0], [0, 0, 3]) == 1.0
    assert paired_p_value([3, 1, 0], [0, 0, 1]) == 6 / 8
    assert paired_p_value([0.5, 0.5], [0.5, 0.5]) == 1.0
    assert paired_p_value([0.7], [0.5]) == 1.0
    assert paired_p_value([0.9, 0.8, 0.9, 0.8, 0.7, 0.9], [0.1] * 6) == 2 / 64
    assert math.isnan(paired_p_value([0.5, NAN], [0.4, 0.3]))


def test_signs_of_equal_differences_are_equal_in_spite_of_rounding():
    """0.1 + 0.2 is not 0.3 in floating point, but d = (0.1, 0.2, −0.3) sums to 0, and so do its opposite signs."""
    assert paired_p_value([0.1, 0.2, 0.0], [0.0, 0.0, 0.3]) == 1.0
    assert paired_p_value([0.3] * 6, [0.2] * 6) == 2 / 64


@pytest.mark.parametrize("n", [5, 9, 14])
def test_p_value_agrees_with_scipy(n):
    draw = np.random.default_rng(n)
    a, b = draw.normal(0.4, 1.0, n), np.zeros(n)
    of_scipy = stats.permutation_test(
        (a, b), lambda x, y: np.mean(x - y), permutation_type="samples", n_resamples=10**9
    )
    assert paired_p_value(a, b) == pytest.approx(of_scipy.pvalue, rel=1e-12)


@pytest.mark.parametrize("n", [15, 40, 3000])
def test_p_value_of_many_pairs_is_near_that_of_the_normal_distribution(n):
    """Signs are drawn; Σ ±d has the variance Σ d². The same numbers give the same p-value."""
    d = np.random.default_rng(n).normal(0.0, 1.0, n)
    d += (1.5 * math.sqrt((d**2).sum()) - d.sum()) / n
    expected = 2 * stats.norm.sf(abs(d.sum()) / math.sqrt((d**2).sum()))
    assert paired_p_value(d, np.zeros(n)) == pytest.approx(expected, abs=0.02)
    assert paired_p_value(d, np.zeros(n)) == paired_p_value(d, np.zeros(n))
    assert paired_p_value(np.ones(n), np.zeros(n)) == pytest.approx(1 / 10_000, abs=1.1e-4)


def test_the_signs_of_many_pairs_are_those_of_earlier_versions():
    """Verdicts of published results depend on them."""
    assert paired_p_value(np.arange(20.0) - 7, np.zeros(20)) == 0.0845


def test_the_least_p_value_is_that_of_differences_of_one_sign():
    for n in (1, 2, 6, 14):
        assert least_p_value(n) == paired_p_value(np.ones(n), np.zeros(n)) == 2 / 2**n
    assert least_p_value(15) == least_p_value(3000) == paired_p_value(np.ones(3000), np.zeros(3000)) == 1 / 10_000


def test_p_value_of_many_equal_pairs_is_one():
    """All 9,999 drawn signs are hits."""
    assert paired_p_value([0.5] * 15, [0.5] * 15) == 1.0


def test_without_a_difference_p_values_are_at_most_a_level_as_often_as_the_level():
    draw = np.random.default_rng(0)
    found = np.array([paired_p_value(*draw.normal(size=(2, 8))) for _ in range(2000)])
    for level in (0.05, 0.2, 0.5):
        assert (found <= level).mean() == pytest.approx(level, abs=0.02)


def test_holm_by_hand_and_against_its_definition():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.6]) == [1.0, 1.0]
    assert holm([NAN, 0.02, 0.02]) == pytest.approx([NAN, 0.04, 0.04], nan_ok=True)
    assert holm([0.03]) == [0.03]
    assert holm([]) == []
    p = np.random.default_rng(0).random(9)
    in_order = sorted(p)
    for value, corrected in zip(p, holm(p.tolist()), strict=True):
        i = in_order.index(value)
        assert corrected == pytest.approx(min(1.0, max((9 - j) * in_order[j] for j in range(i + 1))))


def test_p_values_of_wrong_input():
    with pytest.raises(UsageError, match="a has 1 entries, b 2"):
        paired_p_value([1.0], [1.0, 2.0])
    with pytest.raises(UsageError, match="not empty"):
        paired_p_value([], [])


def test_paired_interval_of_one_pair_equal_pairs_and_wrong_input():
    assert paired_interval([1.0], [0.5]) == pytest.approx((0.5, NAN, NAN), nan_ok=True)
    assert paired_interval([1.0, 2.0], [1.0, 2.0]) == (0.0, 0.0, 0.0)
    with pytest.raises(UsageError, match="a has 1 entries, b 2"):
        paired_interval([1.0], [1.0, 2.0])
    for confidence in (95, 1.0, 0.0):
        with pytest.raises(UsageError, match=f"confidence = {confidence}: must be between 0 and 1"):
            paired_interval([1.0, 2.0], [1.0, 2.0], confidence=confidence)


# --- device profile (D7) ---------------------------------------------------------------------------------------------------


def test_best_batch_size_by_both_rules():
    sizes, speed = [8, 16, 32, 64], [100, 180, 300, 310]
    assert measures.best_batch_size(sizes, speed) == 64
    memory, accuracy = [10, 11, 14, 30], [0.80, 0.82, 0.81, 0.70]
    # scaled time (1, .350, .016, 0), memory (0, .05, .2, 1), error (1/6, 0, 1/12, 1): means .389, .133, .100, .667
    assert measures.best_batch_size(sizes, speed, memory=memory, accuracy=accuracy, rule="tradeoff") == 32
    # memory that hardly differs does not outweigh twice the accuracy
    speed = [20_000, 29_000]
    assert measures.best_batch_size([8, 32], speed, memory=[295, 293], accuracy=[0.317, 0.15], rule="tradeoff") == 8
    # 0.1 and 0.094 are errors that differ by more than 5%, in the share of the larger one; 0.1 and 0.0955 differ by less
    equal: dict[str, Any] = {"memory": [1, 1], "rule": "tradeoff"}
    assert measures.best_batch_size([8, 32], [5, 5], accuracy=[0.9, 0.906], **equal) == 32
    assert measures.best_batch_size([8, 32], [5, 5], accuracy=[0.9, 0.9049], **equal) == 8
    assert measures.best_batch_size([64, 8], [5, 5]) == 8  # the smallest of equally good sizes
    assert measures.best_batch_size([64, 8], [5, 5], memory=[1, 1], accuracy=[1, 1], rule="tradeoff") == 8


@pytest.mark.parametrize(
    ("arguments", "values", "message"),
    [
        (([8, 16], [1.0]), {}, "sizes has 2 entries, samples_per_second 1"),
        (([8, 16], [1.0, 0.0]), {}, "above 0 for every size"),
        (([8], [1.0]), {"rule": "fastest"}, "valid are 'throughput' and 'tradeoff'"),
        (([8], [1.0]), {"rule": "tradeoff", "memory": [1]}, "needs memory and accuracy"),
        (([8], [1.0]), {"rule": "tradeoff", "accuracy": [1]}, "needs memory and accuracy"),
        (([8], [1.0]), {"rule": "tradeoff", "memory": [1, 2], "accuracy": [1]}, "sizes has 1 entries, memory 2"),
        (([8, 9], [1, 1]), {"rule": "tradeoff", "memory": [1, 2], "accuracy": [1]}, "sizes has 2 entries, accuracy 1"),
    ],
)
def test_best_batch_size_reports_wrong_input(arguments, values, message):
    with pytest.raises(UsageError, match=message):
        measures.best_batch_size(*arguments, **values)


def test_importing_measures_imports_neither_scipy_torch_nor_pandas():
    code = "import sys, fedcohort.measures; print([m for m in ('scipy', 'torch', 'pandas') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_masked_values_are_values_that_are_not_known() -> None:
    """They were used as if they had no mask."""
    series = np.ma.array([0.1, 0.9, 0.3], mask=[False, True, False])
    assert best_accuracy(series) == 0.3
    assert final_accuracy(np.ma.array([0.1, 0.9, 0.3], mask=[False, False, True])) == 0.9
    assert over_clients(series).mean == pytest.approx(0.2)
    assert conformal.quantile(series, alpha=0.4) == math.inf
    with pytest.raises(UsageError, match="counts must be finite"):
        jain(series)
