"""Checks of what the laws of users return: times and availability of all clients in a round, and how times and bytes combine.

A law of a user gets copies of arrays: what it changes in them changes nothing else.
"""

import copy
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError, shown
from fedcohort.core.user_code.unseeded_draws import ADVICE, is_own, warning_of_draws

if TYPE_CHECKING:
    from fedcohort.federation.availability import Availability, Mask, Presence
    from fedcohort.federation.latency import Communication, Latency, Network, Times

__all__ = ["communication_of", "least_of", "presence_of", "times_of"]

ROUND_OFF = 1e-9
"""Largest share of a time by which a part of it may be above it."""

_TRIED: "WeakSet[type]" = WeakSet()
"""Laws that were asked twice: once is enough for all runs of a process."""


def times_of(law: "Latency", num_samples: Indices, seed: int) -> "Times":
    """:meth:`Latency.times <fedcohort.federation.latency.Latency.times>`, checked in every round if the law is a user's.

    Raises:
        UsageError: the law returns something else than a function; the function raises it for other values than finite times ≥ 0 [m].
    """
    where = f"systems.latency: {type(law).__name__}.times"
    with warning_of_draws("systems.latency", law):
        times = law.times(num_samples.copy() if is_own(law) else num_samples, seed)
    _check_function(times, where, f"the round to the times of the {len(num_samples)} clients")

    def checked(t: int) -> Values:
        with warning_of_draws("systems.latency", law) as drawn:
            found = times(t)
        if not drawn:
            _warn_of_state("systems.latency", law, lambda own: own.times(num_samples.copy(), seed), (1,))
        values = _checked(found, where, t, len(num_samples), "numbers", "iuf")
        if (wrong := np.flatnonzero((num_samples > 0) & ~((values >= 0) & (values < np.inf)))).size:
            raise UsageError(
                f"{where}: the time of client {wrong[0]} in round {t} is {values[wrong[0]]}; times are finite and at least 0"
            )
        return values.astype(np.float64)

    return checked if is_own(law) else times


def least_of(law: "Latency", num_samples: Indices, seed: int) -> Values:
    """:meth:`Latency.least <fedcohort.federation.latency.Latency.least>`, checked if the law is a user's.

    Raises:
        UsageError: the law returns something else than numbers ≥ 0 [m].
    """
    if not is_own(law):
        return law.least(num_samples, seed)
    where = f"systems.latency: {type(law).__name__}.least"
    with warning_of_draws("systems.latency", law):
        least = np.asarray(law.least(num_samples.copy(), seed))
    if least.dtype.kind not in "iuf" or least.shape != num_samples.shape:
        raise UsageError(
            f"{where} returned {least.dtype} {list(least.shape)}; it must return numbers [{len(num_samples)}]"
        )
    if (wrong := np.flatnonzero((num_samples > 0) & ~(least >= 0))).size:
        raise UsageError(f"{where} returned {least[wrong[0]]:.6g} for client {wrong[0]}; lower bounds are at least 0")
    return least.astype(np.float64)


def communication_of(law: "Network", num_samples: Indices, seed: int, nominal_bytes: int) -> "Communication":
    """:meth:`Network.split <fedcohort.federation.latency.Network.split>`, checked at every call if the law is a user's.

    Raises:
        UsageError: the law returns something else than a function; the function raises it for other values than finite total times
            and, as a part of them, times of communication.
    """
    where = f"systems.network: {type(law).__name__}.split"
    with warning_of_draws("systems.network", law):
        split = law.split(len(num_samples), seed, nominal_bytes)
    _check_function(split, where, "times, clients and bytes to total times and the communication part of them")

    def checked(times: Values, clients: Indices, sent: Values) -> tuple[Values, Values]:
        """What the law's function returns for copies of its arguments, float64, if it is what it must be."""
        arguments = times, clients, sent
        with warning_of_draws("systems.network", law) as drawn:
            found: Any = split(times.copy(), clients.copy(), sent.copy())
        if not drawn:
            _warn_of_state(
                "systems.network", law, lambda own: own.split(len(num_samples), seed, nominal_bytes), arguments
            )
        pair = isinstance(found, tuple | list) or (isinstance(found, np.ndarray) and found.ndim == 2)
        if not pair or len(found) != 2:
            raise UsageError(
                f"{where}: its function returned {shown(found)}; it must return total times, and the communication part of them"
            )
        total, sending = (_numbers_of_each(part, where, len(clients)) for part in found)
        fine = (sending >= 0) & (sending <= total * (1 + ROUND_OFF)) & (total < np.inf)
        if (wrong := np.flatnonzero((num_samples[clients] > 0) & np.isfinite(times) & ~fine)).size:
            first = wrong[0]
            raise UsageError(
                f"{where}: its function returned the time {total[first]:.6g} for client {clients[first]}, and {sending[first]:.6g} of "
                "it for communication; times are finite, and the part is at least 0 and at most the time"
            )
        return total, sending

    return checked if is_own(law) else split


