"""Objectives of a race: accuracy, or a cost, of a whole run or at a limit."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcohort import measures
from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError, nearest, shown
from fedcohort.core.words import formatted_values
from fedcohort.core.words.formatted_values import counted
from fedcohort.core.words.score_style import ScoreStyle, score_style
from fedcohort.experiment import Experiment
from fedcohort.experiment.tasks import label_kind
from fedcohort.racing.costs import COSTS, MAY_BE_NONE, amount, cost_of, relative, score_of, spent
from fedcohort.record import Run
from fedcohort.study.run_measures import Measured

__all__ = ["Objective", "objectives"]

ACCURACIES = {
    "accuracy": "test accuracy",
    "validation_accuracy": "validation accuracy",
    "macro_accuracy": "mean test accuracy over classes",
    "worst_accuracy": "accuracy of the worst-served 10% of clients",
}
"""Objectives that are accuracies, and their names in sentences."""

MARGINS = {"accuracy": 0.005, "cost": 0.05}
"""Default margins: half a percentage point of accuracy, and 5% of a cost."""

PENALTY = 10.0
"""A run that does not reach the target counts as if it had needed this many times its whole cost, as in the PAR10 score of algorithm
configuration. With a small factor, a row with cheap runs that never reach the target would be better than one that always does."""

WORST_SCORE = -1.0
"""A lower R², or that of a model that diverged, counts as this, so that one useless model does not decide about a mean."""


@dataclass(frozen=True)
class Objective:
    """What the rows of a race are judged by.

    Attributes:
        measure: a key of :data:`ACCURACIES` or :data:`COSTS`.
        limit: for an accuracy, the cost at which it is read; for a cost, ``accuracy`` if it is the cost of reaching a target, empty if
            it is that of the whole run. For an accuracy, empty means after the last round.
        value: the value of the limit; NaN without one.
        margin: the difference that does not matter in practice: a fraction for accuracies, a relative difference for costs.
        labels: ``classes``, or ``numbers``, for which accuracies are R², and accuracies of clients their scores.
    """

    measure: str
    limit: str = ""
    value: float = math.nan
    margin: float = math.nan
    labels: str = "classes"

    def possible(self, difference: float, low: float, high: float) -> tuple[float, float, float]:
        """A difference of scores and its interval, which ends where no larger difference is possible.

        An interval without ends, of too few seeds, stays as it is, and so do those of costs.
        """
        if self.is_cost or math.isinf(low):
            return difference, low, high
        smallest, largest = self.style.differences
        return difference, max(low, smallest), min(high, largest)

    @property
    def style(self) -> ScoreStyle:
        """How scores are named and written."""
        return score_style([self.labels])

    @property
    def is_cost(self) -> bool:
        """Whether less is better."""
        return self.measure in COSTS

    @property
    def text(self) -> str:
        """The objective as the user writes it."""
        return f"{self.measure}@{self.limit}={self.value:g}" if self.limit else self.measure

    @property
    def heading(self) -> str:
        """The objective as the heading of a column: as the user writes it, with the name of the score."""
        if not self.style.numeric:
            return self.text
        return self.text.replace("worst_accuracy", "worst score").replace("_", " ").replace("accuracy", self.style.name)

    @property
    def words(self) -> str:
        """The objective in words."""
        if self.is_cost:
            return COSTS[self.measure] + (f" to {self._target_words}" if self.limit else " of a run")
        name = self.style.of_client if self.measure == "worst_accuracy" else self.style.name
        return ACCURACIES[self.measure].replace("accuracy", name) + (f" at {self._limit_words}" if self.limit else "")

    @property
    def _target_words(self) -> str:
        """The target of a cost: ``85% test accuracy``, or ``a test R² of 0.5``."""
        target = self.style.target(self.value)
        return f"a test {self.style.name} of {target}" if self.style.numeric else f"{target} test accuracy"

    @property
    def _limit_words(self) -> str:
        """The limit of an accuracy in words, such as ``5.0 MB`` or ``a simulated time of 2,000``."""
        spends = amount(self.limit, self.value)
        words = {"time": f"a simulated time of {spends}", "bytes": spends, "rounds": counted(self.value, "round")}
        return words.get(self.limit, f"{spends} {COSTS[self.limit]}")

    @property
    def about_target(self) -> str:
        """How runs count that do not reach the target, in a sentence; empty without a target."""
        if not (self.is_cost and self.limit):
            return ""
        whole = "its whole cost" if self.measure != MAY_BE_NONE else "1 + the numbers of all its rounds"
        return f"A run that does not reach the target counts with {PENALTY:g} times {whole}."

    def about_worst(self, scores: Iterable[float]) -> str:
        """That scores of numbers are not below :data:`WORST_SCORE`, in a sentence; empty if none of ``scores`` is there."""
        if self.is_cost or not self.style.numeric or WORST_SCORE not in scores:
            return ""
        name = self.style.of_client if self.measure == "worst_accuracy" else self.style.name
        least = formatted_values.number(WORST_SCORE)
        return f"A lower {name} than {least}, and that of a model that diverged, counts as {least}."

    @property
    def about_mean(self) -> str:
        """What the mean over seeds is, in words."""
        if not self.is_cost:
            return "mean ± standard deviation over seeds"
        if self.measure != MAY_BE_NONE:
            return "geometric mean over seeds"
        return "since there can be none, what is compared is 1 + the number; geometric mean of this over seeds, minus 1"

    @property
    def score_margin(self) -> float:
        """The margin as a difference of scores."""
        return math.log1p(self.margin) if self.is_cost else self.margin

    def score(self, run: Run) -> float:
        """The score of a run: the accuracy as a fraction, or −log(cost) (see :func:`score_of`). Higher is better.

        Raises:
            UsageError: the record of the run does not have the numbers.
        """
        value = self.value_of(Measured(run))
        if not math.isfinite(value):
            raise UsageError(
                f"objective = {self.text!r}: {run.path} has no {self.words}; choose another objective, or set what it needs"
            )
        return score_of(self.measure, value) if self.is_cost else value

    def value_of(self, measured: Measured) -> float:
        """The accuracy or the cost of a run; NaN if its record does not have it."""
        if not self.is_cost:
            return self._accuracy(measured)
        used = spent(measured, self.measure)
        if not self.limit:
            return float(used[-1])
        reached = measures.rounds_to(measured.series("test_accuracy"), self.value)
        return float(used[int(reached) - 1]) if math.isfinite(reached) else self._missed(float(used[-1]))

    def _missed(self, whole: float) -> float:
        """What a run counts that does not reach the target: ten times what is compared of its ``whole`` cost, see :func:`score_of`."""
        return PENALTY * (1 + whole) - 1 if self.measure == MAY_BE_NONE else PENALTY * whole

    def reached(self, run: Run) -> bool:
        """Whether a run reached the target accuracy; true without one."""
        measured = Measured(run)
        return not (self.is_cost and self.limit) or math.isfinite(
            measures.rounds_to(measured.series("test_accuracy"), self.value)
        )

    def unspent(self, run: Run) -> bool:
        """Whether a run ended although the limit of an accuracy had room for another round; false without a limit or a cost."""
        if self.is_cost or not self.limit:
            return False
        used = spent(Measured(run), self.limit)
        return bool(0 < used[-1] * (1 + 1 / len(used)) <= self.value)

    def untested(self, run: Run) -> bool:
        """Whether a run spent the limit of an accuracy before its first model was tested; false without a limit or for a cost."""
        if self.is_cost:
            return False
        values, within = self._measured(Measured(run))
        return bool(len(values)) and not within.any()

    def _accuracy(self, measured: Measured) -> float:
        """The last accuracy that was measured within the limit; NaN if none was measured at all."""
        values, within = self._measured(measured)
        if len(values) and not within.any():
            return 0.0  # the limit is spent before the first model is tested; for numbers, R² of always predicting the mean
        return float(values[within][-1]) if len(values) else math.nan

    def _measured(self, measured: Measured) -> tuple[Values, NDArray[np.bool_]]:
        """The accuracies of a run, and whether each was measured within the limit."""
        rounds, values = _accuracies(measured, self.measure)
        if self.style.numeric:
            values = _bounded(values, rounds, 1 if self.measure == "worst_accuracy" else _tested_every(measured))
        known = np.isfinite(values)
        rounds, values = rounds[known], values[known]
        within = spent(measured, self.limit)[rounds - 1] <= self.value if self.limit else np.ones(len(values), bool)
        return values, within

    def shown(self, score: float) -> str:
        """A mean score in the unit of the objective: an accuracy in percent, R², or the geometric mean of a cost."""
        return amount(self.measure, cost_of(self.measure, score)) if self.is_cost else self.style.value(score)

    def told(self, score: float) -> str:
        """A mean score in a sentence: ``test accuracy 91.0%``, or ``test accuracy at a simulated time of 400: 91.0%``."""
        of = f"{self.words}:" if self.limit else self.words  # limits end with a number, too
        return f"{of} {self.shown(score)}{'' if self.is_cost else self.style.unit}"

    def shown_difference(self, difference: float) -> str:
        """A difference of scores: percentage points, or percent of a cost (negative is less)."""
        if not self.is_cost:
            return self.style.signed(difference)
        return f"{formatted_values.signed(relative(-difference))}%"

    def shown_bound(self, difference: float) -> str:
        """How much better another row can be, in words: ``1.3 points better`` or ``12% better``."""
        if not self.is_cost:
            return f"{self.style.value(difference)}{' points' * (not self.style.numeric)} better"
        return f"{formatted_values.percent(-relative(-difference))}% better"

    def check(self, label: str, experiment: Experiment) -> None:
        """Refuse an objective that the runs of a row will not have, before anything is run.

        Raises:
            UsageError: a setting of the row is missing; the message names it.
        """
        if self.measure == "worst_accuracy" and not experiment.measures.clients_every:
            raise UsageError(
                f"measures.clients_every = 0: the objective 'worst_accuracy' needs the accuracy of all clients in row {label!r}; "
                "use 1, or the number of rounds"
            )
        if self.measure == "macro_accuracy" and label_kind(experiment.training) == "numbers":
            raise UsageError(
                f"objective = 'macro_accuracy': the labels in row {label!r} are numbers, which have no classes; use 'accuracy', "
                "which is R²"
            )
        every = experiment.measures.evaluate_every
        if self.limit == "rounds" and not self.is_cost and self.value < min(every, experiment.rounds):
            raise UsageError(
                f"measures.evaluate_every = {every}: no model is tested within the limit of {self.text!r} in row {label!r}; use 1"
            )
        if self.measure == "validation_accuracy" and not experiment.data.validation:
            raise UsageError(
                f"data.validation = 0: the objective 'validation_accuracy' needs a validation set in row {label!r}; use 0.1"
            )


def objectives(
    texts: "str | list[str] | tuple[str, ...]", margins: "list[float] | tuple[float, ...]" = ()
) -> list[Objective]:
    """One or two objectives from their texts: ``accuracy``, ``accuracy@bytes=5e6``, ``time@accuracy=0.85``, ``bytes``.

    Args:
        texts: the objectives.
        margins: a margin for each; by default those of :data:`MARGINS`.

    Raises:
        UsageError: a text or a margin cannot be used.
    """
    each = [texts] if isinstance(texts, str) else list(texts)
    if not 1 <= len(each) <= 2:
        raise UsageError(f"objective = {shown(each)}: give one objective, or two for their Pareto front")
    if margins and len(margins) != len(each):
        of = "the one objective" if len(each) == 1 else f"each of {len(each)} objectives"
        raise UsageError(f"margin = {shown(list(margins))}: give one margin for {of}")
    found = [_objective(text) for text in each]
    if len({objective.text for objective in found}) < len(found):
        raise UsageError(f"objective = {shown(each)}: is given twice; give two different ones")
    with_margins = zip(found, margins or [_default_margin(one) for one in found], strict=True)
    return [Objective(one.measure, one.limit, one.value, _margin(margin, one)) for one, margin in with_margins]


def _objective(text: object) -> Objective:
    """An objective from its text, without its margin."""
    if not isinstance(text, str):
        raise UsageError(f"objective = {shown(text)}: should be a text, such as 'accuracy' or 'time@accuracy=0.85'")
    measure, at, rest = text.strip().partition("@")
    if measure not in ACCURACIES and measure not in COSTS:
        raise UsageError(f"objective = {shown(text)}: no such objective; {nearest(measure, [*ACCURACIES, *COSTS])}")
    if not at:
        return Objective(measure)
    limit, _, number = rest.partition("=")
    known = ["accuracy"] if measure in COSTS else list(COSTS)
    example = f"{measure}@accuracy=0.85" if measure in COSTS else f"{measure}@bytes=5e6"
    if limit not in known:
        raise UsageError(f"objective = {shown(text)}: write {example}; {nearest(limit, known)}")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf or (limit == "accuracy" and value > 1):
        most = " and at most 1" if limit == "accuracy" else ""
        raise UsageError(f"objective = {shown(text)}: the limit should be a number above 0{most}, as in {example}")
    return Objective(measure, limit, value)


def _default_margin(objective: Objective) -> float:
    return MARGINS["cost" if objective.is_cost else "accuracy"]


def _margin(margin: object, objective: Objective) -> float:
    """A checked margin."""
    if isinstance(margin, bool) or not isinstance(margin, int | float) or not 0 < margin < 1:
        raise UsageError(
            f"margin = {shown(margin)}: should be above 0 and below 1, such as {_default_margin(objective):g} for {objective.measure}"
        )
    return float(margin)


def _accuracies(measured: Measured, measure: str) -> tuple[Indices, Values]:
    """The rounds in which an accuracy was measured, and its values."""
    if measure == "macro_accuracy":
        by_class = measured.rounds["class_accuracy"]
        return by_class.index.to_numpy(np.int64), np.array([measures.mean_over_classes(row) for row in by_class])
    if measure != "worst_accuracy":
        column = "test_accuracy" if measure == "accuracy" else "validation_accuracy"
        return measured.rounds.index.to_numpy(np.int64), measured.series(column)
    by_client = measured.run.client_accuracy
    values = [
        measures.worst_accuracy(row) if np.isfinite(row).any() else math.nan for row in by_client.to_numpy(np.float64)
    ]
    return by_client.index.to_numpy(np.int64), np.array(values, dtype=np.float64)


def _tested_every(measured: Measured) -> int:
    """After every how many rounds the model is tested; it is always tested after the last one."""
    every: int = measured.run.experiment.measures.evaluate_every
    return every


def _bounded(scores: Values, rounds: Indices, every: int) -> Values:
    """Scores of numbers, of which the tested ones are at least :data:`WORST_SCORE`; those of the other rounds stay NaN."""
    tested = (rounds % every == 0) | (rounds == rounds[-1:])
    found: Values = np.where(tested & ~np.isfinite(scores), WORST_SCORE, np.maximum(scores, WORST_SCORE))
    return found
