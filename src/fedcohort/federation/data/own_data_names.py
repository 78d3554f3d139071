"""Names of data sets that stand for a user's own files: a table, or a function in a Python file; and the content of such a file."""

import hashlib
from functools import lru_cache
from pathlib import Path

from fedcohort.core.errors import UsageError, shown
from fedcohort.core.plugins import is_file_name

__all__ = ["content_of", "has_columns", "is_own", "is_table", "is_text"]

TABLES = (".csv", ".parquet", ".npz")
"""Endings of the files that can be read as tables."""

ARRAYS = ".npz"
"""Ending of those of the files that hold arrays."""


def is_table(name: str) -> bool:
    """Whether the name of a data set is that of a table in a file."""
    return name.lower().endswith(TABLES) and name.isprintable()


def has_columns(name: str) -> bool:
    """Whether the name of a data set is that of a table with named columns, in contrast to arrays in a file."""
    return is_table(name) and not name.lower().endswith(ARRAYS)


def is_text(name: str) -> bool:
    """Whether the name of a data set is that of a text in a file."""
    return name.lower().endswith(".txt")


def is_own(name: str) -> bool:
    """Whether the name of a data set is that of a user's own function or table."""
    return is_file_name(name) or is_table(name)


def content_of(path: Path) -> str:
    """SHA-256 of the content of a file.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        state = path.stat()
        return _hash(str(path), state.st_size, state.st_mtime_ns)
    except OSError as error:
        raise UsageError(f"data.name = {shown(str(path))}: cannot be read ({error.strerror or error})") from None


@lru_cache(maxsize=256)
def _hash(path: str, size: int, changed: int) -> str:
    """The hash of a file; it is computed again when the size or the time of the last change is another."""
    del size, changed
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
