"""Send requests to sites over Flower's Grid; every request ends with a reply or with the cause of its failure."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from flwr.app import Message
from flwr.serverapp import Grid

from fedcohort.core.errors import one_line
from fedcohort.flower.exchange import arriving
from fedcohort.flower.roster import Starts, connected_nodes, failure_of
from fedcohort.flower.sites.envelope import bytes_in, request_message

__all__ = ["Arrival", "Cause", "GridLink", "arrival_of"]

EXTRA_SECONDS = 60.0
"""Seconds that a request lives longer than the server waits for it."""
BATCH_BYTES = 2**26
"""Bytes of the requests that are sent together. Flower copies them a few times."""


class Cause(StrEnum):
    """Why a client has no result. The failure of an update begins with it."""

    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    REFUSED = "refused"
    ERROR = "error"
    MALFORMED = "malformed"

    def because(self, reason: object) -> str:
        """The failure in one line without control characters; the reason can be what a site sent."""
        return one_line(f"{self.value}: {reason}")


_CAUSES = {3: Cause.UNREACHABLE, 4: Cause.UNREACHABLE, 5: Cause.UNREACHABLE, 6: Cause.REFUSED}
"""Causes by the code of Flower's error; all others are errors of the ClientApp."""


@dataclass(frozen=True)
class Arrival:
    """The end of a request.

    Attributes:
        position: which of the requests.
        data: what arrived; None after a failure.
        failure: the failure in words, beginning with its :class:`Cause`; empty if there is none.
        seconds: time from sending to the reply.
    """

    position: int
    data: bytes | None
    failure: str
    seconds: float


class GridLink:
    """Carries requests to nodes.

    Args:
        grid: Flower's Grid.
        patience: seconds to wait for a reply.
        clock: seconds.

    Attributes:
        started_again: the nodes that were started again between the last two calls of :meth:`nodes`.
    """

    def __init__(self, grid: Grid, patience: float = 600.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.grid, self.patience, self.clock = grid, patience, clock
        self.started_again: set[int] = set()
        self._starts = Starts()

    def nodes(self) -> dict[int, bytes]:
        """The connected nodes, each with its public key; empty without authentication."""
        connected = connected_nodes(self.grid)
        self.started_again = self._starts.again(connected)
        keys = {node.node_id: bytes(getattr(node, "public_key", b"") or b"") for node in connected}
        return {node: keys.get(node, b"") for node in self.grid.get_node_ids()}

    def exchange(
        self,
        requests: Iterable[tuple[int, bytes]],
        t: int,
        *,
        timeout: float | None = None,
        meanwhile: Callable[[], bool] = lambda: False,
    ) -> Iterator[Arrival]:
        """Send requests (node, bytes), and yield the end of each, in any order.

        Args:
            requests: node and content of each; taken and sent in batches, so that not all of them are in memory at the same time.
            t: round.
            timeout: seconds to wait; by default the patience.
            meanwhile: short work to do between two checks for replies.
        """
        limit = self.patience if timeout is None else timeout
        begin = self.clock()
        waiting, unsent = self._push(requests, t, limit)
        for position in unsent:
            yield Arrival(position, None, Cause.UNREACHABLE.because("the message could not be sent"), 0.0)
        for replies in arriving(
            self.grid, waiting, begin + limit, self.clock, virtual=timeout is not None, meanwhile=meanwhile
        ):
            seconds = self.clock() - begin
            for message_id, own in _by_request(replies).items():
                if message_id in waiting:
                    yield arrival_of(waiting.pop(message_id), own, seconds)
        for position in waiting.values():
            yield Arrival(position, None, Cause.TIMEOUT.because(f"no reply within {limit:g} s"), limit)

    def _push(self, requests: Iterable[tuple[int, bytes]], t: int, limit: float) -> tuple[dict[str, int], list[int]]:
        """Push requests; returns the position of each message by its id, and the positions of those that could not be sent."""
        waiting, unsent, first = dict[str, int](), list[int](), 0
        for batch in _batches(requests):
            messages = [request_message(node, data, t, limit + EXTRA_SECONDS) for node, data in batch]
            pushed = list(self.grid.push_messages(messages)) or [""] * len(messages)  # none: too large together
            for position, message_id in enumerate(pushed, first):
                if message_id:
                    waiting[message_id] = position
                else:
                    unsent.append(position)
            first += len(messages)
        return waiting, unsent


def _batches(requests: Iterable[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    """The requests in batches; each has at most one request more than fit into ``BATCH_BYTES``."""
    batch, size = list[tuple[int, bytes]](), 0
    for request in requests:
        batch.append(request)
        size += len(request[1])
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _by_request(replies: Iterable[Message]) -> Mapping[str, list[Message]]:
    found: dict[str, list[Message]] = {}
    for reply in replies:
        found.setdefault(reply.metadata.reply_to_message_id, []).append(reply)
    return found


def arrival_of(position: int, replies: list[Message], seconds: float) -> Arrival:
    """The end of a request with these replies."""
    reply = replies[0]
    if len(replies) > 1:
        failure = Cause.MALFORMED.because(f"duplicate: {len(replies)} replies to one request")
    elif reply.has_error():
        failure = _CAUSES.get(reply.error.code, Cause.ERROR).because(failure_of(reply))
    elif (data := bytes_in(reply)) is not None:
        return Arrival(position, data, "", seconds)
    else:
        failure = Cause.MALFORMED.because("the reply does not come from a FedCohort site")
    return Arrival(position, None, failure, seconds)
