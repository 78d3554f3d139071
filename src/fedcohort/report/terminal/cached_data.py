"""Print the entries of the cache of decoded data sets."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from fedcohort.core.words.formatted_values import count, counted, size
from fedcohort.report.terminal.layout import (
    Column,
    about_hidden,
    dimmed,
    fitting_table,
    natural_width,
    plain_table,
)

if TYPE_CHECKING:
    from fedcohort.federation.data.cache_listing import CachedData

__all__ = ["cache_table", "cached_paths"]


def cache_table(entries: "Sequence[CachedData]", removed: "Sequence[CachedData]", width: int) -> Group:
    """The entries of the cache, and how many were removed. If data sets have long paths, :func:`cached_paths` has them."""
    parts: list[RenderableType] = []
    if removed:
        total = size(sum(entry.num_bytes for entry in removed))
        parts.append(Text(f"Removed {_number_of_entries(removed)}, {total}: {', '.join(e.name for e in removed)}"))
    hidden: list[str] = []
    if entries:
        columns = [column for column in _columns(entries) if column.heading != DATA or not cached_paths(entries, width)]
        table, hidden = fitting_table(columns, width)
        parts.append(table)
    total = size(sum(entry.num_bytes for entry in entries))
    parts.append(Text(f"{_number_of_entries(entries)}, {total}" if entries else "The cache has no entries."))
    return Group(*parts, *dimmed(about_hidden(hidden)))


def cached_paths(entries: "Sequence[CachedData]", width: int) -> list[str]:
    """Lines with the data set of each entry if the table has no room for them; empty if it has.

    They are to be printed as they are, however long, so that paths can be copied.
    """
    if not entries or natural_width(plain_table(_columns(entries))) <= width:
        return []
    return ["", "Data sets:", *(line for entry in entries for line in (f"  {entry.name}", f"    {entry.data or '–'}"))]


DATA = "data set"
"""Heading of the column of data sets."""


def _columns(entries: "Sequence[CachedData]") -> list[Column]:
    columns = [
        Column("entry", [Text(entry.name, style="bold") for entry in entries], left=True),
        Column(DATA, [entry.data or "–" for entry in entries], left=True),
        Column("size", [size(entry.num_bytes) for entry in entries], 1),
        Column("age", [_age(entry.days) for entry in entries], 0),
    ]
    if any(entry.damage is not None for entry in entries):
        states = [f"damaged: {entry.damage}" if entry.damage else "as written" for entry in entries]
        columns.append(Column("content", states, left=True, widest=40))
    return columns


def _number_of_entries(entries: "Sequence[CachedData]") -> str:
    return counted(len(entries), "entry", "entries")


def _age(days: float) -> str:
    """Hours for the first two days, then days."""
    return f"{count(days)} days" if days >= 2 else f"{count(days * 24)} h"
