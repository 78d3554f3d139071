"""The clients of a federation in a checkpoint: one array, because a checkpoint of thousands of single values is slow."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["rows_of", "stored"]


def stored(rows: Sequence[Mapping[str, Any]]) -> NDArray[np.uint8]:
    """Rows of numbers, texts and lists as JSON in an array of bytes."""
    return np.frombuffer(json.dumps(list(rows)).encode(), np.uint8)


def rows_of(kept: object) -> list[dict[str, Any]]:
    """What :func:`stored` was given. Checkpoints of earlier versions have the rows themselves."""
    rows: list[dict[str, Any]] = json.loads(kept.tobytes()) if isinstance(kept, np.ndarray) else kept  # type: ignore[assignment]
    return [dict(row) for row in rows]
