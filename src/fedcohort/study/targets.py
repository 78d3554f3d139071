"""The target accuracy of a comparison: one level for all rows or runs, which failing ones do not lower."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedcohort.study.run_measures import level_below

__all__ = ["FAILING", "Target", "chance_level", "common_target"]

FAILING = 1 / 3
"""Rows with less than this share of the best accuracy of their group do not lower the target."""


ABOVE_CHANCE = 0.25
"""Above chance begins at 1/K + ABOVE_CHANCE/K · (1 − 1/K)."""


def chance_level(classes: int, *, numeric: bool = False) -> float:
    """The accuracy over K classes up to which a model is not better than chance; −inf for an unknown number of classes.

    For numeric labels, it is R² = 0, that of a model which predicts the mean of the labels for every sample.
    """
    if numeric:
        return 0.0
    return 1 / classes + ABOVE_CHANCE / classes * (1 - 1 / classes) if classes > 1 else -math.inf


@dataclass(frozen=True)
class Target:
    """The target test accuracy, and how it was chosen, in words."""

    accuracy: float
    chosen: str

    @property
    def from_results(self) -> bool:
        """Whether the target was taken from the results, not set before."""
        return self.chosen.startswith("taken from these results")


def common_target(
    accuracies: Sequence[float],
    names: Sequence[str],
    failing: Sequence[bool],
    groups: Sequence[Sequence[int]],
    score: str = "accuracy",
) -> Target:
    """The lowest accuracy of the rows that work, rounded down to two decimals.

    Args:
        accuracies: the best test accuracy of each row; NaN is unknown.
        names: labels of the rows, for the words.
        failing: whether an update of the row diverged, or its accuracy is at chance; such rows count only if there are no others.
        groups: the rows that are compared with each other. A row with less than :data:`FAILING` of the best accuracy of its group does
            not count.
        score: name of the score, for the words.
    """
    known = [i for i, accuracy in enumerate(accuracies) if not math.isnan(accuracy)]
    if not known:
        return Target(math.nan, f"none, because no row has a test {score}")
    whole = [i for i in known if not failing[i]] or known
    working = [i for group in groups for i in _working(accuracies, [i for i in group if i in whole])]
    low = [names[i] for i in whole if i not in working]
    left_out = ["rows with diverged updates or at chance"] if len(whole) < len(known) else []
    if low:
        left_out.append(
            "rows far below the best: " + ", ".join(map(repr, low[:3])) + (" and others" if low[3:] else "")
        )
    without = f" (without {'; '.join(left_out)})" if left_out else ""
    level = level_below(min(accuracies[i] for i in working))
    return Target(level, f"taken from these results, a level that every row reaches on average{without}")


def _working(accuracies: Sequence[float], rows: Sequence[int]) -> list[int]:
    """The rows of a group that are not far below its best."""
    highest = max((accuracies[i] for i in rows), default=math.nan)
    return [i for i in rows if accuracies[i] >= min(highest, FAILING * highest)]
