"""The lock of a run directory: only the process that holds it creates, resumes and writes the run."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedcohort.core.errors import UsageError
from fedcohort.record.write_errors import cannot_create

__all__ = ["BeingWrittenError", "is_being_written", "locked"]


class BeingWrittenError(UsageError):
    """Another process is writing a run.

    Attributes:
        path: the run directory.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path}: another process is writing this run; wait for it, or use another directory (in commands: --runs)"
        )
        self.path = path

    def __reduce__(self) -> tuple[type["BeingWrittenError"], tuple[Path]]:
        return BeingWrittenError, (self.path,)  # it can be sent to another process


@contextmanager
def locked(path: str | Path) -> Iterator[None]:
    """Make a directory, and hold its lock during a block: only the process that holds it creates, resumes and writes the run.

    Raises:
        BeingWrittenError: another process holds the lock.
        UsageError: the directory cannot be written.
    """
    from filelock import FileLock, Timeout

    directory = Path(path)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = FileLock(directory / "run.lock", timeout=0)
        lock.acquire()
    except Timeout:
        raise BeingWrittenError(directory) from None
    except (OSError, NotImplementedError) as error:  # perhaps a file system without locks
        raise cannot_create(directory, error) from None
    try:
        yield
    finally:
        lock.release()


def is_being_written(path: Path) -> bool:
    """Whether another process holds the lock of a run directory."""
    from filelock import FileLock, Timeout

    file = path / "run.lock"
    try:
        times = file.stat()
        with FileLock(file, timeout=0):
            pass
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    except Timeout:
        return True
    except (OSError, NotImplementedError):  # the second one on file systems without locks
        return False
    return False
