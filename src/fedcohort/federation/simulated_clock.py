"""The simulated clock: which clients are available, how long each client needs, and for which clients the server waits.

Laws describe the speed and the availability of the clients (:mod:`~fedcohort.federation.latency`,
:mod:`~fedcohort.federation.availability`) as functions of the seed and the round. The clock adds how the server reacts:

* A client that drops out fails before it sends its update; the server notices at once and does not wait for it.
* With a deadline T_max, the server stops waiting at T_max: clients that need longer are late, and the round lasts T_max.
* With over-commitment c, the server selects ⌈c·k⌉ clients and closes the round when the k fastest have sent their updates; the
  others are late.

The clock advances by the time of the slowest client that the server waited for.
"""

import heapq
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.core.random_streams import rng
from fedcohort.federation.availability import Always, Availability
from fedcohort.federation.latency import Latency, Network, Share, ShiftedExponential
from fedcohort.federation.law_checks import communication_of, least_of, presence_of, times_of

if TYPE_CHECKING:
    from fedcohort.algorithms import Update

__all__ = ["Clock"]


@dataclass
class Clock:
    """The simulated clock of one run.

    Attributes:
        num_samples: training samples N_i of each client, int64 [m].
        seed: the experiment's seed.
        latency, availability, network: laws that describe the clients.
        rounds: number of rounds of the run; the availability law must cover them.
        dropout: probability that a selected client fails before it sends its update.
        deadline: T_max; None waits for all clients.
        overcommit: c ≥ 1; the server selects ⌈c·k⌉ clients to receive k updates.
        idle_time: duration of a round without available clients (R1).
        model_bytes: size of the model in bytes, for the network.
        epochs: nominal local epochs; a strategy may request as few as one.
        now: simulated time so far.
        durations: last known time of each client for nominal work, float64 [m]; NaN before its first measurement. For a late client,
            this is the time that the server waited for it (divided by the work that was requested, if that was more than nominal),
            unless a longer time was already known.
        compute_times, upload_times: the computation part and the communication part (down and up) of ``durations``, float64 [m]; NaN
            before the first measurement.

    Raises:
        UsageError: no client can ever meet the deadline, or the availability law does not fit the run.
    """

    num_samples: Indices
    seed: int
    latency: Latency = field(default_factory=ShiftedExponential)
    availability: Availability = field(default_factory=Always)
    network: Network = field(default_factory=Share)
    rounds: int = 1
    dropout: float = 0.0
    deadline: float | None = None
    overcommit: float = 1.0
    idle_time: float = 0.0
    model_bytes: int = 0
    epochs: int = 1
    now: float = field(init=False, default=0.0)
    durations: Values = field(init=False)
    compute_times: Values = field(init=False)
    upload_times: Values = field(init=False)

    def __post_init__(self) -> None:
        m = len(self.num_samples)
        self.durations, self.compute_times, self.upload_times = (np.full(m, np.nan) for _ in range(3))
        self._fingerprint = self.availability.fingerprint()
        self._has_data, self._all_clients = self.num_samples > 0, np.arange(m)
        self._all_clients.flags.writeable = False
        self._presence = presence_of(self.availability, m, self.rounds, self.seed)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            self._computing = times_of(self.latency, self.num_samples, self.seed)
            self._split = communication_of(self.network, self.num_samples, self.seed, 2 * self.model_bytes)
            computing = self._computing(1)
            self._check_finite(self._total_times(computing, np.arange(m)))
        if self.deadline is not None:
            self._check(self.deadline, computing)

    def _check_finite(self, times: Values) -> None:
        """Refuse clients that would never finish: the clock would stop at infinity."""
        if len(endless := np.flatnonzero(self._has_data & ~np.isfinite(times))):
            raise UsageError(
                f"systems.latency, systems.network: client {endless[0]} needs the time {times[endless[0]]} for a round; choose laws "
                "with finite times, such as a smaller systems.latency.spread or a larger systems.network.bandwidth"
            )

    def _check(self, deadline: float, first: Values) -> None:
        """Check that some client can meet the deadline: with a single epoch (an error), and with nominal work (a warning).

        No lower bound is above the times of the latency law in round 1, which are ``first``.
        """
        clients = np.flatnonzero(self.num_samples)
        computing = np.minimum(least_of(self.latency, self.num_samples, self.seed), first)[clients]
        least = self._total_times(computing / self.epochs, clients)
        if len(clients) == 0:
            return
        if least.min() > deadline:
            fastest = clients[least.argmin()]
            raise UsageError(
                f"systems.deadline = {deadline:g}: no client can ever meet it; the smallest possible time, that of client {fastest} "
                f"with {self.num_samples[fastest]} samples{' for one epoch' * (self.epochs > 1)}, is {least.min():.6g}"
            )
        nominal = self._total_times(computing, clients).min()
        if nominal > deadline:
            warnings.warn(
                f"systems.deadline = {deadline:g}: no client meets it with training.epochs = {self.epochs}, which takes at least "
                f"{nominal:.6g}; clients can be in time only with a strategy that requests fewer epochs",
                stacklevel=2,
            )

    def available(self, t: int) -> Indices:
        """Clients that can be selected in round ``t``, ascending; clients without data are never available (R7)."""
        mask = self._presence(t) & self._has_data
        return self._all_clients if mask.all() else np.flatnonzero(mask)

    def nominal(self, t: int) -> Values:
        """Time that each client needs in round ``t`` for nominal work and one model down and up, float64 [m]."""
        return self._total_times(self._computing(t), np.arange(len(self.num_samples)))

    def sending(self, t: int) -> Values:
        """The part of :meth:`nominal` that is communication, float64 [m]."""
        m = len(self.num_samples)
        return self._split(self._computing(t), np.arange(m), np.full(m, 2.0 * self.model_bytes))[1]

    def expected(self, t: int) -> Values:
        """Times that each client expects in round ``t`` for nominal work: computation and communication, float64 [m, 2]."""
        sending = self.sending(t)
        return np.stack([self.nominal(t) - sending, sending], axis=1)

    def number_to_select(self, k: int) -> int:
        """⌈c·k⌉: the number of clients to select so that k of them are in time."""
        product = round(self.overcommit * k, 9)  # so that 1.1 × 10 is 11 and not 11.000000000000002
        return math.ceil(product)

    def number_to_await(self, selected: int, k: int) -> int | None:
        """The number of selected clients that the server waits for; None, which means all, without over-commitment.

        The number is k, or 1/c of the selected clients if a strategy selects more than ⌈c·k⌉.
        """
        return None if self.overcommit == 1 else max(k, math.floor(round(selected / self.overcommit, 9)))

    def settle(
        self,
        t: int,
        updates: Iterable["Update"],
        *,
        bytes_down: int = 0,
        awaited: int | None = None,
        cohort: Indices | None = None,
        in_parts: bool = False,
        requested: Values | None = None,
    ) -> Iterator["Update"]:
        """Yield the updates in the same order, with their durations; mark failed and late updates, and advance the clock.

        Without over-commitment, each update is yielded at once. With over-commitment, updates are yielded after the last one has
        arrived; at most ``awaited`` models are held until then, because those of late updates are released at once.

        Args:
            t: round.
            updates: updates of the cohort, in its order; a failure that is already set stays.
            bytes_down: bytes that each client received.
            awaited: number of clients that the server waits for; None for all.
            cohort: clients with an update in the stream, int64 [k]; their times for nominal work are then computed in one call.
            in_parts: whether clients send only parts of their models. What is stored are times for a complete model then, too.
            requested: the work that clients of ``cohort`` were asked for, float64 [k], if they may stop before that. How much of it a
                late client has done is unknown to the server, which stores the time that it waited as that of all of it.
        """
        computing, times = self._computing(t), dict[int, tuple[float, float]]()
        if cohort is not None:
            nominal = self._split(computing[cohort], cohort, np.full(len(cohort), float(bytes_down + self.model_bytes)))
            times.update(zip(cohort.tolist(), zip(*(part.tolist() for part in nominal), strict=True), strict=True))
        stream = self._with_durations(t, updates, computing, bytes_down, times)
        waiting = _Waiting(self.deadline, awaited)
        for update in stream if awaited is None else _fastest(stream, awaited):
            waiting.add(update)
            if update.late is None and update.failure is None:
                # The server has observed this client's time; it is stored for nominal work and a complete model.
                if update.work != 1.0 or in_parts:
                    sent = max(update.num_bytes, self.model_bytes * in_parts)
                    times[update.client] = self._times(update.client, computing[update.client], bytes_down + sent)
                self._remember(update.client, *times[update.client])
            yield update
        duration = waiting.duration()
        known = (
            {} if cohort is None or requested is None else dict(zip(cohort.tolist(), requested.tolist(), strict=True))
        )
        for client, done in waiting.late:
            work = known.get(client, done)
            self.durations[client] = np.fmax(self.durations[client], duration / max(work, 1.0))
        self.now += duration if waiting.has_updates else self.idle_time

    def _with_durations(
        self,
        t: int,
        updates: Iterable["Update"],
        computing: Values,
        bytes_down: int,
        times: dict[int, tuple[float, float]],
    ) -> Iterator["Update"]:
        """Set what does not depend on other updates: the duration of each update, dropout, and a missed deadline.

        ``times`` receives the update's total time and communication time. It is not changed if it already has the client's times for
        nominal work and a complete model, and the update has both.
        """
        for update in updates:
            if update.failure is not None:
                yield update
                continue
            if update.client not in times or update.work != 1.0 or update.num_bytes != self.model_bytes:
                computed = computing[update.client] * update.work
                times[update.client] = self._times(update.client, computed, bytes_down + update.num_bytes)
            update.duration, _ = times[update.client]
            if self.dropout and rng(self.seed, "dropout", t, update.client).random() < self.dropout:
                update.failure = "dropped out before its update arrived"
            elif self.deadline is not None and update.duration > self.deadline:
                update.late = f"needed {update.duration:.6g}, the deadline is {self.deadline:g}"
            yield update

    def _total_times(self, computing: Values, clients: Indices) -> Values:
        """Total times for the given times of the latency law, with one model down and up."""
        return self._split(computing, clients, np.full(len(clients), 2.0 * self.model_bytes))[0]

    def _times(self, client: int, computing: float, bytes_moved: int) -> tuple[float, float]:
        """Total time and communication time of a client that computes so long, and receives and sends so many bytes."""
        total, upload = self._split(np.array([computing]), np.array([client]), np.array([float(bytes_moved)]))
        return float(total[0]), float(upload[0])

    def _remember(self, client: int, total: float, upload: float) -> None:
        self.durations[client], self.compute_times[client], self.upload_times[client] = total, total - upload, upload

    def state_dict(self) -> dict[str, object]:
        """The state that the next round depends on; the laws have no state."""
        return {
            "now": self.now,
            "durations": self.durations,
            "compute_times": self.compute_times,
            "upload_times": self.upload_times,
            "availability": self._fingerprint,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that :meth:`state_dict` returned.

        Raises:
            UsageError: the availability trace has changed since the run was started.
        """
        if state["availability"] != self._fingerprint:
            raise UsageError(
                f"systems.availability.file = {getattr(self.availability, 'file', '')!r}: has changed since the run was started; "
                "restore it, or use another directory (in commands: --runs)"
            )
        self.now, self.durations = state["now"], state["durations"]
        self.compute_times, self.upload_times = state["compute_times"], state["upload_times"]


class _Waiting:
    """Computes how long the server waits in one round from the updates that arrive.

    Attributes:
        has_updates: whether the round has any update.
        late: client and work of each late update.
    """

    def __init__(self, deadline: float | None, awaited: int | None) -> None:
        self.has_updates = False
        self.late: list[tuple[int, float]] = []
        self._deadline, self._awaited = deadline, awaited
        self._in_time, self._slowest, self._missed_deadline = 0, 0.0, False

    def add(self, update: "Update") -> None:
        """Account for an update with a known duration, failure or lateness."""
        self.has_updates = True
        if update.late is not None:
            self.late.append((update.client, update.work))
            self._missed_deadline |= self._deadline is not None and update.duration > self._deadline
        elif update.failure is None:
            self._in_time, self._slowest = self._in_time + 1, max(self._slowest, update.duration)

    def duration(self) -> float:
        """The time that the server waited: until the deadline if clients missed it while the server was still waiting."""
        if (
            self._deadline is not None
            and self._missed_deadline
            and (self._awaited is None or self._in_time < self._awaited)
        ):
            return float(self._deadline)
        return self._slowest


def _fastest(updates: Iterable["Update"], awaited: int) -> Iterator["Update"]:
    """Mark all but the ``awaited`` fastest updates as late; of equally fast updates, those first in the cohort are in time."""
    received: list[Update] = []
    fastest: list[tuple[float, int]] = []  # a heap with the slowest first
    for position, update in enumerate(updates):
        received.append(update)
        unused: Update | None = update
        if update.failure is None and update.late is None:
            heapq.heappush(fastest, (-update.duration, -position))
            unused = None
            if len(fastest) > awaited:
                unused = received[-heapq.heappop(fastest)[1]]
                unused.late = f"not among the {awaited} fastest"
        if unused is not None:  # release its model, to save memory
            unused.state, unused.extra = {}, {}
    yield from received
