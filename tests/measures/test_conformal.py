"""Conformal prediction: worked values, agreement with crepes, coverage within its theoretical range, and wrong input."""

import math
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcohort.core.errors import UsageError
from fedcohort.measures import conformal
from fedcohort.measures.conformal import (
    Score,
    absolute_residuals,
    calibrate,
    coverage_quantiles,
    coverage_range,
    measure_intervals,
    measure_sets,
    prediction_sets,
    probability_at,
    quantile,
    rank,
    scores,
    true_class_scores,
)

NAN = float("nan")
SCORES: list[Score] = ["s1", "s2", "s3"]
WORKED_SCORES = np.array([0.02, 0.05, 0.07, 0.10, 0.12, 0.18, 0.22, 0.30, 0.55])


def random_samples(n: int, classes: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet([0.5] * classes, n)
    return probabilities, np.array([rng.choice(classes, p=p) for p in probabilities])


# --- worked values (S19) -------------------------------------------------------------------------------------------------


def test_scores_equal_their_formulas() -> None:
    f = np.array([0.0, 0.3, 0.75, 1.0])
    assert scores(f, "s1") == pytest.approx(1 - f)
    assert scores(f, "s2") == pytest.approx(np.exp(-4 * f))
    assert scores(f, "s3") == pytest.approx(1 - 1 / (1 + np.exp(-20 * f + 10)))
    assert scores(f, "s2", k1=1.0) == pytest.approx(np.exp(-f))
    assert scores(f, "s3", k2=2.0, b=1.0) == pytest.approx(1 - 1 / (1 + np.exp(-2 * f + 1)))


def test_steepness_and_offset_are_passed_on() -> None:
    p, labels = np.array([[0.3, 0.7], [0.9, 0.1]]), np.array([0, 0])
    cases: list[tuple[Score, dict[str, float]]] = [("s2", {"k1": 1.0}), ("s3", {"k2": 2.0}), ("s3", {"b": 30.0})]
    for score, settings in cases:
        own = scores(p, score, **settings)
        assert true_class_scores(p, labels, score, **settings).tolist() == own[:, 0].tolist()
        usual = scores(0.9, score)
        assert own[1, 0] > usual + 0.01
        assert not prediction_sets(p, float(usual + 0.001), score, **settings)[1, 0]


@pytest.mark.parametrize("score", SCORES)
def test_scores_fall_as_the_probability_rises_and_nan_scores_infinity(score: Score) -> None:
    result = scores(np.linspace(0, 1, 50), score)
    assert (np.diff(result) < 0).all()
    assert scores([NAN, 0.5], score)[0] == math.inf


@pytest.mark.parametrize(("alpha", "j", "q"), [(0.3, 7, 0.22), (0.2, 8, 0.30), (0.1, 9, 0.55), (0.05, 10, math.inf)])
def test_worked_quantiles(alpha: float, j: int, q: float) -> None:
    assert rank(alpha, 9) == j
    assert quantile(WORKED_SCORES[::-1], alpha) == q
    assert quantile(WORKED_SCORES, alpha, overflow="max") == min(q, 0.55)


@pytest.mark.parametrize(("alpha", "needed"), [(0.02, 49), (0.05, 19), (0.1, 9)])
def test_the_quantile_is_infinite_below_the_required_number_of_samples(alpha: float, needed: int) -> None:
    """The quantile overflows if and only if alpha < 1/(n_c + 1)."""
    assert quantile(np.zeros(needed), alpha) == 0
    assert quantile(np.zeros(needed - 1), alpha) == math.inf


def test_equivalent_thresholds_of_the_three_scores() -> None:
    """S19: θ = 0.25 on s1, s2, s3 means f ≥ 0.75, ln4/4, (10 + ln3)/20, which is s1 with the thresholds 0.25, .653426, .445069."""
    at = [probability_at(0.25, score) for score in SCORES]
    assert at == pytest.approx([0.75, math.log(4) / 4, (10 + math.log(3)) / 20])
    assert [round(f, 6) for f in at] == [0.75, 0.346574, 0.554931]
    assert [round(1 - f, 6) for f in at[1:]] == [0.653426, 0.445069]


def test_no_probability_has_a_score_s2_above_1() -> None:
    assert probability_at(math.e, "s2") == -0.25


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.floats(0.01, 0.9), st.sampled_from(SCORES))
def test_all_scores_order_probabilities_alike(probabilities: list[float], alpha: float, score: Score) -> None:
    """Under every score, the j-th smallest score is the score of the j-th largest probability."""
    f = np.array(probabilities)
    j = rank(alpha, len(f))
    expected = math.inf if j > len(f) else float(scores(np.sort(f)[::-1][j - 1], score))
    assert quantile(scores(f, score), alpha) == expected


