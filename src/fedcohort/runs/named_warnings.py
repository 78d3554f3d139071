"""Warnings while a run is played begin with its name: a comparison plays many runs, one after another or at once."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from fedcohort.experiment import Cell

__all__ = ["named_warnings"]

log = logging.getLogger("fedcohort")


@contextmanager
def named_warnings(cell: Cell) -> Iterator[None]:
    """Let warnings of the package during a block begin with the row and the seed of a run."""
    names = _Names(f"{cell.label}, seed {cell.seed}: ")
    log.addFilter(names)
    try:
        yield
    finally:
        log.removeFilter(names)


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
