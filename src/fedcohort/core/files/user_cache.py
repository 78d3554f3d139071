"""Folders in the user's cache, which hold what can be made again: decoded data, measured plans, passed checks."""

import os
from pathlib import Path

from platformdirs import user_cache_dir

from fedcohort.core.errors import UsageError, shown

__all__ = ["absolute", "cache_folder"]


def absolute(path: str | Path) -> Path:
    """The absolute path, with ``~`` expanded."""
    try:
        return Path(path).expanduser().resolve()
    except (OSError, RuntimeError, ValueError):  # ~name without a user of that name; too long; a null character
        return Path(path)


def cache_folder(name: str) -> Path:
    """A folder in the user's cache (``FEDCOHORT_CACHE``); it is created if necessary.

    Raises:
        UsageError: the folder cannot be created.
    """
    root = absolute(os.environ.get("FEDCOHORT_CACHE") or user_cache_dir("fedcohort")) / name
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"FEDCOHORT_CACHE: cannot make the folder {shown(str(root))} ({error.strerror})") from None
    return root
