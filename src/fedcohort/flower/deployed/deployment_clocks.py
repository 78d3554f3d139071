"""The clocks of a deployment: wall time, or simulated time for a rehearsal. Both know which clients are connected."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from fedcohort.algorithms import Update
from fedcohort.core.arrays import Indices, Values
from fedcohort.federation.simulated_clock import Clock
from fedcohort.flower.deployed.site_roster import SiteRoster

__all__ = ["ConnectedClock", "Presence", "WallClock"]

Presence = Callable[[], Indices]
"""The numbers of the clients that are connected, ascending; called once, at the beginning of a round."""


class WallClock:
    """Wall time in seconds, with the times that clients took; see :class:`fedcohort.rounds.round_clock.RoundClock`.

    The time of a client runs from the request to its reply. The part in which its site worked counts as computation, the rest as
    communication. All clients of a site that trained in one request have the same time.

    Args:
        num_samples: training samples of each client, int64 [m]; written to when clients join.
        roster: the clients; they are part of the state, so that a run that is resumed knows them.
        epochs: nominal local epochs.
        present: the connected clients.
        times: computation and communication of a client's last training in seconds, by client.
        clock: seconds.
    """

    def __init__(
        self,
        num_samples: Indices,
        roster: SiteRoster,
        epochs: int,
        present: Presence,
        times: Mapping[int, tuple[float, float]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.num_samples, self.epochs, self.now = num_samples, epochs, 0.0
        self.durations, self.compute_times, self.upload_times = (
            np.full(len(self.num_samples), np.nan) for _ in range(3)
        )
        self._roster, self._present, self._times, self._clock = roster, present, times, clock
        self._before, self._begun = 0.0, clock()

    def available(self, t: int) -> Indices:  # noqa: ARG002 - of the contract
        """The connected clients that have samples."""
        self._before, self._begun = self.now, self._clock()
        there = self._present()
        self.num_samples[:] = self._roster.sizes()
        return there[self.num_samples[there] > 0]

    def nominal(self, t: int) -> Values:  # noqa: ARG002 - of the contract
        """The last known time of each client, float64 [m]; NaN before it has trained."""
        return self.durations.copy()

    def expected(self, t: int) -> Values:  # noqa: ARG002 - of the contract
        """The last known computation and communication of each client, float64 [m, 2]; NaN before it has trained."""
        return np.stack([self.compute_times, self.upload_times], axis=1)

    def number_to_select(self, k: int) -> int:
        """``k``: this server waits for every selected client, and selects none beyond those."""
        return k

    def number_to_await(self, selected: int, k: int) -> int | None:  # noqa: ARG002 - of the contract
        """The server waits for all."""
        return None

    def settle(
        self,
        t: int,  # noqa: ARG002 - of the contract
        updates: Iterable[Update],
        *,
        bytes_down: int = 0,  # noqa: ARG002 - of the contract
        awaited: int | None = None,  # noqa: ARG002 - of the contract
        cohort: Indices | None = None,  # noqa: ARG002 - of the contract
        in_parts: bool = False,  # noqa: ARG002 - of the contract
        requested: Values | None = None,  # noqa: ARG002 - of the contract
    ) -> Iterator[Update]:
        """Yield the updates, remember the clients' times, and advance the time to the end of the training."""
        for update in updates:
            if update.failure is None and update.client in self._times:
                computing, sending = self._times[update.client]
                update.duration = computing + sending
                nominal = computing / update.work if update.work > 0 else computing
                self.durations[update.client] = nominal + sending
                self.compute_times[update.client], self.upload_times[update.client] = nominal, sending
            yield update
        self.now = self._before + self._clock() - self._begun

    def state_dict(self) -> dict[str, Any]:
        """See :class:`~fedcohort.rounds.round_clock.RoundClock`."""
        names = ("now", "durations", "compute_times", "upload_times")
        return {name: getattr(self, name) for name in names} | self._roster.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See :class:`~fedcohort.rounds.round_clock.RoundClock`."""
        for name in ("now", "durations", "compute_times", "upload_times"):
            setattr(self, name, state[name])


class ConnectedClock(Clock):
    """The simulated clock of the experiment, without the clients that are not connected: a rehearsal has the times of the local run.

    Attributes:
        roster, present: as for :class:`WallClock`; set after the clock is built.
    """

    roster: SiteRoster
    present: Presence

    def available(self, t: int) -> Indices:
        """The clients that the experiment makes available, if they are connected."""
        return np.intersect1d(super().available(t), self.present())

    def state_dict(self) -> dict[str, object]:
        """See :class:`~fedcohort.rounds.round_clock.RoundClock`."""
        return super().state_dict() | self.roster.state_dict()
