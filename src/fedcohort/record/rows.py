"""What is recorded of a round: its clients, decisions, costs and measures."""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fedcohort.core.arrays import Indices, Values

__all__ = ["ClientRow", "LedgerRow", "Portrait", "Reasons", "RoundRow", "Saved"]

KEPT = 1000
"""Candidates of one decision that are kept at most: the selected, then the best scored."""


@dataclass
class ClientRow:
    """One selected client of a round.

    ``status``: admitted, declined, failed, late or diverged (see ``detail``). ``reports``: what it reported that not every client
    reports, such as ``q_hat``.
    """

    client: int
    status: str
    detail: str = ""
    num_samples: int = 0
    steps: int = 0
    duration: float = math.nan
    weight: float = 0.0
    loss: float = math.nan
    accuracy: float = math.nan
    reports: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class LedgerRow:
    """Cost of one kind of exchange in a round: ``training``, or a question's name.

    Bytes are uncompressed payload; ``passes`` are forward passes over a client's training data, summed over clients; ``seconds`` is
    wall time of the simulator.
    """

    kind: str
    messages: int
    bytes_down: int
    bytes_up: int
    passes: float
    seconds: float
    discloses: str


Reason = tuple[int, bool, float, Mapping[str, float]]
"""Why a client was selected or not: its id, whether it was, its score, and what the score is made of."""


@dataclass(frozen=True, eq=False)
class Reasons:
    """The reasons of one choice as columns; iterating makes a :data:`Reason` of each candidate on record, one at a time.

    Attributes:
        clients: ids [n].
        selected: whether each was selected [n].
        scores: of each, float64 [n].
        terms: what the scores are made of, each [n].
        strangers: ids of the selected that were no candidates; they follow, without a score.
    """

    clients: Indices
    selected: Sequence[bool]
    scores: Values
    terms: Mapping[str, Values]
    strangers: Indices

    def __iter__(self) -> Iterator[Reason]:
        names, none = list(self.terms), dict[str, float]()
        columns = [values.tolist() for values in self.terms.values()]
        each = (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))
        terms = each if names else itertools.repeat(none, len(self.clients))
        yield from zip(self.clients.tolist(), self.selected, self.scores.tolist(), terms, strict=True)
        for client in self.strangers.tolist():
            yield client, True, math.nan, none


@dataclass
class RoundRow:
    """Everything that is recorded of one round, besides the checkpoint. Accuracies are fractions, losses mean cross-entropies."""

    round: int
    available: int
    selected: int
    trained: int
    admitted: int
    simulated_time: float
    round_time: float
    steps: int
    local_accuracy: float
    train_loss: float
    note: str
    clients: list[ClientRow]
    decisions: Iterable[Reason]
    ledger: list[LedgerRow]
    wall: dict[str, float] = field(default_factory=dict)
    client_accuracy: Values | None = None
    validation_accuracy: float = math.nan
    validation_loss: float = math.nan
    test_accuracy: float = math.nan
    test_loss: float = math.nan
    class_accuracy: Sequence[float] = ()

    def add_validation(self, accuracy: float, loss: float) -> None:
        """The round's model on the server's validation set."""
        self.validation_accuracy, self.validation_loss = accuracy, loss

    def add_test(self, accuracy: float, loss: float, class_accuracy: Sequence[float]) -> None:
        """The round's model on the test set."""
        self.test_accuracy, self.test_loss, self.class_accuracy = accuracy, loss, class_accuracy


class Saved(NamedTuple):
    """A checkpoint on disk: its name and the SHA-256 of its bytes. It counts once a round that names it is committed."""

    file: str
    sha256: str


@dataclass(frozen=True)
class Portrait:
    """Who the clients of a run are, for pictures of its federation.

    Attributes:
        classes: names of the K classes.
        facts: one number a client [m]: ``samples``, ``held_out``, ``wrong_labels`` (a share), ``time`` (simulated, nominal work),
            ``sending`` (the part of it that is communication), ``presence`` (share of rounds); and ``counts`` of labels [m, K]
            unless the federation is huge. Empty for runs that were recorded before this was kept.
    """

    classes: tuple[str, ...] = ()
    facts: Mapping[str, "np.ndarray"] = field(default_factory=dict)
