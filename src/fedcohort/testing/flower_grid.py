"""A Flower Grid in this process: try an app, with failures and slow clients, without starting servers."""

import copy
import itertools
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

__all__ = ["LoopGrid"]

Seconds = Callable[[int, Message], float]
Order = Callable[[list[Message]], list[Message]]
Tamper = Callable[[int, Message, Message], "Message | Sequence[Message] | None"]


class LoopGrid(Grid):
    """Runs ClientApps in this process, one after another, when messages are pushed.

    Time is virtual: it passes only while replies are awaited. Give :meth:`clock` to code that measures times, as in
    ``Selecting(…, clock=grid.clock)``: then replies that take longer than a timeout are too late.

    Args:
        app: the ClientApp of all nodes.
        configs: the node config of each node; their number is the number of nodes.
        nodes: number of each node; by default 1001, 1002, …
        run_config: the run config of all nodes.
        seconds: how long a node takes for a message; by default 1 second.
        order: puts the replies of one pull into another order.
        tamper: called with the position of a node, the message to it and its reply; returns what arrives instead: the reply, another
            message, several messages, or None for a reply that is lost.
        offline: positions of nodes that are not connected. Change the set between rounds.

    Attributes:
        messages: all messages that were pushed.
    """

    def __init__(
        self,
        app: ClientApp,
        configs: Sequence[Mapping[str, Any]],
        *,
        nodes: Sequence[int] | None = None,
        run_config: Mapping[str, Any] | None = None,
        seconds: Seconds = lambda _position, _message: 1.0,
        order: Order = lambda replies: replies,
        tamper: Tamper = lambda _position, _message, reply: reply,
        offline: Iterable[int] = (),
    ) -> None:
        self.app, self.seconds, self.order, self.tamper = app, seconds, order, tamper
        self.nodes = list(nodes) if nodes is not None else [1001 + i for i in range(len(configs))]
        self.offline, self.messages = set(offline), list[Message]()
        _identify()
        self._contexts = [
            Context(1, node, dict(config), RecordDict(), dict(run_config or {}))
            for node, config in zip(self.nodes, configs, strict=True)
        ]
        self._now, self._ids = 0.0, itertools.count(1)
        self._on_the_way: list[tuple[float, str, Message]] = []

    def clock(self) -> float:
        """Virtual seconds since the beginning."""
        return self._now

    def set_run(self, run: Any) -> None:
        """Does nothing: there is one run."""

    @property
    def run(self) -> Any:
        """There is no description of the run."""
        raise NotImplementedError("a LoopGrid has no run")

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """See :class:`flwr.serverapp.Grid`."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """The connected nodes."""
        return [node for position, node in enumerate(self.nodes) if position not in self.offline]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Let the nodes work on the messages; their replies arrive later."""
        ids = []
        for message in messages:
            message_id = f"message-{next(self._ids)}"
            message.metadata.__dict__["_message_id"] = message_id
            message = copy.deepcopy(message)  # as on a wire: neither side sees later changes of the other
            self.messages.append(message)
            ids.append(message_id)
            position = self.nodes.index(message.metadata.dst_node_id)
            tampered = self.tamper(position, message, self._reply(position, message))
            arriving = [tampered] if isinstance(tampered, Message) else list(tampered or ())
            ready = self._now + self.seconds(position, message)
            self._on_the_way += [(ready, message_id, reply) for reply in arriving]
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies that arrive next; time passes until then. Without any, an hour passes."""
        return self.pull_within(message_ids, 3600.0, patient=True)

    def pull_within(self, message_ids: Iterable[str], seconds: float, *, patient: bool = False) -> Iterable[Message]:
        """The replies that arrive next, if they do so within ``seconds``; time passes until then, or by ``seconds``.

        Args:
            message_ids: the messages.
            seconds: virtual seconds to wait.
            patient: wait longer for replies that are on their way.
        """
        wanted, end = set(message_ids), self._now + max(seconds, 0.0)
        due = [ready for ready, message_id, _ in self._on_the_way if message_id in wanted]
        if not due or not (patient or min(due) <= end):
            self._now = end
            return []
        self._now = max(self._now, min(due))
        waiting, self._on_the_way, arrived = self._on_the_way, [], list[Message]()
        for ready, message_id, reply in sorted(waiting, key=lambda entry: entry[0]):
            if message_id in wanted and ready <= self._now:
                arrived.append(reply)
            else:
                self._on_the_way.append((ready, message_id, reply))
        return self.order(arrived)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Push messages, and pull until all replies have arrived or ``timeout`` virtual seconds have passed."""
        end = None if timeout is None else self._now + timeout
        missing, replies = set(self.push_messages(messages)), list[Message]()
        while missing and (end is None or self._now < end):
            arrived = list(self.pull_messages(missing) if end is None else self.pull_within(missing, end - self._now))
            replies += arrived
            missing -= {reply.metadata.reply_to_message_id for reply in arrived}
        return replies

    def _reply(self, position: int, message: Message) -> Message:
        """The reply of a node: that of its ClientApp, or Flower's error reply."""
        if position in self.offline:
            reply = Message(Error(5, "Node Unavailable"), reply_to=message)
            reply.metadata.__dict__["_src_node_id"] = (
                1  # as Flower's, the error comes from the server and does not name the node
            )
            return reply
        try:
            return copy.deepcopy(self.app(message, self._contexts[position]))
        except Exception:
            return Message(Error(2, traceback.format_exc()), reply_to=message)


def _identify() -> None:
    """Let messages be made in this process: Flower's processes are told their run and node when they start."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:  # earlier versions of Flower need no identity
        return
    for name in ("task_id", "run_id", "node_id"):
        try:
            getattr(TaskIdentity, name)
        except RuntimeError:
            setattr(TaskIdentity, name, 1)