def presence_of(law: "Availability", num_clients: int, rounds: int, seed: int) -> "Presence":
    """:meth:`Availability.presence <fedcohort.federation.availability.Availability.presence>`, checked in every round if the law is a
    user's.

    Raises:
        UsageError: the law returns something else than a function; the function raises it for other values than bool [m].
    """
    where = f"systems.availability: {type(law).__name__}.presence"
    with warning_of_draws("systems.availability", law):
        presence = law.presence(num_clients, rounds, seed)
    _check_function(presence, where, f"the round to True or False for each of the {num_clients} clients")

    def checked(t: int) -> "Mask":
        with warning_of_draws("systems.availability", law) as drawn:
            found = presence(t)
        if not drawn:
            _warn_of_state("systems.availability", law, lambda own: own.presence(num_clients, rounds, seed), (1,))
        return _checked(found, where, t, num_clients, "True or False", "b")

    return checked if is_own(law) else presence


def _warn_of_state(
    setting: str, law: object, ask: Callable[[Any], Callable[..., Any]], arguments: tuple[Any, ...]
) -> None:
    """Warn if the function that a user's law returns gives other values when it is called again: a run that is interrupted and
    continues asks for fewer rounds, and so gets other values than a run that is not.

    Args:
        setting: the setting that names the law.
        law: the law, of which a copy is tried. Its own errors are ignored; they are raised where it is used.
        ask: what is asked of the law.
        arguments: those of the function.
    """
    if type(law) in _TRIED:
        return
    _TRIED.add(type(law))
    same = True
    with suppress(Exception):
        function = ask(copy.deepcopy(law))
        first, second = (np.array(function(*map(copy.copy, arguments))) for _ in range(2))
        same = np.array_equal(first, second, equal_nan=True)
    if not same:
        warnings.warn(
            f"{setting}: {type(law).__name__} gives other values when it is asked again, so that a run that is interrupted continues "
            f"with others than without; {ADVICE[setting]}",
            stacklevel=3,
        )


def _check_function(given: object, where: str, what: str) -> None:
    if not callable(given):
        raise UsageError(f"{where} returned {shown(given)}; it must return a function from {what}")


def _checked(given: object, where: str, t: int, num_clients: int, what: str, kinds: str) -> NDArray[Any]:
    """The values for round ``t`` as an array; refuses what does not have one value for each client."""
    values = np.asarray(given)
    if values.dtype.kind not in kinds or values.shape != (num_clients,):
        raise UsageError(
            f"{where}: its function returned {values.dtype} {list(values.shape)} for round {t}; it must return {what} [{num_clients}]"
        )
    return values


def _numbers_of_each(given: object, where: str, num_clients: int) -> Values:
    """The values as float64; refuses what does not have one number for each client that was asked for."""
    values = np.asarray(given)
    if values.dtype.kind not in "iuf" or values.shape != (num_clients,):
        raise UsageError(
            f"{where}: its function returned {values.dtype} {list(values.shape)}; it must return two arrays of a number for each "
            f"given client, [{num_clients}]"
        )
    return values.astype(np.float64)
