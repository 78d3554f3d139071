"""Why a run directory cannot be written, in words."""

import shutil
from pathlib import Path

from fedcohort.core.errors import UsageError
from fedcohort.core.files.durable_files import is_disk_full

__all__ = ["cannot_create", "disk_is_full"]

LITTLE_SPACE = 2**20
"""A disk with fewer free bytes counts as full when something cannot be written."""


def cannot_create(directory: Path, error: Exception) -> UsageError:
    """The error for a run directory that cannot be made."""
    reason = getattr(error, "strerror", None) or error
    cure = "free some space, or give" if disk_is_full(directory, error) else "give"
    return UsageError(f"{directory}: cannot be written ({reason}); {cure} another directory (in commands: --runs)")


def disk_is_full(directory: Path, error: Exception) -> bool:
    """Whether something could not be written because the disk of a directory is full.

    SQLite says "disk I/O error" if there is no space for the index of its log, so the free space counts, too.
    """
    if is_disk_full(error):
        return True
    return directory.exists() and shutil.disk_usage(directory).free < LITTLE_SPACE
