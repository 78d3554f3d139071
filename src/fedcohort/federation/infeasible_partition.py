"""The error for a partition that no draw satisfies: it names every setting that would work, with a value that was tried."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcohort.core.arrays import Indices
from fedcohort.core.errors import UsageError
from fedcohort.federation.partition_chance import drawn_sizes, many_are_short

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Infeasible"]

Draw = Callable[..., "tuple[NDArray[Any] | None, int]"]

LARGEST_TRIED = 1e6
"""Largest value in the search for a value that works. It makes shares equal up to a thousandth, so larger values change nothing."""
HALVINGS = 4
"""How often the number of clients is halved in the search for one that works."""
REPEATS = 12
"""Number of draws of sizes with which a setting is tried."""

WORKING_SHARE = 2 / 12
"""Share of the draws of sizes in which a setting must work."""

SECTION = "federation.partition"
"""The table of an experiment file with the settings of the partition."""


@dataclass(frozen=True)
class Infeasible:
    """A setting for which no draw gave every client ``min_size`` samples, and the search for settings that work.

    A setting is tried by the sizes of the clients alone, where the rule can draw them: it works if they suffice in a sixth of the
    draws or more, so that one of the many draws of a partition practically always succeeds. Other rules are tried with the seed.

    Attributes:
        draw: :func:`fedcohort.federation.partition.draw`.
        rule, labels, num_clients, seed, writers: what it was drawn with.
        smallest: the largest minimum size of all draws.
    """

    draw: Draw
    rule: Any
    labels: Indices
    num_clients: int
    seed: int
    writers: Indices | None
    smallest: int

    def error(self) -> UsageError:
        """The error, which names every setting that would work."""
        rule, name, value = self.rule, "min_size", float(self.rule.min_size)
        smallest = self._min_size_that_works()
        sizes = f"{smallest} or 0" if smallest else "0"
        works = [f"{SECTION}.min_size = {sizes} (clients without samples never take part)"]
        if rule.evens_out is not None:
            suggested = self._value_that_works(rule.evens_out)
            if suggested is not None:
                name = rule.evens_out.removeprefix("-")
                value = getattr(rule, name)
                works.insert(0, f"{SECTION}.{name} = {suggested:g}")
        fewer = self._number_of_clients_that_works()
        works.append(f"federation.clients = {fewer}" if fewer else "fewer clients")
        works.append(f"{SECTION} = 'iid'")
        return UsageError(
            f"{SECTION}.{name} = {value:g}: no draw gives each of {self.num_clients} clients {rule.min_size} of {len(self.labels)} "
            f"samples; what works: {', '.join(works[:-1])} or {works[-1]}"
        )

    @cached_property
    def _class_sizes(self) -> Indices:
        return np.bincount(self.labels)

    def _works(self, rule: Any, num_clients: int, tries: int) -> bool:
        """Whether a partition practically always gives every client ``min_size`` samples, or one of ``tries`` draws does."""
        if many_are_short(rule, self._class_sizes, num_clients, self.seed, rule.min_size):
            return False
        sizes = drawn_sizes(rule, self._class_sizes, num_clients, self.seed, REPEATS)
        if sizes is None:
            return self.draw(rule, self.labels, num_clients, self.seed, self.writers, tries)[0] is not None
        return bool(np.mean(sizes.min(axis=1) >= rule.min_size) >= WORKING_SHARE)

    def _min_size_that_works(self) -> int:
        """The largest minimum size of all draws, or of half of the draws of sizes if that is larger."""
        if many_are_short(self.rule, self._class_sizes, self.num_clients, self.seed, 1):
            return self.smallest
        sizes = drawn_sizes(self.rule, self._class_sizes, self.num_clients, self.seed, REPEATS)
        return self.smallest if sizes is None else max(self.smallest, int(np.median(sizes.min(axis=1))))

    def _value_that_works(self, evens_out: str) -> float | None:
        """A value of the parameter with which the rule works, after about the fewest doublings (or halvings), found by bisection; None
        if no value works."""
        name, sign = evens_out.removeprefix("-"), -1 if evens_out.startswith("-") else 1
        value = getattr(self.rule, name)
        doublings = max(1, math.ceil(math.log2(LARGEST_TRIED) - sign * math.log2(value)))

        def works(doubling: int) -> float | None:
            more = float(f"{math.ldexp(value, sign * doubling):.2g}")
            return more if self._works(dataclasses.replace(self.rule, **{name: more}), self.num_clients, 3) else None

        low, high, working = 0, doublings, works(doublings)
        while working is not None and high - low > 1:
            middle = (low + high) // 2
            less = works(middle)
            low, high, working = (low, middle, less) if less is not None else (middle, high, working)
        return working

    def _number_of_clients_that_works(self) -> int:
        """A smaller number of clients with which the rule works: half of them, a quarter, and so on; 0 if none was found."""
        for halving in range(1, HALVINGS + 1):
            fewer = self.num_clients >> halving
            if fewer and self._works(self.rule, fewer, 1):
                return fewer
        return 0
