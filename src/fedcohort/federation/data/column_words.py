"""Columns of a table in messages: their names, and what to do about those without numbers."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedcohort.federation.data.array_checks import brief

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["columns_of", "without_numbers"]

_DATE = r"\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})\b"
"""A text that begins with a date, such as ``2024-01-31``, ``31.1.2024`` or ``1/31/24``."""


def columns_of(columns: "Sequence[pd.Series[Any]]", longest: int = 80) -> str:
    """The names of columns in words; those of several in at most ``longest`` characters."""
    names = ", ".join(repr(str(column.name)) for column in columns)
    return f"column {names}" if len(columns) == 1 else f"columns {brief(names, longest)}"


def without_numbers(columns: "Sequence[pd.Series[Any]]", *, with_clients: bool) -> str:
    """The message that columns have no numbers, and what to do. It is shorter for several columns, to have room for their names.

    Args:
        columns: the columns.
        with_clients: whether the column of the clients is known, so that it is none of these.
    """
    dates = any(map(_has_dates, columns))
    types = brief(" and ".join(dict.fromkeys(str(column.dtype) for column in columns)), 30)
    if len(columns) == 1:
        words = f"has no numbers but {types}; encode it as numbers, or leave it out with data.feature_columns; "
        words += (
            "a date becomes a number of days with pandas.to_datetime" if dates else "pandas.get_dummies encodes texts"
        )
        clients = "if it names the client of each row, choose it with data.client_column"
    else:
        how = "texts (pandas.get_dummies) and dates (in days)" if dates else "them (pandas.get_dummies)"
        words = f"have no numbers but {types}; encode {how}, or leave them out with data.feature_columns"
        clients = "if one is that of the clients: data.client_column"
    return f"{columns_of(columns, 30 if dates else 45)} {words}" + f"; {clients}" * (not with_clients)


def _has_dates(column: "pd.Series[Any]") -> bool:
    """Whether a column has dates, also as texts: a column for each of them, as :func:`pandas.get_dummies` makes, is of no use."""
    first = next(iter(column.dropna()), None)
    return column.dtype.kind == "M" or (isinstance(first, str) and re.match(_DATE, first) is not None)
