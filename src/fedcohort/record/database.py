"""The tables of a run's database: their definition, the rows of a round, and the hashes that protect them."""

import hashlib
import itertools
import json
import math
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from fedcohort.core.arrays import Values
from fedcohort.core.errors import UsageError
from fedcohort.record.equal_decisions import equal_decision
from fedcohort.record.round_rows import ClientRow, LedgerRow, Reasons, RoundRow

__all__ = [
    "FORMAT",
    "SEALED",
    "TABLES",
    "SqlRow",
    "as_rows",
    "checkpoints_hash",
    "client_accuracies",
    "damaged",
    "file_hash",
    "first_seal",
    "insert_rows",
    "numbers_of",
    "own_measures",
    "personal_accuracies",
    "seal_of",
    "sealed_rows",
    "sealed_tables",
]

SqlRow: TypeAlias = tuple[int | float | str | bytes | None, ...]
"""A row of a table, as SQLite returns it."""

FORMAT = 2
"""Version of the layout of run directories."""


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
CREATE TABLE equal_decisions (round INTEGER PRIMARY KEY, clients BLOB NOT NULL, selected INTEGER, score REAL);
CREATE TABLE ledger (
  round INTEGER, kind TEXT, messages INTEGER, bytes_down INTEGER, bytes_up INTEGER, passes REAL, seconds REAL, discloses TEXT,
  PRIMARY KEY (round, kind)
);
CREATE TABLE wall (round INTEGER PRIMARY KEY, selection REAL, training REAL, aggregation REAL, evaluation REAL, recording REAL,
  total REAL);
CREATE TABLE client_accuracy (round INTEGER PRIMARY KEY, accuracies BLOB NOT NULL);
CREATE TABLE own_measures (round INTEGER, position INTEGER, name TEXT NOT NULL, value REAL, PRIMARY KEY (round, position))
  WITHOUT ROWID;
CREATE TABLE personal_accuracy (round INTEGER PRIMARY KEY, accuracies BLOB NOT NULL);
CREATE TABLE portrait (name TEXT PRIMARY KEY, type TEXT NOT NULL, shape TEXT NOT NULL, data BLOB NOT NULL);
CREATE TABLE seals (round INTEGER PRIMARY KEY, sha256 TEXT NOT NULL);
CREATE TABLE checkpoints (round INTEGER PRIMARY KEY, file TEXT, sha256 TEXT);
"""
"""``equal_decisions`` holds the rounds in which all candidates had the same score, see :mod:`fedcohort.record.equal_decisions`; the
candidates of other rounds are in ``decisions``. ``clients.reports`` holds, as JSON, the numbers that not every client reports, and the
coefficient of the update if there is one. ``client_accuracy`` holds the accuracy of the model on each client's data, little-endian
float64 [m], and ``personal_accuracy`` the accuracies before and after local epochs, [2, m]. ``seals`` holds a hash of the rows of each
round and of all rounds before: SQLite's own check does not detect a flipped bit in a number."""


SEALED = (
    "rounds", "clients", "decisions", "ledger", "wall", "client_accuracy", "own_measures", "personal_accuracy", "equal_decisions",
)  # fmt: skip
"""The tables with rows of rounds; databases of earlier versions lack some of the last ones."""


_SCALARS = (
    "round", "available", "selected", "trained", "admitted", "simulated_time", "round_time", "steps", "test_accuracy", "test_loss",
    "validation_accuracy", "validation_loss", "local_accuracy", "train_loss",
)  # fmt: skip


_COUNTS = frozenset({"round", "available", "selected", "trained", "admitted", "steps"})


_WALL = ("selection", "training", "aggregation", "evaluation", "recording", "total")


