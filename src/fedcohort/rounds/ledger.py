"""What a round costs: wall seconds of its parts, messages, bytes and client passes of every exchange."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import torch

from fedcohort.core.arrays import Indices, Values
from fedcohort.record import LedgerRow
from fedcohort.selection import Question

__all__ = ["Ledger", "Stopwatch", "num_bytes"]

T = TypeVar("T")


def num_bytes(groups: Iterable[Mapping[str, torch.Tensor]]) -> int:
    """Uncompressed bytes of tensors."""
    return sum(t.numel() * t.element_size() for group in groups for t in group.values())


class Stopwatch:
    """Wall seconds of the parts of a round; never simulated time."""

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
        """Time what a stream takes to produce its items, not what is done with them."""
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
        """Seconds since the round began."""
        return time.perf_counter() - self._start

    def _add(self, name: str, start: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


class Ledger:
    """The cost of a round's questions and of its training.

    Args:
        model_bytes: what a client receives that is asked about the model.
        training_bytes: what a client receives that trains; the model, unless the algorithm sends more.
    """

    def __init__(self, model_bytes: int, training_bytes: int | None = None) -> None:
        self.model_bytes = model_bytes
        self.training_bytes = model_bytes if training_bytes is None else training_bytes
        self.rows: list[LedgerRow] = []
        self.trained: dict[int, float] = {}  # who trained for a question, and the passes that it took

    def asking(
        self, answer: Callable[[Question, Indices], Values], num_samples: Indices
    ) -> Callable[[Question, Indices], Values]:
        """``answer``, with what every question costs written down."""

        def ask(question: Question, clients: Indices) -> Values:
            """The answers, and a line of the ledger."""
            clients = np.asarray(clients, dtype=np.int64)
            start = time.perf_counter()
            nothing = np.zeros(0 if question.numbers == 1 else (0, question.numbers))
            values = answer(question, clients) if len(clients) else nothing
            cost = question.cost(values)
            if question.trains:
                self.trained.update(zip(clients.tolist(), cost.tolist(), strict=True))
            received = self.training_bytes if question.trains else self.model_bytes
            self.add(
                question.kind,
                messages=2 * len(clients),
                down=len(clients) * received * question.downloads_model,
                up=len(clients) * 4 * question.numbers,
                passes=float(cost.sum()),
                seconds=time.perf_counter() - start,
                discloses=question.discloses,
            )
            return values

        return ask

    def training(
        self, clients: Indices, *, uploads: int, up: int, passes: float, seconds: float, discloses: str
    ) -> None:
        """The cohort's training. Who trained for a question already has received the model, and does not train again."""
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
        """One more exchange; several of one kind in a round are summed."""
        before = next((row for row in self.rows if row.kind == kind), None)
        if before is not None:
            self.rows.remove(before)
            messages, down, up = messages + before.messages, down + before.bytes_down, up + before.bytes_up
            passes, seconds = passes + before.passes, seconds + before.seconds
        self.rows.append(LedgerRow(kind, messages, down, up, passes, seconds, discloses))
