"""Columns that strategies and algorithms named: the terms of scores, and the further reports of clients."""

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["with_own_columns"]


def with_own_columns(frame: "pd.DataFrame", column: str) -> "pd.DataFrame":
    """A table with one column for each number in the JSON texts of ``column``, which it replaces.

    A number with the name of another column gets an underscore.
    """
    import pandas as pd

    numbers = pd.DataFrame([json.loads(text) for text in frame.pop(column)], index=frame.index, dtype=float)
    return pd.concat([frame, numbers.rename(columns={name: f"{name}_" for name in numbers if name in frame})], axis=1)
