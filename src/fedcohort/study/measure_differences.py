"""Differences of any measure of a comparison, with intervals and verdicts: fairness, cost, the time to a target, own measures."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcohort import measures
from fedcohort.core.errors import UsageError, nearest, shown
from fedcohort.core.plugins import short_name
from fedcohort.core.words.score_style import ScoreStyle
from fedcohort.experiment import Cell, Experiment
from fedcohort.experiment.given_objects import Given
from fedcohort.experiment.tasks import label_kind
from fedcohort.runs.run_data import load_data, on_data
from fedcohort.study.measured_values import Result, plain
from fedcohort.study.rows.comparison_row import Row
from fedcohort.study.rows.references import Group
from fedcohort.study.rows.unfinished_rows import without_difference
from fedcohort.study.run_measures import Measured
from fedcohort.study.targets import TO_TARGET
from fedcohort.study.verdicts import (
    ABOUT_NO_RESULT,
    BETTER,
    HIGHER,
    LOWER,
    WORSE,
    Verdict,
    about_verdicts,
    corrected_for,
    difference_columns,
    verdicts,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ACCURACY",
    "MEASURES",
    "Measure",
    "MeasureDifferences",
    "check_measures",
    "measure_of",
    "value_of",
]


@dataclass(frozen=True)
class Measure:
    """A number that a run has, and which differences of it are better.

    Attributes:
        name: name of the column of :attr:`Comparison.table`.
        title: its name in words.
        better: ``higher``, ``lower``, or empty if neither is better as such.
        form: how values are written: ``score``, ``index``, ``count``, ``size``, ``duration``, ``time`` (on the clock of the runs) or
            ``number``.
        setting: dotted key of the setting without which it is not measured; empty if it always is.
    """

    name: str
    title: str
    better: str = "higher"
    form: str = "score"
    setting: str = ""

    @property
    def words(self) -> tuple[str, str]:
        """The verdicts on a clearly positive and on a clearly negative difference."""
        return {"higher": (BETTER, WORSE), "lower": (WORSE, BETTER)}.get(self.better, (HIGHER, LOWER))

    @property
    def missing(self) -> str:
        """That no run has it because of a setting, in words."""
        return f"measure = {self.name!r}: no run has it; set {self.setting} = {_EXAMPLES[self.setting]}"


ACCURACY = Measure("accuracy", "test accuracy")
"""The measure that tables and charts of comparisons show differences of."""

MACRO = Measure("macro_accuracy", "mean test accuracy over classes")
"""A model that predicts the largest class for every sample has 1/K in it, however large that class is."""

_VALIDATION, _CLIENTS, _PERSONAL = "data.validation", "measures.clients_every", "measures.personal_epochs"

_EXAMPLES = {_VALIDATION: 0.1, _CLIENTS: 1, _PERSONAL: 1}
"""A value of each setting with which its measures are known."""

MEASURES = {
    measure.name: measure
    for measure in (
        ACCURACY,
        MACRO,
        Measure("early_stop_accuracy", "test accuracy with early stopping", setting=_VALIDATION),
        Measure("client_accuracy", "mean accuracy over clients", setting=_CLIENTS),
        Measure(
            "worst_client_accuracy", "mean accuracy of the tenth of the clients that have the lowest", setting=_CLIENTS
        ),
        Measure("client_accuracy_sd", "standard deviation of the accuracy over clients", "lower", setting=_CLIENTS),
        Measure("personal_accuracy", "mean accuracy of personal models", setting=_PERSONAL),
        Measure(
            "worst_personal_accuracy",
            "mean accuracy of the tenth of the personal models that have the lowest",
            setting=_PERSONAL,
        ),
        Measure("personal_gain", "mean gain of personal models over the global model", setting=_PERSONAL),
        Measure("jain", "Jain's index of how often clients were selected", "", "index"),
        Measure("rounds_to_target", "rounds to the target", "lower", "count"),
        Measure("time_to_target", "time to the target", "lower", "time"),
        Measure("bytes_to_target", "bytes to the target", "lower", "size"),
        Measure("bytes", "bytes sent and received", "lower", "size"),
        Measure("client_passes", "client passes", "lower", "count"),
        Measure("simulated_time", "time of all rounds", "lower", "time"),
        Measure("wall_seconds", "wall time of the simulator", "lower", "duration"),
    )
}
"""The measures by name; own measures come in addition. The best accuracy is missing, because it is chosen by its value."""

_ERROR = Measure("mae", "mean absolute error", "lower", "number")


def measure_of(name: object, own: Sequence[str]) -> Measure:
    """The measure with this name.

    Args:
        name: the name.
        own: names of own measures, and of the mean absolute error if labels are numeric.

    Raises:
        UsageError: a comparison has no differences of it.
    """
    if not isinstance(name, str):
        raise UsageError(
            f"measure = {shown(name)}: a comparison has no differences of it; give its name, such as 'bytes'"
        )
    if name in own:
        return _ERROR if name == _ERROR.name else Measure(name, name, "", "number")
    if name == "best_accuracy":
        raise UsageError(
            "measure = 'best_accuracy': the best round is chosen by its test accuracy, so that differences prove nothing; use "
            "'accuracy' or 'early_stop_accuracy'"
        )
    if name not in MEASURES:
        raise UsageError(
            f"measure = {shown(name)}: a comparison has no differences of it; {nearest(name, [*MEASURES, *own])}"
        )
    return MEASURES[name]


def check_measures(names: Iterable[str], experiment: Experiment, given: Given) -> None:
    """Refuse measures that no row of an experiment will have, before anything is run.

    Raises:
        UsageError: there is no such measure, or a setting is missing.
    """
    rows = [row for _, row in experiment.rows()]
    own = [short_name(name) for row in rows for name in row.measures.extra]
    own += [_ERROR.name] * any(label_kind(row.training) == "numbers" for row in rows)
    for name in names:
        measure = measure_of(name, own)
        if measure is MACRO and all(label_kind(row.training) == "numbers" for row in rows):
            raise UsageError(
                f"measure = {name!r}: labels are numbers, which have no classes; use 'accuracy', which is R²"
            )
        section, _, key = measure.setting.partition(".")
        is_set = not section or any(getattr(getattr(row, section), key) for row in rows)
        if not is_set and not (measure.setting == _CLIENTS and any(_tests_clients(row, given) for row in rows)):
            raise UsageError(measure.missing)


def _tests_clients(row: Experiment, given: Given) -> bool:
    """Whether clients have test samples of their own, so that every evaluation on the test set measures them."""
    if label_kind(row.training) == "numbers":
        return False
    settled = on_data(Cell("", row.seed, row.single(row.seed)), given).experiment
    partition = settled.federation.partition
    natural = partition.name == "natural" or partition.parameters.get("natural") is True
    return natural and load_data(settled, given)[0].test_clients is not None


def value_of(measure: Measure, result: Result, measured: Measured, target: float) -> float:
    """The measure of a run; NaN if it is not known, and for the cost of a target that the run has not reached.

    Args:
        measure: the measure.
        result: the results of the run.
        measured: the measures of the same run.
        target: the target accuracy; used for its costs only.
    """
    if measure.name in TO_TARGET:
        value = measured.cost_of(target)[TO_TARGET.index(measure.name)]
    elif measure.name in MEASURES:
        value = getattr(result, measure.name)
    else:
        value = result.own_measures.get(measure.name, math.nan)
    return float(value) if math.isfinite(value) else math.nan


@dataclass(frozen=True, eq=False)
class MeasureDifferences:
    """The differences of all rows of a comparison to their references in one measure.

    Args:
        measure: the measure.
        score: how scores are written, and which are possible.
        rows: the rows.
        values: the values of each row by seed; NaN is unknown.
        counted: the seeds of each row that its mean covers.
        references: for each row, the position of its reference.
        waiting: positions of rows that cannot be compared with their reference yet.
        planned: see :func:`~fedcohort.study.verdicts.verdicts`.
    """

    measure: Measure
    score: ScoreStyle
    rows: Sequence[Row]
    values: Sequence[Mapping[int, float]]
    counted: Sequence[Sequence[int]]
    references: Sequence[int]
    waiting: frozenset[int]
    planned: int

    @property
    def known(self) -> bool:
        """Whether any run has a value."""
        return any(math.isfinite(value) for values in self.values for value in values.values())

    def paired(self, position: int, reference: int) -> tuple[list[float], list[float]]:
        """The values of two rows, by their positions, over the seeds that both have; none if they cannot be compared yet."""
        pair = Group("", (position, reference), reference)
        if without_difference([pair], [row.runs for row in self.rows]):
            return [], []
        own, first = self.values[position], self.values[reference]
        seeds = [seed for seed in own if seed in first]
        return [own[seed] for seed in seeds], [first[seed] for seed in seeds]

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """Whether the difference of each row is clear; all rows share one correction for several comparisons."""
        paired = [self.paired(i, j) for i, j in enumerate(self.references)]
        return verdicts(paired, self.references, self.waiting, self.planned, self.measure.words)

    @property
    def comparisons(self) -> int:
        """The number of differences that p-values are corrected for; 0 as long as there is no p-value."""
        return corrected_for(self.verdicts, self.planned)

    def columns(self, position: int) -> dict[str, Any]:
        """The difference of a row to its reference, its intervals and its verdict, by the names of columns."""
        verdict = self.verdicts[position]
        tested = self.comparisons if math.isfinite(verdict.p_holm) else 0
        return {
            **difference_columns(*self.paired(position, self.references[position]), self._limits, tested),
            "paired_seeds": verdict.seeds,
            "p_value": verdict.p_value,
            "p_holm": verdict.p_holm,
            "verdict": verdict.words,
        }

    @property
    def _limits(self) -> tuple[float, float]:
        """The smallest and the largest difference that is possible."""
        if self.measure.form == "index":
            return -1.0, 1.0
        if self.measure.form == "score" and self.measure.name != "personal_gain":
            return self.score.differences
        return -math.inf, math.inf

    @cached_property
    def table(self) -> "pd.DataFrame":
        """One row for each row of the comparison; see :meth:`Comparison.differences`."""
        import pandas as pd

        return pd.DataFrame(map(self._row, range(len(self.rows))))

    def _row(self, position: int) -> dict[str, Any]:
        """A row of the table."""
        values = [self.values[position][seed] for seed in self.counted[position]]
        mean, sd = measures.mean_sd(values) if np.isfinite(values).all() else (math.nan, math.nan)
        return {
            "label": self.rows[position].label,
            "reference": self.rows[self.references[position]].label,
            "seeds": len(values),
            "mean": mean,
            "sd": sd,
            **self.columns(position),
        }

    @property
    def about_verdicts(self) -> str:
        """How the verdicts are made, and what the number of seeds cannot show, in words."""
        no_result = ABOUT_NO_RESULT if self.measure is ACCURACY else ABOUT_NO_VALUE
        return about_verdicts(self.verdicts, self.planned, no_result)

    def to_json(self) -> list[dict[str, object]]:
        """The table as plain values; unknown values are None."""
        return [{str(key): plain(value) for key, value in row.items()} for row in self.table.to_dict("records")]


ABOUT_NO_VALUE = (
    "No result: under a seed, the row or its reference has no value, because it was not measured, or because a target was not "
    "reached. It has no verdict, but counts as a comparison."
)
