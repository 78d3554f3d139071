"""How much memory a strategy may take that keeps something of the updates of all clients, and the polite refusal above that."""

from fedcohort.core.errors import UsageError

__all__ = ["check_memory"]


def check_memory(limit: float, num_clients: int, width: int, needed: int, beside: str = "") -> None:
    """Nothing, if it fits.

    Args:
        limit: the parameter ``memory_limit``, in GiB.
        num_clients: m.
        width: length P of an update; 0 if that is not known.
        needed: bytes.
        beside: what is kept beside the updates.

    Raises:
        UsageError: it takes more.
    """
    size = needed / 2**30
    if size <= limit:
        return
    long = f" with {width:,} parameters" if width else ""
    more = f", and {beside}," if beside else ""
    raise UsageError(
        f"selection.memory_limit = {limit:g}: the updates of {num_clients:,} clients{long}{more} take {size:.3g} GiB; raise it, "
        "or use fewer clients or a smaller model"
    )
