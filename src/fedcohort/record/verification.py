"""Compare a run directory with the hashes in its record."""

import hashlib
import re
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from fedcohort.core.errors import UsageError
from fedcohort.record.database import (
    checkpoints_hash,
    client_accuracies,
    damaged,
    file_hash,
    first_seal,
    own_measures,
    personal_accuracies,
    seal_of,
    sealed_rows,
)
from fedcohort.record.equal_decisions import every_decision
from fedcohort.record.record_form import check_kinds
from fedcohort.record.recorded_plugins import copied_files

__all__ = ["Signature", "results_digest", "signature", "verify_files", "verify_pages", "verify_rounds"]

Signature: TypeAlias = tuple[tuple[str, int, int], ...]
"""Names, times in nanoseconds and sizes of the files of a run directory, see :func:`signature`."""


_INDEXED = ("meta", "portrait", "ledger")
"""The tables that have an index beside them: their keys are not the numbers of their rows."""


def verify_rounds(connection: sqlite3.Connection, database: Path) -> None:
    """Compare the rows of every round, and the description, with the chain of seals (see :data:`TABLES`).

    Args:
        connection: a connection to the database.
        database: its file, for messages.

    Raises:
        UsageError: something was changed or damaged after it was written, or cannot have been written by FedCohort.
    """
    connection.execute("BEGIN")  # one consistent state, even while another process writes
    _verify_indexes(connection, database)
    seal = first_seal(connection)
    seals = connection.execute("SELECT round, sha256 FROM seals ORDER BY round").fetchall()
    rounds = [t for (t,) in connection.execute("SELECT round FROM rounds ORDER BY round")]
    if rounds != [t for t, _ in seals]:
        raise damaged(database, "its rounds and their hashes do not match")
    for t, expected in seals:
        seal = seal_of(sealed_rows(connection, t), seal)
        if seal != expected:
            raise damaged(database, f"round {t} or the description differs from what was recorded")
    _verify_checkpoint_rows(connection, database)
    check_kinds(connection, database)


def _verify_indexes(connection: sqlite3.Connection, database: Path) -> None:
    """Let SQLite compare indexes with their tables. It reads keys from either: a seal over one says nothing about the other."""
    for table in _INDEXED:
        verdict = connection.execute(f"PRAGMA integrity_check({table})").fetchone()[0]
        if verdict != "ok":
            raise damaged(database, verdict)


def verify_pages(connection: sqlite3.Connection, database: Path) -> None:
    """Let SQLite check the structure of a database.

    Args:
        connection: a connection to it.
        database: its file, for messages.

    Raises:
        UsageError: it is damaged.
    """
    verdict = connection.execute("PRAGMA quick_check").fetchone()[0]
    if verdict != "ok":
        raise damaged(database, verdict)


def _verify_checkpoint_rows(connection: sqlite3.Connection, database: Path) -> None:
    """Check the form of the rows that name checkpoints and, at the end of a run, their hash. Runs of earlier versions have none."""
    for round_, file, sha256 in connection.execute("SELECT round, file, sha256 FROM checkpoints"):
        if file != f"round-{round_:06d}.safetensors" or not re.fullmatch("[0-9a-f]{64}", sha256 or ""):
            raise damaged(database, f"the row of the checkpoint of round {round_}")
    expected = connection.execute("SELECT value FROM meta WHERE key = 'checkpoints'").fetchone()
    if expected is not None and expected[0] != checkpoints_hash(connection):
        raise damaged(database, "the rows of its checkpoints differ from what was recorded")


def results_digest(connection: sqlite3.Connection, model: Path) -> str:
    """A hash of all results that must be reproducible, see :meth:`fedcohort.record.Run.digest`.

    Args:
        connection: a connection to the database.
        model: the file of the final model; it may be missing.
    """
    digest = hashlib.sha256()
    for rows in (
        connection.execute("SELECT * FROM rounds ORDER BY round"),
        connection.execute("SELECT * FROM clients ORDER BY round, position"),
        every_decision(connection),
        connection.execute(
            "SELECT round, kind, messages, bytes_down, bytes_up, passes FROM ledger ORDER BY round, kind"
        ),
    ):
        for row in rows:
            digest.update(repr(row).encode())
    for row in (*client_accuracies(connection), *personal_accuracies(connection), *own_measures(connection)):
        digest.update(repr(row).encode())
    if model.exists():
        digest.update(model.read_bytes())
    return digest.hexdigest()[:16]


_NEEDED = ("experiment", "name", "label", "row", "seed", "data", "given")
"""The facts about a run that all readers use."""


def verify_files(path: Path, meta: Mapping[str, str]) -> None:
    """Compare the final model, the description and the copies of plug-in files in a run directory with the database.

    Args:
        path: the run directory.
        meta: the facts about the run in its database, see :attr:`Run.meta`.

    Raises:
        UsageError: a file is missing, or was changed or damaged after it was written.
    """
    if meta.get("status") not in ("running", "finished"):
        raise damaged(path / "run.sqlite", f"its status is {meta.get('status')!r}")
    missing = [entry for entry in _NEEDED if entry not in meta]
    if missing or not meta["seed"].isdecimal():
        raise damaged(path / "run.sqlite", f"its entry {(*missing, 'seed')[0]!r} is missing or wrong")
    if meta["status"] == "finished" and _hash(path / "model.safetensors") != meta.get("model"):
        raise _changed(path / "model.safetensors")
    resolved = path / "experiment.toml"
    try:
        same = resolved.is_file() and resolved.read_text(encoding="utf-8") == meta["experiment"]
    except (OSError, UnicodeDecodeError):
        same = False
    if not same:
        raise _changed(resolved)
    for name, expected in copied_files(meta, path / "run.sqlite").items():
        if not (_hash(path / name) or "").startswith(expected):
            raise _changed(path / name)


def _hash(file: Path) -> str | None:
    """SHA-256 of a regular file; None for other files, such as pipes, which could block, and for files that cannot be read."""
    return file_hash(file) if file.is_file() else None


def _changed(file: Path) -> UsageError:
    """The error for a file that is not the recorded one. A file of another user may only be unreadable."""
    try:
        if file.is_file():
            file.open("rb").close()
    except PermissionError:
        return UsageError(f"{file}: cannot be read (permission denied); its owner can let you read it, as with chmod")
    except OSError as error:
        return UsageError(f"{file}: cannot be read ({error.strerror})")
    return UsageError(
        f"{file}: is missing, or differs from what was recorded; nothing was overwritten; restore the file, or delete the run "
        "directory to start again"
    )


def signature(path: Path) -> Signature:
    """Names, times and sizes of the files of a run directory that its hashes cover: they change when the directory does."""
    files = [path / "run.sqlite", path / "run.sqlite-wal", path / "experiment.toml", path / "model.safetensors"]
    facts = []
    for file in [*files, *sorted(path.glob("plug-ins/**/*.py"))]:
        try:
            status = file.stat()
        except OSError:
            continue
        facts.append((file.name, status.st_mtime_ns, status.st_size))
    return tuple(facts)
