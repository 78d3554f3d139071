"""Paths that users wrote: any text may be given, also one that cannot be a path."""

import os
from pathlib import Path

from fedcohort.core.errors import UsageError, shown

__all__ = ["as_path", "check_target", "is_file", "is_folder", "resolved"]

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
    if suffix and target.exists() and not target.is_file():
        raise UsageError(f"{where} {shown(str(given))}: is no file; give another name")
    if any((folder / "run.sqlite").exists() for folder in (target, *target.parents)):
        raise UsageError(
            f"{where} {shown(str(given))}: is in a run directory, whose files stay as they are; give another place"
        )


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
