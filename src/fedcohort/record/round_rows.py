"""The data types of the record: a round, its clients, decisions, costs and measures."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

import numpy as np

from fedcohort.core.arrays import Indices, Values

__all__ = ["CLIENT_COLUMNS", "KEPT", "ClientRow", "LedgerRow", "Portrait", "Reasons", "RoundRow", "Saved"]

KEPT = 1000
"""Largest number of candidates of one decision that are recorded: the selected clients, then the candidates with the best scores."""


@dataclass
class ClientRow:
    """One selected client of a round.

    Attributes:
        client: id of the client.
        status: admitted, declined, failed, late or diverged; ``detail`` gives the reason.
        num_samples: training samples of the client.
        steps: mini-batches that it trained on, also if its update did not arrive.
        duration: time that it needed, in the unit of ``round_time``, also beyond a deadline; NaN if it is unknown.
        weight: the update's share of the total weight of all admitted updates.
        loss: mean cross-entropy (or squared error) of its mini-batches during training; NaN without an update.
        accuracy: its accuracy on its training samples during the last local epoch, in [0, 1]; NaN without an update.
        coefficient: the factor with which the update entered the model, w + Σ c_i Δ_i; NaN if the algorithm has no such factor. With
            normalized weights and without damping it is ``weight``.
        reports: one column for each number that not every client reports, such as ``q_hat``.
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
    coefficient: float = math.nan


CLIENT_COLUMNS = frozenset({"round", *(each.name for each in fields(ClientRow))} - {"reports"})
"""The columns of :attr:`Run.clients` besides those of the numbers that not every client reports."""


@dataclass(frozen=True)
class LedgerRow:
    """Cost of one kind of exchange in a round.

    Attributes:
        kind: ``training``, or the name of a question.
        messages: number of messages, in both directions.
        bytes_down, bytes_up: uncompressed payload that the server sent to clients, and received from them.
        passes: forward passes over a client's training data, summed over clients; an epoch of training counts as three.
        seconds: wall time of the simulator.
        discloses: what the server learned about each client.
    """

    kind: str
    messages: int
    bytes_down: int
    bytes_up: int
    passes: float
    seconds: float
    discloses: str


@dataclass(frozen=True, eq=False)
class Reasons:
    """The decision of one round: a column for each fact about the recorded candidates.

    Attributes:
        clients: ids [n].
        selected: whether each candidate was selected [n].
        scores: score of each candidate, float64 [n].
        terms: terms of the scores, each [n].
        strangers: ids of selected clients that were not candidates; they are recorded last, without a score.
    """

    clients: Indices
    selected: Sequence[bool]
    scores: Values
    terms: Mapping[str, Values]
    strangers: Indices


@dataclass
class RoundRow:
    """Everything that is recorded of one round, except the checkpoint.

    The other attributes than those below are rows of other tables. With numeric labels, accuracies are R², and losses are squared
    errors.

    Attributes:
        round: the round, from 1; the index of the table.
        available, selected, trained, admitted: number of clients that got this far.
        simulated_time: simulated time at the end of the round; seconds of wall time if real machines trained.
        round_time: how long the round took, in the same unit.
        steps: mini-batches of all selected clients.
        test_accuracy, test_loss: accuracy in [0, 1] and mean cross-entropy of the new model on the test set; NaN if it was not tested.
        validation_accuracy, validation_loss: the same on the server's validation set.
        local_accuracy, train_loss: means of ``accuracy`` and ``loss`` over the clients that trained, each with its own model.
        class_accuracy: a list with the test accuracy of each class.
        note: what was special about the choice or the result, in words.
        own_measures: one column for each measure of ``measures.extra``, with its name.
    """

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
    decisions: Reasons
    ledger: list[LedgerRow]
    wall: dict[str, float] = field(default_factory=dict)
    client_accuracy: Values | None = None
    personal_accuracy: Values | None = None
    """[m, 2]: accuracy on each client's held-out data, before and after local epochs."""
    validation_accuracy: float = math.nan
    validation_loss: float = math.nan
    test_accuracy: float = math.nan
    test_loss: float = math.nan
    class_accuracy: Sequence[float] = ()
    own_measures: Mapping[str, float] = field(default_factory=dict)

    def add_validation(self, accuracy: float, loss: float) -> None:
        """Add the results of the round's model on the server's validation set."""
        self.validation_accuracy, self.validation_loss = accuracy, loss

    def add_test(self, accuracy: float, loss: float, class_accuracy: Sequence[float]) -> None:
        """Add the results of the round's model on the test set."""
        self.test_accuracy, self.test_loss, self.class_accuracy = accuracy, loss, class_accuracy


class Saved(NamedTuple):
    """A checkpoint on disk: its name and the SHA-256 of its bytes. It is valid once a round that refers to it is recorded."""

    file: str
    sha256: str


@dataclass(frozen=True)
class Portrait:
    """Facts about the clients of a run, for charts of its federation.

    Attributes:
        classes: names of the K classes.
        facts: arrays with one number per client [m]: ``samples``, ``held_out``, ``wrong_labels`` (a share), ``time`` (simulated, for
            nominal work), ``sending`` (the part of it that is communication), ``presence`` (share of rounds); and ``counts`` of labels
            [m, K] unless the federation is very large. Empty if the run was recorded by a version without these facts.
        names: the clients' names in the data, by number; empty if the data do not name them.
    """

    classes: tuple[str, ...] = ()
    facts: Mapping[str, "np.ndarray"] = field(default_factory=dict)
    names: tuple[str, ...] = ()

    @property
    def texts(self) -> dict[str, tuple[str, ...]]:
        """``classes``, and ``names`` if the data name the clients."""
        return {"classes": self.classes} | ({"names": self.names} if self.names else {})
