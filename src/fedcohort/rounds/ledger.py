"""The cost of a round: wall time of its parts; messages, bytes and client passes of every exchange."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError, shown
from fedcohort.record import LedgerRow
from fedcohort.selection import Question

__all__ = ["Ledger", "Stopwatch"]

T = TypeVar("T")


class Stopwatch:
    """Wall time of the parts of a round in seconds; never simulated time."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._start = time.perf_counter()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time a block."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._add(name, start)

    def watch(self, name: str, stream: Iterable[T]) -> Iterator[T]:
        """Time how long a stream takes to produce its items, without the time that the consumer takes."""
        iterator = iter(stream)
        while True:
            start = time.perf_counter()
            try:
                item = next(iterator)
            except StopIteration:
                return
            finally:
                self._add(name, start)
            yield item

    def total(self) -> float:
        """Seconds since the beginning of the round."""
        return time.perf_counter() - self._start

    def _add(self, name: str, start: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def _checked(question: object, clients: object) -> Indices:
    """The ids of the clients that a strategy asks, int64 [n].

    Raises:
        UsageError: the question is none, or the ids are no integers [n].
    """
    if not isinstance(question, Question):
        raise UsageError(f"round.ask: {shown(question)} is no question; give one such as LocalLoss(), with parentheses")
    ids = np.asarray(clients)
    if ids.ndim != 1 or (len(ids) and ids.dtype.kind not in "iu"):
        raise UsageError(f"round.ask: clients = {shown(clients)}: must be ids of clients, integers [n]")
    return ids.astype(np.int64, copy=False)


class Ledger:
    """The cost of a round's questions and of its training.

    Args:
        model_bytes: bytes that a client receives with a question about the model.
        training_bytes: bytes that a client receives for training: the model, unless the algorithm sends more.
    """

    def __init__(self, model_bytes: int, training_bytes: int | None = None) -> None:
        self.model_bytes = model_bytes
        self.training_bytes = model_bytes if training_bytes is None else training_bytes
        self.rows: list[LedgerRow] = []
        # clients that trained to answer a question, and how many passes they needed
        self.trained: dict[int, float] = {}
        # clients that were asked the current question and gave no answer; what carries the question adds them
        self.unanswered: set[int] = set()

    def asking(self, answer: Callable[[Question, Indices], Values]) -> Callable[[Question, Indices], Values]:
        """A function that answers like ``answer``, and bills the cost of every question.

        A client that gives no answer, see :attr:`unanswered`, received the question and what comes with it, and nothing else is
        billed for it.
        """

        def ask(question: Question, clients: Indices) -> Values:
            """Answer ``question`` for each of ``clients``, and add one row to the ledger."""
            clients = _checked(question, clients)
            start = time.perf_counter()
            self.unanswered.clear()
            no_answers = np.zeros(0 if question.numbers == 1 else (0, question.numbers))
            values = answer(question, clients) if len(clients) else no_answers
            answered = ~np.isin(clients, list(self.unanswered))
            cost = question.cost(values)[answered]
            if question.trains:
                self.trained.update(zip(clients[answered].tolist(), cost.tolist(), strict=True))
            received = self.training_bytes if question.trains else self.model_bytes
            self.add(
                question.kind,
                messages=len(clients) + len(cost),
                down=len(clients) * received * question.downloads_model,
                up=len(cost) * 4 * question.numbers,
                passes=float(cost.sum()),
                seconds=time.perf_counter() - start,
                discloses=question.discloses,
            )
            return values

        return ask

    def histograms(self, clients: int, classes: int) -> None:
        """Bill the label counts that every client sends once, before the first round."""
        self.add(
            "Histogram", messages=clients, down=0, up=4 * clients * classes, passes=0.0, seconds=0.0,
            discloses="its number of samples of each class, once",
        )  # fmt: skip

    def training(
        self, clients: Indices, *, uploads: int, up: int, passes: float, seconds: float, discloses: str
    ) -> None:
        """Bill the cohort's training. Clients that trained to answer a question already have the model, and do not train again."""
        before = [self.trained[client] for client in clients.tolist() if client in self.trained]
        self.add(
            "training",
            messages=len(clients) + uploads,
            down=(len(clients) - len(before)) * self.training_bytes,
            up=up,
            passes=max(passes - sum(before), 0.0),
            seconds=seconds,
            discloses=discloses,
        )

    def add(
        self, kind: str, *, messages: int, down: int, up: int, passes: float, seconds: float, discloses: str = ""
    ) -> None:
        """Add an exchange; exchanges of the same kind in a round are summed."""
        before = next((row for row in self.rows if row.kind == kind), None)
        if before is not None:
            self.rows.remove(before)
            messages, down, up = messages + before.messages, down + before.bytes_down, up + before.bytes_up
            passes, seconds = passes + before.passes, seconds + before.seconds
        self.rows.append(LedgerRow(kind, messages, down, up, passes, seconds, discloses))
