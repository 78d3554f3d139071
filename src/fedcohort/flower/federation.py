"""The clients of a Flower federation as a strategy sees them: a census, the clients that are connected, and answers to questions."""

import dataclasses
import logging
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid

from fedcohort.chooser import Chooser
from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.flower.answer_notes import first_notes, unanswered
from fedcohort.flower.exchange import exchange
from fedcohort.flower.rehearsal import Requirements, refusals
from fedcohort.flower.roster import LOOK, Roster, failure_of, introduced, looks
from fedcohort.flower.stored_rows import rows_of, stored
from fedcohort.flower.wire import Introduction, MalformedReply, ask_message, numbers_of
from fedcohort.selection import Census, Question

__all__ = ["FlowerClients"]

log = logging.getLogger("fedcohort")


class FlowerClients:
    """The clients behind a Grid.

    Args:
        patience: seconds to wait for nodes and for answers.
        clock: seconds.
        authenticated: whether a name belongs to the key of the node that it was first used with.

    Attributes:
        roster: the clients and their nodes.
        notes: what went wrong since the notes were last taken, in words.
    """

    def __init__(
        self, patience: float, clock: Callable[[], float] = time.monotonic, *, authenticated: bool = False
    ) -> None:
        self.patience, self.authenticated, self.notes = patience, authenticated, list[str]()
        self.roster = Roster(clock, authenticated=authenticated)
        self._clock = clock

    def begin(self) -> None:
        """Forget the clients of an earlier run: those that are connected when a run begins are its clients."""
        seats, self.notes = self.roster.seats, []
        self.roster = Roster(self._clock, authenticated=self.authenticated)
        self.roster.seats = seats

    def gather(self, grid: Grid, at_least: int) -> None:
        """Wait until this many clients are connected and have introduced themselves, and for further nodes that are connected.

        Raises:
            UsageError: there are fewer after the patience.
        """
        told = False
        for _ in looks(self.patience):
            notes = self.roster.meet(grid, self.patience, LOOK)
            self.notes += notes
            if self.roster.connected >= at_least and not self.roster.waits:
                return
            if notes or not told:
                told = True
                about = (notes or self.roster.silent())[:3]
                log.warning(
                    "%d of min_nodes = %d clients have introduced themselves; waiting up to %g s (patience)%s",
                    self.roster.connected, at_least, self.patience, "".join(f"; {note}" for note in about),
                )  # fmt: skip
        if self.roster.connected >= at_least:
            return
        notes = [*dict.fromkeys(self.notes), *self.roster.silent()]
        why = f" ({'; '.join(notes[:3])})" if notes else ""
        raise UsageError(
            f"min_nodes = {at_least}: only {introduced(self.roster.connected)} within {self.patience:g} s{why}"
        )

    def present(self, grid: Grid) -> Indices:
        """Numbers of the clients that are connected; waits while there are none, at most for the patience."""
        for _ in looks(self.patience):
            self.notes += self.roster.meet(grid, self.patience)
            if self.roster.connected:
                break
        return self.roster.present()

    def census(
        self, k: int, *, needs_histogram: bool, num_parameters: int, rounds: int, epochs: int, batch_size: int
    ) -> Census:
        """What the clients said about themselves, as a census.

        Raises:
            UsageError: label counts have different lengths, or there are fewer than k clients.
        """
        clients = self.roster.all_known()
        if k > len(clients):
            raise UsageError(
                f"k = {k}: more than the {len(clients)} connected clients; lower k, or set min_nodes to wait for more"
            )
        widths = {len(client.histogram) for client in clients if client.histogram}
        if len(widths) > 1:
            raise UsageError(
                f"the clients' label counts have different lengths: {sorted(widths)}; list all classes on every client"
            )
        complete = bool(widths) and all(client.histogram for client in clients)
        sizes = np.zeros(max(len(clients), self.roster.seats), np.int64)
        counts = np.zeros((len(sizes), max(widths, default=1)), np.int64)
        sizes[: len(clients)] = [client.num_samples for client in clients]
        if complete:
            counts[: len(clients)] = [client.histogram for client in clients]
        return Census(
            sizes,
            counts.shape[1],
            k,
            counts if complete and needs_histogram else None,
            epochs=epochs,
            num_parameters=num_parameters,
            batch_size=batch_size,
            rounds=rounds,
        )

    def join(self, chooser: Chooser, needed: Requirements, client: Introduction) -> None:
        """Give a client that joins the next seat.

        Raises:
            UsageError: it does not provide what the strategy needs of all clients, or the strategy cannot take in clients.
        """
        census, seat = chooser.census, len(self.roster.names)
        of_all = dataclasses.replace(needed, questions=frozenset(), reports=frozenset())
        if reasons := refusals(type(chooser.selector).__name__, of_all, [client], validates=True):
            raise UsageError("; ".join(reasons))
        sizes, histogram = census.num_samples.copy(), None if census.histogram is None else census.histogram.copy()
        sizes[seat] = client.num_samples
        if histogram is not None:
            if len(client.histogram) != histogram.shape[1]:
                raise UsageError(
                    f"its client {client.name!r} has {len(client.histogram)} label counts instead of {histogram.shape[1]}; list all "
                    "classes on every client"
                )
            histogram[seat] = client.histogram
        chooser.extend(dataclasses.replace(census, num_samples=sizes, histogram=histogram))

    def asking(self, grid: Grid, t: int, arrays: ArrayRecord) -> Callable[[Question, Indices], Values]:
        """The function that carries the questions of round ``t`` to clients."""

        def ask(question: Question, clients: Indices) -> Values:
            model = arrays if question.downloads_model else None
            messages = [ask_message(self.roster.node(client), question, t, model) for client in clients.tolist()]
            done = exchange(grid, messages, self.patience, self._clock)
            replies = done.first()
            values, reasons = np.full((len(clients), question.numbers), np.nan), {}
            for position, (client, message_id) in enumerate(zip(clients.tolist(), done.ids, strict=True)):
                try:
                    values[position] = self._answer_in(replies.get(message_id), question)
                except MalformedReply as reason:
                    reasons[client] = str(reason)
            self.notes += unanswered(question.kind, reasons)
            return values[:, 0] if question.numbers == 1 else values

        return ask

    def _answer_in(self, reply: Message | None, question: Question) -> Values:
        """The numbers in a reply.

        Raises:
            MalformedReply: there is no reply, or none that can be used.
        """
        if reply is None:
            raise MalformedReply(f"no answer within {self.patience:g} s")
        if reply.has_error():
            raise MalformedReply(failure_of(reply))
        return numbers_of(reply, question)

    def take_notes(self) -> str:
        """The notes so far, in one line; clears them."""
        notes, self.notes = self.notes, []
        return "; ".join(first_notes(notes))

    def state_dict(self) -> dict[str, Any]:
        """Names and introductions of the clients, by number, and the keys that the names belong to."""
        return {
            "keys": dict(self.roster.keys),
            "names": list(self.roster.names),
            "known": stored(
                [
                    {**vars(client), "histogram": list(client.histogram)}
                    | {name: sorted(getattr(client, name)) for name in ("answers", "reports", "follows")}
                    for client in self.roster.all_known()
                ]
            ),
        }

    def expect(self, state: dict[str, Any]) -> None:
        """Refuse nodes that have the names of clients of an earlier process, and other keys. Call it before :meth:`gather`."""
        if self.authenticated:
            self.roster.keys = dict(state.get("keys", {}))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Use the clients of an earlier process; those that are connected are found by their names."""
        known = [
            Introduction(
                values["name"], values["num_samples"], tuple(values["histogram"]),
                *(frozenset(values[name]) for name in ("answers", "reports", "follows")),
            )
            for values in rows_of(state["known"])
        ]  # fmt: skip
        self.roster.restore(state["names"], {client.name: client for client in known})
