"""Paths that users wrote: any text may be given, also one that cannot be a path."""

from pathlib import Path

__all__ = ["is_file", "is_folder", "resolved"]

_CANNOT_BE_A_PATH = (OSError, RuntimeError, ValueError)
"""Raised for names that are too long, for the home directory of an unknown user, and for null characters."""


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
