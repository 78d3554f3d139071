"""The error for a partition that no draw satisfies: it names every setting that would work, with a value that was tried."""

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fedcohort.core.arrays import Indices
from fedcohort.core.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["infeasible"]

Draw = Callable[..., "tuple[NDArray[Any] | None, int]"]

LARGEST_TRIED = 1e6
"""Largest value in the search for a value that works. It makes shares equal up to a thousandth, so larger values change nothing."""
HALVINGS = 4
"""How often the number of clients is halved in the search for one that works."""


def infeasible(
    draw: Draw, rule: Any, labels: Indices, num_clients: int, seed: int, writers: Indices | None, smallest: int
) -> UsageError:
    """The error if no draw gave every client ``min_size`` samples; every value that it suggests has been tried with this seed.

    Args:
        draw: :func:`fedcohort.federation.partition.draw`.
        rule: the rule.
        labels, num_clients, seed, writers: what it was drawn with.
        smallest: the largest minimum size of all draws.
    """
    name, value = "min_size", float(rule.min_size)
    works = [f"min_size = {smallest}"] if smallest else []
    works.append("min_size = 0 (clients without samples never take part)")
    if rule.evens_out is not None:
        suggested = _value_that_works(draw, rule, rule.evens_out, labels, num_clients, seed, writers)
        if suggested is not None:
            name = rule.evens_out.removeprefix("-")
            value = getattr(rule, name)
            works.insert(0, f"{name} = {suggested:g}")
    fewer = _number_of_clients_that_works(draw, rule, labels, num_clients, seed, writers)
    works.append(f"federation.clients = {fewer}" if fewer else "fewer clients")
    works.append("partition = 'iid'")
    return UsageError(
        f"federation.partition.{name} = {value:g}: no draw gives each of {num_clients} clients (federation.clients) at least "
        f"min_size = {rule.min_size} of {len(labels)} samples; what works: {', '.join(works[:-1])} or {works[-1]}"
    )


def _value_that_works(
    draw: Draw, rule: Any, evens_out: str, labels: Indices, num_clients: int, seed: int, writers: Indices | None
) -> float | None:
    """A value of the parameter with which the rule works, after about the fewest doublings (or halvings), found by bisection; None if
    no value works."""
    name, sign = evens_out.removeprefix("-"), -1 if evens_out.startswith("-") else 1
    value = getattr(rule, name)
    doublings = max(1, math.ceil(math.log2(LARGEST_TRIED) - sign * math.log2(value)))

    def works(doubling: int) -> float | None:
        more = float(f"{math.ldexp(value, sign * doubling):.2g}")
        wider = dataclasses.replace(rule, **{name: more})
        return more if draw(wider, labels, num_clients, seed, writers, 3)[0] is not None else None

    low, high, working = 0, doublings, works(doublings)
    while working is not None and high - low > 1:
        middle = (low + high) // 2
        less = works(middle)
        low, high, working = (low, middle, less) if less is not None else (middle, high, working)
    return working


def _number_of_clients_that_works(
    draw: Draw, rule: Any, labels: Indices, num_clients: int, seed: int, writers: Indices | None
) -> int:
    """A smaller number of clients with which the rule works: half of them, a quarter, and so on; 0 if none was found."""
    for halving in range(1, HALVINGS + 1):
        fewer = num_clients >> halving
        if fewer and draw(rule, labels, fewer, seed, writers, 1)[0] is not None:
            return fewer
    return 0
