"""Split conformal prediction: scores, the calibration quantile, prediction sets, and measures of the sets.

f_y is the softmax probability of class y. A low score means that the model considers class y likely:

    s1 = 1 − f_y        s2 = exp(−k1·f_y), k1 = 4        s3 = 1 − 1/(1 + exp(−k2·f_y + b)), k2 = 20, b = 10

    q̂ = the j-th smallest score of the true classes of n_c calibration samples,  j = ⌈(n_c + 1)(1 − alpha)⌉;  +∞ if j > n_c
    C(x) = {y : s(x, y) ≤ q̂}

For exchangeable samples 1 − alpha ≤ E[coverage] ≤ 1 − alpha + 1/(n_c + 1). All three scores fall with f_y, so ``s ≤ threshold`` is
a lower bound on ``f_y`` for each of them (:func:`probability_at`), and prediction sets do not depend on the choice of the score.

>>> import numpy as np
>>> quantile(np.array([0.02, 0.05, 0.07, 0.10, 0.12, 0.18, 0.22, 0.30, 0.55]), alpha=0.3)
0.22

Numeric labels have the score |y − ŷ|, and the set of a sample is the interval [ŷ − q̂, ŷ + q̂] (:func:`absolute_residuals`).

Vovk, Gammerman, Shafer 2005; Angelopoulos and Bates 2021, arXiv:2107.07511; the scores are those of the CP thesis, chapter 3.
"""

import math
import reprlib
from numbers import Real
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcohort.core.arrays import Values, as_values
from fedcohort.core.errors import UsageError

__all__ = [
    "K1",
    "K2",
    "AnyScore",
    "B",
    "Overflow",
    "PredictionSets",
    "Score",
    "absolute_residuals",
    "calibrate",
    "coverage_quantiles",
    "coverage_range",
    "measure_intervals",
    "measure_sets",
    "prediction_sets",
    "probability_at",
    "quantile",
    "rank",
    "scores",
    "true_class_scores",
]  # fmt: skip

Score = Literal["s1", "s2", "s3"]
"""Scores of class probabilities."""
AnyScore = Literal["s1", "s2", "s3", "absolute"]
"""All scores; ``absolute`` is |y − ŷ|, for numeric labels."""
Overflow = Literal["inf", "max"]

K1, K2, B = 4.0, 20.0, 10.0
"""Steepness of s2; steepness and offset of s3."""

ROUNDING = 1e-5
"""Tolerance for probabilities outside [0, 1], from a softmax in single or half precision."""


def scores(probabilities: ArrayLike, score: Score = "s1", *, k1: float = K1, k2: float = K2, b: float = B) -> Values:
    """The score of every probability, in the same shape; +∞ for NaN, which is the output of a diverged model.

    >>> [float(scores(0.75, score).round(6)) for score in ("s1", "s2", "s3")]
    [0.25, 0.049787, 0.006693]
    """
    _check_score(score, k1, k2)
    f = _numbers("probabilities", probabilities)
    outside = (f < -ROUNDING) | (f > 1 + ROUNDING)
    if outside.any():
        raise UsageError(
            f"probabilities contains {f[outside][0]:g}; use values between 0 and 1, such as softmax outputs"
        )
    if score == "s1":
        score_of_f = 1 - f
    elif score == "s2":
        score_of_f = np.exp(-k1 * f)
    else:
        with np.errstate(over="ignore"):
            score_of_f = 1 / (1 + np.exp(k2 * f - b))  # 1 − 1/(1 + e^−z) without cancellation
    without_nan: Values = np.where(np.isnan(f), np.inf, score_of_f)
    return without_nan


def probability_at(threshold: float, score: Score = "s1", *, k1: float = K1, k2: float = K2, b: float = B) -> float:
    """The probability f with score(f) = threshold: scores are at most ``threshold`` for probabilities of at least f.

    f lies outside [0, 1] if no probability has this score. Scores s2 are greater than 0, and scores s3 lie between 0 and 1.

    >>> [round(probability_at(0.25, score), 6) for score in ("s1", "s2", "s3")]
    [0.75, 0.346574, 0.554931]
    """
    _check_score(score, k1, k2)
    _check_threshold(threshold)
    if score == "s1":
        return 1 - threshold
    if not threshold > 0 or (score == "s3" and not threshold < 1):
        valid = "must be greater than 0" if score == "s2" else "must be between 0 and 1"
        raise UsageError(f"threshold = {threshold}: {valid} with score = {score!r}, such as 0.25")
    if score == "s2":
        return -math.log(threshold) / k1
    return (b + math.log(1 / threshold - 1)) / k2


