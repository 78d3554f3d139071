"""What happened to a client that a server of the user's own selected."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from fedcohort.core.errors import UsageError, shown

__all__ = ["ClientResult", "check_results"]


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
        return (
            not self.failure
            and not self.late
            and (self.update is None or bool(np.isfinite(np.asarray(self.update, np.float64)).all()))
        )


def check_results(results: Mapping[int, ClientResult]) -> None:
    """Refuse what is no :class:`ClientResult`, and negative durations and weights.

    Raises:
        UsageError: the message names the client.
    """
    for client, result in results.items():
        if not isinstance(result, ClientResult):
            raise UsageError(f"results: that of client {client} is {shown(result)}; give a ClientResult(…)")
        if result.duration < 0:
            raise UsageError(
                f"results: the duration of client {client} is {result.duration:g} s; give at least 0, or NaN"
            )
        if result.weight < 0:
            raise UsageError(f"results: the weight of client {client} is {result.weight:g}; give at least 0, or NaN")
