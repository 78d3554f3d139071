"""Check the same bytes of a database only once: the user's cache holds the hash of each database that passed the check.

Checking a long run takes some seconds of processor time, and a hash of its file a few hundredths of that. A database that has changed
in any bit has another hash, so it is checked again.
"""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fedcohort.core.errors import UsageError
from fedcohort.core.files.user_cache import cache_folder
from fedcohort.core.version import __version__
from fedcohort.record.database import file_hash
from fedcohort.record.untouched_copy import logs_of

__all__ = ["LEAST", "check_once"]

LEAST = 2**18
"""Bytes from which a database is remembered; checking a smaller one takes about ten milliseconds."""

MOST = 10_000
"""Largest number of databases that are remembered; if there are more, the older half is forgotten."""

CHECKS = 2
"""Version of the checks: with another one, every database is checked again. A change that finds more damage than before raises it."""


def check_once(database: Path, check: Callable[[], None]) -> None:
    """Call ``check``, unless it has passed before for a database with the same bytes.

    Args:
        database: the file; one with a log is always checked, because the log is a part of the record, too.
        check: raises an error if something in the database is wrong. It must depend on nothing but the bytes of the file.

    Raises:
        UsageError: from ``check``.
    """
    passed = _mark(database)
    if passed is not None and passed.exists():
        return
    check()
    if passed is not None and _mark(database) == passed:  # otherwise, another process has changed it in the meantime
        with suppress(OSError):  # the cache cannot be written, or its disk is full
            passed.touch()
            _forget_older(passed.parent)


def _forget_older(folder: Path) -> None:
    """Delete the older half of the marks if there are more than :data:`MOST`, such as those of runs that were deleted long ago."""
    marks = list(folder.iterdir())
    if len(marks) <= MOST:
        return
    by_age = sorted((mark.stat().st_mtime_ns, mark) for mark in marks)
    for _, path in by_age[: len(by_age) // 2]:
        path.unlink(missing_ok=True)  # another process may do the same


def _mark(database: Path) -> Path | None:
    """The file in the cache that exists if a database with these bytes has passed the check; None if it cannot be remembered."""
    try:
        if database.stat().st_size < LEAST or any(log.exists() for log in logs_of(database)):
            return None
        folder = cache_folder("checked-runs")
    except (OSError, UsageError):
        return None
    content = file_hash(database)
    if content is None:
        return None
    return folder / hashlib.sha256(f"{__version__} {CHECKS} {content}".encode()).hexdigest()
