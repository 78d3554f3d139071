"""The virtual clock: who is there, how long each client needs, for whom the server waits. Simulated time, never the wall's.

What clients are like is said by laws (:mod:`~fedcohort.federation.latency`, :mod:`~fedcohort.federation.availability`), all of them
functions of the seed and the round. What the server does about it is said here:

* a client that drops out fails before it sends; the server notices at once and does not wait for it;
* with a deadline T_max the server stops waiting then: whoever needs longer is late, and the round lasts T_max;
* with over-commitment c it invites ⌈c·k⌉ clients and closes the round when the k fastest are there: the others are late.

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
from fedcohort.core.streams import rng
from fedcohort.federation.availability import Always, Availability
from fedcohort.federation.latency import Latency, Network, Share, ShiftedExponential

if TYPE_CHECKING:
    from fedcohort.algorithms.base import Update

__all__ = ["Clock"]


@dataclass
class Clock:
    """The virtual clock of one run.

    Attributes:
        num_samples: N_i, training samples, int64 [m].
        seed: of the experiment.
        latency, availability, network: what clients are like.
        rounds: of the run; an availability law must be able to say that many.
        dropout: probability with which a selected client fails before it sends its update.
        deadline: T_max; None waits for everybody.
        overcommit: c ≥ 1, clients invited per client wanted.
        idle_time: how long a round without any client lasts (R1).
        model_bytes: size of the model, for the network.
        epochs: nominal local epochs; a strategy may ask for as little as one.
        now: simulated time so far.
        durations: last known time of each client for nominal work, float64 [m]; NaN where never measured. A client that was late
            counts with the time that the server waited for it, unless it was known to be slower.
        compute_times, upload_times: the parts of it that are computation and communication (down and up), float64 [m]; NaN where
            never measured.

    Raises:
        UsageError: nobody can ever meet the deadline, or the availability law does not fit the run.
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
        self._with_data, self._everybody = self.num_samples > 0, np.arange(m)
        self._everybody.flags.writeable = False
        self._presence = self.availability.presence(m, self.rounds, self.seed)
        self._computing = self.latency.times(self.num_samples, self.seed)
        self._split = self.network.split(m, self.seed, 2 * self.model_bytes)
        if self.deadline is not None:
            self._check(self.deadline)

    def _check(self, deadline: float) -> None:
        """Whether anybody can meet the deadline: with a single epoch, and with nominal work."""
        clients = np.flatnonzero(self.num_samples)
        computing = self.latency.least(self.num_samples, self.seed)[clients]
        least = self._whole(computing / self.epochs, clients)
        if len(clients) == 0:
            return
        if least.min() > deadline:
            fastest = clients[least.argmin()]
            raise UsageError(
                f"systems.deadline = {deadline:g}: nobody can ever meet it; the smallest time there is, that of client {fastest} "
                f"with {self.num_samples[fastest]} samples{' for one epoch' * (self.epochs > 1)}, is {least.min():.6g}"
            )
        nominal = self._whole(computing, clients).min()
        if nominal > deadline:
            warnings.warn(
                f"systems.deadline = {deadline:g}: nobody meets it with training.epochs = {self.epochs}, which takes {nominal:.6g} "
                "at least; only a strategy that asks for fewer epochs will have clients in time",
                stacklevel=2,
            )

    def available(self, t: int) -> Indices:
        """Clients that can be chosen in round ``t``, ascending; those without data never are (R7)."""
        there = self._presence(t) & self._with_data
        return self._everybody if there.all() else np.flatnonzero(there)

    def nominal(self, t: int) -> Values:
        """Time each client needs in round ``t`` for nominal work and a whole model down and up, float64 [m]."""
        return self._whole(self._computing(t), np.arange(len(self.num_samples)))

    def sending(self, t: int) -> Values:
        """The part of :meth:`nominal` that is communication, float64 [m]."""
        everybody, both_ways = np.arange(len(self.num_samples)), np.full(len(self.num_samples), 2.0 * self.model_bytes)
        return self._split(self._computing(t), everybody, both_ways)[1]

    def expected(self, t: int) -> Values:
        """What each client expects to need in round ``t`` for nominal work: computing, and sending, float64 [m, 2]."""
        sending = self.sending(t)
        return np.stack([self.nominal(t) - sending, sending], axis=1)

    def invited(self, k: int) -> int:
        """⌈c·k⌉: how many clients are asked to take part so that k come in time."""
        return math.ceil(round(self.overcommit * k, 9))  # 1.1 × 10 is 11, whatever the last bit says

    def wanted(self, invited: int, k: int) -> int | None:
        """How many of the invited the server waits for; None without over-commitment: for all.

        That is k. A strategy that chooses more than ⌈c·k⌉ gets the same share of its own number.
        """
        return None if self.overcommit == 1 else max(k, math.floor(round(invited / self.overcommit, 9)))

    def settle(
        self,
        t: int,
        updates: Iterable["Update"],
        *,
        bytes_down: int = 0,
        wanted: int | None = None,
        cohort: Indices | None = None,
    ) -> Iterator["Update"]:
        """Give every update its duration, mark those that fail or come late, and advance the clock: a stream in, a stream out.

        The order stays. Without over-commitment nothing is held back. With it, nothing comes out before everything is in, and at
        most ``wanted`` updates are held meanwhile; those that come late are let go of at once.

        Args:
            t: round.
            updates: of the cohort, in its order; a failure that is already set stays.
            bytes_down: what each client received.
            wanted: how many the server waits for; None for all.
            cohort: who is expected, int64 [k]: their usual times are worked out in one go.
        """
        computing, whole = self._computing(t), dict[int, tuple[float, float]]()
        if cohort is not None:
            usual = self._split(computing[cohort], cohort, np.full(len(cohort), float(bytes_down + self.model_bytes)))
            whole.update(zip(cohort.tolist(), zip(*(part.tolist() for part in usual), strict=True), strict=True))
        stream = self._travel(t, updates, computing, bytes_down, whole)
        late, came, slowest, cut, anybody = [], 0, 0.0, False, False
        for update in stream if wanted is None else _fastest(stream, wanted):
            anybody = True
            if update.late is not None:
                late.append((update.client, update.work))
                cut |= self.deadline is not None and update.duration > self.deadline
            elif update.failure is None:
                came, slowest = came + 1, max(slowest, update.duration)
                # the server has seen what this client needs; kept for nominal work
                if update.work != 1.0:
                    whole[update.client] = self._times(update, computing[update.client], bytes_down)
                self._learn(update.client, *whole[update.client])
            yield update
        # the deadline ends a round in which the server still waits for somebody
        waits = cut and (wanted is None or came < wanted)
        duration = float(self.deadline) if waits and self.deadline is not None else slowest
        for client, work in late:
            self.durations[client] = np.fmax(self.durations[client], duration / max(work, 1.0))
        self.now += duration if anybody else self.idle_time

    def _travel(
        self,
        t: int,
        updates: Iterable["Update"],
        computing: Values,
        bytes_down: int,
        whole: dict[int, tuple[float, float]],
    ) -> Iterator["Update"]:
        """What happens to each update by itself: its duration, drop-out, deadline. ``whole`` gets its time and the upload's part, if
        it has no usual one or this update is not the usual one: nominal work, and a whole model."""
        for update in updates:
            if update.failure is not None:
                yield update
                continue
            if update.client not in whole or update.work != 1.0 or update.num_bytes != self.model_bytes:
                whole[update.client] = self._times(update, computing[update.client] * update.work, bytes_down)
            update.duration, _ = whole[update.client]
            if self.dropout and rng(self.seed, "dropout", t, update.client).random() < self.dropout:
                update.failure = "dropped out before its update arrived"
            elif self.deadline is not None and update.duration > self.deadline:
                update.late = f"needed {update.duration:.6g}, the deadline is {self.deadline:g}"
            yield update

    def _whole(self, computing: Values, clients: Indices) -> Values:
        """Times for computing, with a whole model sent down and up."""
        return self._split(computing, clients, np.full(len(clients), 2.0 * self.model_bytes))[0]

    def _times(self, update: "Update", computing: float, bytes_down: int) -> tuple[float, float]:
        sent = np.array([float(bytes_down + update.num_bytes)])
        whole, upload = self._split(np.array([computing]), np.array([update.client]), sent)
        return float(whole[0]), float(upload[0])

    def _learn(self, client: int, whole: float, upload: float) -> None:
        self.durations[client], self.compute_times[client], self.upload_times[client] = whole, whole - upload, upload

    def state_dict(self) -> dict[str, Any]:
        """What the next round depends on; the laws are functions and need nothing."""
        return {
            "now": self.now,
            "durations": self.durations,
            "compute_times": self.compute_times,
            "upload_times": self.upload_times,
            "availability": self._fingerprint,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what :meth:`state_dict` gave.

        Raises:
            UsageError: the availability trace is not the one that the run was begun with.
        """
        if state["availability"] != self._fingerprint:
            raise UsageError(
                f"systems.availability.file = {getattr(self.availability, 'file', '')!r}: is not the trace that the run was begun "
                "with; restore it, or use another --runs directory"
            )
        self.now, self.durations = state["now"], state["durations"]
        self.compute_times, self.upload_times = state["compute_times"], state["upload_times"]


def _fastest(updates: Iterable["Update"], wanted: int) -> Iterator["Update"]:
    """Mark all but the ``wanted`` fastest as late; of two that are equally fast the first in the cohort counts."""
    everybody: list[Update] = []
    fastest: list[tuple[float, int]] = []  # a heap, the slowest first
    for position, update in enumerate(updates):
        everybody.append(update)
        out: Update | None = update
        if update.failure is None and update.late is None:
            heapq.heappush(fastest, (-update.duration, -position))
            out = None
            if len(fastest) > wanted:
                out = everybody[-heapq.heappop(fastest)[1]]
                out.late = f"not among the {wanted} fastest"
        if out is not None:  # its model is of no use any more
            out.state, out.extra = {}, {}
    yield from everybody
