"""Refuse a strategy that would store more about the updates of all clients than its memory limit allows."""

from fedcohort.core.errors import UsageError

__all__ = ["check_memory"]


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
