"""Columns that strategies and algorithms named: the terms of scores, and the further reports of clients; and own measures."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["measures_table", "with_own_columns", "without_unknown_steps"]


def with_own_columns(frame: "pd.DataFrame", column: str) -> "pd.DataFrame":
    """A table with one column for each number in the JSON texts of ``column``, which it replaces.

    A number with the name of another column gets an underscore.

    Raises:
        ValueError, TypeError: a text is no JSON object of numbers.
    """
    import pandas as pd

    if (frame[column] == "{}").all() and len(frame):
        return frame.drop(columns=column)
    rows = [json.loads(text) for text in frame.pop(column)]
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"a text in the column {column} is no JSON object")
    numbers = pd.DataFrame(rows, index=frame.index, dtype=float)
    return pd.concat([frame, numbers.rename(columns={name: f"{name}_" for name in numbers if name in frame})], axis=1)


def measures_table(rows: "Sequence[tuple[Any, ...]]") -> "pd.DataFrame":
    """Rounds, names and values of own measures as one row per round and one column per measure, in the order of their first rows."""
    import pandas as pd

    if not rows:
        return pd.DataFrame(index=pd.Index([], name="round", dtype="int64"), columns=pd.Index([], dtype="object"))
    table = pd.DataFrame(rows, columns=["round", "name", "value"]).astype({"round": int, "value": float})
    wide = table.pivot(index="round", columns="name", values="value").rename_axis(columns=None)
    return wide[list(dict.fromkeys(table["name"]))]


def without_unknown_steps(frame: "pd.DataFrame", clock: str) -> "pd.DataFrame":
    """The table with NaN for numbers of steps that are unknown: a server that does not know what real clients did records 0.

    Args:
        frame: a table with the column ``steps``.
        clock: that of the run; a simulation knows all numbers.
    """
    if clock != "wall" or frame["steps"].all():
        return frame
    return frame.assign(steps=frame["steps"].astype(float).replace(0.0, float("nan")))
