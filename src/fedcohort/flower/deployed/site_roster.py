"""Which clients there are, and at which node: sites introduce their clients, and keep their identity while node ids change.

A site is known by its name, or else by the public key of its node, or else by the id of its node. Clients are numbered on first
contact, in the order of their names (numbers by value, then words); a number is never used for another client. Keys count only if
nodes authenticate themselves: Flower gives a node without a key a new one at every start.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Message

from fedcohort.core.arrays import Indices
from fedcohort.core.errors import UsageError
from fedcohort.flower.deployed.grid_link import Arrival, Cause, GridLink, arrival_of
from fedcohort.flower.greetings import LIFE, Greetings
from fedcohort.flower.roster import name_order, still_ignored
from fedcohort.flower.sites.envelope import request_message
from fedcohort.flower.sites.protocol import HELLO, BadMessage, Words, packed, unpacked
from fedcohort.flower.stored_rows import rows_of, stored

__all__ = ["KnownClient", "MetSite", "SiteRoster"]

LARGEST_INTRODUCTION = 2**24
"""Largest number of bytes of an introduction that is read."""


@dataclass(frozen=True)
class KnownClient:
    """What a site said about a client on first contact.

    Attributes:
        name: its name, different from those of all other clients.
        site: identity of its site.
        key: SHA-256 of the public key of the node; empty without authentication.
        num_samples: number of training samples.
        held_out: number of samples that it holds out.
        histogram: number of samples of each class; None if the owner does not disclose it.
    """

    name: str
    site: str
    key: str
    num_samples: int
    held_out: int
    histogram: tuple[int, ...] | None


@dataclass(frozen=True)
class MetSite:
    """A site that has introduced itself.

    Attributes:
        name: identity of the site.
        clients: its clients.
        training: whether its owner allows training.
        questions: kinds of the questions that it answers.
        reports: names of the numbers that it reports; None for all.
    """

    name: str
    clients: tuple[KnownClient, ...]
    training: bool
    questions: frozenset[str]
    reports: frozenset[str] | None


class SiteRoster:
    """The clients of a deployment, and the nodes that they are at.

    Args:
        classes: number of classes, which sites need to count their samples.
        seats: largest number of clients; by default those that are there when the run begins.
        shape: shape of a sample, without N, which the samples of sites must have; by default any.
        authenticated: whether a name belongs to the key of the node that it was first used with.

    Attributes:
        clients: the clients by number; fixed by :meth:`fix`, and extended by clients that join.
        closed: why no client can join after :meth:`fix`; empty if clients can join.
        takes_in: called before clients of a site join, with the clients in the order of their numbers; raises a UsageError if the
            strategy cannot take them in.
        ignored: why a node takes no part, by node.
    """

    def __init__(
        self,
        classes: int,
        seats: int | None = None,
        shape: Sequence[int] | None = None,
        *,
        authenticated: bool = True,
    ) -> None:
        self.authenticated = authenticated
        self.classes, self.seats, self.shape, self.closed = classes, seats, shape, "new clients cannot join"
        self.clients: list[KnownClient] = []
        self.takes_in: Callable[[MetSite, list[KnownClient]], None] = lambda _site, _clients: None
        self.ignored: dict[int, str] = {}
        self._met: dict[int, MetSite] = {}  # by node
        self._rivals: dict[int, frozenset[int]] = {}  # by ignored node: the nodes with one of its clients
        self._greetings = Greetings()
        self._numbers: dict[str, int] = {}
        self._node_of: dict[str, int] = {}  # by name of the client

    def meet(self, link: GridLink, seconds: float = math.inf) -> list[str]:
        """Ask nodes that are new to introduce their clients; returns notes about nodes that take no part.

        Args:
            link: carries the messages; its patience is the wait for each node, once.
            seconds: of real time, after which the wait is interrupted; the next call goes on with it.
        """
        nodes = link.nodes()
        lasting = set(nodes) - link.started_again
        self._met = {node: met for node, met in self._met.items() if node in lasting}
        self.ignored = still_ignored(self.ignored, self._rivals, lasting)
        self._greetings.keep(lasting)
        new = sorted(set(nodes) - set(self._met) - set(self.ignored))
        request = packed(
            {"kind": HELLO, "classes": self.classes} | ({} if self.shape is None else {"shape": list(self.shape)})
        )

        def ask(node: int) -> Message:
            return request_message(node, request, 0, LIFE)

        done = self._greetings.exchange(link.grid, new, ask, link.patience, link.clock, seconds)
        notes = [f"node {node} takes no part: {why}" for node, why in sorted(done.failed.items())]
        introduced: dict[int, MetSite] = {}
        known = {client.name: client for client in self.clients}
        for node, replies in sorted(done.replies.items()):
            arrival = arrival_of(0, replies, 0.0)
            try:
                introduced[node] = self._introduced(node, arrival, nodes[node], known)
            except BadMessage as reason:
                notes += self._ignore(node, str(reason), arrival)
        notes += self._settle(introduced)
        self._node_of = {client.name: node for node, met in self._met.items() for client in met.clients}
        return notes

    def waits(self, link: GridLink) -> bool:
        """Whether nodes that have not introduced their clients are still waited for."""
        return self._greetings.waits(link.clock())

    def silent(self) -> list[str]:
        """Notes about nodes that have not introduced their clients."""
        return [f"node {node} has not introduced itself yet" for node in self._greetings.silent]

    def _introduced(self, node: int, arrival: Arrival, key: bytes, known_clients: Mapping[str, KnownClient]) -> MetSite:
        if arrival.data is None:
            raise BadMessage(arrival.failure)
        words = unpacked(arrival.data, LARGEST_INTRODUCTION)
        if words.has("refused"):
            raise BadMessage(Cause.REFUSED.because(words.text("refused")))
        digest = hashlib.sha256(key).hexdigest() if key and self.authenticated else ""
        site = words.text("name") or (f"key-{digest[:16]}" if digest else f"node-{node}")
        clients = [_client(part, site, digest, self.classes) for part in words.parts("clients")]
        if not clients or len({client.name for client in clients}) < len(clients):
            raise BadMessage("it introduced no clients, or two of the same name")
        for client in clients:
            self._check(client, known_clients.get(client.name))
        return MetSite(
            site,
            tuple(clients),
            words.flag("training"),
            frozenset(words.names("questions")),
            frozenset(words.names("reports")) if words.has("reports") else None,
        )

    def _check(self, client: KnownClient, known: KnownClient | None) -> None:
        """Refuse clients that cannot join, or are not those that they claim to be."""
        if known is None:
            if self.clients and self.closed:
                raise BadMessage(f"its client {client.name!r} was not there when the run began, and {self.closed}")
            return
        if self.authenticated and client.key != known.key:
            raise BadMessage(
                f"forged identity: client {client.name!r} belongs to a node with another key (for nodes without keys of their own, "
                "set authenticated = false)"
            )
        if (client.num_samples, client.held_out) != (known.num_samples, known.held_out):
            raise BadMessage(
                f"client {client.name!r} had {known.num_samples} + {known.held_out} samples when the run began, and now has "
                f"{client.num_samples} + {client.held_out}"
            )

    def _join(self, met: MetSite) -> list[str]:
        """Number the clients of a site that are new after the beginning; returns notes about them.

        Raises:
            UsageError: they cannot join.
        """
        known = self.numbers
        new = [client for client in met.clients if client.name not in known] if self.clients else []
        if not new:
            return []
        new.sort(key=lambda client: name_order(client.name))
        if self.seats is not None and len(self.clients) + len(new) > self.seats:
            raise UsageError(f"its client {new[0].name!r} is one more than federation.clients = {self.seats}")
        self.takes_in(met, new)
        self.clients += new
        self._number()
        return [f"client {client.name!r} joined as client {self.numbers[client.name]}" for client in new]

    def _settle(self, introduced: Mapping[int, MetSite]) -> list[str]:
        """Take in new nodes. If several nodes claim the same client, no new one of them takes part."""
        claims: dict[str, list[int]] = {}
        for node, met in [*self._met.items(), *introduced.items()]:
            for client in met.clients:
                claims.setdefault(client.name, []).append(node)
        notes = []
        for node, met in introduced.items():
            shared = next((client.name for client in met.clients if len(claims[client.name]) > 1), None)
            try:
                if shared is not None:
                    self._rivals[node] = frozenset(claims[shared])
                    raise UsageError(
                        f"another connected node also has the client {shared!r} of site {met.name!r}; names must differ"
                    )
                notes += self._join(met)
                self._met[node] = met
            except UsageError as reason:
                notes += self._ignore(node, str(reason))
        return notes

    def _ignore(self, node: int, reason: str, arrival: Arrival | None = None) -> list[str]:
        """Note that a node takes no part. A node that was not reached is asked again in the next round."""
        passing = arrival is not None and arrival.failure.startswith(Cause.UNREACHABLE.value)
        if not passing:
            self.ignored[node] = reason
        return [f"node {node} takes no part: {reason}"]

    def fix(self) -> None:
        """Number the clients that are connected."""
        everyone = [client for met in self._met.values() for client in met.clients]
        self.clients = sorted(everyone, key=lambda client: name_order(client.name))
        self._number()

    def _number(self) -> None:
        self._numbers = {client.name: number for number, client in enumerate(self.clients)}

    @property
    def connected(self) -> int:
        """Number of clients that introduced themselves and are connected."""
        return sum(len(met.clients) for met in self._met.values())

    @property
    def numbers(self) -> dict[str, int]:
        """The number of each client, by name."""
        return self._numbers

    @property
    def sites(self) -> list[MetSite]:
        """The sites that are connected."""
        return list(self._met.values())

    def present(self) -> Indices:
        """Numbers of the connected clients, ascending."""
        numbers = self.numbers
        there = [numbers[client.name] for met in self._met.values() for client in met.clients]
        return np.array(sorted(there), dtype=np.int64)

    def node(self, client: int) -> int | None:
        """The node that a client is at; None if it is not connected."""
        return self._node_of.get(self.clients[client].name)

    def numbers_at(self, node: int) -> dict[str, int]:
        """The clients at a node with their numbers, by name."""
        numbers = self.numbers
        return {client.name: numbers[client.name] for client in self._met[node].clients}

    def sizes(self) -> Indices:
        """Number of training samples of each client, int64 [m]; 0 for seats without a client."""
        sizes = np.zeros(max(self.seats or 0, len(self.clients)), dtype=np.int64)
        sizes[: len(self.clients)] = [client.num_samples for client in self.clients]
        return sizes

    def histogram(self) -> Indices | None:
        """Number of samples of each client and class, int64 [m, K]; None if an owner does not disclose it."""
        counts = [client.histogram for client in self.clients]
        known = [each for each in counts if each is not None]
        if len(known) < len(counts):
            return None
        nothing = np.zeros((len(self.sizes()) - len(known), self.classes), dtype=np.int64)
        return np.concatenate([np.array(known, dtype=np.int64).reshape(-1, self.classes), nothing])

    def state_dict(self) -> dict[str, Any]:
        """The clients, for the checkpoint."""
        return {"clients": stored([vars(client) for client in self.clients])}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Use the clients of an earlier process. Call it before :meth:`meet`."""
        rows = rows_of(state["clients"])
        self.clients = [
            KnownClient(**(row | {"histogram": None if row["histogram"] is None else tuple(row["histogram"])}))
            for row in rows
        ]
        self._number()
        self._met = {}


def _client(words: Words, site: str, key: str, classes: int) -> KnownClient:
    """A client in an introduction."""
    counts = tuple(words.counts("histogram")) if words.has("histogram") else None
    samples = words.count("num_samples")
    name = words.text("name")
    if not name:
        raise BadMessage("a client has no name")
    if not name.isprintable():
        raise BadMessage(f"the name {name!r} of a client has characters that cannot be printed")
    if counts is not None and (len(counts) != classes or sum(counts) != samples):
        raise BadMessage(f"the class counts of client {name!r} do not fit {classes} classes and {samples} samples")
    return KnownClient(name, site, key, samples, words.count("held_out"), counts)
