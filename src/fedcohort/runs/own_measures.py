"""Compute the own measures of a run from the evaluation of a model on the test set."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedcohort.core.errors import UsageError, shown
from fedcohort.core.own_code import place_of
from fedcohort.experiment import Experiment
from fedcohort.experiment.own_measures import OwnMeasure, by_name, check_names
from fedcohort.runs.given_objects import Given

if TYPE_CHECKING:
    from fedcohort.training.forward_passes import Evaluation

__all__ = ["own_measures", "values_of"]


def own_measures(experiment: Experiment, given: Given) -> dict[str, OwnMeasure]:
    """The own measures of a run by name: those of ``measures.extra``, and those that were given in Python.

    Raises:
        UsageError: two have the same name, or a function is missing.
    """
    named, handed = by_name(experiment.measures.extra), given.own_measures
    twice = next((name for name in handed if name in named), None)
    if twice is not None:
        raise UsageError(f"measures: {twice!r} is also one of measures.extra; rename one")
    check_names(named | handed, "measures")
    return named | handed


def values_of(measures: Mapping[str, OwnMeasure], evaluation: "Evaluation") -> dict[str, float]:
    """The value of each measure.

    Args:
        measures: functions by name. Each gets its own copy of the predictions and the labels.
        evaluation: an evaluation with predictions.

    Raises:
        UsageError: a function raised an error, which is the cause, or returned something else than a number.
    """
    assert evaluation.predictions is not None
    assert evaluation.labels is not None
    values = {}
    for name, measure in measures.items():
        try:
            value = measure(evaluation.predictions.copy(), evaluation.labels.copy())
        except (Exception, SystemExit) as error:
            text = " ".join(f"{type(error).__name__}: {error}".split())
            raise UsageError(f"measures.extra: {name} raised {text}{place_of(error)}") from error
        values[name] = _number(name, value)
    return values


def _number(name: str, value: object) -> float:
    """The value as a number of Python."""
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise UsageError(f"measures.extra: {name} returned {shown(value)}; it must return one number") from None
