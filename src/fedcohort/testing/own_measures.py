"""The contract of an own measure of an experiment."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.given_values import as_float
from fedcohort.core.random_streams import rng
from fedcohort.testing.base import during_seeded, require

__all__ = ["check_measure"]


def check_measure(measure: Callable[..., Any], *, num_classes: int = 5, numeric: bool = False) -> None:
    """Check the contract of an own measure, a function of ``measures.extra``.

    From the predictions on a test set and its labels, the function returns one number: a finite one, and the same in each call. It
    raises no error if the test set has a single sample, lacks a class, or all predictions are alike; the number may be NaN then.

    Args:
        measure: the function itself.
        num_classes: the number of classes.
        numeric: whether labels are numbers; predictions are then numbers as well.

    Raises:
        AssertionError: the contract is broken; the message says where.
    """
    name = getattr(measure, "__name__", type(measure).__name__)
    function = callable(measure) and not isinstance(measure, type)
    require(function, f"{name}: give a function of (predictions, labels) that returns one number")
    for which, (predictions, labels) in _test_sets(num_classes, numeric).items():
        where = f"{name}, {which}"
        first, second = (_value(measure, predictions, labels, where) for _ in range(2))
        same = first == second or (math.isnan(first) and math.isnan(second))
        require(same, f"{where}: two calls gave {first:g} and {second:g}; compute it from the arguments only")
        known = not math.isnan(first) or which != "a test set"
        require(known, f"{where}: returned nan, which is recorded as unknown; return a finite number")


def _value(measure: Callable[..., Any], predictions: Values, labels: Values | Indices, where: str) -> float:
    """The number that the measure returns; NaN is one."""
    with during_seeded(where, measure, "measures.extra"):
        value = measure(predictions.copy(), labels.copy())
    number = as_float(value)
    if number is None:
        raise AssertionError(f"{where}: returned {_kind_of(value)}; return one number")
    require(not math.isinf(number), f"{where}: returned {number}, which is recorded as unknown; return a finite number")
    return number


def _kind_of(value: object) -> str:
    """What a measure returned that is no number, for messages."""
    shape = getattr(value, "shape", None)
    return f"an array {list(shape)}" if shape else "nothing" if value is None else f"a {type(value).__name__}"


def _test_sets(num_classes: int, numeric: bool) -> dict[str, tuple[Values, Values | Indices]]:
    """Predictions and labels by name."""
    draw, n = rng(0, "contract-measure"), 60
    if numeric:
        numbers = draw.normal(size=n)
        return {
            "a test set": (numbers + 0.1 * draw.normal(size=n), numbers),
            "a single sample": (numbers[:1] + 0.1, numbers[:1]),
            "predictions that are all alike": (np.full(n, 0.5), numbers),
            "perfect predictions": (numbers, numbers),
        }
    labels = np.arange(n) % num_classes
    shares = 0.5 * draw.dirichlet(np.ones(num_classes), n) + 0.5 * np.eye(num_classes)[draw.permutation(labels)]
    shares[: n // 2] = 0.5 * shares[: n // 2] + 0.5 * np.eye(num_classes)[labels[: n // 2]]
    others = labels > 0
    return {
        "a test set": (shares, labels),
        "a single sample": (shares[:1], labels[:1]),
        "a test set without class 0": (shares[others], labels[others]),
        "a test set of a single class": (shares, np.zeros_like(labels)),
        "predictions that are all alike": (np.full((n, num_classes), 1 / num_classes), labels),
        "perfect predictions": (np.eye(num_classes)[labels], labels),
    }
