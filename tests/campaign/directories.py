"""What must be the same in a run directory after every disturbance: all rows but wall times, and the bytes of all files."""

import re
import sqlite3
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from tests.campaign.attack import Failed, hold

__all__ = ["contents", "difference", "files", "only_run", "same_directory", "same_runs"]

WALL_TIMES = {"ledger": {"seconds"}}
"""Columns with wall times, by table; the tables ``wall`` and ``seals`` (hashes of wall times, too) are left out completely."""

WORKERS = re.compile(r"^workers = \d+\n", re.MULTILINE)
"""The number of threads in a description: two commands may give different numbers for one run."""


def contents(path: Path) -> dict[str, Any]:
    """The rows of every table, and the bytes of every other file; the record is verified first.

    Raises:
        Failed: the directory cannot be read, or holds a file that is left over.
    """
    import fedcohort

    found: dict[str, Any] = {}
    try:
        fedcohort.open_run(path)
    except fedcohort.UsageError as error:
        raise Failed(f"{path.name}: cannot be opened: {error}") from None
    connection = sqlite3.connect(path / "run.sqlite")
    try:
        tables = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        ]
        for table in tables:
            if table not in ("wall", "seals"):
                found[table] = _rows(connection, table)
        found["rounds with wall times"] = connection.execute("SELECT round FROM wall ORDER BY round").fetchall()
    finally:
        connection.close()
    for name, data in files(path).items():
        if not name.startswith(("run.sqlite", "run.lock")):
            found[name] = WORKERS.sub("", data.decode()).encode() if name == "experiment.toml" else data
    return found


def _rows(connection: sqlite3.Connection, table: str) -> list[Any]:
    """The rows of a table without wall times, sorted."""
    columns = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
    kept = ", ".join(name for name in columns if name not in WALL_TIMES.get(table, ()))
    rows = connection.execute(f"SELECT {kept} FROM {table}").fetchall()
    texts = [tuple(WORKERS.sub("", value) if isinstance(value, str) else value for value in row) for row in rows]
    return sorted(texts, key=repr)


def files(path: Path) -> dict[str, bytes]:
    """The bytes of all files below a folder, by relative path."""
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def difference(found: dict[str, Any], expected: dict[str, Any]) -> str:
    """Where two contents differ, in words; empty if they are equal."""
    parts = []
    for name in sorted(found.keys() | expected.keys()):
        if name not in found:
            parts.append(f"{name} is missing")
        elif name not in expected:
            parts.append(f"{name} is left over")
        elif found[name] != expected[name]:
            parts.append(f"{name} differs{_first(found[name], expected[name])}")
    return "; ".join(parts)


def _first(found: Any, expected: Any) -> str:
    if not isinstance(found, list):
        return ""
    return next(
        (
            f" ({ours} instead of {theirs})"[:200]
            for ours, theirs in zip(found, expected, strict=False)
            if ours != theirs
        ),
        "",
    )


def only_run(folder: Path) -> Path:
    """The only run directory in a folder of runs."""
    paths = [path for path in folder.iterdir() if path.is_dir()]
    hold(len(paths) == 1, f"{len(paths)} run directories instead of 1: {[path.name for path in paths]}")
    return paths[0]


def same_directory(path: Path, expected: dict[str, Any], *, without: Collection[str] = ()) -> None:
    """Hold that a run directory has the expected contents, apart from the files ``without``."""
    found = {name: value for name, value in contents(path).items() if name not in without}
    unlike = difference(found, {name: value for name, value in expected.items() if name not in without})
    hold(not unlike, f"{path.name}: {unlike}")


def same_runs(folder: Path, expected: dict[str, dict[str, Any]]) -> None:
    """Hold that a folder has exactly these runs, by name, each with its contents."""
    names: Iterable[str] = sorted(path.name for path in folder.iterdir())
    hold(names == sorted(expected), f"runs {names} instead of {sorted(expected)}")
    for name in names:
        same_directory(folder / name, expected[name])