def test_the_quantile_falls_as_alpha_rises() -> None:
    result = [quantile(WORKED_SCORES, alpha) for alpha in np.linspace(0.01, 0.99, 99)]
    assert result == sorted(result, reverse=True)


def test_rounding_errors_do_not_raise_the_rank() -> None:
    assert rank(0.7, 9) == 3  # 10·(1 − 0.7) is 3.0000000000000004
    assert rank(1 - 1e-12, 3) == 1


def test_quantiles_without_samples_and_with_nan() -> None:
    assert quantile([], 0.1) == quantile([], 0.1, overflow="max") == math.inf
    assert quantile([0.1, NAN, 0.3], 0.5) == 0.3
    assert quantile([0.1, NAN], 0.4) == math.inf


def test_the_quantile_of_many_scores_is_that_of_a_sort() -> None:
    drawn = np.random.default_rng(0).random(1000)
    for alpha in (0.1, 0.5, 0.9, 0.999):
        assert quantile(drawn, alpha) == np.sort(drawn)[rank(alpha, 1000) - 1]


# --- an independent library ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.02, 0.1, 0.25, 0.5])
@pytest.mark.parametrize("n", [5, 50, 333])
def test_sets_agree_with_crepes(alpha: float, n: int) -> None:
    """A class is in the set if its p-value (#{calibration scores ≥ s} + 1)/(n_c + 1), as computed by crepes, exceeds alpha.

    The sets of crepes also include p-values equal to alpha, which makes a difference if alpha·(n_c + 1) is an integer.
    """
    pytest.importorskip("crepes")
    from crepes import ConformalClassifier
    from crepes.extras import hinge

    p, labels = random_samples(n + 200, seed=n)
    classes = np.arange(4)
    crepes_classifier = ConformalClassifier().fit(hinge(p[:n], classes, labels[:n]))
    expected = crepes_classifier.predict_p(hinge(p[n:]), smoothing=False, all_classes=True) > alpha + 1e-9
    for score in SCORES:
        result = prediction_sets(p[n:], calibrate(p[:n], labels[:n], alpha, score), score)
        assert (result == expected).all()
    right = labels[n:]
    assert measure_sets(result, right) == (
        expected[np.arange(200), right].mean(),
        expected.sum(1).mean(),
        (~expected).all(1).mean(),
    )


def test_scores_agree_with_crepes() -> None:
    pytest.importorskip("crepes")
    from crepes.extras import hinge

    p, labels = random_samples(40)
    assert true_class_scores(p, labels) == pytest.approx(hinge(p, np.arange(4), labels))


# --- prediction sets (D6) ----------------------------------------------------------------------------------------------------


def test_coverage_set_size_and_share_of_empty_sets_by_hand() -> None:
    members = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 1, 1]], bool)
    assert measure_sets(members, [0, 2, 1, 1]) == (0.5, 1.25, 0.25)


def test_intervals_by_hand() -> None:
    """Residuals 0.5, 0.25 and that of a model that diverged. An interval contains its ends."""
    predictions, labels = [[1.0], [2.0], [NAN]], [1.5, 1.75, 3.0]
    assert absolute_residuals(predictions, labels).tolist() == [0.5, 0.25, math.inf]
    assert measure_intervals([1.0, 2.0, NAN], labels, 0.5) == (2 / 3, 1.0, 0.0)
    assert measure_intervals(predictions, labels, 0.3) == (1 / 3, 0.6, 0.0)


def test_calibration_by_hand() -> None:
    p = np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.2, 0.8]])  # scores 0.1, 0.6, 0.3, 0.8
    labels = np.array([0, 1, 1, 0])
    assert calibrate(p, labels, 0.4) == pytest.approx(0.6)  # ⌈0.6·5⌉ = 3rd
    assert calibrate(p, labels, 0.2) == pytest.approx(0.8)  # 4th
    assert calibrate(p, labels, 0.1) == math.inf  # 5th of 4: every class is in every set
    assert prediction_sets(p, math.inf).all()
    assert not prediction_sets([[NAN, 0.5]], 1.0)[0, 0]