def file_hash(path: Path) -> str | None:
    """SHA-256 of a file; None if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def first_seal(connection: sqlite3.Connection) -> str:
    """The hash that the chain of seals starts from; it covers everything that is fixed when a run is created."""
    fixed = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
    fixed += connection.execute(
        "SELECT key, value FROM meta WHERE key NOT IN ('status', 'model', 'checkpoints') ORDER BY key"
    ).fetchall()
    fixed += connection.execute("SELECT * FROM portrait ORDER BY name").fetchall()
    return hashlib.sha256(repr(fixed).encode()).hexdigest()


def checkpoints_hash(connection: sqlite3.Connection) -> str:
    """The hash of the names and hashes of all checkpoints, which the end of a run records."""
    rows = connection.execute("SELECT round, file, sha256 FROM checkpoints ORDER BY round").fetchall()
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def sealed_rows(connection: sqlite3.Connection, round_: int) -> dict[str, list[SqlRow]]:
    """The rows of a round, by table."""
    query = "SELECT * FROM {} WHERE round = ? ORDER BY 1, 2"
    there = sealed_tables(connection)
    return {
        table: connection.execute(query.format(table), (round_,)).fetchall() if table in there else []
        for table in SEALED
    }


def sealed_tables(connection: sqlite3.Connection) -> list[str]:
    """The tables of :data:`SEALED` that the database has."""
    named = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return [table for table in SEALED if table in named]


def seal_of(tables: Mapping[str, Sequence[SqlRow]], before: str) -> str:
    """A hash of a round's rows and of all rounds before."""
    rows = "".join(repr(row) for table in SEALED for row in tables.get(table, ()))
    return hashlib.sha256((before + rows).encode()).hexdigest()


def insert_rows(db: sqlite3.Connection, rounds: Iterable[Mapping[str, Sequence[SqlRow]]]) -> None:
    """Insert the rows of rounds, each by table."""
    by_table: dict[str, list[SqlRow]] = {}
    for tables in rounds:
        for table, rows in tables.items():
            if rows:
                by_table.setdefault(table, []).extend(rows)
    for table, rows in by_table.items():
        db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)


def as_rows(row: RoundRow, present: Collection[str]) -> dict[str, Sequence[SqlRow]]:
    """The rows of a round by table. Numbers are those that SQLite will return, so that the seal can be computed first.

    ``present`` are the tables that the database has, see :func:`sealed_tables`.
    """
    t = row.round
    # databases of earlier versions have no table of equal decisions
    equal = equal_decision(t, row.decisions) if "equal_decisions" in present else None
    scalars = [int(getattr(row, name)) if name in _COUNTS else _real(getattr(row, name)) for name in _SCALARS]
    tables: dict[str, Sequence[SqlRow]] = {
        "rounds": [(*scalars, json.dumps([_plain(x) for x in row.class_accuracy]), row.note)],
        "clients": [_client(t, position, client) for position, client in enumerate(row.clients)],
        "decisions": _decisions(t, row.decisions) if equal is None else [],
        "ledger": sorted(_exchange(t, exchange) for exchange in row.ledger),
        "wall": [(t, *(_real(row.wall.get(part, 0.0)) for part in _WALL))],
        "client_accuracy": [],
        "own_measures": [(t, i, name, _real(value)) for i, (name, value) in enumerate(row.own_measures.items())],
        "personal_accuracy": [],
        "equal_decisions": [] if equal is None else [equal],
    }
    if row.client_accuracy is not None:
        tables["client_accuracy"] = [(t, np.asarray(row.client_accuracy, dtype="<f8").tobytes())]
    if row.personal_accuracy is not None:
        tables["personal_accuracy"] = [(t, np.ascontiguousarray(row.personal_accuracy.T, dtype="<f8").tobytes())]
    return tables


def _client(t: int, position: int, c: ClientRow) -> SqlRow:
    """A selected client as a row of ``clients``."""
    if c.reports:
        numbers = c.reports if math.isnan(c.coefficient) else {"coefficient": c.coefficient, **c.reports}
        reports = json.dumps({name: _plain(value) for name, value in numbers.items()})
    else:  # with the text of json.dumps, which takes much longer
        reports = "{}" if math.isnan(c.coefficient) else f'{{"coefficient": {_json(_real(c.coefficient))}}}'
    return (
        t, position, int(c.client), c.status, c.detail, int(c.num_samples), int(c.steps), _real(c.duration), _real(c.weight),
        _real(c.loss), _real(c.accuracy), reports,
    )  # fmt: skip


