"""Which client is at which node: clients have names that stay, nodes have random numbers.

Clients are numbered by their names (numbers first, then words), so that neither the numbers of the nodes nor the order in which they
connect changes a decision. The numbers are fixed on first contact and never used for another client.

A server cannot see whether a node has a key of its own: Flower gives a node without one a new random key at every start. Keys
therefore count only if the user says that nodes authenticate themselves.
"""

import hashlib
import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from flwr.app import Message
from flwr.serverapp import Grid

from fedcohort.core.arrays import Indices
from fedcohort.core.errors import UsageError, one_line
from fedcohort.core.words.formatted_values import counted
from fedcohort.flower.greetings import UNREACHABLE, Greetings
from fedcohort.flower.wire import Introduction, MalformedReply, hello_message, introduction_of

__all__ = [
    "LOOK",
    "Roster",
    "Starts",
    "connected_nodes",
    "failure_of",
    "introduced",
    "looks",
    "name_order",
    "still_ignored",
]

_CAUSES = {
    1: "its ClientApp cannot be loaded",
    2: "its ClientApp raised an error",
    3: "the message was not available any more",
    4: "its reply was not available any more",
    5: "its node is unreachable",
    6: "one of its mods refused",
    7: "its app bundle is invalid",
    8: "its ClientApp crashed",
}
"""What the codes of Flower's errors mean."""
_RAISED = re.compile("<class '(?P<kind>[^']*)'>:<'(?P<text>.*)'>", re.DOTALL)
"""How Flower writes an exception: ``<class 'ValueError'>:<'no data'>``."""
_IN_SIMULATION = "Exception ClientAppException occurred. Message: "
"""What precedes the text of an exception of a ClientApp in Flower's simulation runtime, which does not say its kind."""
PAUSE = 0.5
"""Longest time between two looks for nodes, in seconds."""
LOOK = 2.0
"""Longest wait for introductions, in seconds, after which the server looks for further nodes before a run."""


def failure_of(message: Message) -> str:
    """The cause of an error reply, in words."""
    cause = _CAUSES.get(message.error.code, f"Flower's error {message.error.code}")
    reason = (message.error.reason or "").strip()
    raised = _RAISED.fullmatch(reason)
    kind, text = (raised["kind"].rpartition(".")[2], raised["text"].strip()) if raised else ("", reason)
    if _IN_SIMULATION in text:
        kind, text = "", text.rpartition(_IN_SIMULATION)[2]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1].removeprefix("Error: ").rstrip(".") if lines else ""
    return one_line(": ".join(part for part in (cause, kind, last) if part))


