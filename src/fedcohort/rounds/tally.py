"""What became of each selected client, gathered as the updates stream by."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from fedcohort.algorithms import Algorithm, Members, ModelState, Update
from fedcohort.algorithms.base import LARGE
from fedcohort.algorithms.updates import is_finite
from fedcohort.core.arrays import Values
from fedcohort.record import ClientRow
from fedcohort.selection import Cohort, Outcome
from fedcohort.training.forward import Evaluation

__all__ = ["Tally"]

ALWAYS = frozenset({"loss", "square_loss", "samples", "steps", "accuracy"})
"""What is measured of every client that trains; it is sent, and costs 4 bytes a number, where the strategy asks for it. What else a
client reports always costs that, and is kept in the record."""


MEASURED = "test_"
"""How the names of reports begin that no client sends and no strategy sees: a simulation measures them on the server's test set."""


class Tally:
    """What became of each selected client, gathered as the updates stream by.

    Args:
        cohort: the choice.
        start: the model the clients received.
        trainable: names that norms of updates are taken over.
        needs: what the strategy wants to see of updates (``update_norm``, ``update``).
    """

    def __init__(self, cohort: Cohort, start: ModelState, trainable: frozenset[str], needs: frozenset[str]) -> None:
        self.cohort = cohort
        self.rows = [ClientRow(int(client), "failed", "no answer") for client in cohort.clients]
        self.bytes_up = self.uploads = 0
        self.passes = 0.0
        self.note = ""
        self._position = {int(client): i for i, client in enumerate(cohort.clients)}
        self._reports: dict[str, list[tuple[int, float]]] = {}
        self._updates: dict[int, Values] = {}
        self._start, self._trainable, self._needs = start, sorted(trainable), needs
        self._worked_out: set[str] = set()  # by the server, from updates
        self._read: set[str] = set()

    def arrived(self, updates: Iterable[Update]) -> Iterator[Update]:
        """Let finite results pass; write down clients that failed or were late, and drop updates with NaN or ±∞ (R4)."""
        for update in updates:
            row = self.rows[self._position[update.client]]
            row.num_samples, row.steps, row.duration = update.num_samples, update.steps, update.duration
            self.passes += update.passes
            if update.failure is not None:
                row.status, row.detail = "failed", update.failure
                continue
            if update.late is not None:
                row.status, row.detail = "late", update.late
                continue
            if not is_finite(update):
                self.bytes_up, self.uploads = self.bytes_up + update.num_bytes, self.uploads + 1
                row.status, row.detail = "diverged", "its update has NaN or infinite entries and was dropped"
                continue
            row.status, row.detail = "declined", ""
            row.loss = update.report.get("loss", math.nan)
            row.accuracy = update.report.get("accuracy", math.nan)
            self._look_at(update)
            yield update

    def admitted(self, updates: Iterable[Update], algorithm: Algorithm, members: Members) -> Iterator[Update]:
        """Write down who enters the model, and with which weight."""
        largest = 0.0
        for update in updates:
            row = self.rows[self._position[update.client]]
            row.status, row.weight = "admitted", algorithm.weigh(update, members)
            self.uploads += 1
            self.bytes_up += update.num_bytes  # whoever is declined was told before it sent its model
            largest = max(largest, row.weight)
            yield update
        if algorithm.weights in LARGE and largest > 0:
            self.note = f"largest weight {largest:.4g}"

    @property
    def disclosed(self) -> str:
        """What the server learned of clients that trained, in words."""
        more = sorted({name for row in self.rows for name in row.reports if self._is_sent(name)} | self._read)
        return ", ".join(["its update and number of samples", *more])

    def settle(self, changed: Mapping[int, float]) -> None:
        """Weights, or what the algorithm ``changed`` of them in the end, become shares of their sum."""
        for row in self.having("admitted"):
            row.weight = changed.get(row.client, row.weight)
        total = sum(row.weight for row in self.rows)
        for row in self.rows:
            row.weight = row.weight / total if total > 0 else 0.0

    def having(self, *statuses: str) -> list[ClientRow]:
        """The rows with one of these statuses."""
        return [row for row in self.rows if row.status in statuses]

    def heard(self, outcome: Outcome) -> None:
        """What the strategy has asked for of that which is measured of everybody was sent."""
        self._read = set(outcome.billed & ALWAYS & self._reports.keys())
        self.bytes_up += 4 * sum(len(self._reports[name]) for name in self._read)

    def _is_sent(self, name: str) -> bool:
        return not name.startswith(MEASURED) and name not in self._worked_out

    def outcome(self, t: int, duration: float, validation: Evaluation | None) -> Outcome:
        """What the strategy is told; None without validation."""
        n = len(self.cohort)
        reports: dict[str, Values] = {}
        for name, pairs in self._reports.items():
            reports[name] = np.full(n, np.nan)
            for position, value in pairs:
                reports[name][position] = value
        if self._updates:
            width = len(next(iter(self._updates.values())))
            reports["update"] = np.full((n, width), np.nan)
            for position, values in self._updates.items():
                reports["update"][position] = values
        told: dict[str, Any] = {}
        if validation is not None:
            told = {
                "accuracy": validation.accuracy,
                "class_accuracy": validation.class_accuracy,
                "validation_losses": validation.losses,
            }
        return Outcome(
            t=t,
            cohort=self.cohort,
            trained=np.array([row.status in ("admitted", "declined") for row in self.rows], dtype=bool),
            admitted=np.array([row.status == "admitted" for row in self.rows], dtype=bool),
            reports=reports,
            durations=np.array([_known(row, duration) for row in self.rows], dtype=np.float64),
            duration=duration,
            **told,
        )

    def _look_at(self, update: Update) -> None:
        position = self._position[update.client]
        report = dict(update.report)
        if self._needs & {"update_norm", "update"}:
            difference = self._difference(update)
            if "update_norm" not in report:  # a client that sends a part says how large the whole is
                report["update_norm"] = float(np.linalg.norm(difference))
                self._worked_out.add("update_norm")
            if "update" in self._needs:
                self._updates[position] = difference
        row = self.rows[position]
        row.reports = {name: value for name, value in report.items() if name not in ALWAYS}
        for name in [name for name in report if name.startswith(MEASURED)]:  # for the record alone
            del report[name], update.report[name]
        self.bytes_up += 4 * sum(self._is_sent(name) for name in row.reports)
        for name, value in report.items():
            self._reports.setdefault(name, []).append((position, value))

    def _difference(self, update: Update) -> Values:
        parts = [
            (update.state[name].double() - self._start[name].double()).flatten().cpu().numpy()
            for name in self._trainable
        ]
        return np.concatenate(parts)


def _known(row: ClientRow, waited: float) -> float:
    """What the server knows of a client's time: nothing if it failed; at least as long as it waited if the client was late."""
    if row.status == "failed":
        return math.nan
    return waited if row.status == "late" else row.duration
