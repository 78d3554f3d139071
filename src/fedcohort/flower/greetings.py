"""Ask nodes to introduce their clients, and wait once for each of them."""

import math
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from flwr.app import Message
from flwr.serverapp import Grid

from fedcohort.flower.exchange import arriving

__all__ = ["LIFE", "UNREACHABLE", "Greeted", "Greetings"]

UNREACHABLE = (3, 4, 5)
"""The codes of Flower's errors that say that a node was not reached; it may be reached later."""
GREETINGS = 3
"""Number of times that a node is asked to introduce its client, if it does not reply."""
LIFE = 43_200.0
"""Seconds for which a request to introduce clients is valid, as Flower's other messages."""


@dataclass
class Greeted:
    """What came of requests.

    Attributes:
        replies: the replies of each node that replied, by node.
        failed: why another node has none, in words, by node; only for nodes that are no longer waited for, and once for each.
    """

    replies: dict[int, list[Message]] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)


class Greetings:
    """The requests to nodes that have not introduced their clients yet.

    A node is waited for once, for the patience that begins when it is first asked. Its request stays open, and later rounds only look
    whether it has replied: a site that never replies does not delay every round, and a slow one takes part after its reply. Because a
    message can be lost, a node is asked a few times.
    """

    def __init__(self) -> None:
        self._open: dict[str, int] = {}  # node by the id of the message
        self._until: dict[int, float] = {}  # by node: when it is no longer waited for
        self._asked: dict[int, list[float]] = {}  # by node: when it was asked

    def keep(self, nodes: Collection[int]) -> None:
        """Forget all other nodes: they have gone, or were started again."""
        self._forget(set(self._asked) - set(nodes))

    def _forget(self, nodes: Collection[int]) -> None:
        self._open = {message_id: node for message_id, node in self._open.items() if node not in nodes}
        for node in nodes:
            del self._until[node], self._asked[node]

    @property
    def silent(self) -> list[int]:
        """The nodes that were asked and have not replied."""
        return sorted(self._asked)

    def waits(self, now: float) -> bool:
        """Whether a node is still waited for."""
        return any(now < self._until[node] for node in self._open.values())

    def exchange(
        self,
        grid: Grid,
        nodes: Iterable[int],
        ask: Callable[[int], Message],
        patience: float,
        clock: Callable[[], float],
        seconds: float = math.inf,
    ) -> Greeted:
        """Ask nodes, and wait for those that are still waited for.

        Args:
            grid: carries the messages.
            nodes: the nodes that have not introduced their clients.
            ask: makes the request to a node.
            patience: seconds to wait for a node.
            clock: seconds.
            seconds: of real time, after which the wait is interrupted; the next call goes on with it. Infinite in a round.
        """
        done, now = Greeted(), clock()
        overdue = [message_id for message_id, node in self._open.items() if now >= self._until[node]]
        in_a_round = seconds == math.inf  # virtual time that passes before a run delays nothing
        for replies in arriving(grid, overdue, now, clock, virtual=in_a_round):  # one look
            self._sort(replies, done)
        self._send(grid, [node for node in nodes if node not in done.replies], ask, patience, now, done)
        waited = {node for node in self._open.values() if now < self._until[node]}
        self._wait(grid, waited, clock, seconds, done)
        self._forget({node for node, [reply, *_] in done.replies.items() if node in waited or _is_reached(reply)})
        for node in sorted(waited - set(done.replies)):
            if clock() >= self._until[node]:
                done.failed[node] = (
                    f"it did not introduce itself within {patience:g} s; it is not waited for again, and takes part when it has"
                )
        return done

    def _send(
        self,
        grid: Grid,
        nodes: Iterable[int],
        ask: Callable[[int], Message],
        patience: float,
        now: float,
        done: Greeted,
    ) -> None:
        """Send requests to the nodes that have none, and to those that have not replied for long."""
        opened = set(self._open.values())
        asked = [node for node in nodes if node not in opened or self._is_asked_again(node, now - patience)]
        ids = list(grid.push_messages([ask(node) for node in asked])) if asked else []
        for node, message_id in zip(asked, ids if len(ids) == len(asked) else [""] * len(asked), strict=True):
            if not message_id:
                done.failed[node] = "the message could not be sent"
                continue
            self._open[message_id] = node
            self._until.setdefault(node, now + patience)
            self._asked.setdefault(node, []).append(now)

    def _wait(
        self, grid: Grid, nodes: Collection[int], clock: Callable[[], float], seconds: float, done: Greeted
    ) -> None:
        """Wait until these nodes have replied, or are no longer waited for, or ``seconds`` of real time have passed."""
        begin, end = time.monotonic(), max((self._until[node] for node in nodes), default=-math.inf)
        awaited = [message_id for message_id, node in self._open.items() if node in nodes]
        for replies in arriving(grid, awaited, end, clock, virtual=False):
            self._sort(replies, done)
            if time.monotonic() - begin >= seconds:
                break

    def _is_asked_again(self, node: int, before: float) -> bool:
        return len(self._asked[node]) < GREETINGS and self._asked[node][-1] <= before

    def _sort(self, replies: Iterable[Message], done: Greeted) -> None:
        """Note the replies by node. Requests with a reply are no longer open."""
        closed: dict[str, int] = {}
        for reply in replies:
            message_id = reply.metadata.reply_to_message_id
            node = self._open.get(message_id, closed.get(message_id))
            if node is not None:
                closed[message_id] = node
                done.replies.setdefault(node, []).append(reply)
        self._open = {message_id: node for message_id, node in self._open.items() if message_id not in closed}


def _is_reached(reply: Message) -> bool:
    """Whether a reply comes from the node; otherwise, one that was waited for in vain before is not waited for again."""
    return not (reply.has_error() and reply.error.code in UNREACHABLE)
