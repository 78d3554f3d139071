"""Write rounds to a run directory."""

import json
import sqlite3
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from fedcohort.core.states import save_state
from fedcohort.record.rows import Portrait, RoundRow, Saved
from fedcohort.record.tables import SEALED, as_rows, damaged, file_hash, first_seal, seal_of

__all__ = ["Writer"]


class Writer:
    """Writes rounds; made by :meth:`Run.writing`."""

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
        """Forget rounds after ``last``, which had no checkpoint of their own."""
        with self._connection:
            for table in (*SEALED, "seals"):
                self._connection.execute(f"DELETE FROM {table} WHERE round > ?", (last,))

    def save(self, round_: int, state: Mapping[str, Any]) -> Saved:
        """Write a checkpoint. It takes the place of the one before when its round is recorded."""
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
        """Keep who the clients are."""
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
        """Close the database; where nobody is reading, as one file that can be read in a directory that is not writable."""
        with suppress(sqlite3.OperationalError):
            self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()

    def _seal(self, round_: int, tables: Mapping[str, list[tuple[Any, ...]]]) -> None:
        """Chain a hash of the round's rows to that of the round before."""
        row = self._connection.execute(
            "SELECT sha256 FROM seals WHERE round < ? ORDER BY round DESC LIMIT 1", (round_,)
        )
        before = row.fetchone()
        seal = seal_of(tables, before[0] if before else first_seal(self._connection))
        self._connection.execute("INSERT INTO seals VALUES (?, ?)", (round_, seal))
