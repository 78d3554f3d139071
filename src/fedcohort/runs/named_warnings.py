"""Warnings while a run is played begin with its name: a comparison plays many runs, one after another or at once."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedcohort.experiment import Cell

__all__ = ["logged_warnings", "name_of_run", "named_warnings"]

log = logging.getLogger("fedcohort")


@contextmanager
def named_warnings(cell: "Cell") -> Iterator[None]:
    """Let warnings of the package during a block begin with the row and the seed of a run."""
    names = _Names(f"{cell.label}, seed {cell.seed}: ")
    log.addFilter(names)
    try:
        yield
    finally:
        log.removeFilter(names)


def name_of_run() -> str:
    """Row and seed of the run that is played now, with a colon and a space; empty outside :func:`named_warnings`."""
    return next((names.run for names in reversed(log.filters) if isinstance(names, _Names)), "")


@contextmanager
def logged_warnings() -> Iterator[None]:
    """Let warnings of Python during a block be warnings of the package, in one line without the place in the code."""
    before = warnings.showwarning
    warnings.showwarning = _log
    try:
        yield
    finally:
        warnings.showwarning = before


def _log(message: Warning | str, *_: object, **__: object) -> None:
    log.warning("%s", " ".join(str(message).split()))


class _Names(logging.Filter):
    """Puts the name of a run before warnings that have none."""

    def __init__(self, run: str) -> None:
        super().__init__()
        self.run = run

    def filter(self, record: logging.LogRecord) -> bool:
        """See :class:`logging.Filter`; every message is let through."""
        if record.levelno >= logging.WARNING and not hasattr(record, "run"):
            record.msg, record.args, record.run = f"{self.run}{record.getMessage()}", (), self.run
        return True
