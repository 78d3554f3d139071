"""Find the best cells of the page's tables: the best mean of each column, among rows that are compared with each other."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["mark_best"]


def mark_best(rows: Sequence[dict[str, Any]], highest: Sequence[str] = (), lowest: Sequence[str] = ()) -> None:
    """Set ``best`` of each row: the columns in which no row with the same ``point`` of a sweep shows a better number.

    Rows that show the same number are marked alike, so that a mark never stands at one of two equal numbers. A column is not marked if
    fewer than two rows have a finite number in it, or if all of them show the same.

    Args:
        rows: rows of a table; cells have a ``text`` and a ``value``. Columns in ``partial`` of a row cannot be compared with those of
            others.
        highest, lowest: columns in which the highest or the lowest number is the best.
    """
    for row in rows:
        row["best"] = set()
    for point in dict.fromkeys(row.get("point") for row in rows):
        own = [row for row in rows if row.get("point") == point]
        for column, sign in [*((column, 1) for column in highest), *((column, -1) for column in lowest)]:
            _mark_column(own, column, sign)


def _mark_column(rows: Sequence[dict[str, Any]], column: str, sign: int) -> None:
    """Mark the rows with the highest number times ``sign``."""
    known = [row for row in rows if _known(row, column)]
    if len({row[column].text for row in known}) < 2:
        return
    best = max(known, key=lambda row: sign * row[column].value)[column].text
    for row in known:
        if row[column].text == best:
            row["best"].add(column)


def _known(row: Mapping[str, Any], column: str) -> bool:
    return column in row and column not in row.get("partial", ()) and math.isfinite(row[column].value)
