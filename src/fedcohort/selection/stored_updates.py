"""Updates of clients that a strategy stores: those that arrived in a round, and the limit of their memory."""

import numpy as np

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.selection.strategy_inputs import Outcome

__all__ = ["arrived_updates", "check_memory"]

LARGEST = float(np.finfo(np.float32).max)
"""Largest number of an update that is stored, in float32."""


def arrived_updates(outcome: Outcome) -> tuple[Indices, Values] | None:
    """The clients that trained and have an update of numbers that float32 can hold, int64 [n], and these updates [n, P].

    None if there are none.
    """
    rows = outcome.billed_report("update")
    if rows.ndim != 2:  # no client sent an update
        return None
    arrived = outcome.trained & (np.abs(rows) <= LARGEST).all(axis=1)  # not NaN
    return (outcome.cohort.clients[arrived], rows[arrived]) if arrived.any() else None


def check_memory(limit: float, num_clients: int, width: int, needed: int, beside: str = "") -> None:
    """Refuse to store more than the memory limit allows.

    Args:
        limit: the parameter ``memory_limit``, in GiB.
        num_clients: number of clients m.
        width: length P of an update; 0 if it is not known.
        needed: required memory in bytes.
        beside: what the strategy stores in addition to the updates.

    Raises:
        UsageError: ``needed`` exceeds the limit.
    """
    size = needed / 2**30
    if size <= limit:
        return
    length = f" with {width:,} parameters" if width else ""
    more = f", and {beside}," if beside else ""
    raise UsageError(
        f"selection.memory_limit = {limit:g}: the updates of {num_clients:,} clients{length}{more} take {size:.3g} GiB; "
        "raise the limit, or use fewer clients or a smaller model"
    )
