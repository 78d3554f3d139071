"""What watches runs while they are played: progress, the live page, trackers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from fedcohort.experiment import Cell
    from fedcohort.runs.play import Progress
from fedcohort.cli.errors import Stopped

__all__ = ["watching"]


@contextmanager
def watching(cells: "Sequence[Cell]", quiet: bool) -> "Iterator[Progress | None]":
    """Show how the runs get on; Ctrl-C ends them with exit code 130."""
    import logging

    from fedcohort.report import terminal
    from fedcohort.runs.play import Interrupted

    log = logging.getLogger("fedcohort")
    told: logging.Handler = logging.NullHandler()
    try:
        with _followed(cells), _trackers() as told_too, terminal.watching(cells, quiet=quiet) as shown:
            progress = _all_of([*([shown] if shown is not None else []), *told_too])
            if not quiet:
                told = logging.StreamHandler()  # to the standard error of now, which the bar lets through
                told.setFormatter(logging.Formatter("fedcohort: %(message)s"))
                log.setLevel(logging.INFO)
            log.addHandler(told)
            yield progress
    except Interrupted as stopped:
        raise Stopped(str(stopped)) from None
    finally:
        log.removeHandler(told)


@contextmanager
def _followed(cells: "Sequence[Cell]") -> "Iterator[None]":
    """The live page, if ``--live`` asks for it."""
    context = click.get_current_context()
    if not context.meta.get("fedcohort.live"):
        yield
        return
    from fedcohort.report.live import beside

    with beside(context.params["runs"], cells[0].experiment.name) as address:
        click.echo(f"fedcohort: live at {address}", err=True)
        yield


@contextmanager
def _trackers() -> "Iterator[list[Any]]":
    """The trackers that ``--track`` asks for; what they buffer is written at the end."""
    asked = click.get_current_context().meta.get("fedcohort.track") or ()
    trackers = []
    if asked:
        from fedcohort.runs.trackers import tracker

        trackers = [tracker(text) for text in asked]
    try:
        yield trackers
    finally:
        for one in trackers:
            one.close()


def _all_of(watchers: "Sequence[Progress]") -> "Progress | None":
    """Tell everybody."""
    if len(watchers) < 2:
        return watchers[0] if watchers else None

    def tell(cell: "Cell", row: Any) -> None:
        for watcher in watchers:
            watcher(cell, row)

    return tell
