"""Checks of what the laws of users return: times and availability of all clients in a round."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError, shown
from fedcohort.core.user_code.unseeded_draws import is_own, warning_of_draws

if TYPE_CHECKING:
    from fedcohort.federation.availability import Availability, Mask, Presence
    from fedcohort.federation.latency import Latency, Times

__all__ = ["presence_of", "times_of"]


def times_of(law: "Latency", num_samples: Indices, seed: int) -> "Times":
    """:meth:`Latency.times <fedcohort.federation.latency.Latency.times>`, checked in every round if the law is a user's.

    Raises:
        UsageError: the law returns something else than a function; the function raises it for other values than times ≥ 0 [m].
    """
    where = f"systems.latency: {type(law).__name__}.times"
    with warning_of_draws("systems.latency", law):
        times = law.times(num_samples, seed)
    _check_function(times, where, f"the round to the times of the {len(num_samples)} clients")

    def checked(t: int) -> Values:
        with warning_of_draws("systems.latency", law):
            found = times(t)
        values = _checked(found, where, t, len(num_samples), "numbers", "iuf")
        if (wrong := np.flatnonzero((num_samples > 0) & ~(values >= 0))).size:
            raise UsageError(
                f"{where}: the time of client {wrong[0]} in round {t} is {values[wrong[0]]}; times are at least 0"
            )
        return values.astype(np.float64)

    return checked if is_own(law) else times


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
        with warning_of_draws("systems.availability", law):
            found = presence(t)
        return _checked(found, where, t, num_clients, "True or False", "b")

    return checked if is_own(law) else presence


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
