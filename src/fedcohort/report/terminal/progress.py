"""Print the progress of runs, on standard error."""

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from fedcohort.core.words.formatted_values import clock, count, simulated_time
from fedcohort.core.words.score_style import ScoreStyle, score_style
from fedcohort.report.terminal.layout import Screen, harmless

if TYPE_CHECKING:
    from fedcohort.experiment import Cell
    from fedcohort.record import RoundRow
    from fedcohort.runs.play_run import Progress as Callback

__all__ = ["watching"]

LINES = 40
"""Number of progress lines of all runs together if standard error is not a terminal: approximate, 1 to 10 for each run."""


@contextmanager
def watching(
    cells: "Sequence[Cell]", *, quiet: bool, at_most: bool = False, most_runs: int | None = None
) -> "Iterator[Callback | None]":
    """Yield a function to call after every round, which shows the progress; None if ``quiet``.

    A terminal shows a progress bar, everything else a few plain lines for each run. With ``at_most``, some ``cells`` may be left out,
    and no more than ``most_runs`` of them are played.
    """
    if quiet or sys.stderr is None:  # None: standard error is closed
        yield None
        return
    course = _Course(cells, at_most=at_most, most_runs=most_runs)
    console = Screen(stderr=True, markup=False, highlight=False, emoji=False)
    if not sys.stderr.isatty() or console.is_dumb_terminal:
        yield _Lines(course)
        return
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[facts]}", markup=False),
        console=console,
        transient=True,
        expand=True,
    ) as bar:
        yield _Bar(course, bar)


class _Course:
    """Progress of all runs together, which are played in the order of ``cells``; runs that were finished before are skipped."""

    def __init__(
        self,
        cells: "Sequence[Cell]",
        clock: Callable[[], float] = time.monotonic,
        *,
        at_most: bool = False,
        most_runs: int | None = None,
    ) -> None:
        self._number = {(cell.label, cell.seed): i for i, cell in enumerate(cells)}
        self._rounds = np.array([cell.experiment.rounds for cell in cells])
        self._before = np.cumsum([0, *self._rounds])
        self._clock, self._first, self._played = clock, math.nan, 0
        self._accuracy = math.nan
        self._most = len(cells) if most_runs is None else min(most_runs, len(cells))
        self._seen: set[int] = set()
        self._current, self._later = -1, 0  # the run of the last round, and the rounds that at most follow it
        self.runs, self.total = self._most, self._longest(self._rounds, self._most)
        self.limit = "at most " if at_most else ""

    def step(self, cell: "Cell", row: "RoundRow") -> "_Step":
        """Count a round, and return the progress after it."""
        number = self._number[cell.label, cell.seed]
        self._played += 1
        now = self._clock()
        if self._played == 1:
            self._first = now  # the time before it, for imports and data, says nothing about later rounds
        if row.round == 1 or math.isfinite(row.test_accuracy):
            self._accuracy = row.test_accuracy
        done = int(self._before[number]) + row.round
        if self.limit:
            number, done = self._recount(number, row.round)
        pace = (now - self._first) / (self._played - 1) if self._played > 1 else math.nan
        return _Step(number + 1, done, self._accuracy, pace * (self.total - done))

    def _recount(self, number: int, round_: int) -> tuple[int, int]:
        """The number of this run among those that were played, and the rounds done; sets how many runs there will be at most.

        Which runs follow depends on the results: rows that are dropped get none, and the runs that they leave go to others if there is
        a largest number of runs.
        """
        if number != self._current:
            # a race can have hundreds of thousands of runs, which are not counted in every round
            self._current = number
            self._seen.add(number)
            unseen = np.ones(len(self._rounds), dtype=bool)
            unseen[: number + 1], unseen[list(self._seen)] = False, False
            left = self._rounds[unseen]
            more = min(len(left), self._most - len(self._seen))
            self.runs, self._later = len(self._seen) + more, self._longest(left, more)
        self.total = self._played + int(self._rounds[number]) - round_ + self._later
        return len(self._seen) - 1, self._played

    @staticmethod
    def _longest(rounds: np.ndarray, number: int) -> int:
        """The rounds of so many runs, at most."""
        return int(np.sort(rounds)[::-1][: max(number, 0)].sum())


class _Step(NamedTuple):
    """Number of the run, rounds done over all runs, latest test accuracy, and estimated wall time that is left."""

    run: int
    done: int
    accuracy: float
    seconds_left: float


def _time_left(step: _Step, limit: str) -> str:
    """The estimated time left, in words; empty as long as it is unknown."""
    return f"{limit}{clock(step.seconds_left)} left" if math.isfinite(step.seconds_left) else ""


def _style(cell: "Cell") -> ScoreStyle:
    """How the score of a run is named and written."""
    from fedcohort.experiment.tasks import label_kind

    return score_style([label_kind(cell.experiment.training)])


class _Bar:
    """Shows progress as a bar on a terminal."""

    def __init__(self, course: _Course, bar: Progress) -> None:
        self._course, self._bar = course, bar
        self._task = bar.add_task("preparing", total=self._course.total, facts="")

    def __call__(self, cell: "Cell", row: "RoundRow") -> None:
        step = self._course.step(cell, row)
        wide = self._bar.console.width >= 100
        room = max(12, self._bar.console.width // 4) if wide else 12
        left = _time_left(step, self._course.limit)
        name = harmless(cell.label)
        label = name if len(name) <= room else f"{name[: room - 1]}…"
        facts = [
            f"round {row.round}/{cell.experiment.rounds}",
            f"test {_style(cell).with_unit(step.accuracy)}",
            f"sim. time {simulated_time(row.simulated_time)}" if wide else f"sim {simulated_time(row.simulated_time)}",
            *([left] if left else []),
        ]
        if wide and self._course.runs > 1:
            facts.insert(0, f"run {step.run}/{'≤' if self._course.limit else ''}{count(self._course.runs)}")
        self._bar.update(
            self._task,
            completed=step.done,
            total=self._course.total,
            description=f"{label}, seed {cell.seed}",
            facts=" · ".join(facts),
        )


class _Lines:
    """Shows progress as plain lines."""

    def __init__(self, course: _Course) -> None:
        self._course = course
        self._per_run = min(max(LINES // course.runs, 1), 10)

    def __call__(self, cell: "Cell", row: "RoundRow") -> None:
        step, rounds = self._course.step(cell, row), cell.experiment.rounds
        if row.round % math.ceil(rounds / self._per_run) and row.round != rounds:
            return
        left, limit = _time_left(step, self._course.limit), self._course.limit
        number = f"{step.run} of {limit}{self._course.runs}" if limit else f"{step.run}/{self._course.runs}"
        print(
            f"[{number}] {harmless(cell.label)}, seed {cell.seed}: round {row.round:,} of {rounds:,}, test "
            f"{_style(cell).name} {_style(cell).with_unit(step.accuracy)}, simulated time {simulated_time(row.simulated_time)}"
            + (f", {left}" if left else ""),
            file=sys.stderr,
            flush=True,
        )
