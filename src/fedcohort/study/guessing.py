"""Tell whether the last models of a row are better than guessing: the one definition that targets, health and headlines share."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedcohort import measures
from fedcohort.study.run_measures import Measured

__all__ = ["Guessing", "diverged_seeds", "guessing"]

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
    last = [run.class_accuracy for run in runs if len(run.class_accuracy) > 1]
    if not last:
        return None
    number = max(int(np.isfinite(classes).sum()) for classes in last)  # without those that have no test samples
    if number < 2:
        return None
    means = [float(np.nansum(classes)) / number for classes in last]
    mean = float(np.mean(means))
    if mean <= _level(number, ABOVE_CHANCE):
        return Guessing(number, at_most=True)
    if mean > _level(number, SMALL_EXCESS):
        return None
    cannot_be_told = len(means) == 1 or measures.paired_interval(means, np.zeros(len(means))).low <= 1 / number
    return Guessing(number, at_most=False) if cannot_be_told else None


def diverged_seeds(runs: Sequence[Measured]) -> list[int]:
    """The seeds of a regression whose last model diverged: it has no finite test loss, and no R²."""
    return [run.experiment.seed for run in runs if run.without_score[-1]]


def _no_better_than_the_mean(runs: Sequence[Measured]) -> bool:
    """Whether the R² of a regression, as a mean over seeds, is at most 0."""
    return bool(diverged_seeds(runs)) or float(np.mean([run.accuracy for run in runs])) <= 0


def _level(classes: int, excess: float) -> float:
    """The accuracy over K classes with an excess over chance: 1/K + excess/K · (1 − 1/K)."""
    return 1 / classes + excess / classes * (1 - 1 / classes)
