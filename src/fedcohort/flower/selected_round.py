"""One round of a deployment: the choice, the replies, the outcome, and what is recorded of it."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from torch import Tensor

from fedcohort.algorithms import Algorithm, ModelState, Update
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.chooser import Chooser
from fedcohort.chooser.argument_checks import at_most_one
from fedcohort.chooser.epochs_done import epochs_done
from fedcohort.core.arrays import Values
from fedcohort.core.errors import UsageError, shown
from fedcohort.core.tensor_sizes import num_bytes
from fedcohort.flower.federation import FlowerClients
from fedcohort.flower.replies import NUM_EXAMPLES, Checked, as_state, check_replies
from fedcohort.record import RoundRow
from fedcohort.rounds.client_outcomes import Tally
from fedcohort.rounds.ledger import Stopwatch
from fedcohort.rounds.round_facts import members, round_notes, round_row
from fedcohort.selection import Cohort
from fedcohort.selection.cohort_checks import admitted as admitted_by

__all__ = ["SelectedRound", "Weights", "weighing"]

Weights = Literal["n_selected", "uniform", "cohort", "unbiased"]


def weighing(weights: Weights) -> Algorithm:
    """The arithmetic of a weight mode."""
    if weights not in ("n_selected", "uniform", "cohort", "unbiased"):
        raise UsageError(f"weights = {weights!r}: valid are n_selected, uniform, cohort and unbiased")
    return FedAvg(weights=weights)


@dataclass(frozen=True)
class _Validated:
    """The results of the new model on the server's validation set."""

    accuracy: float
    loss: float = math.nan
    class_accuracy: Values = field(default_factory=lambda: np.zeros(0))
    losses: Values = field(default_factory=lambda: np.zeros(0))