def rank(alpha: float, n: int) -> int:
    """j = ⌈(n + 1)(1 − alpha)⌉, from 1 to n + 1; rounding errors up to 1e-9 do not count."""
    _check_alpha(alpha)
    return max(1, math.ceil((n + 1) * (1 - alpha) - 1e-9))


def quantile(scores: ArrayLike, alpha: float, overflow: Overflow = "inf") -> float:
    """q̂: the j-th smallest of the calibration scores, j = ⌈(n_c + 1)(1 − alpha)⌉.

    Args:
        scores: scores of the true classes of n_c ≥ 0 calibration samples.
        alpha: target error rate, in (0, 1).
        overflow: q̂ if j > n_c, that is, if alpha < 1/(n_c + 1): ``inf``, or ``max`` for the largest score (without a guarantee).
            Without samples, q̂ is inf.
    """
    values = _numbers("scores", scores)
    if values.ndim != 1:
        raise UsageError(f"scores has the shape {list(values.shape)}; it must be one-dimensional")
    if overflow not in ("inf", "max"):
        raise UsageError(f"overflow = {overflow!r}: valid are 'inf' and 'max'")
    n = len(values)
    j = rank(alpha, n)
    if j > n:
        if overflow == "inf" or not n:
            return math.inf
        j = n
    values = np.where(np.isnan(values), np.inf, values)
    return float(np.partition(values, j - 1)[j - 1])


def true_class_scores(
    probabilities: ArrayLike, labels: ArrayLike, score: Score = "s1", *, k1: float = K1, k2: float = K2, b: float = B
) -> Values:
    """The scores of the true classes [n] of samples with class probabilities [n, K]."""
    p, right = _numbers("probabilities", probabilities), np.asarray(labels)
    if p.ndim != 2 or right.shape != p.shape[:1]:
        raise UsageError(
            f"probabilities is {list(p.shape)} with {list(right.shape)} labels; it must be [samples, classes], and a label for each"
        )
    _check_labels(right, p.shape[1])
    return scores(p[np.arange(len(p)), right], score, k1=k1, k2=k2, b=b)


def absolute_residuals(predictions: ArrayLike, labels: ArrayLike) -> Values:
    """|y − ŷ|, the score of numeric labels [n], from predictions [n] or [n, 1]; +∞ for NaN, the output of a diverged model.

    With q̂ the :func:`quantile` of these scores, the prediction interval of a sample is [ŷ − q̂, ŷ + q̂].

    >>> absolute_residuals([[1.0], [2.5]], [1.5, 2.0]).tolist()
    [0.5, 0.5]
    """
    predicted, right = _numbers("predictions", predictions), _numbers("labels", labels)
    if predicted.ndim == 2 and predicted.shape[1] == 1:
        predicted = predicted[:, 0]
    if predicted.shape != right.shape or right.ndim != 1:
        raise UsageError(
            f"predictions is {list(predicted.shape)} with {list(right.shape)} labels; give one prediction for each label"
        )
    residuals: Values = np.abs(right - predicted)
    return np.where(np.isnan(residuals), np.inf, residuals)


def calibrate(
    probabilities: ArrayLike, labels: ArrayLike, alpha: float, score: Score = "s1", overflow: Overflow = "inf"
) -> float:
    """q̂ of calibration samples with class probabilities [n_c, K] and true classes [n_c]; see :func:`quantile`."""
    return quantile(true_class_scores(probabilities, labels, score), alpha, overflow)


def prediction_sets(
    probabilities: ArrayLike,
    threshold: float,
    score: Score = "s1",
    *,
    k1: float = K1,
    k2: float = K2,
    b: float = B,
) -> NDArray[np.bool_]:
    """The prediction set of each sample, C(x) = {y : s(x, y) ≤ threshold}, as booleans in the shape of ``probabilities``."""
    _check_threshold(threshold)
    members: NDArray[np.bool_] = scores(probabilities, score, k1=k1, k2=k2, b=b) <= threshold
    return members


class PredictionSets(NamedTuple):
    """Measures of prediction sets."""

    coverage: float
    """Share of samples with a set that contains their label."""
    size: float
    """Mean number of classes in a set, or mean length of an interval."""
    empty: float
    """Share of empty sets."""


