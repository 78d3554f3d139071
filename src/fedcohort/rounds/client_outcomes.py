"""What happened to each selected client of a round, collected while the updates arrive."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fedcohort.algorithms import Algorithm, Members, ModelState, Update
from fedcohort.algorithms.base import LARGE_WEIGHT_MODES, coefficients_of
from fedcohort.algorithms.updates import is_finite
from fedcohort.core.arrays import Values
from fedcohort.core.errors import UsageError, shown
from fedcohort.core.given_values import as_float
from fedcohort.core.sums import for_sums
from fedcohort.core.words.report_names import MEASURED_BY_SERVER, NUMBER_OF_SAMPLES, TRAINING
from fedcohort.record import ClientRow
from fedcohort.selection import Cohort, Outcome

if TYPE_CHECKING:
    from _collections_abc import dict_items, dict_values

__all__ = ["ALWAYS", "WEIGHT_0", "Tally", "WatchedReport"]

WEIGHT_0, LEFT_OUT = "its weight is 0", "the algorithm left its update out of the model"
"""Why an update that the strategy admitted did not enter the model: its weight before aggregation, or the one after it."""

ALWAYS = frozenset({"loss", "square_loss", "samples", "steps", "accuracy"})
"""Reports that are measured for every client that trains. They are sent, and billed at 4 bytes per number, only if the strategy or the
algorithm reads them. All other reports are always sent and billed, and are recorded."""


class Validated(Protocol):
    """The results of the new model on the server's validation set; :class:`fedcohort.selection.Outcome` describes them."""

    @property
    def accuracy(self) -> float:
        """Accuracy in [0, 1]."""

    @property
    def class_accuracy(self) -> Values:
        """Accuracy per class, float64 [K]."""

    @property
    def losses(self) -> Values:
        """Cross-entropy of each sample, float64 [n]."""


class WatchedReport(dict[str, float]):
    """The numbers that a client reports. It notes which of them are read, because clients have to send these.

    Args:
        report: the numbers by name.
        read: gets the names that are read.
    """

    def __init__(self, report: Mapping[str, float], read: set[str]) -> None:
        super().__init__(report)
        self._noted = read

    def __getitem__(self, name: str) -> float:
        self._noted.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None, /) -> Any:
        """The number with this name, or ``default``."""
        self._noted.add(name)
        return super().get(name, default)

    def pop(self, name: str, *default: Any) -> Any:
        """Remove and return the number with this name."""
        self._noted.add(name)
        return super().pop(name, *default)

    def values(self) -> "dict_values[str, float]":
        """All numbers."""
        self._noted.update(self)
        return super().values()

    def items(self) -> "dict_items[str, float]":
        """All names and numbers."""
        self._noted.update(self)
        return super().items()

    def __iter__(self) -> Iterator[str]:  # so that dict(report) and {**report} read the numbers one by one
        return super().__iter__()


