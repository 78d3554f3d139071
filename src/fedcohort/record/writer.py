"""Create run directories and write rounds to them."""

import json
import math
import shutil
import sqlite3
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from fedcohort.core.errors import UsageError
from fedcohort.core.files.durable_files import sync_directory, sync_file, write_file
from fedcohort.record.checkpoints import CheckpointFiles, removed_on_error
from fedcohort.record.database import (
    FORMAT,
    TABLES,
    SqlRow,
    as_rows,
    checkpoints_hash,
    damaged,
    file_hash,
    first_seal,
    insert_rows,
    seal_of,
    sealed_tables,
)
from fedcohort.record.round_rows import Portrait, RoundRow, Saved
from fedcohort.record.run import Run
from fedcohort.record.run_lock import locked
from fedcohort.record.untouched_copy import check_database_exists
from fedcohort.record.write_errors import cannot_create, disk_is_full

__all__ = ["Writer", "create_run", "writing"]

SYNC_SHARE = 0.02
"""Largest share of the time that a run spends on making checkpoints durable, unless every checkpoint is."""


def create_run(
    path: str | Path, experiment_toml: str, meta: Mapping[str, str], files: Mapping[str, bytes] | None = None
) -> Run:
    """Create a run directory, or open it if it is a run already. The caller holds its lock if other processes may create it too.

    Args:
        path: the directory.
        experiment_toml: the complete description of the run.
        meta: facts about the run by name, such as its label.
        files: contents of the files that the description refers to, by their paths in the directory.

    Raises:
        UsageError: the directory cannot be written.
    """
    directory = Path(path)
    try:
        (directory / "checkpoint").mkdir(parents=True, exist_ok=True)
        if not (directory / "run.sqlite").exists():
            check_database_exists(directory)
            _fill(directory, experiment_toml, meta, files or {})
    except (OSError, sqlite3.OperationalError) as error:
        raise cannot_create(directory, error) from None
    return Run(directory)


def _fill(directory: Path, experiment_toml: str, meta: Mapping[str, str], files: Mapping[str, bytes]) -> None:
    """Write the files of a new run to the disk. The database is named last, because a directory that has it counts as a run."""
    for left_over in directory.glob(".run*.sqlite*"):  # of processes that ended before the run was created
        left_over.unlink(missing_ok=True)
    fresh = directory / ".run.sqlite"
    with removed_on_error(fresh):
        _fill_database(fresh, {"format": str(FORMAT), "status": "running", "experiment": experiment_toml, **meta})
        for name, content in files.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            write_file(directory / name, content)
        write_file(directory / "experiment.toml", experiment_toml.encode())
        for folder in {(directory / name).parent for name in files} | {directory}:
            sync_directory(folder)
        fresh.replace(directory / "run.sqlite")
    sync_directory(directory)
    sync_directory(directory.parent)


def _fill_database(fresh: Path, facts: Mapping[str, str]) -> None:
    """Write the database of a new run to the disk."""
    connection = sqlite3.connect(fresh)
    try:
        connection.execute("PRAGMA journal_mode = OFF")  # the file is synced as a whole, before it gets its name
        connection.execute("PRAGMA synchronous = OFF")
        with connection:
            connection.executescript(TABLES)
            connection.executemany("INSERT INTO meta VALUES (?, ?)", facts.items())
    finally:
        connection.close()
    sync_file(fresh)


@contextmanager
def writing(run: Run, *, durable_seconds: float = 0.0) -> "Iterator[Writer]":
    """Hold the lock of a run and write to it; see :class:`Writer`.

    Raises:
        UsageError: another process is writing this run.
    """
    with locked(run.path), Writer(run.path, durable_seconds=durable_seconds) as writer:
        yield writer


