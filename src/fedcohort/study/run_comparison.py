"""Run the rows of an experiment under all seeds, except runs that exist already, and compare them."""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedcohort.core.errors import UsageError
from fedcohort.core.given_values import whole_number
from fedcohort.core.user_code.python_plugins import check_unchanged
from fedcohort.experiment import Cell, Experiment
from fedcohort.experiment.given_objects import Given
from fedcohort.experiment.pairings import check_row
from fedcohort.experiment.python_objects import names_in
from fedcohort.record import Run
from fedcohort.runs.play_run import Progress, run_cell
from fedcohort.runs.run_data import on_data
from fedcohort.runs.shared_runs import in_turn
from fedcohort.study.comparison import Comparison, Row
from fedcohort.study.rows.references import check_reference

if TYPE_CHECKING:
    from fedcohort.algorithms import Algorithm
    from fedcohort.selection import Selector

__all__ = ["PlannedRow", "Watch", "compare", "planned_rows"]


def compare(
    experiment: Experiment,
    given: Given,
    *,
    selector: "Selector | Mapping[str, Selector] | None" = None,
    algorithm: "Algorithm | Mapping[str, Algorithm] | None" = None,
    runs: str | Path = "runs",
    progress: Progress | None = None,
    jobs: int = 1,
    trust: bool = False,
    reference: str = "",
    watch: "Watch | None" = None,
) -> Comparison:
    """Run every row of an experiment under every seed, and compare the rows; see :func:`fedcohort.compare`.

    ``watch`` hears how many runs there are, and which are finished.
    """
    rows = planned_rows(experiment, given, selector, algorithm)
    for row in rows:
        row.check()
    check_reference([row.label for row in rows], reference)
    jobs = whole_number("jobs", jobs, 1)
    watch = Watch() if watch is None else watch
    planned = [(row, cell) for row in rows for cell in row.cells(experiment.all_seeds)]
    watch.begin(len(planned))
    if jobs > 1:
        from fedcohort.runs.parallel_runs import run_cells

        run_cells([(cell, row.given) for row, cell in planned], runs, jobs, trust=trust, finished=watch.finished)

    def play(each: tuple[PlannedRow, Cell]) -> Run:
        row, cell = each
        return run_cell(cell, row.given, runs=runs, progress=progress, trust=trust)

    played = {}
    for (of_row, cell), run in in_turn(planned, play):
        played[of_row.label, cell.seed] = run
        watch.finished(cell)
    by_seed = [{seed: played[row.label, seed] for seed in experiment.all_seeds} for row in rows]
    compared = [Row(row.label, row.experiment, own) for row, own in zip(rows, by_seed, strict=True)]
    return Comparison(experiment.name, tuple(compared), reference=reference)


class Watch:
    """Hears how far several runs are. This class does nothing; a subclass shows it."""

    def begin(self, runs: int) -> None:
        """The number of runs, before the first one."""

    def finished(self, cell: Cell) -> None:
        """A run is finished; it may be one that was finished before. A run can be reported twice."""


@dataclass(frozen=True)
class PlannedRow:
    """A row to run.

    Attributes:
        label: label of the row.
        experiment: its experiment.
        given: the objects from Python that it runs with.
    """

    label: str
    experiment: Experiment
    given: Given

    def cells(self, seeds: Iterable[int]) -> list[Cell]:
        """The runs of the row."""
        return [Cell(self.label, seed, self.experiment.single(seed)) for seed in seeds]

    def check(self) -> None:
        """Refuse a strategy and an algorithm that cannot be combined, a strategy that cannot work with the number of clients, classes
        that have changed, and more clients to select than a user's own data have, before anything is run."""
        for name in names_in(self.experiment):
            check_unchanged(name)
        selector, algorithm, experiment = self.given.selector, self.given.algorithm, self.experiment
        selector = selector if selector is not None else experiment.selection.build()
        check_row(self.label, selector, algorithm if algorithm is not None else experiment.algorithm.build())
        if "federation.clients" in experiment.left_to_data:
            (first,) = self.cells([experiment.seed])
            experiment = on_data(first, self.given).experiment
        try:
            selector.check_clients(experiment.federation.clients)
        except UsageError as error:
            raise UsageError(f"row {self.label!r}: {error}") from None


def planned_rows(
    experiment: Experiment,
    given: Given,
    selector: "Selector | Mapping[str, Selector] | None",
    algorithm: "Algorithm | Mapping[str, Algorithm] | None",
) -> list[PlannedRow]:
    """The rows of an experiment, each with the objects that it runs with, and the rows that dictionaries of objects add.

    Raises:
        UsageError: two rows have the same label.
    """
    shared = replace(
        given,
        selector=None if isinstance(selector, Mapping) else selector,
        algorithm=None if isinstance(algorithm, Mapping) else algorithm,
    )
    rows = list(_own_rows(experiment, shared))
    if isinstance(selector, Mapping):
        rows += [PlannedRow(label, experiment.base, replace(shared, selector=each)) for label, each in selector.items()]
    if isinstance(algorithm, Mapping):
        rows += [
            PlannedRow(label, experiment.base, replace(shared, algorithm=each)) for label, each in algorithm.items()
        ]
    for label, number in Counter(row.label for row in rows).items():
        if number > 1:
            raise UsageError(
                f"label {label!r}: used by {number} rows; give every row of the comparison a label of its own"
            )
    return rows


def _own_rows(experiment: Experiment, shared: Given) -> Iterator[PlannedRow]:
    """The rows of the experiment itself. A row that sets a strategy or an algorithm of its own does not get the shared object."""
    points = math.prod(len(choices) for choices in experiment.sweep.values())
    overrides = [{}, *(variant.overrides for variant in experiment.variants)]  # the base comes first
    of_row = itertools.chain.from_iterable(itertools.repeat(own, points) for own in overrides)
    for own, (label, row) in zip(of_row, experiment.rows(), strict=True):
        given = replace(
            shared,
            selector=None if "selection" in own else shared.selector,
            algorithm=None if "algorithm" in own else shared.algorithm,
        )
        if own is overrides[0] and given.selector is not None:
            label = label.replace(experiment.label, type(given.selector).__name__, 1)
        yield PlannedRow(label, row, given)
