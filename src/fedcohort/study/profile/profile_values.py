"""The numbers of a profile of batch sizes, as they are read back from JSON."""

import math
from typing import Any

__all__ = ["size_with_nan"]

OF_CLIENTS = {"client", "samples", "batch_seconds", "batch_seconds_sd", "samples_per_second", "memory", "accuracy"}
"""The numbers of each client, which charts need."""


def size_with_nan(size: dict[str, Any]) -> dict[str, Any]:
    """The values of a size as they were before JSON, which has null in place of NaN.

    Raises:
        ValueError: a number is missing, or cannot be that of a measurement.
    """
    clients = [{key: _number(value) for key, value in row.items()} for row in size["clients"]]
    if not all(row.keys() >= OF_CLIENTS and row["client"].is_integer() for row in clients):
        raise ValueError("numbers of a client are missing")
    if not size["batch_size"] > 0 or size["batch_seconds"] == 0:
        raise ValueError("no batch size, or one that takes no time")
    kept = {key: value if isinstance(value, str | bool | int) else _number(value) for key, value in size.items()}
    return kept | {"clients": clients, "batch_accuracy": [_number(value) for value in size.get("batch_accuracy", [])]}


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
