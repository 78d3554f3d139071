"""Tell whether the last models of a row are better than guessing: the one definition that targets, health and headlines share."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedcohort import measures
from fedcohort.study.run_measures import Measured

__all__ = ["Guessing", "diverged_seeds", "equal_test_labels", "guessed_score", "guessing", "hardly_above_chance"]

ABOVE_CHANCE = 0.25
"""A mean of up to this small an excess over chance, see :func:`_level`, is at chance."""

SMALL_EXCESS = 0.5
"""Up to this excess, a mean is at chance if its 95% interval over seeds contains 1/K, and that of one seed."""


class Guessing(NamedTuple):
    """A row whose last models are at chance.

    Attributes:
        classes: number of classes, K; 0 for numeric labels.
        at_most: whether the mean is at most that of chance, so that it need not be compared with its spread over seeds.
    """

    classes: int
    at_most: bool


def guessing(runs: Sequence[Measured]) -> Guessing | None:
    """Whether the last models of a row, one for each seed, are at chance; None if they are better, or if that is not known.

    At chance means that the accuracy, as a mean over classes, cannot be told from 1/K, that of a model that guesses. On imbalanced
    test sets, the accuracy over samples of a model that guesses the largest class is higher. For numeric labels, it means that R², as
    a mean over seeds, is at most 0, as if the mean of the labels was predicted for every sample. The R² of a last model that diverged
    is −∞.
    """
    if runs[0].run.labels == "numbers":
        return Guessing(0, at_most=True) if _no_better_than_the_mean(runs) else None
    number, means = _over_classes(runs)
    if number < 2:
        return None
    mean = float(np.mean(means))
    if mean <= _level(number, ABOVE_CHANCE):
        return Guessing(number, at_most=True)
    if mean > _level(number, SMALL_EXCESS):
        return None
    return None if _told_from_chance(number, means) else Guessing(number, at_most=False)


def hardly_above_chance(runs: Sequence[Measured]) -> bool:
    """Whether last models that :func:`guessing` takes for guesses still have learned something: the 95% interval of their accuracies
    over seeds is above that of chance, although they are so close to it that they are of no use."""
    if runs[0].run.labels == "numbers":
        return False
    number, means = _over_classes(runs)
    varied = len(set(means)) > 1  # equal accuracies have an interval without width, which proves nothing
    return number >= 2 and varied and _told_from_chance(number, means) and guessing(runs) is not None


def guessed_score(*rows: Sequence[Measured]) -> str:
    """What is at chance in the rows of :func:`guessing`: the mean accuracy over classes, if the accuracy over samples is higher in one
    of them, because most test samples are of a class that its models recognize; otherwise simply the test accuracy."""
    return "mean test accuracy over classes" if any(map(_higher_over_samples, rows)) else "test accuracy"


def _higher_over_samples(runs: Sequence[Measured]) -> bool:
    """Whether the accuracy over samples is above chance."""
    number, _ = _over_classes(runs)
    return number > 1 and float(np.mean([run.accuracy for run in runs])) > _level(number, SMALL_EXCESS)


def _over_classes(runs: Sequence[Measured]) -> tuple[int, list[float]]:
    """The number of classes with test samples, and the mean accuracy over them of each last model; 0 if that is not known."""
    last = [run.class_accuracy for run in runs if len(run.class_accuracy) > 1]
    number = max((int(np.isfinite(classes).sum()) for classes in last), default=0)
    return number, [float(np.nansum(classes)) / number for classes in last] if number else []


def _told_from_chance(classes: int, means: Sequence[float]) -> bool:
    """Whether the 95% interval of several mean accuracies is above 1/K."""
    return len(means) > 1 and measures.paired_interval(means, np.zeros(len(means))).low > 1 / classes + 1e-9


def diverged_seeds(runs: Sequence[Measured]) -> list[int]:
    """The seeds of a regression whose last model diverged: it has no finite test loss, and no R²."""
    return [run.experiment.seed for run in runs if run.without_score[-1]]


def equal_test_labels(runs: Sequence[Measured]) -> bool:
    """Whether R² is not defined, because all labels of the test set are equal: models have a finite test loss all the same."""
    numeric = runs[0].run.labels == "numbers"
    return numeric and all(bool(np.isfinite(run.series("test_loss")).any()) and not run.tested for run in runs)


def _no_better_than_the_mean(runs: Sequence[Measured]) -> bool:
    """Whether the R² of a regression, as a mean over seeds, is at most 0."""
    return bool(diverged_seeds(runs)) or float(np.mean([run.accuracy for run in runs])) <= 0


def _level(classes: int, excess: float) -> float:
    """The accuracy over K classes with an excess over chance: 1/K + excess/K · (1 − 1/K)."""
    return 1 / classes + excess / classes * (1 - 1 / classes)