def measure_sets(members: ArrayLike, labels: ArrayLike) -> PredictionSets:
    """Coverage |{j: y_j ∈ C(x_j)}|/n, mean size and share of empty sets.

    Use samples that neither trained nor calibrated the model. A calibration set that was used for early stopping is not exchangeable
    with new samples, and :func:`coverage_range` does not hold for it.

    Args:
        members: the prediction set of each sample, booleans [n, K]; see :func:`prediction_sets`.
        labels: the true classes, integers [n].
    """
    sets, right = np.asarray(members), np.asarray(labels)
    if sets.ndim != 2 or not sets.size or sets.dtype != np.bool_:
        raise UsageError(
            f"members is {sets.dtype} {list(sets.shape)}; it must be booleans [samples, classes] and not empty"
        )
    if right.shape != sets.shape[:1]:
        raise UsageError(
            f"labels is {right.dtype} {list(right.shape)}; it must be one integer for each of {len(sets)} samples"
        )
    _check_labels(right, sets.shape[1])
    sizes = sets.sum(axis=1)
    covered = sets[np.arange(len(right)), right]
    return PredictionSets(float(covered.mean()), float(sizes.mean()), float((sizes == 0).mean()))


def measure_intervals(predictions: ArrayLike, labels: ArrayLike, threshold: float) -> PredictionSets:
    """Coverage and length of the prediction intervals [ŷ − q̂, ŷ + q̂]; none is empty.

    Args:
        predictions: ŷ, [n] or [n, 1].
        labels: the true numbers [n].
        threshold: q̂ ≥ 0, the :func:`quantile` of the :func:`absolute_residuals` of other samples.

    >>> measure_intervals([1.0, 2.0, 3.0], [1.4, 2.1, 2.0], 0.5)
    PredictionSets(coverage=0.6666666666666666, size=1.0, empty=0.0)
    """
    _check_threshold(threshold)
    residuals = absolute_residuals(predictions, labels)
    if not len(residuals):
        raise UsageError("labels is empty; give at least one sample")
    return PredictionSets(float((residuals <= threshold).mean()), 2 * threshold, 0.0)


def coverage_range(alpha: float, num_calibration: int) -> tuple[float, float]:
    """The range of the expected coverage: 1 − alpha to 1 − alpha + 1/(n_c + 1), at most 1.

    It holds for exchangeable samples, n_c of which calibrate, and scores without ties. Vovk, Gammerman, Shafer 2005; Lei et al. 2018.

    Args:
        alpha: target error rate, in (0, 1).
        num_calibration: n_c ≥ 0.
    """
    _check_alpha(alpha)
    if num_calibration < 0:
        raise UsageError(f"num_calibration = {num_calibration}: must be at least 0")
    return 1 - alpha, min(1.0, 1 - alpha + 1 / (num_calibration + 1))


def coverage_quantiles(alpha: float, num_calibration: int, levels: tuple[float, ...] = (0.05, 0.95)) -> list[float]:
    """Quantiles of the coverage after one calibration, which has the distribution Beta(r, n_c + 1 − r); r is the :func:`rank`.

    This holds for exchangeable samples without ties and infinitely many test samples. Vovk 2012, arXiv:1209.2673.

    Args:
        alpha: target error rate, in (0, 1).
        num_calibration: n_c ≥ 0; with too few samples the threshold is infinite, and the coverage is 1.
        levels: levels of the quantiles.
    """
    from scipy.stats import beta

    position = rank(alpha, num_calibration)
    if position > num_calibration:
        return [1.0] * len(levels)
    return [float(beta.ppf(level, position, num_calibration + 1 - position)) for level in levels]


def _numbers(name: str, values: ArrayLike) -> Values:
    try:
        return as_values(values)
    except (TypeError, ValueError):
        raise UsageError(
            f"{name} = {reprlib.repr(values)}: use numbers, in an array or in lists of equal length"
        ) from None


def _check_alpha(alpha: float) -> None:
    if not (isinstance(alpha, Real) and 0 < alpha < 1):
        raise UsageError(f"alpha = {alpha!r}: must be between 0 and 1, such as 0.1")


def _check_threshold(threshold: float) -> None:
    if not isinstance(threshold, Real) or math.isnan(threshold):
        raise UsageError(f"threshold = {threshold!r}: use a number, such as 0.25 or the result of quantile()")


def _check_score(score: str, k1: float, k2: float) -> None:
    if score not in ("s1", "s2", "s3"):
        raise UsageError(f"score = {score!r}: valid are 's1', 's2' and 's3'")
    for name, steepness, valid in (("k1", k1, K1), ("k2", k2, K2)):
        if not (isinstance(steepness, Real) and 0 < steepness < math.inf):
            raise UsageError(f"{name} = {steepness!r}: must be a finite number greater than 0, such as {valid:g}")


def _check_labels(labels: NDArray[np.generic], num_classes: int) -> None:
    if labels.dtype.kind not in "iu":
        raise UsageError(f"labels is {labels.dtype} {list(labels.shape)}; it must be one integer for each sample")
    if len(labels) and not (labels.min() >= 0 and labels.max() < num_classes):
        raise UsageError(
            f"labels: {labels.min()} to {labels.max()} with {num_classes} classes; use 0 to {num_classes - 1}"
        )
