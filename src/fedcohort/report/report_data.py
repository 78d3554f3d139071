"""Read runs for the report, whether they are finished, still going on, or have no round yet."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.score_style import ScoreStyle, score_style
from fedcohort.record import Portrait, Run
from fedcohort.report.cached_run import CachedRun
from fedcohort.report.chart_style import Look, RowLooks
from fedcohort.report.client_rounds import ClientRounds
from fedcohort.report.missing_runs import Missing
from fedcohort.report.panel_rows import LINES, OWN_COLORS, rows_with_panel
from fedcohort.report.row_looks import row_looks
from fedcohort.report.runs_on_disk import begun, find_runs
from fedcohort.report.shortened_names import short
from fedcohort.study.chance import Chance, chance_in
from fedcohort.study.compare_existing_runs import FirstRounds, names_of, side_by_side
from fedcohort.study.comparison import Comparison, Row
from fedcohort.study.references import clients_data_and_systems
from fedcohort.study.run_measures import Measured, Personal, bytes_per_round

if TYPE_CHECKING:
    import pandas as pd

    from fedcohort.experiment import Experiment

__all__ = ["POINTS", "CachedRun", "Reading", "Story", "begun", "blocks", "find_runs", "gather"]

POINTS = 300
"""Largest number of points of a line; with more rounds, a point is the mean of a block of rounds."""


class Reading:
    """One run as charts need it: its tables up to the same round, and what is computed from them. Everything is read once.

    Attributes:
        run: the run.
        label: label of its row, shortened for charts.
    """

    def __init__(self, run: Run, label: str) -> None:
        self.run, self.label = run, label

    def called(self, label: str) -> "Reading":
        """The same run under another label; what is computed already is not computed again."""
        other = copy(self)
        other.label = label
        return other

    @cached_property
    def meta(self) -> dict[str, str]:
        """Label, versions and status of the run."""
        return self.run.meta

    @cached_property
    def experiment(self) -> "Experiment":
        """The resolved experiment, as it was recorded."""
        return self.run.described

    @cached_property
    def rounds(self) -> "pd.DataFrame":
        """One row for each round."""
        return self.run.rounds

    @cached_property
    def clients(self) -> "pd.DataFrame":
        """One row for each selected client of each round."""
        return self._so_far(self.run.clients)

    @cached_property
    def ledger(self) -> "pd.DataFrame":
        """Cost: one row for each kind of exchange in each round."""
        return self._so_far(self.run.ledger)

    def _so_far(self, frame: "pd.DataFrame") -> "pd.DataFrame":
        """The table without rounds that were played after :attr:`rounds` was read."""
        return frame[frame["round"] <= self.num_rounds]

    @cached_property
    def wall(self) -> "pd.DataFrame":
        """Wall time of the simulator in seconds, by part of a round."""
        return self.run.wall.loc[: self.num_rounds]

    @cached_property
    def portrait(self) -> Portrait:
        """The clients: samples, classes, speed, label noise."""
        return self.run.portrait

    @cached_property
    def client_accuracy(self) -> "pd.DataFrame":
        """Accuracy of the model on each client's own data, rounds × clients; empty if it was not measured."""
        return self.run.client_accuracy.loc[: self.num_rounds]

    @cached_property
    def personal(self) -> Personal:
        """The last measured accuracy of the clients' personal models; NaN if it was not measured."""
        return Measured(self.run).personal

    @property
    def num_clients(self) -> int:
        """Number of clients, m."""
        return int(self.experiment.federation.clients)

    @property
    def num_rounds(self) -> int:
        """Number of rounds played so far, n."""
        return len(self.rounds)

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return int(self.meta["seed"])

    @cached_property
    def finished(self) -> bool:
        """Whether all rounds have been played."""
        return self.meta["status"] == "finished"

    @property
    def ended(self) -> bool:
        """Whether the run has no further round to play."""
        return self.finished or self.num_rounds >= self.experiment.rounds

    @cached_property
    def bytes(self) -> Values:
        """Bytes sent and received up to the end of each round [n]."""
        return np.cumsum(bytes_per_round(self.ledger, self.rounds.index))

    @cached_property
    def selected(self) -> ClientRounds:
        """The clients that were selected in each round."""
        return ClientRounds.of(self.clients, self.num_rounds, self.num_clients)

    @cached_property
    def admitted(self) -> ClientRounds:
        """The clients whose updates entered the model in each round."""
        entered = self.clients[self.clients["status"] == "admitted"]
        return ClientRounds.of(entered, self.num_rounds, self.num_clients)

    @cached_property
    def chance(self) -> Chance:
        """What uniform selection of as many of the available clients gives in each round."""
        return chance_in(self.experiment, self.portrait.facts.get("samples"), self.rounds)

    @cached_property
    def class_accuracy(self) -> Values:
        """Test accuracy of each class [n, K]; NaN where it was not measured."""
        rows = self.rounds["class_accuracy"].tolist()
        width = max((len(row) for row in rows), default=0)
        return np.array([row if row else [np.nan] * width for row in rows], dtype=np.float64).reshape(len(rows), width)

    @cached_property
    def classes(self) -> list[str]:
        """Names of the classes, shortened for charts; numbers if the run has no names."""
        number = self.class_accuracy.shape[1] or len(self.portrait.classes)
        names = self.portrait.classes or tuple(map(str, range(number)))
        return short(names, 16)

    def decisions(self, *, selected_only: bool = False) -> "pd.DataFrame":
        """Round, client, selected, score and terms of every candidate, or of the selected clients only."""
        return self._so_far(self.run.read_decisions(selected_only=selected_only))

    @property
    def considered(self) -> int:
        """Number of recorded candidates, over all rounds."""
        return self.run.number_of_decisions


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
        [Reading(row.runs[seed], label) for seed in sorted(row.runs)] for label, row in zip(labels, rows, strict=True)
    ]
    return Story(name, rows, labels, readings, reference, missing=missing, note=note, planned=planned)


def blocks(length: int, most: int) -> Indices:
    """Cut ``length`` items into at most ``most`` blocks of equal size: the block of each item, int64 [length]."""
    size = max(1, -(-length // most))
    return np.arange(length) // size