def test_simulated_mean_coverage_lies_in_its_theoretical_range() -> None:
    alpha, n = 0.2, 19
    low, high = coverage_range(alpha, n)
    assert (low, high) == pytest.approx((0.8, 0.85))
    result = []
    for seed in range(400):
        p, labels = random_samples(n + 50, seed=seed)
        threshold = calibrate(p[:n], labels[:n], alpha)
        result.append(measure_sets(prediction_sets(p[n:], threshold), labels[n:]).coverage)
    error = np.std(result) / math.sqrt(len(result))
    assert low - 5 * error <= np.mean(result) <= high + 5 * error


def test_coverage_range_without_calibration_samples() -> None:
    assert coverage_range(0.1, 0) == (0.9, 1.0)


# --- wrong input -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "labels", "message"),
    [
        ([[0, 1]], [1], r"members is int64 \[1, 2\]; it must be booleans"),
        (np.zeros((0, 3), bool), [], "members is bool"),
        ([[True, False]], [0, 1], r"labels is int64 \[2\]; it must be one integer for each of 1 samples"),
        ([[True, False]], [0.5], r"labels is float64 \[1\]; it must be one integer"),
        ([True, False], [1, 0], r"members is bool \[2\]; it must be booleans"),
        ([[True, False]], [2], "labels: 2 to 2 with 2 classes"),
        ([[True, False]] * 3, [2, 0, 1], "labels: 0 to 2 with 2 classes; use 0 to 1"),
        ([[True, False]] * 3, [1, -1, 0], "labels: -1 to 1 with 2 classes"),
    ],
)
def test_wrong_sets_and_labels_are_reported(members: object, labels: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        measure_sets(members, labels)  # type: ignore[arg-type]


def test_other_wrong_input_is_reported() -> None:
    for alpha in (0.0, 1.0, NAN):
        with pytest.raises(UsageError, match="alpha = "):
            coverage_range(alpha, 10)
        with pytest.raises(UsageError, match="alpha = "):
            quantile(WORKED_SCORES, alpha)
    with pytest.raises(UsageError, match="num_calibration = -1"):
        coverage_range(0.1, -1)
    with pytest.raises(UsageError, match="probabilities is"):
        calibrate(np.ones((3, 2)), np.zeros(2, int), 0.1)
    with pytest.raises(UsageError, match=r"probabilities is \[3\] with \[3\] labels"):
        calibrate(np.ones(3), np.zeros(3, int), 0.1)
    with pytest.raises(UsageError, match="labels: -1 to 1 with 2 classes"):
        calibrate(np.ones((3, 2)), np.array([0, -1, 1]), 0.1)
    with pytest.raises(UsageError, match=r"scores has the shape \[1, 2\]"):
        quantile([[0.1, 0.2]], 0.1)
    with pytest.raises(UsageError, match="score = 's4'"):
        scores([0.5], "s4")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="overflow = 'no'"):
        quantile([0.5], 0.5, "no")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: probability_at(0.0, "s2"),
            r"threshold = 0\.0: must be greater than 0 with score = 's2', such as 0\.25",
        ),
        (lambda: probability_at(-1, "s2"), r"threshold = -1: must be greater than 0"),
        (
            lambda: probability_at(1.0, "s3"),
            r"threshold = 1\.0: must be between 0 and 1 with score = 's3', such as 0\.25",
        ),
        (lambda: probability_at(0, "s3"), r"threshold = 0: must be between 0 and 1"),
        (lambda: probability_at(math.inf, "s3"), r"threshold = inf: must be between 0 and 1"),
        (lambda: probability_at(0.3, "s7"), r"score = 's7': valid are 's1', 's2' and 's3'"),  # type: ignore[arg-type]
        (lambda: probability_at(NAN), r"threshold = nan: use a number, such as 0\.25 or the result of quantile\(\)"),
        (lambda: probability_at("x"), r"threshold = 'x': use a number"),  # type: ignore[arg-type]
        (lambda: probability_at(0.3, "s2", k1=0.0), r"k1 = 0\.0: must be a finite number greater than 0, such as 4"),
        (lambda: scores([0.3], "s3", k2=math.inf), r"k2 = inf: must be a finite number greater than 0"),
        (lambda: scores([0.3], "s2", k1="4"), r"k1 = '4': must be a finite number"),  # type: ignore[arg-type]
        (lambda: absolute_residuals([[1.0, 2.0]], [1.0, 2.0]), r"predictions is \[1, 2\] with \[2\] labels"),
        (
            lambda: absolute_residuals([[1.0]], [[1.0]]),
            r"predictions is \[1\] with \[1, 1\] labels; give one prediction",
        ),
        (lambda: absolute_residuals([[[1.0]]], [[[1.0]]]), r"predictions is \[1, 1, 1\] with \[1, 1, 1\] labels"),
        (lambda: absolute_residuals(["a"], [1.0]), r"predictions = \['a'\]: use numbers"),
        (lambda: absolute_residuals([1.0], ["a"]), r"labels = \['a'\]: use numbers"),
        (lambda: measure_intervals([], [], 0.1), r"labels is empty; give at least one sample"),
        (lambda: measure_intervals([1.0], [1.0], NAN), r"threshold = nan: use a number"),
        (lambda: scores([0.3], "s3", k2=-1), r"k2 = -1: must be a finite number greater than 0, such as 20"),
        (lambda: quantile([0.1], "x"), r"alpha = 'x': must be between 0 and 1, such as 0\.1"),  # type: ignore[arg-type]
        (lambda: quantile(["a"], 0.1), r"scores = \['a'\]: use numbers"),
        (
            lambda: quantile([[0.1], [0.1, 0.2]], 0.1),
            r"scores = \[\[0\.1\], \[0\.1, 0\.2\]\]: use numbers, in an array or in lists of equal",
        ),
        (lambda: scores(["a"]), r"probabilities = \['a'\]: use numbers"),
        (lambda: true_class_scores([["a", "b"]], [0]), r"probabilities = \[\['a', 'b'\]\]: use numbers"),
        (
            lambda: scores([0.5, 1.1]),
            r"probabilities contains 1\.1; use values between 0 and 1, such as softmax outputs",
        ),
        (lambda: scores(math.inf), r"probabilities contains inf; use values between 0 and 1"),
        (lambda: prediction_sets([[2.0, -1.0]], 0.2), r"probabilities contains 2; use values between 0 and 1"),
        (lambda: prediction_sets([[0.5, 0.5]], NAN), r"threshold = nan: use a number"),
        (lambda: prediction_sets([[0.5, 0.5]], None), r"threshold = None: use a number"),  # type: ignore[arg-type]
    ],
)
def test_errors_name_the_valid_values_in_one_line(call: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError, match="^" + message) as refusal:
        call()
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("score", SCORES)
def test_nan_and_rounding_errors_in_probabilities_are_accepted(score: Score) -> None:
    """A diverged model gives NaN, and a softmax in single precision can slightly exceed 1."""
    assert scores([[NAN, NAN]], score).tolist() == [[math.inf, math.inf]]
    assert scores([NAN, 1 + 1e-7, -1e-7], score)[1:] == pytest.approx(scores([1.0, 0.0], score), abs=1e-5)
    assert prediction_sets([[1.0, 0.0]], math.inf, score).all()
    assert quantile([NAN, 0.2], 0.5) == math.inf
    assert prediction_sets([[1.0, 0.0]], np.float32(0.5), score).tolist() == [[True, False]]  # type: ignore[arg-type]


