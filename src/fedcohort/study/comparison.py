"""A comparison of finished runs: one row for each strategy, and a table of means, differences and costs."""

import itertools
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcohort import measures
from fedcohort.core.errors import UsageError
from fedcohort.core.plugins import short_name
from fedcohort.core.words.formatted_values import counted
from fedcohort.core.words.score_style import ScoreStyle, score_style
from fedcohort.study.chance import about_chance
from fedcohort.study.health import Checked, Finding, findings
from fedcohort.study.measure_differences import ACCURACY, Measure, MeasureDifferences, measure_of, value_of
from fedcohort.study.measured_values import AVERAGED, Result, own_measure_columns, plain, result_of
from fedcohort.study.rows import unfinished_rows
from fedcohort.study.rows.comparison_row import Row, about_times, rounds_of
from fedcohort.study.rows.equal_rows import equal_rows
from fedcohort.study.rows.references import Entry, Group, grouped, names_at_points
from fedcohort.study.run_measures import Measured, after_last_tests, measured_of
from fedcohort.study.targets import FOR_EACH, TO_TARGET, Target, about_targets, costs_of_target, group_targets
from fedcohort.study.verdicts import Verdict

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Comparison", "Row", "Target"]


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Rows of finished runs, side by side. Printing it shows the table; ``.table`` and ``.rounds`` are DataFrames.

    Attributes:
        name: name of the experiment.
        rows: one row for each strategy, in the order of the experiment; differences are taken to the reference row.
        note: a sentence about runs that are compared before they are finished; empty for finished runs.
        reference: label of the reference row; by default the first row with uniform selection, or else the first row. In a sweep,
            each row is compared with the reference at the same point of the grid.
        planned: the number of differences to references once all runs are there; 0 if no more runs are played. See
            :func:`~fedcohort.study.verdicts.verdicts`.
    """

    name: str
    rows: tuple[Row, ...]
    note: str = ""
    reference: str = ""
    planned: int = 0

    def __repr__(self) -> str:
        """The rows and their mean accuracies, at most five of them."""
        first = {row.label: [run.accuracy for run in self.results[row.label]] for row in self.rows[:5]}
        rows = [f"{label} {self.score.with_unit(float(np.mean(each)))}" for label, each in first.items()]
        more = [f"{len(self.rows) - 5} more"] if len(self.rows) > 5 else []
        return f"<Comparison {self.name}, {counted(len(self.seeds), 'seed')}: {', '.join([*rows, *more])}>"

    @cached_property
    def score(self) -> ScoreStyle:
        """How the score is named and written: the accuracy, or R² for numeric labels, which all columns of accuracy then hold.

        Raises:
            UsageError: there are rows of both kinds.
        """
        return score_style(run.labels for row in self.rows for run in row.runs.values())

    @cached_property
    def results(self) -> dict[str, list[Result]]:
        """The results of every run, by label, in the order of the seeds."""
        return {row.label: [result_of(run) for run in self.measured(i)] for i, row in enumerate(self.rows)}

    @cached_property
    def groups(self) -> list[Group]:
        """The rows that are compared with each other, and their reference; several groups for the points of a sweep."""
        return grouped(self._entries, self.reference)

    @property
    def in_groups(self) -> list[int]:
        """The positions of all rows in the order of tables: the rows of each group together."""
        return [i for group in self.groups for i in group.rows]

    @cached_property
    def _entries(self) -> list[Entry]:
        return [
            Entry(row.label, row.given("selector") or row.experiment.selection.name, row.experiment)
            for row in self.rows
        ]

    @cached_property
    def names_without_settings(self) -> list[str]:
        """The label of each row without the settings of a sweep; different for all rows of a group."""
        return names_at_points(self._entries, self.groups)

    @cached_property
    def references(self) -> list[int]:
        """For each row, the position of the row that it is compared with; its own position for a reference."""
        of_row = {i: group.reference for group in self.groups for i in group.rows}
        return [of_row[i] for i in range(len(self.rows))]

    @cached_property
    def targets(self) -> list[Target]:
        """The target accuracy of each group: ``measures.target_accuracy``, or else a level taken from the results.

        That level is the lowest of the mean best test accuracies of the rows about the same clients and data, rounded down to two
        decimals, without rows in which no update was admitted under a seed, or a model diverged or predicts one class, rows at chance,
        far below the best, or behind the others. Rows in which an update diverged count only if there are no others. A run below the
        mean of its row may miss the target: ``reached`` in the table counts those that reach it.
        """
        runs = [self.measured(i) for i in range(len(self.rows))]
        given = [row.experiment.measures.target_accuracy for row in self.rows]
        return group_targets([row.label for row in self.rows], runs, given, self.groups, self.score.name)

    @property
    def target(self) -> Target:
        """The target of all rows; NaN without one, or if rows about other clients or data have another one, see :attr:`targets`."""
        return self.targets[0] if len(set(self.targets)) == 1 else Target(math.nan, FOR_EACH)

    @property
    def goal(self) -> str:
        """The target as headings name it: its level, or ``target`` if there are several, or none."""
        return "target" if math.isnan(self.target.accuracy) else self.score.target(self.target.accuracy)

    @property
    def about_targets(self) -> str:
        """The targets and how they were chosen, in words."""
        return about_targets(self.targets, self.groups, self.score)

    def measured(self, position: int) -> list[Measured]:
        """The measures of the runs of a row, in the order of the seeds."""
        return [self._measured[position, seed] for seed in sorted(self.rows[position].runs)]

    def averaged(self, position: int) -> list[Measured]:
        """Those of them that the means of the row cover, see :attr:`counted`."""
        return [self._measured[position, seed] for seed in sorted(self.counted[position].runs)]

    @cached_property
    def _measured(self) -> dict[tuple[int, int], Measured]:
        """The measures of all runs, by the position of the row and the seed: every run is read once."""
        return {(i, seed): measured_of(run) for i, row in enumerate(self.rows) for seed, run in row.runs.items()}

    def _target_of(self, position: int) -> Target:
        """The target of the group of a row."""
        return next(target for group, target in zip(self.groups, self.targets, strict=True) if position in group.rows)

    @property
    def seeds(self) -> list[int]:
        """All seeds of all rows, ascending."""
        return sorted({seed for row in self.rows for seed in row.runs})

    @property
    def place(self) -> str:
        """The folders of the run directories, in words."""
        folders = sorted({str(run.path.parent) for row in self.rows for run in row.runs.values()})
        return f"Runs: {', '.join(folders)}"

    @cached_property
    def table(self) -> "pd.DataFrame":
        """One row for each strategy, with means over its seeds; NaN is unknown.

        * ``label``, ``selection``, ``algorithm``, and ``seeds``, the number of seeds that the means cover, see :attr:`counted`.
        * ``point``, the point of the sweep (empty without several), and ``reference``, the label of the row that this one is compared
          with: the row itself if it is a reference.
        * ``accuracy``, ``accuracy_sd``, ``best_accuracy``, ``early_stop_accuracy``, ``local_accuracy``: see :class:`Result`.
        * ``difference``, ``difference_low``, ``difference_high``: mean difference of the accuracy to that of the reference, over
          the seeds that both have, and its paired 95% confidence interval, within −1 and 1. ``corrected_low``, ``corrected_high``:
          the interval that is corrected (Bonferroni) for :attr:`comparisons`; NaN without a verdict.
        * ``paired_seeds``, their number, ``p_value``, ``p_holm`` and ``verdict``: see :class:`~fedcohort.study.verdicts.Verdict`.
        * ``target_accuracy``, ``rounds_to_target``, ``time_to_target`` (see :attr:`about_times`), ``bytes_to_target``: means over
          the seeds that reached the target, and ``reached``, their number; ``unfinished``, the number of runs with rounds left.
        * For each own measure (``measures.extra``), a column with its name, and one with ``_sd`` added: mean and standard deviation
          over the seeds of its value in the last evaluated round. They are the last columns.
        * ``jain``, ``jain_random``, ``bytes``, ``client_passes``, ``simulated_time``, ``wall_seconds``, ``updates``, ``diverged``,
          ``macro_accuracy``, ``client_accuracy``, ``worst_client_accuracy``, ``client_accuracy_sd``,
          ``personal_accuracy``, ``worst_personal_accuracy``, ``personal_gain``: see :class:`Result`.
        """
        import pandas as pd

        return pd.DataFrame(map(self._summary, range(len(self.rows))))

    def differences(self, measure: str) -> "pd.DataFrame":
        """The differences of all rows to their references in any measure, such as fairness or a cost, with verdicts.

        Args:
            measure: a column of :attr:`table`, such as ``worst_client_accuracy``, ``bytes``, ``time_to_target`` or an own measure.

        Returns:
            One row for each strategy: ``label``, ``reference``, ``seeds``, ``mean`` and ``sd`` over them, and the columns of
            :attr:`table` from ``difference`` to ``verdict``. A row without a value under one of its seeds, such as a target that was
            not reached, has NaN as its mean. p-values are corrected for the rows, not for the number of measures.

        Raises:
            UsageError: there are no differences of it, or no run has it because of a setting.
        """
        return self.differences_in([measure])[0].table

    def differences_in(self, names: Iterable[str]) -> list[MeasureDifferences]:
        """The differences in each of these measures; see :meth:`differences`."""
        found = list(map(self.differences_of, dict.fromkeys(measure_of(name, self.own_measures) for name in names)))
        for one in found:
            if one.measure.setting and not one.known:
                raise UsageError(one.measure.missing)
        return found

    def differences_of(self, measure: Measure) -> MeasureDifferences:
        """The differences in a measure, whether any run has it or not."""
        targets = [
            self._target_of(i).accuracy if measure.name in TO_TARGET else math.nan for i in range(len(self.rows))
        ]
        values = [
            {own.seed: value_of(measure, own, self._measured[i, own.seed], targets[i]) for own in results}
            for i, results in enumerate(self.results.values())
        ]
        seeds = [sorted(row.runs) for row in self.counted]
        return MeasureDifferences(
            measure, self.score, self.rows, values, seeds, self.references, self.without_difference, self.planned
        )

    @cached_property
    def _accuracies(self) -> MeasureDifferences:
        return self.differences_of(ACCURACY)

    @property
    def verdicts(self) -> list[Verdict]:
        """Whether the difference of each row to its reference is clear; all rows share one correction for several comparisons."""
        return self._accuracies.verdicts

    @property
    def comparisons(self) -> int:
        """The number of differences that p-values are corrected for; 0 as long as there is no p-value."""
        return self._accuracies.comparisons

    @cached_property
    def uneven(self) -> frozenset[int]:
        """The positions of rows that are not ranked yet, see :func:`~fedcohort.study.rows.unfinished_rows.uneven_rows`."""
        return unfinished_rows.uneven_rows(self.groups, [list(row.runs.values()) for row in self.rows])

    @cached_property
    def without_difference(self) -> frozenset[int]:
        """The positions of rows that cannot be compared with their reference yet."""
        return unfinished_rows.without_difference(self.groups, [row.runs for row in self.rows])

    @cached_property
    def counted(self) -> list[Row]:
        """The rows with the runs that their means cover, see :func:`~fedcohort.study.rows.unfinished_rows.counted_runs`."""
        return [Row(row.label, row.experiment, unfinished_rows.counted_runs(row.runs)) for row in self.rows]

    @property
    def about_counted(self) -> str:
        """Which runs are not in the means of their rows yet, in words; empty if all are."""
        runs = {row.label: (self.counted[i].runs, row.runs) for i, row in enumerate(self.rows)}
        return unfinished_rows.about_counted(runs)

    @property
    def when(self) -> str:
        """After which round accuracies are compared, in words."""
        runs = [run for row in self.rows for run in row.runs.values()]
        if self.uneven:
            return "after the last round of each run so far"
        if self.note or any(map(unfinished_rows.is_untested, runs)):
            return after_last_tests(runs)
        return f"after the last round{' so far' * any(unfinished_rows.rounds_left(run) for run in runs)}"

    @property
    def about_verdicts(self) -> str:
        """How the verdicts are made, and what the number of seeds cannot show, in words."""
        return self._accuracies.about_verdicts

    @cached_property
    def health(self) -> list[Finding]:
        """What is wrong with the runs, or makes their results say little, the most serious first; empty if all is well."""
        reached = self.table["reached"].tolist()
        checked = [
            Checked(row.label, self.measured(i), int(reached[i]), self._target_of(i)) for i, row in enumerate(self.rows)
        ]
        return findings(checked, self.score, self.verdicts, self.planned)

    @cached_property
    def rounds(self) -> "pd.DataFrame":
        """One row for each round of each run: ``label``, ``seed``, ``round``, then the columns of :attr:`fedcohort.Run.rounds`."""
        return rounds_of(self.rows)

    @property
    def about_times(self) -> str:
        """What the times mean, in words: simulated time, or seconds of wall time for runs on real machines."""
        return about_times(self.rows)

    @cached_property
    def about_chance(self) -> str:
        """Among which clients uniform selection selects, in words, see :func:`~fedcohort.study.chance.about_chance`."""
        return about_chance(run.chance for i in range(len(self.rows)) for run in self.measured(i))

    def to_json(self) -> dict[str, Any]:
        """The table, the target and every run's result as plain values; unknown values are None."""
        summaries = [{str(key): plain(value) for key, value in row.items()} for row in self.table.to_dict("records")]
        for summary, row in zip(summaries, self.rows, strict=True):
            summary["runs"] = [result.to_json() for result in self.results[row.label]]
        note = {"note": self.note} if self.note else {}
        return {
            "name": self.name,
            "seeds": self.seeds,
            "target": plain(asdict(self.target)),
            "targets": [
                plain({"point": group.point, **asdict(target)})
                for group, target in zip(self.groups, self.targets, strict=True)
            ],
            **note,
            "health": [finding.to_json() for finding in self.health],
            "rows": summaries,
        }

    def _summary(self, position: int) -> dict[str, Any]:
        """A row of the table."""
        row = self.rows[position]
        results = [own for own in self.results[row.label] if own.seed in self.counted[position].runs]
        accuracy, sd = measures.mean_sd([result.accuracy for result in results])
        values = {name: float(np.mean([getattr(result, name) for result in results])) for name in AVERAGED}
        return {
            "label": row.label,
            "selection": row.given("selector") or short_name(row.experiment.selection.name),
            "algorithm": row.given("algorithm") or short_name(row.experiment.algorithm.name),
            "seeds": len(results),
            "point": next(group.point for group in self.groups if position in group.rows),
            "reference": self.rows[self.references[position]].label,
            "accuracy": accuracy,
            "accuracy_sd": sd,
            **{name: values.pop(name) for name in ("best_accuracy", "early_stop_accuracy", "local_accuracy")},
            **self._accuracies.columns(position),
            **costs_of_target(self.averaged(position), self._target_of(position).accuracy),
            "unfinished": sum(unfinished_rows.rounds_left(run) > 0 for run in row.runs.values()),
            **values,
            **own_measure_columns(self.own_measures, results),
        }

    @cached_property
    def own_measures(self) -> list[str]:
        """The names of the measures of ``measures.extra``, of all rows."""
        results = itertools.chain.from_iterable(self.results.values())
        return list(dict.fromkeys(name for result in results for name in result.own_measures))

    def are_equal(self, position: int, other: int) -> bool:
        """Whether two rows have the same seeds, clients and accuracies, see :func:`~fedcohort.study.rows.equal_rows.equal_rows`."""
        return bool(equal_rows([self.measured(i) for i in (position, other)]))

    def paired(self, position: int, reference: int) -> tuple[list[float], list[float]]:
        """The accuracies of two rows, by their positions, over the seeds that both have; none if they cannot be compared yet."""
        return self._accuracies.paired(position, reference)