class Tally:
    """What happened to each selected client of a round, collected while the updates arrive.

    Args:
        cohort: the selected clients.
        start: the model that the clients received.
        trainable: names of the parameters that norms of updates include.
        needs: what the strategy needs of updates (``update_norm``, ``update``).
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
        self._derived: set[str] = set()  # reports that the server computes from updates
        self._sent_more = ""  # what clients send for the algorithm besides their updates, in words
        self._read: set[str] = set()
        self._read_of_updates: set[str] = set()

    def arrived(self, updates: Iterable[Update]) -> Iterator[Update]:
        """Pass on finite updates; note clients that failed or were late, and drop updates with NaN or ±∞ (R4).

        The reports of the updates note which of their numbers are read.
        """
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
            self._collect_reports(update)
            update.report = WatchedReport(update.report, self._read_of_updates)
            yield update

    def admitted(self, updates: Iterable[Update], algorithm: Algorithm, members: Members) -> Iterator[Update]:
        """Note the clients that enter the model, and their weights."""
        largest, card = 0.0, getattr(algorithm, "card", None)
        more = "" if card is None or card.discloses == "nothing" else card.discloses
        self._sent_more = more.replace(",", ";")  # commas separate what the record says of a round
        for update in updates:
            row = self.rows[self._position[update.client]]
            row.status, row.weight = "admitted", _weight(algorithm, update, members)
            self.uploads += 1
            self.bytes_up += update.num_bytes  # a declined client is told so before it sends its model
            largest = max(largest, row.weight)
            yield update
        if algorithm.weights in LARGE_WEIGHT_MODES and largest > 0:
            self.note = f"largest weight {largest:.4g}"

    @property
    def disclosed(self) -> str:
        """What the server learned about clients that trained, in words; clients that were declined keep their updates."""
        more = sorted({name for row in self.rows for name in row.reports if self._is_sent(name)} | self._read)
        sent = [TRAINING, *([self._sent_more] if self._sent_more else [])] if self.uploads else [NUMBER_OF_SAMPLES]
        return ", ".join([*sent, *more])

    def settle(self, algorithm: Algorithm | None = None) -> None:
        """Replace the weights that the ``algorithm`` changed at the end of the round, note the coefficients with which the updates
        entered the model, and normalize the weights to sum to 1. Clients whose updates have the weight 0 are declined: such an update
        does not change the model.

        Raises:
            UsageError: the algorithm of a user returns no numbers by client.
        """
        changed = {} if algorithm is None else self._weigh_again(algorithm)
        for row in self.having("admitted"):
            if row.weight == 0:
                row.status, row.detail = "declined", LEFT_OUT if row.client in changed else WEIGHT_0
        total = sum(row.weight for row in self.rows)
        for row in self.rows:
            row.weight = row.weight / total if total > 0 else 0.0

    def _weigh_again(self, algorithm: Algorithm) -> Mapping[int, float]:
        """Note the final weights and the coefficients of the admitted updates; returns the weights that the algorithm changed."""
        changed = _by_client(algorithm, "weighed", algorithm.weighed())
        admitted = self.having("admitted")
        for row in admitted:
            row.weight = changed.get(row.client, row.weight)
        weights = {row.client: row.weight for row in admitted}
        coefficients = _by_client(algorithm, "coefficients", coefficients_of(algorithm, weights))
        for row in admitted:
            row.coefficient = coefficients.get(row.client, math.nan)
        return changed

    def having(self, *statuses: str) -> list[ClientRow]:
        """The rows with one of these statuses."""
        return [row for row in self.rows if row.status in statuses]

    def bill_reports(self, outcome: Outcome) -> None:
        """Bill the always-measured reports that were read: by the strategy, here or of an update, or by the algorithm."""
        self._read = set((outcome.billed | self._read_of_updates) & ALWAYS & self._reports.keys())
        self.bytes_up += 4 * sum(len(self._reports[name]) for name in self._read)

    def check_needs(self, outcome: Outcome, strategy: str) -> None:
        """Refuse a strategy that reads updates which it has not declared: it would learn from NaN.

        Raises:
            UsageError: it did; the message says what to declare.
        """
        available = self._needs | self._reports.keys() | ({"update_norm"} if "update" in self._needs else set())
        missing = sorted(outcome.billed & {"update", "update_norm"} - available)
        if missing:
            raise UsageError(
                f"{strategy}.observe reads {missing[0]!r}, which clients' updates are not kept for; declare needs = "
                f"frozenset({{{missing[0]!r}}})"
            )

    def _is_sent(self, name: str) -> bool:
        return not name.startswith(MEASURED_BY_SERVER) and name not in self._derived

    def outcome(self, t: int, duration: float, validation: Validated | None) -> Outcome:
        """The outcome of the round as the strategy sees it; ``validation`` is None if the strategy does not need it."""
        n = len(self.cohort)
        reports: dict[str, Values] = {}
        for name, pairs in self._reports.items():
            values = [math.nan] * n
            for position, value in pairs:
                values[position] = value
            reports[name] = np.array(values, dtype=np.float64)
        if "update" in self._needs:
            width = sum(self._start[name].numel() for name in self._trainable)  # also in a round without any update
            reports["update"] = np.full((n, width), np.nan)
            for position, update in self._updates.items():
                reports["update"][position] = update
        return Outcome(
            t=t,
            cohort=self.cohort,
            trained=np.array([row.status in ("admitted", "declined") for row in self.rows], dtype=bool),
            admitted=np.array([row.status == "admitted" for row in self.rows], dtype=bool),
            reports=reports,
            durations=np.array([_known(row, duration) for row in self.rows], dtype=np.float64),
            duration=duration,
            accuracy=math.nan if validation is None else validation.accuracy,
            class_accuracy=np.zeros(0) if validation is None else validation.class_accuracy,
            validation_losses=np.zeros(0) if validation is None else validation.losses,
        )

    def _collect_reports(self, update: Update) -> None:
        """Store the numbers that a client reports, and those that the server derives from its update."""
        position = self._position[update.client]
        report = dict(update.report)
        if self._needs & {"update_norm", "update"}:
            difference = self._difference(update)
            # a client that sends only a part of its update reports the norm of the whole update
            if "update_norm" not in report:
                report["update_norm"] = float(np.linalg.norm(difference))
                self._derived.add("update_norm")
            if "update" in self._needs:
                self._updates[position] = difference
        row = self.rows[position]
        row.reports = {name: value for name, value in report.items() if name not in ALWAYS}
        for name in row.reports:
            if name.startswith(MEASURED_BY_SERVER):  # only for the record
                del report[name], update.report[name]
            self.bytes_up += 4 * self._is_sent(name)
        for name, value in report.items():
            self._reports.setdefault(name, []).append((position, value))

    def _difference(self, update: Update) -> Values:
        """The update as one vector: trained minus received parameters, float64 [P]."""
        parts = [
            (for_sums(update.state[name]) - for_sums(self._start[name])).flatten().cpu().double().numpy()
            for name in self._trainable
        ]
        return np.concatenate(parts)


def _weight(algorithm: Algorithm, update: Update, members: Members) -> float:
    """The weight of an update before normalization.

    Raises:
        UsageError: the algorithm of a user gives no number, or a negative one.
    """
    given: object = algorithm.weigh(update, members)
    weight = as_float(given)
    if weight is None or not 0 <= weight < math.inf:
        raise UsageError(
            f"{type(algorithm).__name__}.weigh returned {shown(given)} for client {update.client}; it must return a number of at "
            "least 0"
        )
    return weight


def _by_client(algorithm: Algorithm, hook: str, returned: object) -> Mapping[int, float]:
    """What a hook of the algorithm returned, if it is a number for each client that it names, and final weights are weights.

    Raises:
        UsageError: it is something else, as the algorithm of a user may return.
    """
    where = f"{type(algorithm).__name__}.{hook}"
    if not isinstance(returned, Mapping):
        raise UsageError(
            f"{where} returned {shown(returned)}; it must return a dictionary of numbers by client, or an empty one"
        )
    numbers: dict[int, float] = {}
    for client, value in returned.items():
        number = as_float(value)
        if number is None or (hook == "weighed" and not 0 <= number < math.inf):
            kind = "numbers of at least 0" if hook == "weighed" else "numbers"
            raise UsageError(f"{where} returned {shown(value)} for client {shown(client)}; it must return {kind}")
        numbers[client] = number
    return numbers


def _known(row: ClientRow, waited: float) -> float:
    """The duration that the server knows for a client: NaN if it failed, and the time that the server waited if it was late."""
    if row.status == "failed":
        return math.nan
    return waited if row.status == "late" else row.duration