def _decisions(t: int, decisions: Reasons) -> Sequence[SqlRow]:
    """The candidates as rows of ``decisions``; a round can have a thousand of them, so they are written column by column."""
    clients, selected = decisions.clients.tolist(), map(int, decisions.selected)
    scores = _all_known(decisions.scores)
    columns = itertools.repeat(t), itertools.count(), clients, selected, scores, _written(decisions)
    rows: list[SqlRow] = list(zip(*columns, strict=False))
    strangers = decisions.strangers.tolist()
    return rows + [(t, len(rows) + i, client, 1, None, "{}") for i, client in enumerate(strangers)]


def _written(decisions: Reasons) -> Iterable[str]:
    """The terms of each candidate's score as JSON, with the text of :func:`json.dumps`."""
    if not decisions.terms:
        return itertools.repeat("{}")
    form = "{" + ", ".join(f"{json.dumps(name).replace('%', '%%')}: %s" for name in decisions.terms) + "}"
    columns = [list(map(_json, _all_known(values))) for values in decisions.terms.values()]
    return [form % row for row in zip(*columns, strict=True)]


def _json(number: float | None) -> str:
    """A float or None, with the text of :func:`json.dumps`."""
    if number is None:
        return "null"
    return repr(number) if math.isfinite(number) else "Infinity" if number > 0 else "-Infinity"


def _exchange(t: int, e: LedgerRow) -> SqlRow:
    """The cost of one kind of exchange as a row of ``ledger``."""
    return (
        t, e.kind, int(e.messages), int(e.bytes_down), int(e.bytes_up), _real(e.passes), _real(e.seconds), e.discloses,
    )  # fmt: skip


def client_accuracies(connection: sqlite3.Connection) -> list[tuple[int, bytes]]:
    """The measured rounds, and the accuracies of the clients as bytes."""
    return connection.execute("SELECT round, accuracies FROM client_accuracy ORDER BY round").fetchall()


def own_measures(connection: sqlite3.Connection) -> list[SqlRow]:
    """Round, name and value of the own measures, in the order of rounds and of the experiment."""
    if "own_measures" not in sealed_tables(connection):
        return []
    return connection.execute("SELECT round, name, value FROM own_measures ORDER BY round, position").fetchall()


def personal_accuracies(connection: sqlite3.Connection) -> list[tuple[int, bytes]]:
    """The rounds in which personal models were measured, and their accuracies as bytes; empty in databases of earlier versions."""
    if "personal_accuracy" not in sealed_tables(connection):
        return []
    return connection.execute("SELECT round, accuracies FROM personal_accuracy ORDER BY round").fetchall()


def damaged(database: Path, error: object) -> UsageError:
    """The error for a database that cannot be trusted."""
    return UsageError(
        f"{database}: the run's database is damaged, or it is not a database ({error}); nothing was overwritten; "
        "restore the file, or delete the run directory to start again"
    )


def _plain(value: Any) -> Any:
    """A number as SQLite and JSON store it: NaN and ±∞ as null."""
    number = value.item() if isinstance(value, np.generic) else value
    if not isinstance(number, float):
        return number
    return number + 0.0 if math.isfinite(number) else None  # SQLite has no −0


def _real(value: Any) -> float | None:
    """Any number for a column of type REAL: NaN and ±∞ as null."""
    number = float(value)
    return number + 0.0 if math.isfinite(number) else None  # SQLite has no −0


def _all_known(values: Values) -> list[float | None]:
    """Scores as SQLite stores them: NaN as null; ±∞ is kept, because strategies use it to put clients first or last."""
    numbers = (np.asarray(values, dtype=np.float64) + 0.0).tolist()  # SQLite has no −0
    return [None if math.isnan(number) else number for number in numbers] if np.isnan(values).any() else numbers


def numbers_of(text: str) -> list[float]:
    """The numbers of a JSON list; NaN for null."""
    return [math.nan if value is None else float(value) for value in json.loads(text)]
