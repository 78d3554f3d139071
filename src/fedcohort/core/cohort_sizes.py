"""Number of clients to select in a round, if it changes during a run."""

from collections.abc import Sequence

__all__ = ["k_in_round"]


def k_in_round(k: int, steps: Sequence[tuple[int, int]], t: int) -> int:
    """Number of clients to select in round ``t``.

    Args:
        k: that of the first rounds.
        steps: pairs of a round and the number from that round on, in ascending order.
        t: the round.

    >>> [k_in_round(3, ((4, 5), (7, 1)), t) for t in (3, 4, 8)]
    [3, 5, 1]
    """
    return next((later for first, later in reversed(steps) if t >= first), k)
