"""How the score of a task is named and written: the accuracy in percent, or R² of numeric labels as a number."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedcohort.core.errors import UsageError
from fedcohort.core.words import formatted_values

__all__ = ["ACCURACY", "R_SQUARED", "ScoreStyle", "score_style"]

DIGITS = 3
"""Digits of R² after the point."""

HUGE = 1000.0
"""From here on, R² has three significant digits: that of a model that diverges can have 40 digits before the point."""


@dataclass(frozen=True)
class ScoreStyle:
    """The name of a score and the form of its values.

    Attributes:
        name: ``accuracy`` or ``R²``.
        numeric: whether labels are numbers; values are then written as they are, and not in percent.
        limits: the smallest and the largest value that is possible.
    """

    name: str
    numeric: bool
    limits: tuple[float, float]

    @property
    def differences(self) -> tuple[float, float]:
        """The smallest and the largest difference of two scores that is possible: −1 to 1 for accuracies.

        The mean of a reference over some seeds is no limit, since it is an estimate itself.
        """
        return self.limits[0] - self.limits[1], self.limits[1] - self.limits[0]

    @property
    def title(self) -> str:
        """The name at the begin of a sentence or a heading."""
        return self.name[0].upper() + self.name[1:]

    @property
    def of_client(self) -> str:
        """What the score of a client is called: for numbers, it is not R², whose variance would be that of a few samples."""
        return "score" if self.numeric else self.name

    @property
    def unit(self) -> str:
        """What follows the name in headings: ``%``, or nothing."""
        return "" if self.numeric else "%"

    @property
    def in_unit(self) -> str:
        """What follows the name in sentences: ``in %``, with a space before it, or nothing."""
        return "" if self.numeric else " in %"

    @property
    def points(self) -> str:
        """The unit of differences, with a space before it: percentage points, or nothing."""
        return "" if self.numeric else " percentage points"

    def heading(self, words: str) -> str:
        """A heading with its unit: ``test accuracy, %``, or ``test R²``."""
        return f"{words} {self.name}, %" if not self.numeric else f"{words} {self.name}"

    def value(self, score: float, digits: int = 1) -> str:
        """0.8123 as 81.2, in percent; or as 0.812. A huge R² has an exponent: −2.64e+36."""
        if not self.numeric:
            return formatted_values.percent(score, digits)
        if not math.isfinite(score) or abs(score) >= HUGE:
            return formatted_values.magnitude(score)
        return formatted_values.index(score).replace("-", "−")

    def with_unit(self, score: float) -> str:
        """0.8123 as 81.2%, or as 0.812."""
        text = self.value(score)
        return f"{text}%" if math.isfinite(score) and not self.numeric else text

    def spread(self, mean: float, sd: float) -> str:
        """A mean and its standard deviation: 81.2 ± 3.5, or 0.812 ± 0.035; only the mean if the deviation is unknown."""
        return f"{self.value(mean)} ± {self.value(sd)}" if math.isfinite(sd) else self.value(mean)

    def means(self, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        """The mean accuracies of a table's rows with their deviations, and the number of seeds if it is not the same for all."""
        differ = len({row["seeds"] for row in rows}) > 1
        return [
            self.spread(row["accuracy"], row["accuracy_sd"])
            + (f" ({row['seeds']} seed{'s' * (row['seeds'] != 1)})" if differ else "")
            for row in rows
        ]

    def signed(self, difference: float) -> str:
        """A difference: 0.031 as +3.1, or as +0.031."""
        if not self.numeric or not math.isfinite(difference):
            return formatted_values.signed(difference)
        if abs(difference) >= HUGE:
            return f"{'+' * (difference > 0)}{formatted_values.magnitude(difference)}"
        return f"{difference:+.{DIGITS}f}".replace("-", "−")

    def interval(self, low: float, high: float) -> str:
        """An interval of differences: [−1.2, +3.1]; empty if it is unknown, and if it has no width, because the differences of all
        seeds are equal, which says nothing about their spread."""
        unknown = math.isnan(low) or math.isnan(high) or high - low < 1e-12
        return "" if unknown else f"[{self.signed(low)}, {self.signed(high)}]"

    def difference(self, mean: float, low: float, high: float) -> str:
        """A difference with its interval: +1.0 [−1.2, +3.1]; only the difference if the interval is unknown, as with one seed."""
        return f"{self.signed(mean)} {self.interval(low, high)}".rstrip()

    def target(self, score: float) -> str:
        """A target with all its digits: 0.54 as 54%, or as 0.54."""
        return formatted_values.number(score, 15) if self.numeric else formatted_values.target(score)


ACCURACY = ScoreStyle("accuracy", numeric=False, limits=(0.0, 1.0))
R_SQUARED = ScoreStyle("R²", numeric=True, limits=(-math.inf, 1.0))


def score_style(labels: Iterable[str]) -> ScoreStyle:
    """The style for runs with these kinds of labels, ``classes`` or ``numbers``.

    Raises:
        UsageError: there are both.
    """
    kinds = set(labels)
    if len(kinds) > 1:
        raise UsageError(
            "runs with classes and runs with numeric labels have different scores; compare them separately"
        )
    return R_SQUARED if kinds == {"numbers"} else ACCURACY