class Writer:
    """Writes rounds to a run directory; the caller holds its lock, see :func:`locked`.

    A checkpoint is *durable* if it survives a power loss: its file, and the rounds up to it, are on the disk. The last durable
    checkpoint stays until the next one is durable, and :meth:`Run.checkpoint` resumes from it if a later one was lost. The first
    checkpoint that a process records is durable, and so is the last one at an orderly end.

    Any thread can call it, one at a time.

    Args:
        path: the run directory.
        durable_seconds: least time between durable checkpoints; 0 makes every checkpoint durable. With a positive number, syncing
            takes at most :data:`SYNC_SHARE` of the time, however slow the disk is.

    Raises:
        UsageError: the database is damaged, or cannot be written.
    """

    def __init__(self, path: Path, *, durable_seconds: float = 0.0) -> None:
        self.path = path
        self.durable_seconds = durable_seconds
        self._due = -math.inf  # when the next checkpoint is made durable, by time.monotonic
        self._last_is_durable = False  # unknown: a process before this one may have been killed
        self._files = CheckpointFiles(path / "checkpoint")
        self._synced: frozenset[str] = frozenset()  # files with memories that survive a power loss
        database = path / "run.sqlite"
        self._connection = sqlite3.connect(database, timeout=10, check_same_thread=False)
        try:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA fullfsync = ON")  # has an effect on macOS only
            self._connection.execute("PRAGMA checkpoint_fullfsync = ON")
            self._tables = sealed_tables(self._connection)
            # SQLite would fold its log in while frames of it may still be lost; it is folded in at durable checkpoints instead
            self._connection.execute("PRAGMA wal_autocheckpoint = 100000")
        except sqlite3.OperationalError as error:
            self._connection.close()
            raise self._cannot_write(error) from None
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise damaged(database, error) from None
        for pattern in (
            "checkpoint/.round-*",
            "checkpoint/.memories-*",
            ".model.*",
            ".run*.sqlite*",
            ".tmp*",
        ):  # the last one is of safetensors
            for left_over in path.glob(pattern):
                left_over.unlink(missing_ok=True)

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def rewind(self, last: int) -> None:
        """Delete the rounds after ``last``: they have no checkpoint and are played again."""
        with self._to_disk(), self._connection:
            for table in (*self._tables, "seals", "checkpoints"):
                self._connection.execute(f"DELETE FROM {table} WHERE round > ?", (last,))

    def save(self, round_: int, state: Mapping[str, Any]) -> Saved:
        """Write a checkpoint. It replaces the previous checkpoint when its round is recorded.

        Raises:
            UsageError: the disk is full, or the directory cannot be written.
        """
        with self._to_disk():
            return self._files.write(round_, state)

    def record(self, rows: Sequence[RoundRow], saved: Saved | None = None, *, durable: bool = False) -> None:
        """Commit rounds: metrics, decisions, ledger, and the checkpoint that belongs to the last of them, in one transaction.

        Args:
            rows: the rounds.
            saved: the checkpoint, if there is one.
            durable: whether the rounds have to survive a power loss; otherwise those of durable checkpoints do.

        Raises:
            UsageError: the disk is full, or the directory cannot be written; the rounds are not recorded.
        """
        rounds = {row.round: as_rows(row, self._tables) for row in rows}
        begin = time.monotonic()
        durable = durable or (saved is not None and begin >= self._due)
        with self._to_disk():
            if saved is not None and durable:
                self._sync_checkpoint(saved.file)
            with self._transaction(durable=durable) as db:
                insert_rows(db, rounds.values())
                if saved is not None:
                    kept = "0" if durable else "(SELECT COALESCE(MIN(round), 0) FROM checkpoints)"
                    db.execute(f"DELETE FROM checkpoints WHERE round > {kept}")
                    db.execute("INSERT INTO checkpoints VALUES (?, ?, ?)", (rows[-1].round, *saved))
                self._seal(rounds)
            if saved is not None:
                self._last_is_durable = durable
                self._clear()
        if durable:
            end = time.monotonic()
            self._due = (
                end + max(self.durable_seconds, (end - begin) / SYNC_SHARE) if self.durable_seconds else -math.inf
            )

    def make_durable(self) -> None:
        """Make the last checkpoint durable, and delete the one before.

        Raises:
            UsageError: the disk is full, or the directory cannot be written.
        """
        if self._last_is_durable:
            return
        with self._to_disk():
            last = self._connection.execute("SELECT file FROM checkpoints ORDER BY round DESC LIMIT 1").fetchone()
            if last is not None:
                self._sync_checkpoint(last[0])
                with self._transaction(durable=True) as db:
                    db.execute("DELETE FROM checkpoints WHERE round < (SELECT MAX(round) FROM checkpoints)")
            self._last_is_durable = True
            self._clear()

    def describe(self, portrait: Portrait) -> None:
        """Record the facts about the clients."""
        rows = [(name, "json", "[]", zlib.compress(json.dumps(own).encode())) for name, own in portrait.texts.items()]
        for name, values in portrait.facts.items():
            plain = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
            rows.append((name, plain.dtype.str, json.dumps(plain.shape), zlib.compress(plain.tobytes(), 1)))
        with self._to_disk(), self._connection as db:
            db.executemany("INSERT OR REPLACE INTO portrait VALUES (?, ?, ?, ?)", rows)

    def finish(self, model: Mapping[str, Any]) -> None:
        """Save the final model and mark the run as finished.

        Raises:
            UsageError: the disk is full, or the directory cannot be written.
        """
        from safetensors.torch import save_file

        temporary, file = self.path / ".model.safetensors", self.path / "model.safetensors"
        with self._to_disk(), removed_on_error(temporary):
            save_file(dict(model), temporary)
            with suppress(OSError):  # some file systems have no permissions
                shutil.copymode(self.path / "experiment.toml", temporary)  # safetensors lets only the owner read it
            sync_file(temporary)
            temporary.replace(file)
            sync_directory(self.path)
            self.make_durable()
            with self._transaction(durable=True) as db:
                db.execute("INSERT OR REPLACE INTO meta VALUES ('model', ?)", (file_hash(file),))
                db.execute("INSERT OR REPLACE INTO meta VALUES ('checkpoints', ?)", (checkpoints_hash(db),))
                db.execute("UPDATE meta SET value = 'finished' WHERE key = 'status'")

    def close(self) -> None:
        """Close the database. Unless another process is reading it, its log is merged, so that a read-only directory can be read."""
        with suppress(UsageError):  # the last durable checkpoint is still there
            self.make_durable()
        with suppress(sqlite3.OperationalError):
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()

    @contextmanager
    def _to_disk(self) -> Iterator[None]:
        """Report errors of the disk in one line."""
        from safetensors import SafetensorError

        try:
            yield
        except (OSError, sqlite3.OperationalError, SafetensorError) as error:
            raise self._cannot_write(error) from None

    def _cannot_write(self, error: Exception) -> UsageError:
        if not self.path.is_dir():
            return UsageError(
                f"{self.path}: was removed or renamed while the run was played; put it back, or start the same command again to play "
                "the run anew"
            )
        cure = "free some space" if disk_is_full(self.path, error) else "fix it"
        return UsageError(
            f"{self.path}: cannot be written ({error}); finished rounds are kept: {cure}, and start the same command again"
        )

    @contextmanager
    def _transaction(self, *, durable: bool) -> Iterator[sqlite3.Connection]:
        """One transaction. If it is ``durable``, it is on the disk at the end of the block, and SQLite's log is empty unless another
        process is reading it."""
        self._connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        with self._connection as db:
            yield db
        if durable:
            self._connection.execute("PRAGMA busy_timeout = 100")  # do not wait for readers
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._connection.execute("PRAGMA busy_timeout = 10000")

    def _sync_checkpoint(self, name: str) -> None:
        """Wait until a checkpoint is on the disk, so that the transaction that names it may be."""
        memories = self._files.needed(name)
        for file in sorted(memories - self._synced):
            sync_file(self.path / "checkpoint" / file)
        self._synced = memories
        sync_file(self.path / "checkpoint" / name)
        sync_directory(self.path / "checkpoint")

    def _clear(self) -> None:
        """Delete the files of checkpoints that the database does not name."""
        self._files.clear(file for (file,) in self._connection.execute("SELECT file FROM checkpoints"))

    def _seal(self, rounds: Mapping[int, Mapping[str, Sequence[SqlRow]]]) -> None:
        """Record the hash of each round's rows, chained to the hash of the round before."""
        query = "SELECT sha256 FROM seals WHERE round < ? ORDER BY round DESC LIMIT 1"
        before = self._connection.execute(query, (min(rounds),)).fetchone()
        seal = before[0] if before else first_seal(self._connection)
        for round_, tables in rounds.items():
            seal = seal_of(tables, seal)
            self._connection.execute("INSERT INTO seals VALUES (?, ?)", (round_, seal))