def test_importing_conformal_imports_neither_scipy_torch_nor_pandas() -> None:
    """It needs numpy only, so that it can be used with models of any framework."""
    code = (
        "import sys, fedcohort.measures.conformal; print([m for m in ('scipy', 'torch', 'pandas') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
    assert conformal.__doc__


@pytest.mark.parametrize(("alpha", "n"), [(0.1, 40), (0.3, 9), (0.05, 19)])
def test_coverage_over_calibrations_follows_a_beta_distribution(alpha: float, n: int) -> None:
    """The scores are uniform, so the coverage of a threshold is the threshold itself."""
    draws = np.random.default_rng(0).random((4000, n))
    coverage = [quantile(row, alpha) for row in draws]
    low, high = coverage_quantiles(alpha, n)
    np.testing.assert_allclose(np.quantile(coverage, [0.05, 0.95]), [low, high], atol=0.012)
    mean_low, mean_high = coverage_range(alpha, n)
    assert mean_low - 0.01 < np.mean(coverage) < mean_high + 0.01
    assert coverage_quantiles(0.01, 9) == [1.0, 1.0]


def test_a_class_with_a_score_equal_to_the_threshold_is_in_the_set() -> None:
    """C(x) = {y : s(x, y) ≤ q̂}; otherwise the set of the sample that defines the quantile would not contain its label."""
    assert prediction_sets([[0.75, 0.25]], 0.25).tolist() == [[True, False]]
    p = np.array([[0.5, 0.5], [0.75, 0.25], [0.875, 0.125]])
    threshold = calibrate(p, [0, 0, 0], alpha=0.5)
    assert prediction_sets(p, threshold)[:, 0].tolist() == [False, True, True]
