"""Follow runs while they are played: progress in the terminal, the live page, trackers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from fedcohort.cli.errors import Stopped
from fedcohort.cli.output import echo

if TYPE_CHECKING:
    from fedcohort.experiment import Cell
    from fedcohort.record import RoundRow
    from fedcohort.runs.play_run import Progress
    from fedcohort.runs.trackers import OneLineErrors

__all__ = ["messages", "watching"]


@contextmanager
def watching(
    cells: "Sequence[Cell]", quiet: bool, *, at_most: bool = False, most_runs: int | None = None
) -> "Iterator[Progress | None]":
    """Show the progress of runs during a block; Ctrl-C, SIGTERM and SIGHUP end the command with exit code 128 + their number.

    With ``at_most``, not all of the ``cells`` need be played, and no more than ``most_runs``; the progress says so.
    """
    from fedcohort.report import terminal
    from fedcohort.runs.play_run import Interrupted

    try:
        shows = terminal.watching(cells, quiet=quiet, at_most=at_most, most_runs=most_runs)
        with _live_page(cells, at_most, most_runs), _trackers() as trackers, shows as shown:
            progress = _all_of([*([shown] if shown is not None else []), *trackers])
            with messages(quiet):  # begins now, since the progress bar has replaced standard error
                yield progress
    except Interrupted as stopped:
        raise Stopped(str(stopped), stopped.signum) from None


@contextmanager
def messages(quiet: bool = False, *, times: bool = False) -> "Iterator[None]":
    """Print the messages of the package to standard error during a block, with ``times`` before them, or none if ``quiet``."""
    import logging

    log = logging.getLogger("fedcohort")
    handler: logging.Handler = logging.NullHandler()
    if not quiet:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(f"{'%(asctime)s ' * times}fedcohort: %(message)s"))
        log.setLevel(logging.INFO)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


@contextmanager
def _live_page(cells: "Sequence[Cell]", at_most: bool, most_runs: int | None) -> "Iterator[None]":
    """Serve the live page if ``--live`` is set."""
    context = click.get_current_context()
    if not context.meta.get("fedcohort.live"):
        yield
        return
    from fedcohort.report.live.live_progress import Planned
    from fedcohort.report.live.live_server import beside
    from fedcohort.study.rows.references import differences_of_cells

    rounds = sorted((cell.experiment.rounds for cell in cells), reverse=True)
    longest = rounds[:most_runs]  # if not all are played
    planned = Planned(sum(longest), len(longest), differences_of_cells(cells), at_most)
    with beside(context.params["runs"], cells[0].experiment.name, planned) as address:
        echo(f"fedcohort: {f'live at {address}' if address else 'no live page; the runs go on without it'}", err=True)
        yield


@contextmanager
def _trackers() -> "Iterator[list[OneLineErrors]]":
    """The trackers of ``--track``; they are closed at the end."""
    options = click.get_current_context().meta.get("fedcohort.track") or ()
    trackers: list[OneLineErrors] = []
    if options:
        from fedcohort.runs.trackers import tracker

        trackers = [tracker(text) for text in options]
        for each in trackers:
            each.reach()
    try:
        yield trackers
    finally:
        for each in trackers:
            each.close()


def _all_of(watchers: "Sequence[Progress]") -> "Progress | None":
    """One function that calls all watchers; None if there are none."""
    if len(watchers) < 2:
        return watchers[0] if watchers else None

    def call_all(cell: "Cell", row: "RoundRow") -> None:
        for watcher in watchers:
            watcher(cell, row)

    return call_all
