"""Read runs for the report, whether they are finished, still going on, or have no round yet."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedcohort.core.arrays import Indices
from fedcohort.core.words.score_style import ScoreStyle, score_style
from fedcohort.record import Run
from fedcohort.report.data.cached_run import CachedRun
from fedcohort.report.data.kept_runs import reading_of
from fedcohort.report.data.missing_runs import Missing
from fedcohort.report.data.reading import Reading
from fedcohort.report.data.runs_on_disk import begun, find_runs
from fedcohort.report.figures.chart_style import Look, RowLooks
from fedcohort.report.figures.panel_rows import LINES, OWN_COLORS, rows_with_panel
from fedcohort.report.figures.row_looks import row_looks
from fedcohort.report.figures.shortened_names import short
from fedcohort.study.compare_existing_runs import FirstRounds, names_of, side_by_side
from fedcohort.study.comparison import Comparison, Row
from fedcohort.study.rows.references import clients_data_and_systems

__all__ = ["POINTS", "CachedRun", "Reading", "Story", "begun", "blocks", "find_runs", "gather"]

POINTS = 300
"""Largest number of points of a line; with more rounds, a point is the mean of a block of rounds."""


@dataclass(frozen=True, eq=False)
class Story:
    """Everything that a report shows.

    Attributes:
        name: name of the experiment, or of the folder.
        rows: strategies with their runs by seed, in order.
        labels: labels of the rows, shortened for charts and distinct.
        readings: the runs of each row, in the order of the seeds.
        reference: label of the row that the others are compared with; see :class:`~fedcohort.study.comparison.Comparison`.
        seed: the seed of charts of single clients; None for the first seed of each row.
        missing: the runs of experiment files that have not begun.
        note: a sentence about runs that are compared before they are finished, see :class:`~fedcohort.study.comparison.Comparison`.
        planned: the number of differences to references once all runs are there; 0 if no more are played, or not known.
    """

    name: str
    rows: tuple[Row, ...]
    labels: list[str]
    readings: list[list[Reading]]
    reference: str = ""
    seed: int | None = None
    missing: Sequence[Missing] = ()
    note: str = ""
    planned: int = 0

    def at_seed(self, seed: int) -> "Story":
        """The same runs, with charts of single clients for another seed; what covers all seeds is not computed again."""
        story = replace(self, seed=seed)
        same = ("comparison", "score", "played", "row_looks", "federation_of_point")  # they do not depend on the seed
        vars(story).update({name: getattr(self, name) for name in same})
        return story

    @cached_property
    def seeds(self) -> list[int]:
        """The seeds of all runs with a finished round, ascending."""
        return sorted({reading.seed for _, readings in self.played for reading in readings})

    @property
    def everything(self) -> list[Reading]:
        """All runs of all rows."""
        return [reading for row in self.readings for reading in row]

    @cached_property
    def comparison(self) -> Comparison | None:
        """The rows that have at least one finished round, side by side; None if there is no such row."""
        rows = []
        for row, readings in zip(self.rows, self.readings, strict=True):
            played = {reading.seed: reading.run for reading in readings if reading.num_rounds}
            if played:
                rows.append(Row(row.label, row.experiment, played))
        return Comparison(self.name, tuple(rows), self.note, self.reference, self.planned) if rows else None

    @cached_property
    def score(self) -> ScoreStyle:
        """How the score is named and written: the accuracy, or R² for numeric labels."""
        return score_style(reading.run.labels for reading in self.everything)

    @cached_property
    def first(self) -> list[Reading]:
        """One run of each row that has a finished round: charts of single clients show these runs."""
        return [reading for _, reading in self._single]

    @property
    def _single(self) -> list[tuple[str, Reading]]:
        """Label and run of each row at the seed of charts of single clients; rows without this seed are left out."""
        if self.seed is None:
            return [(label, readings[0]) for label, readings in self.played]
        return [
            (label, reading) for label, readings in self.played for reading in readings if reading.seed == self.seed
        ]

    @cached_property
    def played(self) -> list[tuple[str, list[Reading]]]:
        """The rows with a finished round: label, and those of their runs that have one."""
        rows = [
            (label, [reading for reading in readings if reading.num_rounds])
            for label, readings in zip(self.labels, self.readings, strict=True)
        ]
        return [(label, readings) for label, readings in rows if readings]

    @property
    def in_order(self) -> list[str]:
        """The labels of rows with a finished round in the order of tables: those at each point of a sweep together."""
        return [self.played[i][0] for i in self.comparison.in_groups] if self.comparison is not None else []

    @cached_property
    def federation_of_point(self) -> list[int]:
        """For each point of a sweep, the number of its federation; points with the same clients, data and systems have the same."""
        if self.comparison is None:
            return []
        firsts = [self.comparison.rows[group.rows[0]].experiment for group in self.comparison.groups]
        texts = [clients_data_and_systems(experiment) for experiment in firsts]
        numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        return [numbers[text] for text in texts]

    def in_federation(self, number: int) -> list[Reading]:
        """The runs of charts of single clients that have the federation with this number."""
        if self.comparison is None or not any(self.federation_of_point):
            return self.first
        groups = zip(self.comparison.groups, self.federation_of_point, strict=True)
        labels = {self.played[i][0] for group, own in groups if own == number for i in group.rows}
        return [reading for label, reading in self._single if label in labels]

    @cached_property
    def row_looks(self) -> RowLooks:
        """How charts of the page tell rows apart."""
        return self._row_looks(LINES)

    @cached_property
    def paper_row_looks(self) -> RowLooks:
        """The same for papers, which name fewer rows."""
        return self._row_looks(OWN_COLORS)

    def looks_in(self, look: Look) -> RowLooks:
        """How the page or a paper tells rows apart."""
        return self.row_looks if look.page else self.paper_row_looks

    def _row_looks(self, most: int) -> RowLooks:
        """How rows are told apart if charts of more than ``most`` rows name some of them."""
        return row_looks(self.comparison, [label for label, _ in self.played], most, finished=not self.unfinished)

    @cached_property
    def panels(self) -> list[tuple[str, Reading]]:
        """Label and run of the rows that get a panel; of many rows, the reference and the best ones of each point of a sweep."""
        if self.comparison is None:
            return []
        known = dict(self._single)
        at = {i: label for i, (label, _) in enumerate(self.played) if label in known}
        chosen = rows_with_panel(self.comparison, at, not self.unfinished)
        return [(at[i], known[at[i]]) for i in self.comparison.in_groups if i in chosen]

    @property
    def unfinished(self) -> list[Reading]:
        """The runs that have rounds left to play."""
        return [reading for reading in self.everything if not reading.finished]


def gather(
    runs: Sequence[Run],
    name: str | None = None,
    reference: str = "",
    *,
    missing: Sequence[Missing] = (),
    note: str = "",
    planned: int = 0,
) -> Story:
    """Read runs, finished or not. Runs that differ only in their seed become one row.

    Args:
        runs: the runs.
        name: title of the page; by default the names of the experiments.
        reference: label of the row that the others are compared with.
        missing: the runs of experiment files that have not begun.
        note: a sentence about runs that are compared before they are finished.
        planned: the number of differences to references once all runs are there; by default, that of ``missing``.
    """
    name, planned = name or names_of(runs), planned or sum(one.comparisons for one in missing)
    rows = side_by_side([run if isinstance(run, FirstRounds) else CachedRun(run) for run in runs])
    labels = short([row.label for row in rows], 28 if len(rows) <= 8 else 34)
    readings = [
        [reading_of(row.runs[seed], label) for seed in sorted(row.runs)]
        for label, row in zip(labels, rows, strict=True)
    ]
    return Story(name, rows, labels, readings, reference, missing=missing, note=note, planned=planned)


def blocks(length: int, most: int) -> Indices:
    """Cut ``length`` items into at most ``most`` blocks of equal size: the block of each item, int64 [length]."""
    size = max(1, -(-length // most))
    return np.arange(length) // size
