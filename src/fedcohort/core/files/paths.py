"""Paths that users wrote: any text may be given, also one that cannot be a path."""

import os
import stat
from pathlib import Path

from fedcohort.core.errors import UsageError, shown

__all__ = ["as_path", "check_target", "check_writable", "is_file", "is_folder", "kind_of", "resolved"]

_CANNOT_BE_A_PATH = (OSError, RuntimeError, ValueError)
"""Raised for names that are too long, for the home directory of an unknown user, and for null characters."""


def as_path(given: object, name: str) -> Path:
    """The path that a user gave for the argument ``name`` of a Python function.

    Raises:
        UsageError: it is neither a string nor a path.
    """
    if isinstance(given, str | os.PathLike):
        return Path(given)
    raise UsageError(f"{name} = {shown(given)}: should be a path, such as 'runs'")


def check_target(given: str | Path, where: str, suffix: str = "") -> None:
    """Refuse a file to be written that would replace a file of a run, or one of another kind; links are followed.

    Args:
        given: the file, or a folder of files.
        where: the option or argument that names it, for the message.
        suffix: the ending that its name must have, such as ``".csv"``; empty for any.

    Raises:
        UsageError: it must not be written.
    """
    if not str(given):
        raise UsageError(f"{where} '': give the name of a file")
    target = resolved(str(given), Path.cwd())
    if suffix and target.suffix.lower() != suffix:
        raise UsageError(f"{where} {shown(str(given))}: the name of the file must end in {suffix}")
    if suffix and (kind := kind_of(target)) not in ("", "a file"):
        raise UsageError(f"{where} {shown(str(given))}: is {kind}; give another name")
    if any(kind_of(folder / "run.sqlite") for folder in (target, *target.parents)):
        raise UsageError(
            f"{where} {shown(str(given))}: is in a run directory, whose files stay as they are; give another place"
        )


def check_writable(given: str | Path, where: str, *, folder: bool = False) -> None:
    """Refuse a file that could not be written in the end, before the work whose result it is for. Nothing is left behind.

    Folders on the way to it may be missing; they are made when the file is written.

    Args:
        given: the file, or a folder of files.
        where: the option or argument that names it, for the message.
        folder: whether it is a folder of files.

    Raises:
        UsageError: it has another kind, or it or its folder cannot be written.
    """
    target, wanted = resolved(str(given), Path.cwd()), "folder" if folder else "file"
    try:
        kind = kind_of(target)
        problem = f"is {kind}" if kind not in ("", f"a {wanted}") else ""
        if not problem:
            _try_to_write(target, replace=kind == "a file")
    except _CANNOT_BE_A_PATH as error:
        problem = f"cannot be written ({getattr(error, 'strerror', None) or error})"
    if problem:
        raise UsageError(f"{where} {shown(str(given))}: {problem}; give another {wanted}")


def _try_to_write(target: Path, *, replace: bool) -> None:
    """Write a file and remove it, in a folder or in the one in which a missing file or folder would be made.

    Raises:
        OSError: it cannot be written.
    """
    from tempfile import mkstemp

    if replace:
        os.close(os.open(target, os.O_WRONLY))  # a file with a permission of its own, such as one that is read-only
    folder = target.parent if replace else target
    while not _exists(folder):
        folder = folder.parent
    probe, name = mkstemp(prefix=".fedcohort-", dir=folder)
    try:
        os.write(probe, b".")
    finally:
        os.close(probe)  # before it is removed: Windows removes no open file
        Path(name).unlink()


def _exists(path: Path) -> bool:
    """Whether there is anything at a path.

    Raises:
        OSError: the path is impossible, for instance because its name is too long or its parent is a file.
    """
    try:
        path.stat()
    except FileNotFoundError:
        return False
    return True


def kind_of(path: Path) -> str:
    """What is at a path, in words, such as "a file", "a folder" or "a pipe"; empty if there is nothing, or it cannot be seen."""
    try:
        mode = path.stat().st_mode
    except _CANNOT_BE_A_PATH:
        return ""
    kinds = {stat.S_IFREG: "a file", stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def resolved(text: str, folder: Path) -> Path:
    """``text``, relative to ``folder``, as an absolute path; ``folder / text`` if the text cannot be a path."""
    try:
        return (folder / Path(text).expanduser()).resolve()
    except _CANNOT_BE_A_PATH:
        return folder / text


def is_file(path: Path) -> bool:
    """Whether there is a file at ``path``; False if this cannot be a path."""
    try:
        return path.is_file()
    except _CANNOT_BE_A_PATH:
        return False


def is_folder(path: Path) -> bool:
    """Whether there is a folder at ``path``; False if this cannot be a path."""
    try:
        return path.is_dir()
    except _CANNOT_BE_A_PATH:
        return False
