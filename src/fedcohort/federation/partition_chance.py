"""Decide from the sizes of clients alone whether a partition can succeed.

Assigning samples takes most of the time of a draw. The sizes of the clients are drawn a hundred times in the same time, from random
numbers of their own, so that the partitions that succeed are the same with and without this estimate.
"""

import math
from typing import Any, Protocol

import numpy as np

from fedcohort.core import random_streams
from fedcohort.core.arrays import Indices
from fedcohort.federation.partitions.pools import Draw

__all__ = [
    "AssignsOnDemand",
    "DrawsSizes",
    "can_still_succeed",
    "defines_with_assign",
    "drawn_sizes",
    "is_hopeless",
    "many_are_short",
]

MAX_SHORT_CLIENTS = {3: 50, 10: 10, 100: 3}
"""Number of draws → number of clients: a setting counts as infeasible after this number of draws if each of them left more clients
than this below ``min_size``."""

MIN_DRAWS = 10
"""Number of draws after which the chance of a success is estimated, see :func:`can_still_succeed`."""

SMALLEST_CHANCE = 0.5
"""Smallest chance of a success in all remaining draws with which drawing goes on."""

HOPELESS = 0.05
"""Chance of a success in all draws below which a setting is refused by the sizes alone. It is far below :data:`SMALLEST_CHANCE`, with
which the setting would be refused after a few more draws."""

STANDARD_ERRORS = 4
"""Standard errors by which the estimated number of short clients is reduced before a setting is refused by the sizes alone."""

ENTRIES = 150_000
"""Largest number of classes × clients × draws in one estimate; it limits the time to about 10 ms."""


SCALED_DOWN, MANY = 1_000, 0.05
"""Clients of the scaled-down federation in :func:`many_are_short`, and the share of them that counts as many."""


class DrawsSizes(Protocol):
    """A partition rule whose sizes can be drawn without assigning samples. A rule need not have this method.

    Attributes:
        heavy_tails: whether few clients can hold most samples for all shares but theirs, as with log-normal shares. Draws then leave
            many or few clients short, so that a success is likelier than the mean says; see :func:`is_hopeless`.
    """

    heavy_tails: bool

    def sizes_of_draws(self, class_sizes: Indices, num_clients: int, repeats: int, rng: np.random.Generator) -> Indices:
        """Sizes of the clients in several draws, distributed like those of :meth:`Rule.assign`.

        Args:
            class_sizes: samples of each class, int64 [K].
            num_clients: number of clients m.
            repeats: number of independent draws.
            rng: source of all random numbers.

        Returns:
            Sizes, int64 [repeats, m].
        """


class AssignsOnDemand(Protocol):
    """A partition rule that can draw all random numbers before it assigns samples. A rule need not have this method."""

    def assign_on_demand(self, labels: Indices, num_clients: int, rng: np.random.Generator) -> Draw:
        """The draw of :meth:`Rule.assign`, with the same random numbers; samples are assigned on demand.

        Args:
            labels: class of each sample, int64 [N].
            num_clients: number of clients m.
            rng: source of all random numbers.
        """


def drawn_sizes(rule: Any, class_sizes: Indices, num_clients: int, seed: int, repeats: int) -> Indices | None:
    """Sizes of the clients in up to ``repeats`` draws, int64 [draws, m]; None if the rule cannot draw them without assigning samples.

    Args:
        rule: a partition rule.
        class_sizes: samples of each class, int64 [K].
        num_clients: number of clients m.
        seed: the experiment's seed.
        repeats: number of draws; fewer are made with many clients.
    """
    if not defines_with_assign(rule, "sizes_of_draws"):
        return None
    occurring = class_sizes[class_sizes > 0]
    repeats = max(1, min(repeats, ENTRIES // (len(occurring) * num_clients)))
    sizes: Indices = rule.sizes_of_draws(
        occurring, num_clients, repeats, random_streams.rng(seed, "partition-sizes", client=num_clients)
    )
    return sizes


def defines_with_assign(rule: object, method: str) -> bool:
    """Whether the class that defines the rule's ``assign`` defines this method as well.

    A class that extends a built-in rule with another ``assign`` inherits the method, but draws other sizes.
    """
    definer = next((owner for owner in type(rule).__mro__ if "assign" in vars(owner)), type(rule))
    return method in vars(definer)


def many_are_short(rule: object, class_sizes: Indices, num_clients: int, seed: int, min_size: int) -> bool:
    """Whether so many clients have fewer than ``min_size`` samples that a draw of the sizes of all clients is not needed.

    Where such a draw takes long, sizes are drawn for fewer clients, with as many samples each. False where it does not, and for a rule
    that cannot draw sizes.
    """
    if num_clients * np.count_nonzero(class_sizes) <= ENTRIES:
        return False
    scaled = -(-class_sizes * SCALED_DOWN // num_clients)
    sizes = drawn_sizes(rule, scaled, SCALED_DOWN, seed, 1)
    return sizes is not None and bool(np.mean(sizes < min_size) > MANY)


def is_hopeless(sizes: Indices, min_size: int, tries: int, *, heavy_tails: bool = False) -> bool:
    """Whether a partition practically never succeeds, judged by the sizes in some draws.

    See :func:`can_still_succeed` for the bound on the chance of a success. The variance of the number of short clients is at most its
    mean, for the same reason; this gives the standard error of λ even of few draws. With heavy tails, both hold about only, and
    the root of the bound is used: in simulations of log-normal sizes, the chance was at most the bound to the power 0.64.

    Args:
        sizes: sizes of the clients in independent draws, int64 [draws, m].
        min_size: smallest number of samples per client.
        tries: number of draws in which the partition would have to succeed once.
        heavy_tails: whether the shares have heavy tails; see :class:`DrawsSizes`.
    """
    num_draws, num_clients = sizes.shape
    short = int(np.count_nonzero(sizes < min_size))
    expected = max(short - STANDARD_ERRORS * math.sqrt(short), 0.0) / num_draws
    chance = (1 - expected / num_clients) ** num_clients
    return tries * (math.sqrt(chance) if heavy_tails else chance) < HOPELESS


def can_still_succeed(short: list[int], num_clients: int, remaining: int) -> bool:
    """Whether one of the remaining draws may give every client ``min_size`` samples.

    Sizes add up to the number of samples, so that a client that is large makes it likelier that others are small. The chance that no
    client is short is therefore at most (1 − λ/m)^m, with λ the expected number of short clients. λ is estimated by the mean of the
    draws so far, less two standard errors.

    Args:
        short: number of clients below ``min_size`` in each draw so far.
        num_clients: m.
        remaining: number of draws that are left.
    """
    if any(len(short) >= after and min(short) > most for after, most in MAX_SHORT_CLIENTS.items()):
        return False
    if len(short) < MIN_DRAWS:
        return True
    expected = max(float(np.mean(short) - 2 * np.std(short, ddof=1) / math.sqrt(len(short))), 0.0)
    return remaining * (1 - expected / num_clients) ** num_clients >= SMALLEST_CHANCE
