"""Create run directories and write rounds to them."""

import json
import os
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from fedcohort.core.errors import UsageError
from fedcohort.core.states import save_state
from fedcohort.record.database import FORMAT, SEALED, TABLES, SqlRow, as_rows, damaged, file_hash, first_seal, seal_of
from fedcohort.record.round_rows import Portrait, RoundRow, Saved
from fedcohort.record.run import Run

__all__ = ["Writer", "create_run", "writing"]


def create_run(
    path: str | Path, experiment_toml: str, meta: Mapping[str, str], files: Mapping[str, bytes] | None = None
) -> Run:
    """Create a run directory, or open it if it is a run already.

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
            _fill(directory, experiment_toml, meta, files or {})
    except (OSError, sqlite3.OperationalError) as error:
        raise UsageError(
            f"{directory}: cannot be written ({getattr(error, 'strerror', None) or error}); give another directory with --runs"
        ) from None
    return Run(directory)


def _fill(directory: Path, experiment_toml: str, meta: Mapping[str, str], files: Mapping[str, bytes]) -> None:
    """Write the files of a new run. The database is created last, in one step, because a directory that has it counts as a run."""
    fresh = directory / f".run-{os.getpid()}.sqlite"
    fresh.unlink(missing_ok=True)
    connection = sqlite3.connect(fresh)
    with connection:
        connection.executescript(TABLES)
        rows = {"format": str(FORMAT), "status": "running", "experiment": experiment_toml, **meta}
        connection.executemany("INSERT INTO meta VALUES (?, ?)", rows.items())
    connection.close()
    for name, content in files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(content)
    (directory / "experiment.toml").write_text(experiment_toml, encoding="utf-8")
    # If another process has created the run first, its database is used; a rename would replace it.
    with suppress(FileExistsError):
        os.link(fresh, directory / "run.sqlite")
    fresh.unlink()


@contextmanager
def writing(run: Run) -> "Iterator[Writer]":
    """Hold the lock of a run and write to it.

    Raises:
        UsageError: another process is writing this run.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(run.path / "run.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise UsageError(
            f"{run.path}: another process is writing this run; wait for it, or use another --runs directory"
        ) from None
    try:
        writer = Writer(run.path)
        try:
            yield writer
        finally:
            writer.close()
    finally:
        lock.release()


class Writer:
    """Writes rounds to a run directory; created by :func:`writing`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        database = path / "run.sqlite"
        self._connection = sqlite3.connect(database, timeout=10)
        try:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            verdict = self._connection.execute("PRAGMA quick_check").fetchone()[0]
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise damaged(database, error) from None
        if verdict != "ok":
            self._connection.close()
            raise damaged(database, verdict)

    def rewind(self, last: int) -> None:
        """Delete the rounds after ``last``: they have no checkpoint and are played again."""
        with self._connection:
            for table in (*SEALED, "seals"):
                self._connection.execute(f"DELETE FROM {table} WHERE round > ?", (last,))

    def save(self, round_: int, state: Mapping[str, Any]) -> Saved:
        """Write a checkpoint. It replaces the previous checkpoint when its round is recorded."""
        name = f"round-{round_:06d}.safetensors"
        temporary = self.path / "checkpoint" / f".{name}"
        digest = save_state(temporary, state)
        temporary.rename(self.path / "checkpoint" / name)
        return Saved(name, digest)

    def record(self, row: RoundRow, saved: Saved | None = None) -> None:
        """Commit one round: metrics, decisions, ledger, and the checkpoint that belongs to it, in one transaction."""
        tables = as_rows(row)
        with self._connection as db:
            for table, rows in tables.items():
                if rows:
                    db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
            if saved is not None:
                db.execute("DELETE FROM checkpoints")
                db.execute("INSERT INTO checkpoints VALUES (?, ?, ?)", (row.round, *saved))
            self._seal(row.round, tables)
        if saved is not None:
            for file in (self.path / "checkpoint").glob("round-*.safetensors"):
                if file.name != saved.file:
                    file.unlink(missing_ok=True)

    def describe(self, portrait: Portrait) -> None:
        """Record the facts about the clients."""
        rows = [("classes", "json", "[]", zlib.compress(json.dumps(portrait.classes).encode()))]
        for name, values in portrait.facts.items():
            plain = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
            rows.append((name, plain.dtype.str, json.dumps(plain.shape), zlib.compress(plain.tobytes(), 1)))
        with self._connection as db:
            db.executemany("INSERT OR REPLACE INTO portrait VALUES (?, ?, ?, ?)", rows)

    def finish(self, model: Mapping[str, Any]) -> None:
        """Save the final model and mark the run as finished."""
        from safetensors.torch import save_file

        temporary = self.path / ".model.safetensors"
        save_file(dict(model), temporary)
        temporary.rename(self.path / "model.safetensors")
        with self._connection as db:
            digest = file_hash(self.path / "model.safetensors")
            db.execute("INSERT OR REPLACE INTO meta VALUES ('model', ?)", (digest,))
            db.execute("UPDATE meta SET value = 'finished' WHERE key = 'status'")

    def close(self) -> None:
        """Close the database. Unless another process is reading it, its log is merged, so that a read-only directory can be read."""
        with suppress(sqlite3.OperationalError):
            self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()

    def _seal(self, round_: int, tables: Mapping[str, list[SqlRow]]) -> None:
        """Record the hash of the round's rows, chained to the hash of the round before."""
        row = self._connection.execute(
            "SELECT sha256 FROM seals WHERE round < ? ORDER BY round DESC LIMIT 1", (round_,)
        )
        before = row.fetchone()
        seal = seal_of(tables, before[0] if before else first_seal(self._connection))
        self._connection.execute("INSERT INTO seals VALUES (?, ?)", (round_, seal))
