"""Compute the own measures of a run from the evaluation of a model on the test set."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING

import numpy as np

from fedcohort.core.errors import UsageError, shown
from fedcohort.core.given_values import as_float
from fedcohort.core.user_code.own_code import with_place
from fedcohort.core.user_code.unseeded_draws import warning_of_draws
from fedcohort.experiment import Experiment
from fedcohort.experiment.given_objects import Given
from fedcohort.experiment.own_measures import OwnMeasure, by_name, check_names
from fedcohort.experiment.tasks import label_kind

if TYPE_CHECKING:
    from fedcohort.training.evaluation import Evaluation

__all__ = ["own_measures", "values_of"]


def own_measures(experiment: Experiment, given: Given) -> dict[str, OwnMeasure]:
    """The measures of a run by name: ``mae`` for numeric labels, those of ``measures.extra``, and those that were given in Python.

    Raises:
        UsageError: two have the same name, or a function is missing.
    """
    named, handed = by_name(experiment.measures.extra), given.own_measures
    of_task = {"mae": mean_absolute_error} if label_kind(experiment.training) == "numbers" else {}
    for name in (*named, *handed):
        if name in of_task:
            raise UsageError(f"measures: {name!r} is measured in every run with numeric labels; rename the function")
        if name in named and name in handed:
            raise UsageError(f"measures: {name!r} is also one of measures.extra; rename one")
    measures = of_task | named | handed
    check_names(measures, "measures")
    return measures


def mean_absolute_error(predictions: "np.ndarray", labels: "np.ndarray") -> float:
    """Mean absolute error of numeric labels, in their units."""
    return float(np.abs(predictions - labels).mean())


def values_of(measures: Mapping[str, OwnMeasure], evaluation: "Evaluation", *, first: bool = False) -> dict[str, float]:
    """The value of each measure.

    Args:
        measures: functions by name. Each gets its own copy of the predictions and the labels.
        evaluation: an evaluation with predictions.
        first: whether this is the first call in a run, before the training, which warns of functions that draw unseeded numbers.

    Raises:
        UsageError: a function raised an error, which is the cause, or returned something else than a number.
    """
    assert evaluation.predictions is not None
    assert evaluation.labels is not None
    values = {}
    for name, measure in measures.items():
        try:
            with warning_of_draws("measures.extra", measure) if first else nullcontext():
                value = measure(evaluation.predictions.copy(), evaluation.labels.copy())
        except (Exception, SystemExit) as error:
            raise UsageError(f"measures.extra: {name} raised {with_place(error)}") from error
        number = as_float(value)
        if number is None:
            raise UsageError(f"measures.extra: {name} returned {shown(value)}; it must return one number")
        values[name] = number
    return values
