"""What the record of a run says about its plug-ins: facts for pages, and the copies of the users' own files.

Both are data, so that the record can be read without importing a plug-in.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcohort.experiment.plugin_files import named_files
from fedcohort.record.database import damaged

__all__ = ["FACTS", "FILES", "copied_files", "recorded_plugins"]

FACTS = "plug-ins"
"""Entry of the table ``meta`` with the facts about the plug-ins, as JSON."""

FILES = "plug-in files"
"""Entry of the table ``meta`` with the copies of the users' own files: path in the run directory → SHA-256, as JSON."""

_COPY = re.compile(r"plug-ins/(?:(?!\.\.?/)[^/\\\0]+/)*[^/\\\0]+\.py")
_NAME_WITH_HASH = re.compile(r"plug-ins/[^/\\\0]+-([0-9a-f]{8})\.py")


def recorded_plugins(meta: Mapping[str, str], database: Path) -> dict[str, Any]:
    """The facts about the plug-ins of a run by section; empty if they were not recorded.

    Args:
        meta: the facts about the run in its database.
        database: its file, for messages.

    Raises:
        UsageError: the entry is not what was written.
    """
    return _table(meta.get(FACTS, "{}"), FACTS, database, dict)


def copied_files(meta: Mapping[str, str], database: Path) -> dict[str, str]:
    """The copies of the users' own files: path in the run directory → SHA-256.

    Runs of earlier versions recorded no hashes. The names of their copies have the first 8 digits.

    Args:
        meta: the facts about the run in its database.
        database: its file, for messages.

    Raises:
        UsageError: the entry is not what was written.
    """
    if FILES not in meta:
        return _in_names(meta.get("experiment", ""), database)
    files = _table(meta[FILES], FILES, database, str)
    if not all(_COPY.fullmatch(name) for name in files):
        raise damaged(database, f"its entry {FILES!r} names files outside the folder plug-ins")
    return files


def _in_names(description: str, database: Path) -> dict[str, str]:
    """The copies that a description names, each with the digits of the hash in its name."""
    try:
        names = named_files(tomllib.loads(description))
    except (tomllib.TOMLDecodeError, RecursionError):
        raise damaged(database, "its description is not TOML") from None
    return {found[0]: found[1] for found in map(_NAME_WITH_HASH.fullmatch, names) if found}


def _table(text: str, entry: str, database: Path, kind: type) -> dict[str, Any]:
    """A JSON object whose values are of one kind."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict) or not all(isinstance(value, kind) for value in values.values()):
        raise damaged(database, f"its entry {entry!r} is not a table")
    return values
