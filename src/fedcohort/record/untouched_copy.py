"""Check and read a run directory without changing anything in it."""

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from fedcohort.core.errors import UsageError
from fedcohort.record.database import damaged

__all__ = ["check_database_exists", "check_header", "copy_with_log", "had_log", "logs_of"]

_HEADER = b"SQLite format 3\0"
"""The first bytes of a database."""

_WAL = 2
"""The number at the bytes 18 and 19 of a database that has a write-ahead log."""


def check_header(database: Path) -> None:
    """Refuse a file that does not begin like a database. SQLite would delete the log beside an empty file, even to read it.

    Raises:
        UsageError: it is empty, or another kind of file.
    """
    try:
        with database.open("rb") as file:
            begin = file.read(len(_HEADER))
    except OSError as error:
        raise UsageError(f"{database}: cannot be read ({error.strerror})") from None
    if begin != _HEADER:
        raise damaged(database, "file is not a database")


def had_log(database: Path) -> bool:
    """Whether a database was last opened with a write-ahead log and not closed in order.

    Raises:
        OSError: it cannot be read.
    """
    with database.open("rb") as file:
        return _WAL in file.read(20)[18:]


def logs_of(database: Path) -> list[Path]:
    """The files that can hold a part of a database: its write-ahead log and its rollback journal, whether they exist or not."""
    return [Path(f"{database}{ending}") for ending in ("-wal", "-journal")]


def copy_with_log(database: Path) -> "tempfile.TemporaryDirectory[str] | None":
    """A copy of a database and of its logs in a temporary directory, which is deleted with the returned object.

    A log is left after a kill: the write-ahead log, or the rollback journal, which a read-only connection cannot use. Returns None if
    the database has no log, because reading it then changes nothing, and also if the copy cannot be written. If another process is
    writing, the copy may be torn; see :func:`fedcohort.record.run_lock.is_being_written`.
    """
    logs = logs_of(database)
    try:
        if not had_log(database) and not any(log.exists() for log in logs):
            return None
        copy = tempfile.TemporaryDirectory(prefix="fedcohort-", ignore_cleanup_errors=True)
    except OSError:
        return None
    try:
        shutil.copyfile(database, Path(copy.name) / database.name)
        for log in logs:
            with suppress(FileNotFoundError):  # an empty log may be missing
                shutil.copyfile(log, Path(copy.name) / log.name)
    except OSError:  # the disk of temporary files is full
        copy.cleanup()
        return None
    return copy


def check_database_exists(path: Path) -> None:
    """Refuse a directory that holds the model or a checkpoint of a run without the database that belongs to them.

    Raises:
        UsageError: the database is missing.
    """
    if (path / "run.sqlite").is_file():
        return
    left = [*path.glob("model.safetensors"), *sorted(path.glob("checkpoint/round-*.safetensors"))]
    if left:
        raise UsageError(
            f"{path / 'run.sqlite'}: is missing, but {left[0].relative_to(path).as_posix()} of the same run is there; nothing was "
            "overwritten; restore the database, or delete the run directory to start again"
        )
