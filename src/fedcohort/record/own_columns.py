"""Columns that strategies and algorithms named: the terms of scores, and the further reports of clients; and own measures."""

import itertools
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcohort.core.arrays import Values

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["accuracies_table", "measures_table", "numbers_in", "with_own_columns", "without_unknown_steps"]


PARSED = 2_000
"""Number of JSON texts that are parsed by one call. It takes half the time of one call for each, and the objects of so few texts are
freed before Python's garbage collector looks at them."""


def numbers_in(texts: Sequence[str], column: str) -> dict[str, Values]:
    """The numbers of JSON objects by name, each float64 [n], with NaN where an object has none.

    Args:
        texts: one JSON object for each row of a table [n].
        column: name of the column of the table, for messages.

    Returns:
        the numbers, in the order in which their names come first.

    Raises:
        ValueError, TypeError: a text is no JSON object of numbers.
    """
    numbers: dict[str, Values] = {}
    for begin in range(0, len(texts), PARSED):
        part = texts[begin : begin + PARSED]
        # no text is the first half of an object that the next one completes
        closed = all(text.startswith("{") and text.endswith("}") for text in part)
        rows = json.loads(f"[{','.join(part)}]") if closed else []
        if len(rows) != len(part) or not all(isinstance(row, dict) for row in rows):
            raise ValueError(f"a text in the column {column} is no JSON object")
        for name in dict.fromkeys(itertools.chain.from_iterable(rows)):
            values = numbers.setdefault(name, np.full(len(texts), np.nan))
            values[begin : begin + PARSED] = np.array([row.get(name) for row in rows], dtype=np.float64)
    return numbers


def with_own_columns(frame: "pd.DataFrame") -> "pd.DataFrame":
    """A table with one column for each number in the JSON texts of the column ``reports``, which they replace.

    A number with the name of another column gets an underscore.

    Raises:
        ValueError, TypeError: a text is no JSON object of numbers.
    """
    import pandas as pd

    if (frame["reports"] == "{}").all() and len(frame):
        return frame.drop(columns="reports")
    numbers = numbers_in(frame.pop("reports").tolist(), "reports")
    named = {f"{name}_" if name in frame else name: values for name, values in numbers.items()}
    return pd.concat([frame, pd.DataFrame(named, index=frame.index)], axis=1)


def measures_table(rows: "Sequence[tuple[Any, ...]]") -> "pd.DataFrame":
    """Rounds, names and values of own measures as one row per round and one column per measure, in the order of their first rows."""
    import pandas as pd

    if not rows:
        return pd.DataFrame(index=pd.Index([], name="round", dtype="int64"), columns=pd.Index([], dtype="object"))
    table = pd.DataFrame(rows, columns=["round", "name", "value"]).astype({"round": int, "value": float})
    wide = table.pivot(index="round", columns="name", values="value").rename_axis(columns=None)
    return wide[list(dict.fromkeys(table["name"]))]


def accuracies_table(rows: Sequence[tuple[int, bytes]]) -> "pd.DataFrame":
    """Rounds and the accuracies of all clients, as little-endian float64 [m], as one row per round and one column per client."""
    import pandas as pd

    measured = [np.frombuffer(blob, dtype="<f8") for _, blob in rows]
    values = np.full((len(rows), max(map(len, measured), default=0)), np.nan)
    for row, own in zip(values, measured, strict=True):
        row[: len(own)] = own
    index = pd.Index([t for t, _ in rows], name="round", dtype="int64")
    return pd.DataFrame(values, index=index, columns=pd.RangeIndex(values.shape[1], name="client"))


def without_unknown_steps(frame: "pd.DataFrame", clock: str) -> "pd.DataFrame":
    """The table with NaN for numbers of steps that are unknown: a server that does not know what real clients did records 0.

    Args:
        frame: a table with the column ``steps``.
        clock: that of the run; a simulation knows all numbers.
    """
    if clock != "wall" or frame["steps"].all():
        return frame
    return frame.assign(steps=frame["steps"].astype(float).replace(0.0, float("nan")))
