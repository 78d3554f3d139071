"""Compare run directories that exist already."""

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fedcohort.core.errors import UsageError
from fedcohort.core.words.formatted_values import counted, first_in_words
from fedcohort.core.words.score_style import score_style
from fedcohort.record import Run, open_run
from fedcohort.study.comparison import Comparison, Row
from fedcohort.study.continued_runs import how_to_go_on
from fedcohort.study.rows.equal_labels import distinct_rows
from fedcohort.study.rows.failing_rows import seeds_in_words
from fedcohort.study.rows.unfinished_rows import about_unfinished

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FirstRounds", "names_of", "read", "runs_by_row", "side_by_side"]


def read(paths: Iterable[str | Path], *, partial: bool = False, reference: str = "") -> Comparison:
    """Compare run directories. Runs that differ only in the seed are one row. Nothing is run.

    Args:
        paths: run directories.
        partial: also take unfinished runs. All runs are then compared up to the last round that all of them have played; runs without
            a finished round are left out, and named in the note.
        reference: label of the reference row; see :class:`~fedcohort.study.comparison.Comparison`.

    Raises:
        UsageError: a directory is not a run, or two directories are the same run; a run is not finished, or, if ``partial``, none
            has a finished round.
    """
    opened = [open_run(path) for path in paths]
    runs = [run for run in opened if run.last_round] if partial else opened
    for run in runs or opened:
        if not run.finished and not (partial and run.last_round):
            raise UsageError(_how_to_finish(run, some_played=any(one.last_round for one in opened)))
    if all(run.finished for run in runs):
        return Comparison(names_of(runs), side_by_side(runs), _left_out(opened).strip(), reference)
    last = min(run.last_round for run in runs)
    rows = side_by_side([FirstRounds(run, last) for run in runs])
    return Comparison(names_of(runs), rows, _about_partial(runs, last) + _left_out(opened), reference)


NAMED = 3
"""Largest number of experiments that a title names."""


def names_of(runs: Iterable[Run]) -> str:
    """The names of the experiments of some runs, as a title; "runs" without any."""
    names = list(dict.fromkeys(run.meta["name"] for run in runs))
    more = len(names) - NAMED
    left_out = f" and {counted(more, 'more experiment')}" if more > 0 else ""
    return ", ".join(names[:NAMED]) + left_out or "runs"


def _how_to_finish(run: Run, *, some_played: bool) -> str:
    """What is missing in an unfinished run, and how to finish it, or else to compare the runs that have a finished round."""
    compare_so_far = ", or compare unfinished runs with --partial" if some_played else ""
    ended = f"stopped after round {run.last_round:,} of {run.described.rounds:,}"
    return f"{run.path}: {ended}; finish it first, {how_to_go_on(run)}{compare_so_far}"


def _about_partial(runs: list[Run], last: int) -> str:
    """A sentence about a comparison of unfinished runs."""
    unfinished, planned = sum(not run.finished for run in runs), sorted({run.described.rounds for run in runs})
    of = f"{planned[0]}" if len(planned) == 1 else f"{planned[0]} to {planned[-1]}"
    rounds = "round 1" if last == 1 else f"rounds 1 to {last}"
    return (
        f"Not final: {unfinished} of {len(runs)} runs {'is' if unfinished == 1 else 'are'} unfinished. All runs are compared over "
        f"{rounds} of {of}, which all of them have played. {_how_far(runs)}"
    )


def _left_out(runs: Iterable[Run]) -> str:
    """Which runs have no finished round, in a sentence after a space; empty if all have one."""
    without: dict[str, list[int]] = {}
    for run in runs:
        if not run.last_round:
            without.setdefault(run.meta["label"], []).append(int(run.meta["seed"]))
    rows = [f"{label!r} with {seeds_in_words(sorted(seeds))}" for label, seeds in without.items()]
    return f" Left out, because no round is finished yet: {first_in_words(rows, NAMED)}." if rows else ""


def _how_far(runs: list[Run]) -> str:
    """How far the unfinished runs of each row are, in a sentence."""
    played = {
        row.label: [(run.last_round, run.described.rounds, run.finished) for run in row.runs.values()]
        for row in side_by_side(runs)
    }
    return about_unfinished(played).removeprefix("Not final: ")


class FirstRounds(Run):
    """The first rounds of a run, as if it had been recorded up to there.

    Args:
        run: the run.
        last: the last round that is read.
    """

    def __init__(self, run: Run, last: int) -> None:
        super().__init__(run.path)
        recorded = run.last_round
        self._last = min(last, recorded)
        self._whole = self._last == recorded

    @property
    def finished(self) -> bool:
        """Whether all rounds have been played and are read."""
        return self._whole and super().finished

    @property
    def last_round(self) -> int:
        """The last round that is read."""
        return self._last

    @cached_property
    def rounds(self) -> "pd.DataFrame":
        """As in :class:`fedcohort.record.Run`."""
        return self._first(super().rounds)

    @cached_property
    def clients(self) -> "pd.DataFrame":
        """As in :class:`fedcohort.record.Run`."""
        return self._until(super().clients)

    @cached_property
    def ledger(self) -> "pd.DataFrame":
        """As in :class:`fedcohort.record.Run`."""
        return self._until(super().ledger)

    @cached_property
    def wall(self) -> "pd.DataFrame":
        """As in :class:`fedcohort.record.Run`."""
        return self._first(super().wall)

    @property
    def client_accuracy(self) -> "pd.DataFrame":
        """As in :class:`fedcohort.record.Run`."""
        return self._first(super().client_accuracy)

    @property
    def own_measures(self) -> "pd.DataFrame":
        """As in :class:`fedcohort.record.Run`."""
        return self._first(super().own_measures)

    def read_decisions(self, *, selected_only: bool = False, round: int | None = None) -> "pd.DataFrame":
        """As in :class:`fedcohort.record.Run`."""
        return self._until(super().read_decisions(selected_only=selected_only, round=round))

    def _first(self, by_round: "pd.DataFrame") -> "pd.DataFrame":
        return by_round if by_round.empty else by_round.loc[: self._last]  # the index of an empty table has no numbers

    def _until(self, table: "pd.DataFrame") -> "pd.DataFrame":
        return table.loc[table["round"] <= self._last]


def runs_by_row(runs: Iterable[Run]) -> dict[tuple[str, str], dict[int, Run]]:
    """The runs by the label and the identity of their row, and by seed, in their order.

    Raises:
        UsageError: two of them are the same run, as a directory and a copy of it are.
    """
    by_row: dict[tuple[str, str], dict[int, Run]] = {}
    for run in runs:
        meta, seed = run.meta, run.described.seed
        before = by_row.setdefault((meta["label"], meta["row"]), {}).setdefault(seed, run)
        if before is not run:
            raise UsageError(
                f"{run.path}: the same run as {before.path}, {meta['label']!r} under seed {seed}; give only one of them"
            )
    return by_row


def side_by_side(runs: Iterable[Run]) -> tuple[Row, ...]:
    """Group runs into rows, in their order: runs that differ only in the seed are one row.

    Raises:
        UsageError: two of them are the same run, some have classes and others numeric labels, or there are no runs.
    """
    by_row = runs_by_row(runs)
    if not by_row:
        raise UsageError("no run directories to compare; give at least one")
    rows = [Row(label, next(iter(own.values())).described, own) for (label, _), own in by_row.items()]
    score_style(run.labels for row in rows for run in row.runs.values())
    return distinct_rows(rows)
