"""Accuracy of a model on samples, classes and clients, and the round in which early stopping would have stopped."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedcohort.core.arrays import Values, as_values
from fedcohort.core.errors import UsageError
from fedcohort.measures.argument_checks import as_measured, as_series, same_length

__all__ = [
    "AccuracyOverClients",
    "EarlyStop",
    "accuracy",
    "best_accuracy",
    "early_stop",
    "final_accuracy",
    "macro_accuracy",
    "mean_over_classes",
    "over_clients",
    "overall_accuracy",
    "worst_accuracy",
]


def accuracy(correct: ArrayLike, total: ArrayLike) -> Values:
    """acc_c = correct_c / total_c for each class (or client, or round); NaN where total_c is 0.

    Args:
        correct: numbers of correct predictions, integers of any shape.
        total: numbers of predictions, same shape.
    """
    hits, predictions = as_values(correct), as_values(total)
    if hits.shape != predictions.shape:
        raise UsageError(f"correct has the shape {hits.shape}, total {predictions.shape}; they must be the same")
    if not ((hits >= 0) & (hits <= predictions)).all():
        raise UsageError("correct must be between 0 and total in every entry")
    shares: Values = np.divide(hits, predictions, out=np.full(hits.shape, np.nan), where=predictions > 0)
    return shares


def overall_accuracy(correct: ArrayLike, total: ArrayLike) -> float:
    """acc = Σ_c correct_c / Σ_c total_c; NaN without samples."""
    accuracy(correct, total)  # checks the arguments
    return float(accuracy([np.sum(correct)], [np.sum(total)])[0])


def macro_accuracy(correct: ArrayLike, total: ArrayLike) -> float:
    """Mean of acc_c over the classes with samples; NaN if there are none."""
    return mean_over_classes(accuracy(correct, total))


def mean_over_classes(class_accuracy: ArrayLike) -> float:
    """Mean of the accuracies of the classes that are known; NaN if there are none."""
    values = np.asarray(class_accuracy, np.float64)
    return float(np.nanmean(values)) if np.isfinite(values).any() else math.nan


def best_accuracy(series: ArrayLike) -> float:
    """max_t acc_t."""
    return float(as_measured(series, "series").max())


def final_accuracy(series: ArrayLike) -> float:
    """acc_t of the last measured round."""
    return float(as_measured(series, "series")[-1])


def worst_accuracy(per_client: ArrayLike, share: float = 0.1) -> float:
    """Mean accuracy of the ⌈share·m⌉ clients with the lowest accuracy, a measure of fairness.

    Args:
        per_client: accuracy of the model on each client's own data [m]. Clients with NaN have no data and are
            left out; m does not count them.
        share: share of clients, in (0, 1].
    """
    values = as_measured(per_client, "per_client")
    if not 0 < share <= 1:
        raise UsageError(f"share = {share}: must be above 0 and at most 1, such as 0.1")
    count = max(math.ceil(round(share * len(values), 9)), 1)  # 0.07·100 is a little more than 7
    return float(np.sort(values)[:count].mean())


class AccuracyOverClients(NamedTuple):
    """The accuracy of a model on each client's own data, over clients; NaN if it was not measured.

    Attributes:
        mean: mean over clients.
        worst: mean over the 10% of the clients with the lowest accuracy.
        sd: standard deviation over clients, with divisor m.
    """

    mean: float
    worst: float
    sd: float


def over_clients(per_client: ArrayLike) -> AccuracyOverClients:
    """Mean, worst tenth and standard deviation of the clients' accuracies.

    Args:
        per_client: accuracy of the model on each client's own data [m]; clients with NaN have no data and are left out.
    """
    values = as_values(per_client)
    if not np.isfinite(values).any():
        return AccuracyOverClients(math.nan, math.nan, math.nan)
    return AccuracyOverClients(float(np.nanmean(values)), worst_accuracy(values), float(np.nanstd(values)))


class EarlyStop(NamedTuple):
    """The result of early stopping."""

    accuracy: float
    """Test accuracy in ``round``."""
    round: int
    """Round with the best validation accuracy up to ``stopped``; the first, if several are equal."""
    stopped: int
    """Last round that is trained."""


def early_stop(validation: ArrayLike, test: ArrayLike, patience: int = 100, min_delta: float = 0.0) -> EarlyStop:
    """Test accuracy in the round t* = arg max_{t ≤ stopped} val_t. Only validation accuracies choose the round.

    Training stops ``patience`` rounds after the last improvement, or with the last round of the run. A validation accuracy is an
    improvement if it exceeds that of the last improvement by more than ``min_delta``; the first measured round is an improvement.
    Rounds without a test accuracy are skipped.

    Args:
        validation: validation accuracy of each round [n].
        test: test accuracy of each round [n].
        patience: rounds without improvement after which training stops, ≥ 1.
        min_delta: smallest difference that counts as an improvement, ≥ 0.
    """
    val, tested = as_series(validation, "validation"), as_series(test, "test")
    same_length(val, "validation", tested, "test")
    as_measured(val, "validation")
    if patience < 1:
        raise UsageError(f"patience = {patience}: must be at least 1 round")
    if not min_delta >= 0:
        raise UsageError(f"min_delta = {min_delta}: must be at least 0")
    val = np.where(np.isfinite(tested), val, np.nan)
    if np.isnan(val).all():
        raise UsageError("validation and test: no round has both accuracies; measure them in the same rounds")
    reference, improved, stopped = -math.inf, 0, len(val)
    for t, value in enumerate(val.tolist(), start=1):
        if value > reference + min_delta:
            reference, improved = value, t
        elif improved and t - improved >= patience:
            stopped = t
            break
    best = int(np.nanargmax(val[:stopped]))
    return EarlyStop(accuracy=float(tested[best]), round=best + 1, stopped=stopped)