class SelectedRound:
    """One round, from the choice of its clients to its record.

    Args:
        chooser: the strategy and its state.
        clients: the federation.
        arrays: the current model.
        weighing: how replies are weighted.
        trainable: names of the trainable arrays; None means all floating-point arrays.
        epochs: epochs of nominal local training, for the ledger.
        timeout: seconds that the server waits for replies.
        clock: seconds.
    """

    def __init__(
        self,
        chooser: Chooser,
        clients: FlowerClients,
        arrays: ArrayRecord,
        weighing: Algorithm,
        trainable: frozenset[str] | None,
        epochs: int,
        timeout: float,
        clock: Callable[[], float],
    ) -> None:
        self.chooser, self.clients, self.arrays = chooser, clients, arrays
        self.t = chooser.t + 1
        self._weighing, self._epochs, self._timeout, self._clock = weighing, epochs, timeout, clock
        start = as_state(arrays)
        self._infinite = {name: value for name, value in start.items() if not bool(value.isfinite().all())}
        self._start = self._with_zeros(start)
        floating = frozenset(name for name, value in self._start.items() if value.is_floating_point())
        self._trainable = floating if trainable is None else trainable
        self._watch = Stopwatch()
        self._messages: dict[int, Message] = {}
        self._available, self._sent_at, self._waited, self._note = 0, 0.0, 0.0, ""

    def select(self, grid: Grid) -> Cohort:
        """Let the strategy choose among the connected clients."""
        with self._watch.part("selection"):
            available = self.clients.present(grid)
            size = num_bytes([self._start])
            ask = self.clients.asking(grid, self.t, self.arrays)
            self.cohort = self.chooser.select(available, ask, model_bytes=size)
            self._available = len(self.chooser.available)
        self._tally = Tally(self.cohort, self._start, self._trainable, self.chooser.selector.needs)
        return self.cohort

    def sent(self, messages: Iterable[Message]) -> None:
        """Note the training messages, just before they are sent."""
        at = {self.clients.roster.node(client): client for client in self.cohort.clients.tolist()}
        of_node = {message.metadata.dst_node_id: message for message in messages}
        self._messages = {client: of_node[node] for node, client in at.items() if node in of_node}
        self._sent_at = self._clock()

    def received(self, replies: list[Message], seconds: Mapping[str, float], weight: str | None) -> list[Message]:
        """Check the replies; returns those that enter the model, in the order of the cohort, with their final weights.

        Args:
            replies: all replies, in any order.
            seconds: the time of each reply by the id of its message, if the server measured it.
            weight: name of the metric that the inner strategy weighs replies by.
        """
        self._waited = max(self._clock() - self._sent_at, 0.0)
        self._watch.seconds["training"] = self._waited
        with self._watch.part("aggregation"):
            checked = check_replies(self._messages, replies, self.arrays, weight, timeout=self._timeout)
            rows = {row.client: row for row in checked}
            reports = {client: self._report(client, rows.get(client)) for _, client in self._cohort()}
            used = [report.get("epochs", math.nan) for report in reports.values()]
            epochs = epochs_done(self.cohort, used, self._epochs).tolist()
            updates = [
                self._update(client, rows.get(client), seconds, weight, reports[client], epochs[i])
                for i, client in self._cohort()
            ]
            self._compute = {update.client: update.report.get("compute_time", math.nan) for update in updates}
            passed = admitted_by(self.chooser.selector, self._tally.arrived(updates))
            census = self.chooser.census
            known = members(self.cohort, census.num_samples, census.k, self.t, self._trainable)
            admitted = list(self._tally.admitted(passed, self._weighing, known))
            weights = {update.client: self._weighing.weigh(update, known) for update in admitted}
            self._tally.settle()
        return [
            self._weighted(rows[update.client], update, weights[update.client], weight)
            for update in admitted
            if weights[update.client] > 0
        ]

    def finish(self, validated: Mapping[str, object] | None) -> RoundRow:
        """Let the strategy learn from the outcome; returns the row of the record."""
        chooser, tally = self.chooser, self._tally
        found = None if validated is None else _of(validated)
        with self._watch.part("selection"):
            needed = found if "validation" in chooser.selector.needs else None
            outcome = tally.outcome(self.t, self._waited, needed)
            compute = np.array([self._compute.get(client, math.nan) for _, client in self._cohort()], np.float64)
            uploads = np.clip(outcome.durations - compute, 0.0, outcome.durations)
            chooser.observe(outcome, upload_times=uploads)
            tally.bill_reports(outcome)
        row = self._row()
        if found is not None:
            row.add_validation(found.accuracy, found.loss)
        return row

    def _cohort(self) -> list[tuple[int, int]]:
        return list(enumerate(self.cohort.clients.tolist()))

    def _report(self, client: int, row: Checked | None) -> dict[str, float]:
        """The numbers of a client's reply that it said it would report; none without an update."""
        if row is None or row.failure or row.late:
            return {}
        offered = self.clients.roster.about(client).reports
        return {name: value for name, value in row.metrics.items() if name in offered}

    def _update(
        self,
        client: int,
        row: Checked | None,
        seconds: Mapping[str, float],
        weight: str | None,
        report: dict[str, float],
        epochs: float,
    ) -> Update:
        """The reply of a client as an update, with the numbers that it reports and its epochs."""
        if row is None:
            return Update(client, 0, 0, {}, failure="the inner strategy sent it no message", passes=0.0)
        if row.failure or row.late:
            waited = self._waited if row.late else math.nan
            return Update(
                client, 0, 0, {}, failure=row.failure or None, late=row.late or None, duration=waited, passes=0.0
            )
        samples = row.metrics.get(weight or NUM_EXAMPLES, math.nan)
        known = int(self.chooser.census.num_samples[client])
        return Update(
            client=client,
            num_samples=int(samples) if math.isfinite(samples) else known,
            steps=int(row.metrics["steps"]) if math.isfinite(row.metrics.get("steps", math.nan)) else 0,
            state=self._with_zeros(row.state),
            report=report,
            passes=self.chooser.ledger.trained.get(client, 3.0 * epochs),
            work=epochs / self._epochs,
            duration=self._duration(row, seconds),
        )

    def _with_zeros(self, state: ModelState) -> ModelState:
        """A model with zeros in place of constants that have infinite numbers, such as the mask of an attention: a client that sends
        one back as it received it has not diverged. The inner strategy merges the arrays of the messages."""
        unchanged = [name for name, value in self._infinite.items() if _same(state.get(name), value)]
        return state | {name: torch.zeros_like(state[name]) for name in unchanged}

    def _duration(self, row: Checked, seconds: Mapping[str, float]) -> float:
        """Seconds from the message to the reply, as measured; otherwise by the times in the messages, at most what was waited."""
        assert row.message is not None
        sent, reply = self._messages[row.client].metadata, row.message.metadata
        measured = seconds.get(reply.reply_to_message_id)
        if measured is not None:
            return measured
        return min(max(reply.created_at - sent.created_at, 0.0), self._waited)

    def _weighted(self, row: Checked, update: Update, value: float, weight: str | None) -> Message:
        """The reply with its final weight in the metric that the inner strategy reads."""
        message = row.message
        assert message is not None
        if weight is None:
            if value != update.num_samples:
                self._note = "the inner strategy has no weights: those of the selection were not used"
            return message
        if value != row.metrics[weight]:
            name, metrics = next(iter(message.content.metric_records.items()))
            changed = {**metrics, weight: value}
            message.content = RecordDict({**message.content, name: MetricRecord(changed)})
        return message

    def _row(self) -> RoundRow:
        """The record of the round."""
        tally, cohort, ledger, reasons = self._tally, self.cohort, self.chooser.ledger, self.chooser.reasons
        assert reasons is not None
        ledger.training(
            cohort.clients, uploads=tally.uploads, up=tally.bytes_up, passes=tally.passes, seconds=self._waited,
            discloses=tally.disclosed,
        )  # fmt: skip
        return round_row(
            self.t, tally.rows, reasons, ledger.rows, available=self._available, time=self.chooser.clock, duration=self._waited,
            note=self._notes(), wall=self._watch.seconds | {"total": self._watch.total()},
        )  # fmt: skip

    def _notes(self) -> str:
        """What was special about the round, in words."""
        available, k = self._available, self.chooser.census.k
        short = not self.chooser.selector.variable_size and available < k
        notes = round_notes(self.cohort, self._tally.rows, available, k, short=short)
        return "; ".join(note for note in [*notes, self._tally.note, self._note, self.clients.take_notes()] if note)


def _same(value: Tensor | None, other: Tensor) -> bool:
    return value is not None and value.dtype == other.dtype and torch.equal(value, other)


def _of(validated: Mapping[str, Any]) -> _Validated:
    """The results that ``validate`` returned.

    Raises:
        UsageError: there is no accuracy, or something is no number.
    """
    if "accuracy" not in validated:
        raise UsageError(f"validate: returned {sorted(validated)}, without 'accuracy'")
    try:
        found = _Validated(
            float(validated["accuracy"]),
            float(validated.get("loss", math.nan)),
            np.asarray(validated.get("class_accuracy", ()), np.float64),
            np.asarray(validated.get("validation_losses", ()), np.float64),
        )
    except (TypeError, ValueError):
        raise UsageError(
            f"validate: returned {shown(dict(validated))}; must return the accuracy, a number, or a mapping with numbers"
        ) from None
    at_most_one("validate: accuracy", found.accuracy)
    at_most_one("validate: class_accuracy", float(np.nanmax(found.class_accuracy, initial=-math.inf)))
    return found
