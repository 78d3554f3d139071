"""What happened to a client that a server of the user's own selected."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedcohort.core.arrays import Indices
from fedcohort.core.errors import UsageError, shown
from fedcohort.core.given_values import as_float
from fedcohort.core.words.formatted_values import first_in_words, in_words

__all__ = ["ClientResult", "check_results"]

FEW = 5
"""Largest number of clients that a message names."""


@dataclass(frozen=True)
class ClientResult:
    """What happened to one selected client.

    Attributes:
        reports: numbers that the client sent with its update, by the names of :meth:`fedcohort.selection.Outcome.billed_report`.
        duration: seconds from the request to the reply; NaN if unknown.
        update: trained minus received parameters, flattened, [P]; only for strategies with ``update`` or ``update_norm`` in ``needs``.
        admitted: whether the update entered the model.
        failure: the reason why there is no update; empty if there is one.
        late: the reason why the server did not wait for the update; empty if it waited.
        weight: weight of the update in the new model, ≥ 0, on any scale, for a :class:`~fedcohort.ServerRecord`; NaN if unknown.
    """

    reports: Mapping[str, float] = field(default_factory=dict)
    duration: float = math.nan
    update: ArrayLike | None = None
    admitted: bool = True
    failure: str = ""
    late: str = ""
    weight: float = math.nan

    @property
    def trained(self) -> bool:
        """Whether an update came back in time, without NaN and infinite entries."""
        return self.replied and (self.update is None or _is_finite(self.update))

    @property
    def replied(self) -> bool:
        """Whether an update came back in time, whatever it contains."""
        return not self.failure and not self.late


def _is_finite(update: Any) -> bool:
    """Whether an update has no NaN and no infinite entries; True for what is no array, which is refused when it is used."""
    plain = update.detach().cpu() if hasattr(update, "detach") else update
    try:
        return bool(np.isfinite(np.asarray(plain, np.float64)).all())
    except (TypeError, ValueError):
        return True


def check_results(results: Mapping[int, ClientResult], clients: Indices, t: int) -> None:
    """Refuse results of other clients, what is no :class:`ClientResult`, and values in it that cannot be used.

    Args:
        results: what the server gave.
        clients: the clients of the cohort, int64 [n].
        t: the round.

    Raises:
        UsageError: the message names the client.
    """
    if not isinstance(results, Mapping):
        raise UsageError(f"results = {shown(results)}: give a ClientResult(…) by the id of each client")
    if strangers := set(results) - set(clients.tolist()):
        few = in_words([shown(each) for each in sorted(strangers, key=str)[:FEW]])
        which = (
            f"client {few} was" if len(strangers) == 1 else f"clients {few}{' and more' * (len(strangers) > FEW)} were"
        )
        selected = first_in_words([str(client) for client in clients.tolist()], FEW, "more client")
        raise UsageError(
            f"results: {which} not selected in round {t}; give results of clients of its cohort: {selected or 'none'}"
        )
    for client, result in results.items():
        if not isinstance(result, ClientResult):
            raise UsageError(f"results: that of client {client} is {shown(result)}; give a ClientResult(…)")
        _check_kinds(result, client)
        _check_numbers(result, client)


def _check_kinds(result: ClientResult, client: int) -> None:
    """Refuse reasons that are no text, an admission that is neither true nor false, and reports without names."""
    for name in ("failure", "late"):
        if not isinstance(reason := getattr(result, name), str):
            raise UsageError(f"results: {name} of client {client} is {shown(reason)}; give the reason as text, or ''")
    if result.failure and result.late:
        both = f"failure = {shown(result.failure)} and late = {shown(result.late)}"
        raise UsageError(f"results: client {client} has {both}; give the reason as one of them")
    if not isinstance(result.admitted, bool | np.bool_):
        raise UsageError(f"results: admitted of client {client} is {shown(result.admitted)}; give True or False")
    if not isinstance(result.reports, Mapping) or not all(isinstance(name, str) for name in result.reports):
        raise UsageError(f"results: reports of client {client} is {shown(result.reports)}; give numbers by name")


def _check_numbers(result: ClientResult, client: int) -> None:
    """Refuse times and weights that are no numbers, negative or infinite, and reports that are no numbers."""
    wanted = {"duration": "finite seconds of at least 0, or NaN", "weight": "a finite number of at least 0, or NaN"}
    for name, words in wanted.items():
        number = as_float(value := getattr(result, name))
        if number is None or number < 0 or math.isinf(number):
            raise UsageError(f"results: the {name} of client {client} is {shown(value)}; give {words}")
    for name, value in result.reports.items():
        if as_float(value) is None:
            raise UsageError(
                f"results: the report {name!r} of client {client} is {shown(value)}; give a number, or NaN"
            )
