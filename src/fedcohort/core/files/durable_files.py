"""Write files that survive a power loss: their bytes, and their names in directories, are on the disk when a function returns."""

import errno
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import get_ident

from fedcohort.core.errors import UsageError

__all__ = [
    "is_disk_full", "remove_leftovers", "replace_file", "replace_files", "reserve", "sync_directory", "sync_file", "write_file",
    "write_named_file",
]  # fmt: skip

_NOT_SUPPORTED = {errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EBADF}
"""Errors of file systems that cannot sync a directory, or reserve room."""

_LEFTOVER = re.compile(r"\..{1,40}\.\d+-\d+\.\d+", re.DOTALL)
"""The name of a file that is to replace another one."""

_PIECE = 2**20
"""Number of zeros that are written at a time."""

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""Errors of a disk without space, an exhausted quota, and a limit of the size of files."""

_SIGNS_OF_FULL = (
    "database or disk is full", "No space left on device", "StorageFull", "Not enough disk space", " requested and "
)  # fmt: skip
"""The words of SQLite, safetensors, datasets and numpy, whose errors have no number."""


def sync_file(path: Path) -> None:
    """Wait until the bytes of a file are on the disk.

    Raises:
        OSError: they could not be written.
    """
    with path.open("rb+") as file:
        _sync(file.fileno())


def sync_directory(path: Path) -> None:
    """Wait until the names in a directory are on the disk. Windows cannot open directories, and writes names in the order of their
    changes.

    Raises:
        OSError: they could not be written.
    """
    if not hasattr(os, "O_DIRECTORY"):
        return
    directory = os.open(path, os.O_RDONLY)
    try:
        _sync(directory)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise
    finally:
        os.close(directory)


def reserve(descriptor: int, start: int, length: int) -> None:
    """Take ``length`` bytes of room for an open file from ``start`` on, so that a later write to this part cannot find the disk full.

    A write to a mapped file for which there is no room ends the process. Where the system cannot reserve room, as on macOS and
    Windows, zeros are written; that also takes the room.

    Args:
        descriptor: number of the file, which is open for writing and has nothing in this part.
        start: first byte of the part.
        length: number of bytes.

    Raises:
        OSError: there is not enough room.
    """
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, start, length)
            return
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
    os.lseek(descriptor, start, os.SEEK_SET)
    left = length
    while left:
        left -= os.write(descriptor, bytes(min(left, _PIECE)))


def write_file(path: Path, content: bytes, like: Path | None = None) -> None:
    """Write a file and wait until its bytes are on the disk.

    Args:
        path: the file.
        content: its bytes.
        like: a file whose permissions are copied before the content is written; none are copied if it does not exist.

    Raises:
        OSError: it could not be written.
    """
    with path.open("wb") as file:
        if like is not None:
            with suppress(OSError):  # there is no such file, or the file system has no permissions
                shutil.copymode(like, path)
        file.write(content)
        file.flush()
        _sync(file.fileno())


def replace_file(path: Path, content: bytes) -> None:
    """Write a file completely, or leave it as it was, for instance if the disk is full. It keeps its permissions.

    Raises:
        OSError: it could not be written.
    """
    replace_files({path: content})


def write_named_file(file: str | Path, text: str, named: str) -> int:
    """Write a file that a user named, completely or not at all, and make the folders on the way to it.

    Args:
        file: the file.
        text: its content; it need not be valid Unicode, as names of files need not be.
        named: the file with the option or argument that names it, for the message.

    Returns:
        The number of bytes.

    Raises:
        UsageError: it cannot be written.
    """
    content = text.encode(errors="backslashreplace")
    try:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        replace_file(Path(file), content)
    except OSError as error:
        raise UsageError(f"{named}: cannot be written ({error.strerror}); give another file") from None
    return len(content)


def replace_files(contents: Mapping[Path, bytes]) -> None:
    """Write files completely, or leave all of them as they were, for instance if the disk is full. They keep their permissions.

    Raises:
        OSError: they could not be written.
    """
    fresh: dict[Path, Path] = {}
    try:
        for path, content in contents.items():
            if path.exists() and not path.is_file():  # a pipe or a device, such as /dev/stdout
                path.write_bytes(content)
                continue
            real = _target(path)
            fresh[real] = real.with_name(
                f".{real.name[:40]}.{os.getpid()}-{get_ident()}.{len(fresh)}"
            )  # long names can begin alike
            write_file(fresh[real], content, like=real)
        for real, written in fresh.items():
            written.replace(real)
        for folder in dict.fromkeys(real.parent for real in fresh):
            with suppress(PermissionError):  # files can be written into a folder that cannot be read
                sync_directory(folder)
    finally:
        for written in fresh.values():
            with suppress(OSError):
                written.unlink(missing_ok=True)


def remove_leftovers(files: Iterable[Path], before: float) -> None:
    """Remove what :func:`replace_file` left when its process was killed.

    Args:
        files: files that are examined; all others in them are kept.
        before: seconds since 1970; files that were changed later are kept, because they may still be written.
    """
    for file in files:
        with suppress(OSError):
            if _LEFTOVER.fullmatch(file.name) and file.stat().st_mtime < before:
                file.unlink()


def _target(path: Path) -> Path:
    """The path, with all links followed.

    Raises:
        OSError: links lead in a circle.
    """
    try:
        return path.resolve()
    except RuntimeError:  # links in a circle, before Python 3.13
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None


def is_disk_full(error: BaseException) -> bool:
    """Whether an error says that there is no space left on a disk."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _FULL
    words = str(error)
    return any(sign in words for sign in _SIGNS_OF_FULL)


def _sync(descriptor: int) -> None:
    """``fsync``; on macOS the call that also empties the cache of the disk, which ``fsync`` leaves there."""
    try:
        from fcntl import F_FULLFSYNC, fcntl  # type: ignore[attr-defined,unused-ignore]  # only macOS has it
    except ImportError:
        os.fsync(descriptor)
        return
    try:
        fcntl(descriptor, F_FULLFSYNC)
    except OSError:  # a file system without it, such as a network drive
        os.fsync(descriptor)
