"""The check of own measures passes measures that keep the contract, and detects those that do not."""

import itertools
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score, log_loss, roc_auc_score

from fedcohort.runs.own_measures import mean_absolute_error
from fedcohort.testing import check_measure


def f1(predictions: Any, labels: Any) -> float:
    """The measure of the documentation."""
    return float(f1_score(labels, predictions.argmax(axis=1), average="macro"))


def brier(predictions: Any, labels: Any) -> Any:
    return np.square(predictions - np.eye(predictions.shape[1])[labels]).sum(axis=1).mean()


def recall_of_class_0(predictions: Any, labels: Any) -> float:
    """Is unknown without samples of the class."""
    mine = labels == 0
    return float((predictions.argmax(axis=1)[mine] == 0).mean()) if mine.any() else float("nan")


@pytest.mark.parametrize("measure", [f1, brier, recall_of_class_0])
def test_measures_that_fulfill_the_contract(measure: Any) -> None:
    check_measure(measure)
    check_measure(measure, num_classes=2)


def test_a_measure_of_numbers_fulfills_the_contract() -> None:
    check_measure(mean_absolute_error, numeric=True)


_calls = itertools.count()


class Once:
    """Is a class, not a function."""


def one_argument(predictions: Any) -> float:
    return float(predictions.mean())


WRONG: list[tuple[Any, str]] = [
    (lambda predictions, labels: predictions.mean(axis=0), r"a test set: returned an array \[5\]; return one number"),
    (lambda predictions, labels: None, "a test set: returned nothing; return one number"),
    (lambda predictions, labels: "0.5", "a test set: returned a str; return one number"),
    (lambda predictions, labels: np.inf, "a test set: returned inf, which is recorded as unknown; return a finite number"),
    (lambda predictions, labels: np.nan, "a test set: returned nan, which is recorded as unknown"),
    (lambda predictions, labels: float(next(_calls)), r"a test set: two calls gave \d+ and \d+; compute it from the arguments"),
    (lambda predictions, labels: np.random.random(), r"draws from numpy\.random; draw from a generator with a seed"),  # noqa: NPY002
    (lambda predictions, labels: np.random.default_rng().random(), "a test set: two calls gave"),
    (lambda predictions, labels: 1 / int((labels == 0).sum()), "a test set without class 0: raised ZeroDivisionError"),
    (lambda predictions, labels: log_loss(labels, predictions), "a single sample: raised ValueError: y_true contains only one"),
    (lambda predictions, labels: roc_auc_score(labels, predictions, multi_class="ovr"), "a single sample: "),
    (lambda predictions, labels: -np.log(1 - predictions.max(axis=1)).mean(), "perfect predictions: returned -?inf"),
]  # fmt: skip


@pytest.mark.parametrize(("measure", "message"), WRONG)
@pytest.mark.filterwarnings("ignore")
def test_wrong_measures_are_found(measure: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=rf"^<lambda>, .*{message}"):
        check_measure(measure)


def test_measures_are_functions_of_two_arguments() -> None:
    with pytest.raises(
        AssertionError, match=r"^Once: give a function of \(predictions, labels\) that returns one number"
    ):
        check_measure(Once)
    with pytest.raises(
        AssertionError, match=r"^one_argument, a test set: raised TypeError: .*takes 1 positional argument"
    ):
        check_measure(one_argument)
