"""Send messages to nodes and wait for the replies, with the time of each; and the views of a Grid that strategies get."""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from fedcohort.core.errors import UsageError

__all__ = ["ChosenGrid", "Exchange", "TimedGrid", "arriving", "exchange"]

SHORTEST, LONGEST = 0.02, 2.0
"""Seconds between two looks for replies: the first, and the longest."""


@dataclass
class Exchange:
    """The replies to messages.

    Attributes:
        ids: id of each message, in the order of the messages; empty if it could not be sent.
        replies: all replies, in the order in which they arrived.
        seconds: time from sending to the first reply, by the id of the message.
    """

    ids: list[str]
    replies: list[Message] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, replies: Iterable[Message], seconds: float) -> None:
        """Note replies that arrived after ``seconds``."""
        for reply in replies:
            self.replies.append(reply)
            self.seconds.setdefault(reply.metadata.reply_to_message_id, seconds)

    def first(self) -> dict[str, Message]:
        """The first reply to each message, by the id of the message."""
        found: dict[str, Message] = {}
        for reply in self.replies:
            found.setdefault(reply.metadata.reply_to_message_id, reply)
        return found


def exchange(
    grid: Grid,
    messages: Iterable[Message],
    timeout: float | None,
    clock: Callable[[], float] = time.monotonic,
    *,
    virtual: bool = False,
) -> Exchange:
    """Push messages, and pull until each has a reply or ``timeout`` seconds have passed (None: no limit).

    ``virtual`` is as for :func:`arriving`.
    """
    begin, messages = clock(), list(messages)
    end = math.inf if timeout is None else begin + timeout
    pushed = [message_id or "" for message_id in grid.push_messages(messages)]  # None: it could not be sent
    done = Exchange(pushed if len(pushed) == len(messages) else [""] * len(messages))
    for replies in arriving(grid, filter(None, done.ids), end, clock, virtual=virtual):
        done.add(replies, clock() - begin)
    return done


def arriving(
    grid: Grid,
    message_ids: Iterable[str],
    end: float,
    clock: Callable[[], float],
    *,
    virtual: bool,
    meanwhile: Callable[[], bool] = lambda: False,
) -> Iterator[list[Message]]:
    """The replies to messages, as many at a time as have arrived, until each message has one, or until ``end``.

    Args:
        grid: carries the messages, which are pushed already.
        message_ids: their ids.
        end: when the wait ends, on the clock.
        clock: seconds.
        virtual: whether a grid with virtual time, such as :class:`~fedcohort.testing.LoopGrid`, must not pass ``end`` while it looks
            for replies. ``clock`` then shows that time.
        meanwhile: short work to do between two looks for replies; returns whether there was any.
    """
    missing, pause, within = set(message_ids), SHORTEST, _within(grid, clock)
    bounded = within if virtual and end < math.inf else None
    while missing:
        arrived = list(grid.pull_messages(missing) if bounded is None else bounded(missing, end - clock()))
        yield arrived
        missing -= {reply.metadata.reply_to_message_id for reply in arrived}
        if not missing or clock() >= end:
            return
        pause = SHORTEST if arrived or meanwhile() else min(1.3 * pause, LONGEST)
        if within is None:  # virtual time passes while replies are looked for
            time.sleep(pause)


def _within(grid: Grid, clock: Callable[[], float]) -> Callable[[Iterable[str], float], Iterable[Message]] | None:
    """``pull_within`` of a grid with virtual time that ``clock`` shows; None for any other grid."""
    while isinstance(grid, _View):
        grid = grid.grid
    within: Callable[[Iterable[str], float], Iterable[Message]] | None = getattr(grid, "pull_within", None)
    return within if clock == getattr(grid, "clock", None) else None


class _View(Grid):
    """A Grid that passes everything on to another."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def set_run(self, run: Any) -> None:
        """See :class:`flwr.serverapp.Grid`."""
        self.grid.set_run(run)

    @property
    def run(self) -> Any:
        """See :class:`flwr.serverapp.Grid`."""
        return self.grid.run

    def create_message(self, *args: Any, **named: Any) -> Message:
        """See :class:`flwr.serverapp.Grid`."""
        return self.grid.create_message(*args, **named)

    def get_node_ids(self) -> Iterable[int]:
        """See :class:`flwr.serverapp.Grid`."""
        return self.grid.get_node_ids()

    def get_nodes(self) -> Iterable[Any]:
        """See :class:`flwr.serverapp.Grid`; nothing with earlier versions of Flower, which have no such method."""
        return self.grid.get_nodes() if hasattr(self.grid, "get_nodes") else ()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """See :class:`flwr.serverapp.Grid`."""
        return self.grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """See :class:`flwr.serverapp.Grid`."""
        return self.grid.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """See :class:`flwr.serverapp.Grid`."""
        return self.grid.send_and_receive(messages, timeout=timeout)


class TimedGrid(_View):
    """A Grid that notes when replies arrive.

    Attributes:
        last: the last exchange.
    """

    def __init__(self, grid: Grid, clock: Callable[[], float]) -> None:
        super().__init__(grid)
        self.last = Exchange([])
        self._clock = clock

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """As Flower's, with a shorter pause between two looks for replies; a reply that came twice is returned twice."""
        self.last = exchange(self.grid, messages, timeout, self._clock, virtual=True)
        return self.last.replies


class ChosenGrid(_View):
    """A Grid on which only the nodes of the selected clients are connected."""

    MOST_CALLS = 30

    def __init__(self, grid: Grid, nodes: Iterable[int], strategy: str) -> None:
        super().__init__(grid)
        self._nodes, self._strategy, self._calls = list(nodes), strategy, 0

    def get_node_ids(self) -> Iterable[int]:
        """The chosen nodes.

        Raises:
            UsageError: the strategy calls this again and again: it waits for more nodes than were chosen.
        """
        self._calls += 1
        if self._calls > self.MOST_CALLS:
            raise UsageError(
                f"{self._strategy} waits for more than the {len(self._nodes)} selected nodes; lower the number of nodes it waits for, "
                "or raise k"
            )
        return list(self._nodes)

    def get_nodes(self) -> Iterable[Any]:
        """The chosen nodes, with what Flower knows about them."""
        chosen = set(self._nodes)
        return [node for node in super().get_nodes() if node.node_id in chosen]
