"""The tables of a run's database, rounds as their rows, and the hashes that seal them."""

import hashlib
import json
import math
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedcohort.core.errors import UsageError
from fedcohort.record.rows import RoundRow

__all__ = [
    "FORMAT",
    "SEALED",
    "TABLES",
    "as_rows",
    "client_accuracies",
    "damaged",
    "file_hash",
    "first_seal",
    "numbers_of",
    "seal_of",
    "sealed_rows",
]

FORMAT = 2
"""Version of the directory's layout."""


TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE rounds (
  round INTEGER PRIMARY KEY, available INTEGER, selected INTEGER, trained INTEGER, admitted INTEGER,
  simulated_time REAL, round_time REAL, steps INTEGER,
  test_accuracy REAL, test_loss REAL, validation_accuracy REAL, validation_loss REAL, local_accuracy REAL, train_loss REAL,
  class_accuracy TEXT, note TEXT
);
CREATE TABLE clients (
  round INTEGER, position INTEGER, client INTEGER, status TEXT, detail TEXT, num_samples INTEGER, steps INTEGER, duration REAL,
  weight REAL, loss REAL, accuracy REAL, reports TEXT, PRIMARY KEY (round, position)
) WITHOUT ROWID;
CREATE TABLE decisions (round INTEGER, position INTEGER, client INTEGER, selected INTEGER, score REAL, terms TEXT,
  PRIMARY KEY (round, position)) WITHOUT ROWID;
CREATE TABLE ledger (
  round INTEGER, kind TEXT, messages INTEGER, bytes_down INTEGER, bytes_up INTEGER, passes REAL, seconds REAL, discloses TEXT,
  PRIMARY KEY (round, kind)
);
CREATE TABLE wall (round INTEGER PRIMARY KEY, selection REAL, training REAL, aggregation REAL, evaluation REAL, recording REAL,
  total REAL);
CREATE TABLE client_accuracy (round INTEGER PRIMARY KEY, accuracies BLOB NOT NULL);
CREATE TABLE portrait (name TEXT PRIMARY KEY, type TEXT NOT NULL, shape TEXT NOT NULL, data BLOB NOT NULL);
CREATE TABLE seals (round INTEGER PRIMARY KEY, sha256 TEXT NOT NULL);
CREATE TABLE checkpoints (round INTEGER PRIMARY KEY, file TEXT, sha256 TEXT);
"""
"""``clients.reports`` holds what a client reported that not every client reports, as JSON; ``client_accuracy`` the accuracy of the
model on each client's data, little-endian float64 [m]; ``seals`` a hash of the rows of each round and of all before: SQLite's own
check does not see a flipped bit in a number."""


SEALED = ("rounds", "clients", "decisions", "ledger", "wall", "client_accuracy")


_SCALARS = (
    "round", "available", "selected", "trained", "admitted", "simulated_time", "round_time", "steps", "test_accuracy", "test_loss",
    "validation_accuracy", "validation_loss", "local_accuracy", "train_loss",
)  # fmt: skip


_COUNTS = frozenset({"round", "available", "selected", "trained", "admitted", "steps"})


_WALL = ("selection", "training", "aggregation", "evaluation", "recording", "total")


def file_hash(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def first_seal(connection: sqlite3.Connection) -> str:
    """The hash that the first round is chained to: of all that is fixed when a run is made."""
    fixed = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
    fixed += connection.execute(
        "SELECT key, value FROM meta WHERE key NOT IN ('status', 'model') ORDER BY key"
    ).fetchall()
    fixed += connection.execute("SELECT * FROM portrait ORDER BY name").fetchall()
    return hashlib.sha256(repr(fixed).encode()).hexdigest()


def sealed_rows(connection: sqlite3.Connection, round_: int) -> dict[str, list[tuple[Any, ...]]]:
    """What is recorded of a round, by table."""
    query = "SELECT * FROM {} WHERE round = ? ORDER BY 1, 2"
    return {table: connection.execute(query.format(table), (round_,)).fetchall() for table in SEALED}


def seal_of(tables: Mapping[str, list[tuple[Any, ...]]], before: str) -> str:
    """A hash of a round's rows and of all before."""
    rows = "".join(repr(row) for table in SEALED for row in tables[table])
    return hashlib.sha256((before + rows).encode()).hexdigest()


def as_rows(row: RoundRow) -> dict[str, list[tuple[Any, ...]]]:
    """A round by table, each number as SQLite will give it back, so that its hash can be taken before."""
    t = row.round
    scalars = [int(getattr(row, name)) if name in _COUNTS else _real(getattr(row, name)) for name in _SCALARS]
    tables: dict[str, list[tuple[Any, ...]]] = {
        "rounds": [(*scalars, json.dumps([_plain(x) for x in row.class_accuracy]), row.note)],
        "clients": [
            (t, i, int(c.client), c.status, c.detail, int(c.num_samples), int(c.steps), _real(c.duration), _real(c.weight),
             _real(c.loss), _real(c.accuracy), json.dumps({k: _plain(v) for k, v in c.reports.items()}) if c.reports else "{}")
            for i, c in enumerate(row.clients)
        ],
        "decisions": [
            (t, i, int(client), int(selected), _known(score), json.dumps({k: _known(v) for k, v in terms.items()}) if terms else "{}")
            for i, (client, selected, score, terms) in enumerate(row.decisions)
        ],
        "ledger": sorted(
            (t, e.kind, int(e.messages), int(e.bytes_down), int(e.bytes_up), _real(e.passes), _real(e.seconds),
             e.discloses)
            for e in row.ledger
        ),
        "wall": [(t, *(_real(row.wall.get(part, 0.0)) for part in _WALL))],
        "client_accuracy": [],
    }  # fmt: skip
    if row.client_accuracy is not None:
        tables["client_accuracy"] = [(t, np.asarray(row.client_accuracy, dtype="<f8").tobytes())]
    return tables


def client_accuracies(connection: sqlite3.Connection) -> list[tuple[int, bytes]]:
    return connection.execute("SELECT round, accuracies FROM client_accuracy ORDER BY round").fetchall()


def damaged(database: Path, error: object) -> UsageError:
    return UsageError(
        f"{database}: the run's database is damaged or not one ({error}); nothing was overwritten; "
        "restore the file, or delete the run directory to start again"
    )


def _plain(value: Any) -> Any:
    """A number as SQLite and JSON keep it: NaN and ±∞ as null."""
    number = value.item() if isinstance(value, np.generic) else value
    if not isinstance(number, float):
        return number
    return number + 0.0 if math.isfinite(number) else None  # SQLite has no −0


def _real(value: Any) -> float | None:
    """The same for a column of reals, whatever kind of number it is given."""
    number: float | None = _plain(float(value))
    return number


def _known(value: float) -> float | None:
    """A score as SQLite keeps it: NaN as null, but ±∞ as it is, which is how strategies say first and last."""
    return None if math.isnan(value) else float(value) + 0.0


def numbers_of(text: str) -> list[float]:
    return [math.nan if value is None else float(value) for value in json.loads(text)]
