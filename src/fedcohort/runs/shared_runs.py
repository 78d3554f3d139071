"""Play several runs that another process may be playing, too: two commands in one folder divide the runs between them."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from fedcohort.record import BeingWrittenError, Run, is_being_written

__all__ = ["in_turn"]

log = logging.getLogger("fedcohort")

T = TypeVar("T")

WAIT = 0.5
"""Seconds until it is tried again whether a run is still being written."""


def in_turn(planned: Iterable[T], play: Callable[[T], Run]) -> Iterator[tuple[T, Run]]:
    """Play runs one after another. Those that another process is writing come last, and are waited for.

    If the other process has finished such a run, it is opened; if the process has ended before that, it is resumed.

    Args:
        planned: what to play.
        play: plays or opens one run, and returns it when it is finished; see :func:`fedcohort.runs.play_run.run_cell`.

    Returns:
        Each of ``planned`` with its run, in the order in which they are finished.
    """
    left: list[tuple[T, Path]] = []
    for each in planned:
        try:
            run = play(each)
        except BeingWrittenError as busy:
            left.append((each, busy.path))
        else:
            yield each, run
    for each, path in left:
        yield each, _when_free(each, play, path)


def _when_free(each: T, play: Callable[[T], Run], path: Path) -> Run:
    """The run in ``path``, when no other process is writing it."""
    if is_being_written(path):
        log.info("%s: another process is writing this run; waiting for it", path)
    while True:
        while is_being_written(path):
            time.sleep(WAIT)
        try:
            return play(each)
        except BeingWrittenError as busy:
            path = busy.path
