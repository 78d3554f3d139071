"""Tell from test losses whether the steps of training were too large or too small."""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from fedcohort.core.words import formatted_values
from fedcohort.study.run_measures import Measured

__all__ = ["hardly_changed", "rates", "smaller_steps", "too_large_steps", "unsettled_loss", "value_range"]

Runs = Sequence[Measured]
"""The runs of a row, one for each seed."""

FAR_ABOVE_GUESSING = 3
"""A test loss of at least this multiple of ln K, the loss of equal probabilities for K classes, means that steps were too large."""

ABOVE_GUESSING, GREW = 1.15, 1.25
"""So does one of at least the first multiple of ln K that is at least the second multiple of the loss after the first round. In short
runs with skewed classes, losses stay near ln K although steps are small."""

UNSETTLED = 10
"""A test loss of at least this multiple of ln K is reported also if the accuracy is above chance. A linear model can rank classes
well with steps of any size, so that a row with a useless learning rate looked sound. With steps that are only a little too large,
losses are a few times ln K."""

HARDLY = 1e-3
"""A test loss that changed by less than this share of itself over the rounds means that steps were too small."""


def value_range(values: Iterable[float], write: Callable[[float], str] = formatted_values.count) -> str:
    """Numbers in words: one, or the lowest and the highest."""
    known = sorted(values)
    return " to ".join(dict.fromkeys((write(known[0]), write(known[-1]))))


def rates(rows: Sequence[Runs]) -> str:
    """The learning rates of rows."""
    return value_range((runs[0].experiment.training.lr for runs in rows), formatted_values.setting)


def smaller_steps(rows: Sequence[Runs]) -> str:
    """The advice to lower the learning rate, with a comma, if the test losses say that steps were too large."""
    unstable = [loss for runs in rows for loss in map(_too_high_loss, runs) if not math.isnan(loss)]
    if not unstable:
        return ""
    finite = [loss for loss in unstable if math.isfinite(loss)]
    known = value_range(finite, lambda loss: formatted_values.magnitude(loss)) if finite else ""
    if not finite:
        loss = "an infinite test loss"
    elif len(finite) < len(unstable):
        loss = f"test losses of {known} or infinite ones"
    else:
        loss = f"test losses of {known}" if " to " in known else f"a test loss of {known}"
    return f"lower training.lr (now {rates(rows)}: with {loss}, steps seem too large), "


def too_large_steps(runs: Runs) -> tuple[bool, bool]:
    """Whether test losses say that steps were too large, and whether a loss is so high that nothing else can be the reason. Rows that
    differ in this share no advice."""
    return bool(smaller_steps([runs])), any(unsettled_loss(run) > 0 for run in runs)


def hardly_changed(runs: Runs) -> bool:
    """Whether the test loss hardly changed under all seeds, so that steps seem too small."""
    return all(map(_loss_stayed, runs))


def _loss_stayed(run: Measured) -> bool:
    losses = run.series("test_loss")
    losses = losses[np.isfinite(losses)]
    return len(losses) > 1 and abs(float(losses[-1] - losses[0])) < HARDLY * abs(float(losses[0]))


def _too_high_loss(run: Measured) -> float:
    """The last test loss if it is infinite, has grown and is above that of guessing, or is far above that; NaN if it is not.

    A loss that became NaN counts as infinite.
    """
    losses = run.series("test_loss")[np.isfinite(run.series("test_accuracy"))]
    if np.isnan(losses).all():
        return math.nan
    first, last = float(losses[0]), float(np.where(np.isnan(losses), np.inf, losses)[-1])
    guessing = math.log(max(1, len(run.class_accuracy)))
    grew = last >= GREW * first and last >= ABOVE_GUESSING * guessing
    too_high = grew or (guessing > 0 and last >= FAR_ABOVE_GUESSING * guessing)
    return last if too_high or math.isinf(last) else math.nan


def unsettled_loss(run: Measured) -> float:
    """The last test loss if it is infinite or at least :data:`UNSETTLED` times that of guessing; NaN if it is not."""
    loss, classes = _too_high_loss(run), len(run.class_accuracy)
    return loss if loss >= (UNSETTLED * math.log(classes) if classes > 1 else math.inf) else math.nan
