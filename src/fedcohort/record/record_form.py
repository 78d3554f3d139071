"""Check the form of a run's database: its tables, the kinds of their values, and the rounds of their rows.

The hashes in a record do not cover this: a program can compute the right hashes of any contents. A record from another source can
therefore have triggers and views, which SQLite runs, and texts in the place of numbers.
"""

import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from fedcohort.core.errors import UsageError
from fedcohort.core.files.paths import kind_of
from fedcohort.record.database import SEALED, TABLES, damaged

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["check_kinds", "check_logs", "check_tables", "naming_damage", "read_table"]

_STORED = {"INTEGER": "'integer'", "REAL": "'real', 'null'", "TEXT": "'text'", "BLOB": "'blob'"}
"""How SQLite stores the values of a column, by its declared type. Only numbers can be unknown."""

_LARGEST = 2**53
"""Integers above this, or below its negative, are not counts: sums of them would overflow."""


def check_logs(database: Path) -> None:
    """Refuse logs beside a database that are no regular files: SQLite would wait for a pipe, and read a device without an end.

    Raises:
        UsageError: there is such a log.
    """
    for ending in ("-wal", "-journal", "-shm"):
        log = Path(f"{database}{ending}")
        if log.exists() and not log.is_file():
            raise damaged(database, f"its log {log.name} is {kind_of(log) or 'no file'}")


def check_tables(connection: sqlite3.Connection, database: Path) -> None:
    """Refuse a database that has more than tables and their keys, before one of its tables is read.

    Args:
        connection: a connection to the database.
        database: its file, for messages.

    Raises:
        UsageError: it has a trigger, a view, or an index that is not that of a key.
    """
    for kind, name, sql in connection.execute("SELECT type, name, sql FROM sqlite_master"):
        if not (kind == "table" or (kind == "index" and sql is None)):
            raise damaged(database, f"it has the {kind} {name!r}, which FedCohort does not make")


def check_kinds(connection: sqlite3.Connection, database: Path) -> None:
    """Refuse tables and columns that :data:`TABLES` does not have, values of another kind than their column, and rows of no round.

    Args:
        connection: a connection to the database.
        database: its file, for messages.

    Raises:
        UsageError: there is one of these.
    """
    rounds = [t for (t,) in connection.execute("SELECT round FROM rounds ORDER BY round")]
    if rounds != list(range(1, len(rounds) + 1)):
        raise damaged(database, "its rounds are not 1, 2, 3, …")
    there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if unknown := sorted(there - _columns().keys()):
        raise damaged(database, f"it has the table {unknown[0]!r}, which FedCohort does not make")
    for table in sorted(there):
        columns = _columns()[table]
        if list(columns) != [name for _, name, *_ in connection.execute(f"PRAGMA table_xinfo({table})")]:
            raise damaged(database, f"the table {table} has other columns than those of FedCohort")
        wrong = [_is_wrong(name, declared) for name, declared in columns.items()]
        if table in SEALED:
            wrong.append(f"round NOT BETWEEN 1 AND {len(rounds)}")
        if connection.execute(f"SELECT 1 FROM {table} WHERE {' OR '.join(wrong)} LIMIT 1").fetchone():
            raise damaged(database, f"the table {table} has a value that FedCohort does not write")


def _is_wrong(column: str, declared: str) -> str:
    """An SQL condition for values that do not belong into a column."""
    kinds = f"typeof({column}) NOT IN ({_STORED[declared]})"
    return f"{kinds} OR {column} NOT BETWEEN 0 AND {_LARGEST}" if declared == "INTEGER" else kinds


@cache
def _columns() -> dict[str, dict[str, str]]:
    """The columns of each table, with their declared types."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(TABLES)
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            table: {name: kind for _, name, kind, *_ in connection.execute(f"PRAGMA table_xinfo({table})")}
            for table in names
        }
    finally:
        connection.close()


def read_table(connection: sqlite3.Connection, database: Path, query: str) -> "pd.DataFrame":
    """The rows that a query of one table returns; columns of numbers that are all unknown hold NaN.

    Args:
        connection: a connection to the database.
        database: its file, for messages.
        query: the query, with ``FROM`` and the name of the table.

    Raises:
        UsageError: the table cannot be read.
    """
    import pandas as pd

    try:
        frame = pd.read_sql_query(query, connection)
    except pd.errors.DatabaseError as error:
        raise damaged(database, error) from None
    table = query.split(" FROM ")[1].split()[0]
    declared = {name: kind for _, name, kind, *_ in connection.execute(f"PRAGMA table_info({table})")}
    # pandas reads a column that holds only NULLs as objects
    kinds = zip(frame.columns, frame.dtypes.tolist(), strict=True)
    empty = [name for name, kind in kinds if declared.get(name) == "REAL" and kind != "float64"]
    return frame.astype(dict.fromkeys(empty, "float64")) if empty else frame


@contextmanager
def naming_damage(database: Path) -> Iterator[None]:
    """Raise errors of reading a database, and of values in it that cannot be read, as one that says that it is damaged.

    Args:
        database: its file, for messages.

    Raises:
        UsageError: something in the database cannot be read.
    """
    try:
        yield
    except (
        sqlite3.DatabaseError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        RecursionError,
        zlib.error,
    ) as error:
        if "disk I/O error" in str(error):
            raise UsageError(f"{database}: cannot be read ({error}); if a disk is full, free some space") from None
        raise damaged(database, error) from error
