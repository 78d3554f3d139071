"""Clients that join between rounds: what becomes of the state of a strategy.

A run in which clients can join has a seat for each of them from the beginning: a client without samples, which is never available.
When a client joins, its seat gets samples and label counts, and nothing else changes. The arrays of a strategy keep their length.
"""

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from fedcohort.core.arrays import Indices
from fedcohort.core.errors import UsageError
from fedcohort.selection.strategy_inputs import Census

__all__ = ["extend_or_restore", "extended_state", "joined_clients"]


class Extensible(Protocol):
    """The part of a strategy that joining concerns; see :class:`fedcohort.selection.Selector`."""

    census: Census

    def setup(self, census: Census) -> None:
        """Prepare for a run."""

    def extend(self, census: Census) -> None:
        """Take in clients."""

    def state_dict(self) -> dict[str, Any]:
        """The state."""


def extend_or_restore(selector: Extensible, census: Census) -> None:
    """Let a strategy take in clients; if that raises an error, the strategy is as before, with all its attributes.

    The ``extend`` of a user's strategy can fail after it has changed a part of them, such as the census.

    Args:
        selector: the strategy.
        census: the clients, with those that joined.
    """
    before = copy.deepcopy(vars(selector))
    try:
        selector.extend(census)
    except BaseException:
        vars(selector).clear()
        vars(selector).update(before)
        raise


def joined_clients(before: Census, after: Census) -> Indices:
    """The clients that have samples in ``after`` and had none in ``before``, ascending.

    Raises:
        UsageError: anything else differs.
    """
    old, new = before.num_samples, np.asarray(after.num_samples)
    if len(old) != len(new):
        raise UsageError(
            f"census: has {len(new)} clients instead of {len(old)}; give seats without samples to clients that can join"
        )
    joined = np.flatnonzero(old != new)
    others = np.setdiff1d(np.arange(len(old)), joined)
    if (old[joined] != 0).any() or not _same(_but_clients(before), _but_clients(after)):
        raise UsageError("census: only clients without samples can join, and nothing else can change")
    if before.histogram is not None and after.histogram is not None:
        if not np.array_equal(before.histogram[others], after.histogram[others]):
            raise UsageError("census: the label counts of a client that was there before have changed")
    elif before.histogram is not after.histogram:
        raise UsageError("census: the label counts of all clients are needed, before clients join and afterwards")
    return joined


def _but_clients(census: Census) -> dict[str, Any]:
    names = {field.name for field in dataclasses.fields(census)} - {"num_samples", "histogram"}
    return {name: getattr(census, name) for name in names}


def extended_state(selector: Extensible, census: Census) -> dict[str, Any]:
    """The state of a strategy after clients joined, from its state so far and what ``setup`` makes of both censuses.

    * An entry that ``setup`` makes the same of both censuses stays as it is.
    * An array with a row for each client, in which ``setup`` sets only the rows of the new clients differently: these rows are set.
    * An entry that has not changed since ``setup`` becomes what ``setup`` makes of the new census.

    Args:
        selector: the strategy; stays as it is.
        census: the clients, with those that joined.

    Raises:
        UsageError: an entry is none of these, or ``setup`` refuses the census.
    """
    joined = joined_clients(selector.census, census)
    current = selector.state_dict()
    before, after = _fresh(selector, selector.census), _fresh(selector, census)
    state = dict(current)
    for name in after:
        now, old, new = current.get(name), before.get(name), after[name]
        if _same(old, new):
            continue
        if _differ_in(old, new, joined) and isinstance(now, np.ndarray) and now.shape == new.shape:
            state[name] = now.copy()
            state[name][joined] = new[joined]
        elif _same(now, old):
            state[name] = new
        else:
            raise UsageError(
                f"{type(selector).__name__} has learned {name!r} from the clients that were there before, so no client can join"
            )
    return state


def _fresh(selector: Extensible, census: Census) -> Mapping[str, Any]:
    """The state right after ``setup``."""
    fresh = copy.deepcopy(selector)
    fresh.setup(census)
    return fresh.state_dict()


def _differ_in(one: object, other: object, clients: Indices) -> bool:
    """Whether two values are arrays with a row for each client that differ only in the rows of some clients."""
    if not (isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and one.ndim and one.shape == other.shape):
        return False
    if len(one) <= clients.max(initial=-1):
        return False
    others = np.setdiff1d(np.arange(len(one)), clients)
    return _same(one[others], other[others])


def _same(one: object, other: object) -> bool:
    """Whether two pieces of state are equal; NaN equals NaN."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(value, other[name]) for name, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        one, other = np.asarray(one), np.asarray(other)
        if one.shape != other.shape or one.dtype != other.dtype:
            return False
        return bool(((one == other) | ((one != one) & (other != other))).all())
    return bool(one == other or (one != one and other != other))