class Roster:
    """The clients of a federation, and the nodes that they are at.

    Args:
        clock: seconds.
        authenticated: whether a name belongs to the key of the node that it was first used with.

    Attributes:
        names: name of each client, by number; fixed by :meth:`fix`.
        known: what each client said about itself, by name.
        ignored: why a node takes no part, by node.
        keys: SHA-256 of the key that each name belongs to, by name; empty without authentication.
        seats: number of clients that the run has room for; clients that are new take no part if there are as many.
        takes_in: called before a client joins; raises a UsageError if it cannot.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, authenticated: bool = False) -> None:
        self.seats = 0
        self.takes_in: Callable[[Introduction], None] = lambda _client: None
        self.names: list[str] = []
        self.known: dict[str, Introduction] = {}
        self.ignored: dict[int, str] = {}
        self.keys: dict[str, str] = {}
        self._clock, self._authenticated = clock, authenticated
        self._node_of: dict[str, int] = {}
        self._starts = Starts()
        self._greetings = Greetings()
        self._rivals: dict[int, frozenset[int]] = {}  # by ignored node: the nodes that claim the same name

    def meet(self, grid: Grid, patience: float, seconds: float = math.inf) -> list[str]:
        """Ask nodes that are new to introduce their clients; returns notes about nodes that take no part.

        Args:
            grid: carries the messages.
            patience: seconds to wait for each node, once.
            seconds: of real time, after which the wait is interrupted; the next call goes on with it.
        """
        nodes = set(grid.get_node_ids())
        lasting = nodes - self._starts.again(connected_nodes(grid))
        self._node_of = {name: node for name, node in self._node_of.items() if node in lasting}
        self.ignored = still_ignored(self.ignored, self._rivals, lasting)
        self._greetings.keep(lasting)
        new = sorted(nodes - set(self._node_of.values()) - set(self.ignored))
        if not new:
            return []
        keys = _public_keys(grid) if self._authenticated else {}
        done = self._greetings.exchange(grid, new, hello_message, patience, self._clock, seconds)
        claims: dict[str, dict[int, Introduction]] = {}
        notes = [f"node {node} takes no part: {why}" for node, why in sorted(done.failed.items())]
        for node, [reply, *_] in sorted(done.replies.items()):
            try:
                introduction = self._introduced(reply, keys.get(node, ""))
                claims.setdefault(introduction.name, {})[node] = introduction
            except MalformedReply as reason:
                notes.append(self._ignore(node, str(reason)))
                if reply.has_error() and reply.error.code in UNREACHABLE:
                    del self.ignored[node]  # it is asked again
        return notes + self._settle(claims, keys)

    @property
    def waits(self) -> bool:
        """Whether nodes that have not introduced their clients are still waited for."""
        return self._greetings.waits(self._clock())

    def silent(self) -> list[str]:
        """Notes about nodes that have not introduced their clients."""
        return [f"node {node} has not introduced itself yet" for node in self._greetings.silent]

    def _introduced(self, reply: Message, key: str) -> Introduction:
        if reply.has_error():
            raise MalformedReply(f"{failure_of(reply)} (does its ClientApp call fedcohort.flower.answers?)")
        introduction = introduction_of(reply)
        name = introduction.name or (f"key-{key[:16]}" if key else "")
        if not name:
            raise MalformedReply(
                "it has no name that stays the same: give answers(…, name=…), name or partition-id in the node's config, or a key and "
                "Selecting(…, authenticated=True)"
            )
        if self.names and name not in self.names and len(self.names) >= self.seats:
            full = f", and max_nodes = {self.seats} are there" if self.seats else ""
            raise MalformedReply(f"its client {name!r} was not there when the run began{full}")
        if self.keys.get(name, key) != key:
            raise MalformedReply(f"it calls itself {name!r}, which belongs to a node with another key")
        return Introduction(**{**vars(introduction), "name": name})

    def _settle(self, claims: Mapping[str, Mapping[int, Introduction]], keys: Mapping[int, str]) -> list[str]:
        """Give each claimed name to its node; a name that several nodes claim belongs to none of the new ones."""
        notes = []
        for name, nodes in sorted(claims.items(), key=lambda claim: name_order(claim[0])):
            if len(nodes) > 1 or name in self._node_of:
                reason = f"it calls itself {name!r}, as another connected node does; names must differ"
                rivals = frozenset(nodes) | ({self._node_of[name]} if name in self._node_of else set())
                self._rivals.update(dict.fromkeys(nodes, rivals))
                notes += [self._ignore(node, reason) for node in nodes]
                continue
            [(node, introduction)] = nodes.items()
            is_new = name not in self.names
            try:
                notes += self._join(introduction)
            except UsageError as reason:
                notes.append(self._ignore(node, str(reason)))
                continue
            self._node_of[name] = node
            if is_new:
                self.known[name] = introduction
            if node in keys:
                self.keys.setdefault(name, keys[node])
        return notes

    def _join(self, client: Introduction) -> list[str]:
        """Number a client that is new after the beginning; returns a note about it.

        Raises:
            UsageError: it cannot join.
        """
        name = client.name
        if not self.names or name in self.names:
            return []
        if len(self.names) >= self.seats:
            raise UsageError(
                f"its client {name!r} was not there when the run began, and max_nodes = {self.seats} are there"
            )
        self.takes_in(client)
        self.names.append(name)
        return [f"client {name!r} joined as client {len(self.names) - 1}"]

    def _ignore(self, node: int, reason: str) -> str:
        self.ignored[node] = reason
        return f"node {node} takes no part: {reason}"

    def fix(self) -> None:
        """Number the clients that are connected; later, others can join while there are seats.

        Raises:
            UsageError: there are more clients than seats.
        """
        self.names = sorted(self._node_of, key=name_order)
        if len(self.names) > self.seats > 0:
            raise UsageError(f"max_nodes = {self.seats}: {len(self.names)} clients are connected; raise max_nodes")

    def restore(self, names: Iterable[str], known: Mapping[str, Introduction]) -> None:
        """Use the clients of an earlier process.

        Raises:
            UsageError: none of the connected clients is one of them.
        """
        self.names, connected = list(names), sorted(self._node_of, key=name_order)
        if not set(self.names) & set(connected):
            raise UsageError(
                f"the run to be resumed has the clients {self.names[:5]}, but {connected[:5]} are connected; use another name or "
                "folder"
            )
        self._node_of = {name: node for name, node in self._node_of.items() if name in self.names}
        self.known = dict(known)

    @property
    def connected(self) -> int:
        """Number of clients that introduced themselves and are connected."""
        return len(self._node_of)

    def present(self) -> Indices:
        """Numbers of the connected clients, ascending."""
        return np.array([i for i, name in enumerate(self.names) if name in self._node_of], dtype=np.int64)

    def node(self, client: int) -> int:
        """The node that a connected client is at."""
        return self._node_of[self.names[client]]

    def about(self, client: int) -> Introduction:
        """What a client said about itself."""
        return self.known[self.names[client]]

    def all_known(self) -> list[Introduction]:
        """What the clients said about themselves, by number."""
        return [self.known[name] for name in self.names]


def still_ignored(
    ignored: Mapping[int, str], rivals: dict[int, frozenset[int]], nodes: Collection[int]
) -> dict[int, str]:
    """The ignored nodes that are not asked again.

    A node that was started again is asked again: its owner may have changed why it was ignored. So is one that was ignored because
    others claimed the same client, when one of them has gone: a client that is started again can connect before the server has
    noticed that its old node is gone.

    Args:
        ignored: why a node takes no part, by node.
        rivals: the nodes that claimed the same client, by ignored node; nodes that are asked again are removed.
        nodes: the nodes that are connected, and were not started again.
    """
    there = set(nodes)
    kept = {node: why for node, why in ignored.items() if node in there and rivals.get(node, frozenset()) <= there}
    for node in set(rivals) - set(kept):
        del rivals[node]
    return kept


class Starts:
    """Notices nodes that were started again: a SuperNode with a registered key has the same number as before."""

    def __init__(self) -> None:
        self._since: dict[int, str] = {}

    def again(self, connected: Iterable[Any]) -> set[int]:
        """The nodes that were activated once more since the last call; ``connected`` is what Flower knows about each node."""
        since = {node.node_id: str(getattr(node, "last_activated_at", "")) for node in connected}
        found = {node for node, time_ in since.items() if self._since.get(node, time_) != time_}
        self._since |= since
        return found


def looks(patience: float) -> Iterator[None]:
    """Looks for nodes with pauses between them, until the patience, in seconds, is over; the caller ends them earlier."""
    deadline = time.monotonic() + patience
    while True:
        yield
        if time.monotonic() >= deadline:
            return
        time.sleep(min(PAUSE, patience / 10))


def name_order(name: str) -> tuple[bool, int, str]:
    """Numbers by value, then words by their letters."""
    is_number = name.isascii() and name.isdigit()
    return not is_number, int(name) if is_number else 0, name


def introduced(clients: int) -> str:
    """How many clients introduced themselves, in words.

    >>> introduced(1), introduced(2)
    ('1 client introduced itself', '2 clients introduced themselves')
    """
    return f"{counted(clients, 'client')} introduced {'itself' if clients == 1 else 'themselves'}"


def connected_nodes(grid: Grid) -> list[Any]:
    """What Flower knows about the connected nodes; nothing with earlier versions of Flower."""
    get: Callable[[], Iterable[Any]] | None = getattr(grid, "get_nodes", None)
    return [] if get is None else list(get())


def _public_keys(grid: Grid) -> dict[int, str]:
    """SHA-256 of the public keys of nodes, by node."""
    keys = {node.node_id: bytes(getattr(node, "public_key", b"")) for node in connected_nodes(grid)}
    return {node: hashlib.sha256(key).hexdigest() for node, key in keys.items() if key}
