"""The contract of a clock: which clients are available, how long they need, and when a round ends."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from fedcohort.algorithms import Update
from fedcohort.core.arrays import Indices, Values

__all__ = ["RoundClock"]


class RoundClock(Protocol):
    """The time of a run. A simulation has :class:`fedcohort.federation.simulated_clock.Clock`, a deployment has wall time.

    Attributes:
        now: time since the beginning of the run.
        durations, compute_times, upload_times: last known times of each client for nominal work, float64 [m]; NaN before the first.
        num_samples: training samples of each client, int64 [m].
        epochs: nominal local epochs.
    """

    now: float
    durations: Values
    compute_times: Values
    upload_times: Values
    num_samples: Indices
    epochs: int

    def available(self, t: int) -> Indices:
        """Clients that can be selected in round ``t``, ascending. Called once, at the beginning of the round."""

    def nominal(self, t: int) -> Values:
        """Time that each client needs in round ``t`` for nominal work, float64 [m]; NaN if it is unknown."""

    def expected(self, t: int) -> Values:
        """The two parts of :meth:`nominal`, computation and communication, float64 [m, 2]."""

    def number_to_select(self, k: int) -> int:
        """Number of clients to select so that k of them are in time."""

    def number_to_await(self, selected: int, k: int) -> int | None:
        """Number of selected clients that the server waits for; None for all."""

    def settle(
        self,
        t: int,
        updates: Iterable[Update],
        *,
        bytes_down: int = 0,
        awaited: int | None = None,
        cohort: Indices | None = None,
        in_parts: bool = False,
        requested: Values | None = None,
    ) -> Iterator[Update]:
        """Yield the updates with their durations, mark late ones, and advance :attr:`now` at the end of the round."""

    def state_dict(self) -> Mapping[str, Any]:
        """The state that the next round depends on."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that :meth:`state_dict` returned."""
