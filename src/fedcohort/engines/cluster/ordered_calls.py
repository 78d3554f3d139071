"""Give calls to the hosts of a pool, and return the results in order. The work of a lost host is done again."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from fedcohort.engines.base import OwnClientError
from fedcohort.engines.cluster.host_pool import HostPool, Member, listed_clients
from fedcohort.engines.cluster.messages import Failed
from fedcohort.engines.cluster.ray_package import first_line, lost_errors, ray_module

__all__ = ["DEPTH", "Call", "Result", "ordered_results"]

DEPTH = 2
"""Number of calls that a host has at the same time, so that it need not wait for the next one."""
POLLING = 0.02
"""Seconds between two calls of ``meanwhile`` while a result is waited for."""
WAITING = 1.0
"""Polling interval in seconds: how often the pool is checked while a result is awaited."""
DEATHS = 4
"""Number of hosts that a call may end before it is given up."""


@dataclass
class Call:
    """A call of a host's method.

    Attributes:
        method: name of the method of :class:`~fedcohort.engines.cluster.host.Host`.
        arguments: its arguments.
        clients: the clients that it works for.
        cost: expected time, in any unit.
        deaths: number of hosts that were lost while they worked on it.
    """

    method: str
    arguments: tuple[Any, ...]
    clients: Sequence[int]
    cost: float
    deaths: int = 0


class Result(NamedTuple):
    """The result of a call, and the host that computed it."""

    value: Any
    member: Member


def ordered_results(
    pool: HostPool,
    calls: Sequence[Call],
    *,
    hosts: int,
    window: int,
    meanwhile: Callable[[], bool],
) -> Iterator[Result]:
    """The results of the calls, in order.

    Args:
        pool: the hosts.
        calls: what they do.
        hosts: maximum number of hosts that work.
        window: maximum number of calls that may be begun before the result of the first of them is taken.
        meanwhile: called by the thread that takes the results, while it waits for one; called again as long as it returns True.

    Raises:
        ClientError: a client's own code raised an error, or the work for some clients ended four hosts.
        UsageError: no host was left for as long as the pool's patience.
    """
    stream = _Stream(pool, calls, hosts, window)
    try:
        for position in range(len(calls)):
            yield stream.result(position, meanwhile)
    except (KeyboardInterrupt, SystemExit):  # the work is thrown away, so nothing waits for it
        stream.running.clear()
        raise
    finally:
        stream.close()


class _Stream:
    """The calls of one stream, and where they are."""

    def __init__(self, pool: HostPool, calls: Sequence[Call], hosts: int, window: int) -> None:
        self.pool, self.calls, self.hosts, self.window = pool, calls, hosts, window
        self.ray = ray_module()
        self.waiting: set[int] = set()
        self.opened = 0
        self.running: dict[Any, tuple[int, Member]] = {}
        self.busy: dict[Member, list[int]] = {}  # calls of this stream; another stream may use the same hosts
        self.done: dict[int, Result] = {}

    def result(self, position: int, meanwhile: Callable[[], bool]) -> Result:
        """Wait for a result and return it; all earlier ones were taken before."""
        while True:
            end = min(position + self.window, len(self.calls))
            self.waiting.update(range(self.opened, end))
            self.opened = max(self.opened, end)
            self._hand_out(position)
            if position in self.done:
                result = self.done.pop(position)
                if isinstance(result.value, Failed):
                    raise result.value.error()
                return result
            self._wait(POLLING if meanwhile() else WAITING)

    def close(self) -> None:
        """Give out no more calls, and wait for those that were given out: they end before the caller begins other work."""
        self.waiting.clear()
        if self.running:
            with suppress(Exception):
                self.ray.wait(list(self.running), num_returns=len(self.running), timeout=self.pool.patience)

    def _hand_out(self, due: int) -> None:
        """Give calls to the hosts that have less than :data:`DEPTH`: the one that is due first, then the most expensive ones."""
        self.pool.refill()
        for depth in range(DEPTH):
            for member in self.pool.ready[: self.hosts]:
                if self.waiting and len(self.busy.get(member, ())) == depth:
                    position = due if due in self.waiting else min(self.waiting, key=self._most_expensive_first)
                    call = self.calls[position]
                    self.waiting.discard(position)
                    reference = getattr(member.actor, call.method).remote(*call.arguments)
                    self.running[reference] = position, member
                    self.busy.setdefault(member, []).append(position)

    def _most_expensive_first(self, position: int) -> tuple[float, int]:
        return -self.calls[position].cost, position

    def _wait(self, seconds: float) -> None:
        """Wait until a host has done a call or has answered for the first time, at most ``seconds``."""
        greetings = self.pool.greetings
        events = [*self.running, *greetings]
        if not events:
            time.sleep(min(seconds, POLLING))
            return
        finished, _ = self.ray.wait(events, num_returns=1, timeout=seconds)
        for reference in finished:
            if reference in greetings:
                self.pool.greet(greetings[reference])
            else:
                self._finished(reference)

    def _finished(self, reference: Any) -> None:
        """Note a call that a host has done, or that ended it."""
        if reference not in self.running:
            return
        position, member = self.running[reference]
        try:
            value = self.ray.get(reference)
        except lost_errors() as error:
            self._lost(member, error)
            return
        del self.running[reference]
        self.busy[member].remove(position)
        self.done[position] = Result(value, member)

    def _lost(self, member: Member, error: Exception) -> None:
        """Take back the calls of a host that was lost. The oldest of them is the one that it worked on."""
        positions = self.busy.pop(member, [])
        self.pool.lost(member, [client for position in positions for client in self.calls[position].clients], error)
        if positions:
            call = self.calls[positions[0]]
            call.deaths += 1
            if call.deaths >= DEATHS:
                raise OwnClientError(
                    f"clients {listed_clients(call.clients)}: {call.deaths} hosts were lost while they worked for these clients; "
                    f"the last one: {first_line(error).rstrip('.')}; if they need more memory than there is, use fewer engine.workers"
                )
        for reference, (position, owner) in list(self.running.items()):
            if owner is member:
                del self.running[reference]
                self.waiting.add(position)
