"""A table of clients: one line for each, with its samples, counts of classes, times and availability."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError, nearest, shown
from fedcohort.core.files.paths import as_path, is_file, kind_of
from fedcohort.federation.data.array_checks import brief
from fedcohort.federation.data.table_columns import check_column_names, check_separator
from fedcohort.federation.data.table_files import read_table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COLUMNS", "ClientTable", "client_table"]

COLUMNS = {
    "client": "name of the client",
    "samples": "number of training samples",
    "class:NAME": "number of its samples of this class; also count_NAME",
    "seconds": "time that it needs to train in a round",
    "seconds_per_sample": "the same, divided by its samples",
    "communication_seconds": "time that it needs to receive one model and send one",
    "available": "share of the rounds in which it is available",
}
"""The columns of a table of clients and their meanings."""

CLASS_PREFIXES = ("class:", "count_")
LARGEST_COUNT = 10**12
"""Largest number of samples of a client."""


@dataclass(frozen=True, eq=False)
class ClientTable:
    """What is known about the clients of a federation.

    Attributes:
        name: name of the table, such as that of its file without the ending.
        clients: name of each client.
        samples: training samples of each client, int64 [m], at least 1.
        classes: names of the K classes; empty if the counts are not known.
        counts: samples of each class at each client, int64 [m, K]; None if they are not known.
        seconds: time that each client needs to train in a round, float64 [m], above 0; None if it is not known.
        communication: time that each client needs for one model down and up, float64 [m]; None if it is not known.
        available: share of the rounds in which each client is available, float64 [m], above 0; None if it is not known.
    """

    name: str
    clients: tuple[str, ...]
    samples: Indices
    classes: tuple[str, ...] = ()
    counts: Indices | None = None
    seconds: Values | None = None
    communication: Values | None = None
    available: Values | None = None

    def __len__(self) -> int:
        """The number of clients m."""
        return len(self.clients)


def client_table(source: "str | Path | pd.DataFrame") -> ClientTable:
    """Read a table of clients from a CSV or Parquet file, or from a pandas ``DataFrame``; :data:`COLUMNS` lists its columns.

    Raises:
        UsageError: the table cannot be read, it has an unknown column, or a cell cannot be used; the message names the file, the row
            (from 1, without the heading), the column, and the value.
    """
    import pandas as pd

    if isinstance(source, pd.DataFrame):
        return _Reader(source.rename(columns=str), "clients", "clients").table()
    path = as_path(source, "clients")
    where = brief(path.name)
    if path.suffix.lower() not in (".csv", ".parquet") and not path.is_dir():
        raise UsageError(f"{where}: should be a table of clients, a file that ends in .csv or .parquet")
    if not is_file(path):
        problem = f"is {kind}" if (kind := kind_of(path)) else "there is no such file"
        raise UsageError(f"{path}: {problem}; give a table of clients, a .csv or .parquet file")
    return _Reader(read_table(path, where, as_texts=True), where, path.stem).table()


class _Reader:
    """Reads the columns of a table.

    Args:
        frame: the table; cells are texts, or values from Python.
        where: where it comes from, for messages.
        name: name of the table.
    """

    def __init__(self, frame: "pd.DataFrame", where: str, name: str) -> None:
        self.frame, self.where, self.name = frame, where, name
        self.columns = [str(column) for column in frame.columns]
        self.names: tuple[str, ...] = ()

    def table(self) -> ClientTable:
        """The checked table."""
        classes = self._check_columns()
        self.names = self._clients()
        samples = self._integers("samples", 1)
        return ClientTable(
            name=self.name,
            clients=self.names,
            samples=samples,
            classes=tuple(classes),
            counts=self._counts(classes, samples) if classes else None,
            seconds=self._seconds(samples),
            communication=self._numbers(
                "communication_seconds", "a number of seconds from 0 to 1e9, such as 2.5", _not_negative
            ),
            available=self._numbers(
                "available", "a share above 0 and at most 1, such as 0.8, or the client left out", _is_share
            ),
        )

    def _check_columns(self) -> dict[str, str]:
        """The columns with counts of classes, by the names of the classes."""
        check_column_names(self.columns, self.where)
        if unknown := [column for column in self.columns if column not in COLUMNS and _prefix(column) is None]:
            check_separator(self.columns, self.where, in_function=False)
            raise UsageError(f"{self.where}: unknown column {brief(unknown[0])!r}; {nearest(unknown[0], COLUMNS)}")
        classes = self._class_columns()
        problem = ""
        if "samples" not in self.columns:
            problem = "no column 'samples', the number of training samples of each client; add it"
        elif len(classes) == 1:
            problem = f"has counts of one class, {brief(next(iter(classes)))!r}; give those of all classes, or of none"
        elif {"seconds", "seconds_per_sample"} <= set(self.columns):
            problem = "has the columns 'seconds' and 'seconds_per_sample'; leave one of the two out"
        elif "communication_seconds" in self.columns and not {"seconds", "seconds_per_sample"} & set(self.columns):
            problem = "has 'communication_seconds', but not the time to train; add 'seconds' or 'seconds_per_sample'"
        elif len(self.frame) < 2:
            problem = f"number of clients: {len(self.frame)}; give at least two, one in each row"
        if problem:
            raise UsageError(f"{self.where}: {problem}")
        return classes

    def _class_columns(self) -> dict[str, str]:
        """The columns with counts by the names of their classes."""
        classes: dict[str, str] = {}
        for column in self.columns:
            if (prefix := _prefix(column)) is None:
                continue
            label = column.removeprefix(prefix).strip()
            if not label or label in classes:
                problem = f"is the second column of class {brief(label)!r}" if label else "names no class"
                raise UsageError(f"{self.where}: column {brief(column)!r} {problem}; write class:NAME, each name once")
            classes[label] = column
        return classes

    def _clients(self) -> tuple[str, ...]:
        """The names of the clients; their numbers from 0 without such a column."""
        if "client" not in self.columns:
            return tuple(map(str, range(len(self.frame))))
        names: dict[str, int] = {}
        for row, value in enumerate(self._cells("client")):
            text = "" if _is_missing(value) else str(value).strip()
            if not text or text in names:
                problem = f"is also in row {names[text] + 1}" if text else "is empty"
                raise UsageError(
                    f"{self.where}: row {row + 1}, column 'client': {shown(text)} {problem}; give every client its own name"
                )
            names[text] = row
        return tuple(names)

    def _counts(self, classes: dict[str, str], samples: Indices) -> Indices:
        """The counts of all classes, int64 [m, K]."""
        counts = np.stack([self._integers(column, 0) for column in classes.values()], axis=1)
        totals = counts.sum(axis=1)
        if len(wrong := np.flatnonzero(totals != samples)):
            row = int(wrong[0])
            raise UsageError(
                f"{self._place(row, 'samples')}: {samples[row]}, but its classes add up to {totals[row]}; both should be equal"
            )
        if len(empty := np.flatnonzero(counts.sum(axis=0) == 0)):
            column = list(classes.values())[int(empty[0])]
            raise UsageError(
                f"{self.where}: column {brief(column)!r}: no client has samples of this class; leave the column out"
            )
        return counts

    def _seconds(self, samples: Indices) -> Values | None:
        """The times for the training of a round."""
        words = "a number of seconds above 0 and at most 1e9, such as 12.5"
        if "seconds_per_sample" in self.columns:
            each = self._numbers("seconds_per_sample", words, _is_positive)
            return None if each is None else each * samples
        return self._numbers("seconds", words, _is_positive)

    def _integers(self, column: str, least: int) -> Indices:
        words = f"a whole number from {least} to {LARGEST_COUNT:,}, such as {120 if least else 0}"
        numbers = self._numbers(column, words, lambda x: x.is_integer() and least <= x <= LARGEST_COUNT)
        assert numbers is not None
        return numbers.astype(np.int64)

    def _numbers(self, column: str, words: str, valid: Callable[[float], bool]) -> Values | None:
        """The numbers in a column, float64 [m]; None if there is no such column.

        Args:
            column: the column.
            words: what a cell must be.
            valid: whether a number is.
        """
        if column not in self.columns:
            return None
        values = np.empty(len(self.frame))
        for row, value in enumerate(self._cells(column)):
            number = _number(value)
            if number is None or not valid(number):
                problem = (
                    "is empty" if _is_missing(value) else brief(value if isinstance(value, str) else repr(value), 40)
                )
                raise UsageError(f"{self._place(row, column)}: {problem}; must be {words}")
            values[row] = number
        return values

    def _cells(self, column: str) -> Sequence[object]:
        cells: list[object] = self.frame[column].tolist()
        return cells

    def _place(self, row: int, column: str) -> str:
        """A cell, in words."""
        client = f" (client {brief(self.names[row], 40)!r})" if self.names and "client" in self.columns else ""
        return f"{self.where}: row {row + 1}{client}, column {brief(column)!r}"


def _prefix(column: str) -> str | None:
    """What a column with counts of a class begins with; None for other columns."""
    return next((prefix for prefix in CLASS_PREFIXES if column.startswith(prefix)), None)


def _is_missing(value: object) -> bool:
    return (
        value is None
        or (isinstance(value, float) and math.isnan(value))
        or (isinstance(value, str) and not value.strip())
    )


def _number(value: object) -> float | None:
    """The number in a cell; None if there is none."""
    if isinstance(value, bool) or (isinstance(value, str) and "_" in value):  # float() reads 1_000
        return None
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _not_negative(number: float) -> bool:
    return 0 <= number <= 1e9


def _is_positive(number: float) -> bool:
    return 0 < number <= 1e9


def _is_share(number: float) -> bool:
    return 0 < number <= 1
