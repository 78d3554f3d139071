"""Measures of one run that comparisons and summaries share."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcohort import measures
from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.measures import AccuracyOverClients, EarlyStop, Participation
from fedcohort.record import Run
from fedcohort.record.personal_results import personal_accuracy
from fedcohort.study.chance import Chance, chance_in
from fedcohort.study.continued_runs import without_round

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Cost",
    "KeepsMeasures",
    "Measured",
    "Personal",
    "after_last_tests",
    "bytes_per_round",
    "clients_with_data",
    "evenness",
    "level_below",
    "measured_of",
]


def after_last_tests(runs: Sequence[Run]) -> str:
    """After which round runs were tested last, in words; if none was tested, the last round that they have played."""
    tested = {int(t) for run in runs for t in run.rounds["test_accuracy"].dropna().index.to_numpy()[-1:]}
    tested = tested or {run.last_round for run in runs}
    if len(tested) == 1:
        return f"after round {min(tested)}"
    return f"after rounds {min(tested)} to {max(tested)}"


def level_below(accuracy: float) -> float:
    """An accuracy rounded down to two decimals: the default target of a run or a comparison that reaches it; NaN stays NaN."""
    if math.isnan(accuracy):
        return math.nan
    return math.floor(round(accuracy * 100, 6)) / 100


def evenness(counts: ArrayLike) -> Participation:
    """How evenly clients were selected, or admitted, from how often each was [m].

    If none ever was, it is not known how even their shares are, and only the coverage, which is 0, is no NaN:
    :func:`~fedcohort.measures.jain` gives 1, the value of a perfectly even choice.
    """
    found = measures.participation(counts)
    return found if found.coverage else Participation(math.nan, math.nan, math.nan, found.coverage)


def bytes_per_round(ledger: "pd.DataFrame", rounds: "pd.Index[int]") -> Values:
    """Bytes sent and received in each of the ``rounds``, float64 [n]; ``ledger`` is :attr:`Run.ledger`."""
    exchanged = _array(ledger["bytes_down"] + ledger["bytes_up"])
    numbers, of_rows = rounds.to_numpy(np.int64), ledger["round"].to_numpy(np.int64)
    sums = np.zeros(1 + max(int(numbers.max(initial=0)), int(of_rows.max(initial=0))))
    np.add.at(sums, of_rows, exchanged)
    of_rounds: Values = sums[numbers]
    return of_rounds


def clients_with_data(accuracies: "pd.DataFrame", samples: Indices | None, clients: int) -> int:
    """The number of clients with data: those in the last of :attr:`Run.client_accuracy`, or else with ``samples``, or all."""
    known = int(accuracies.iloc[-1].notna().sum()) if len(accuracies) else 0
    return known or (clients if samples is None else int((samples > 0).sum()))


class Cost(NamedTuple):
    """The cost of reaching a target accuracy; inf if it was not reached, NaN if that is not known."""

    rounds: float
    time: float
    bytes: float


class Personal(NamedTuple):
    """Accuracy of personal models: mean over clients, mean over the 10% with the lowest, and mean gain over the global model; NaN if
    they were not measured. The score of a regression is −∞ if a personal model diverged."""

    accuracy: float
    worst: float
    gain: float


class Measured:
    """Measures of one run, from its record; a measure is computed once. Accuracies are fractions on the test set; NaN is unknown.

    Args:
        run: the run.

    Raises:
        UsageError: the run has no finished round, or its database is damaged.
    """

    def __init__(self, run: Run) -> None:
        self.run, self.experiment = run, run.described
        self.rounds = run.rounds
        if self.rounds.empty:
            raise UsageError(without_round(run))
        self.num_rounds = len(self.rounds)

    @property
    def clients(self) -> "pd.DataFrame":
        """See :attr:`Run.clients`; unlike measures, it is not kept, because it is large."""
        return self.run.clients

    @property
    def ledger(self) -> "pd.DataFrame":
        """See :attr:`Run.ledger`; it is not kept."""
        return self.run.ledger

    def series(self, column: str) -> Values:
        """A column of :attr:`Run.rounds`, float64 [n]."""
        return _array(self.rounds[column])

    @cached_property
    def tested(self) -> bool:
        """Whether the test accuracy is known in any round."""
        return bool(np.isfinite(self.series("test_accuracy")).any())

    @cached_property
    def without_score(self) -> NDArray[np.bool_]:
        """In which rounds the model of a regression was tested and had diverged: it has no finite loss, and no R² [n]."""
        played, every = self.rounds.index.to_numpy(np.int64), self.experiment.measures.evaluate_every
        tested = (played % every == 0) | (played == self.experiment.rounds)
        simulated_numbers = self.run.labels == "numbers" and self.run.clock == "simulated"
        known = np.isfinite(self.series("test_loss")) | np.isfinite(self.series("test_accuracy"))
        found: NDArray[np.bool_] = tested & ~known & simulated_numbers
        return found

    @property
    def accuracy(self) -> float:
        """Accuracy after the last round; NaN if no round was tested, as in a Flower run that measures a loss only, and for a
        regression whose last model diverged."""
        known = self.tested and not self.without_score[-1]
        return measures.final_accuracy(self.series("test_accuracy")) if known else math.nan

    @cached_property
    def class_accuracy(self) -> Values:
        """Accuracy of each class in the last round in which it was measured, float64 [K]; empty if it was not recorded."""
        rows = [row for row in self.rounds["class_accuracy"].tolist() if row]
        return np.array(rows[-1] if rows else [], dtype=np.float64)

    @property
    def best_accuracy(self) -> float:
        """The highest accuracy of all rounds."""
        return measures.best_accuracy(self.series("test_accuracy")) if self.tested else math.nan

    @cached_property
    def early_stop(self) -> EarlyStop | None:
        """What early stopping with ``measures.patience`` would give; None without validation."""
        validated = self.series("validation_accuracy")
        if not (self.tested and np.isfinite(validated).any()):
            return None
        return measures.early_stop(validated, self.series("test_accuracy"), self.experiment.measures.patience)

    @property
    def early_stop_accuracy(self) -> float:
        """Accuracy in the round with the best validation accuracy before early stopping would have ended the run."""
        return self.early_stop.accuracy if self.early_stop is not None else math.nan

    @property
    def local_accuracy(self) -> float:
        """Mean training accuracy of the clients of the last round in which any trained, each with its own model."""
        local = self.series("local_accuracy")
        return measures.final_accuracy(local) if np.isfinite(local).any() else math.nan

    @cached_property
    def over_clients(self) -> AccuracyOverClients:
        """The last measured accuracy on clients' own data, see :attr:`Run.client_accuracy`."""
        by_client = self._client_accuracy
        return measures.over_clients(by_client.iloc[-1].to_numpy(np.float64) if len(by_client) else [])

    @cached_property
    def clients_with_data(self) -> int:
        """See :func:`clients_with_data`."""
        return clients_with_data(self._client_accuracy, self._samples, self.num_clients)

    @cached_property
    def _client_accuracy(self) -> "pd.DataFrame":
        return self.run.client_accuracy

    @cached_property
    def _samples(self) -> Indices | None:
        """The number of samples of each client; None if it was not recorded."""
        samples: Indices | None = self.run.portrait.facts.get("samples")
        return samples

    @cached_property
    def own_measures(self) -> dict[str, float]:
        """The measures of ``measures.extra`` in the last evaluated round, by name."""
        table = self.run.own_measures
        return {} if table.empty else {str(name): float(value) for name, value in table.iloc[-1].items()}

    @property
    def simulated_time(self) -> float:
        """Simulated time of all rounds; seconds of wall time if that is the clock of the run."""
        return float(self.series("simulated_time")[-1])

    @property
    def bytes_per_round(self) -> Values:
        """Bytes sent and received in each round, float64 [n]."""
        return self._exchanges[0]

    @property
    def bytes(self) -> float:
        """Bytes sent and received in all rounds."""
        return float(self.bytes_per_round.sum())

    @property
    def client_passes(self) -> float:
        """Forward passes over a client's training data, summed over clients."""
        return self._exchanges[1]

    @cached_property
    def _exchanges(self) -> tuple[Values, float]:
        """Bytes of each round, and the passes of all clients."""
        ledger = self.ledger
        return bytes_per_round(ledger, self.rounds.index), float(ledger["passes"].sum())

    @cached_property
    def wall_seconds(self) -> dict[str, float]:
        """Wall time of the simulator by part of a round; ``total`` is that of whole rounds."""
        return {str(part): float(seconds) for part, seconds in self.run.wall.sum().items()}

    @cached_property
    def personal(self) -> Personal:
        """The last measured accuracy of the clients' personal models."""
        frame = personal_accuracy(self.run).loc[: self.num_rounds]
        if frame.empty:
            return Personal(math.nan, math.nan, math.nan)
        last = frame.iloc[-1]
        before, after = _array(last["before"]), _array(last["after"])
        if np.isnan(after).all():
            return Personal(math.nan, math.nan, math.nan)
        both = np.isfinite(before) | np.isfinite(after)  # −∞ before and after is no gain that is known
        gain = float(np.nanmean(after[both] - before[both])) if both.any() else math.nan
        return Personal(float(np.nanmean(after)), measures.worst_accuracy(after), gain)

    @property
    def num_clients(self) -> int:
        """Number of clients m."""
        return self.experiment.federation.clients

    @property
    def diverged(self) -> int:
        """Number of updates that had NaN or infinite entries and were dropped."""
        return self._of_clients.statuses.get("diverged", 0)

    @property
    def updates(self) -> int:
        """Number of updates that the server received: those of clients that trained, and those that diverged."""
        return sum(self._of_clients.statuses.get(status, 0) for status in ("admitted", "declined", "diverged"))

    @property
    def selected(self) -> Participation:
        """How evenly clients were selected, see :func:`evenness`."""
        return self._of_clients.selected

    @property
    def admitted(self) -> Participation:
        """How evenly the updates of clients were admitted."""
        return self._of_clients.admitted

    @cached_property
    def _of_clients(self) -> "_OfClients":
        counts = self.run.query(
            f"SELECT client, status, COUNT(*) FROM clients WHERE round <= {self.num_rounds} GROUP BY client, status"
        )
        statuses = Counter[str]()
        for _, status, number in counts:
            statuses[status] += number
        admitted = [row for row in counts if row[1] == "admitted"]
        return _OfClients(statuses, evenness(self._counts(counts)), evenness(self._counts(admitted)))

    def selected_clients(self) -> Indices:
        """Round and client of each selection, ordered by round and client, int64 [selections, 2]."""
        pairs = self.run.query(
            f"SELECT round, client FROM clients WHERE round <= {self.num_rounds} ORDER BY round, client"
        )
        return np.array(pairs, dtype=np.int64).reshape(-1, 2)

    @cached_property
    def chance(self) -> Chance:
        """What uniform selection of as many of the available clients gives in each round."""
        return chance_in(self.experiment, self._samples, self.rounds)

    def cost_of(self, target: float) -> Cost:
        """Rounds, simulated time and bytes until the test accuracy first reached ``target``; NaN if either is missing. A regression in
        which every tested model diverged did not reach it."""
        if not (self.tested or self.without_score.any()) or math.isnan(target):
            return Cost(math.nan, math.nan, math.nan)
        tested = self.series("test_accuracy")
        return Cost(
            measures.rounds_to(tested, target),
            measures.time_to(tested, self.series("simulated_time"), target),
            measures.bytes_to(tested, self.bytes_per_round, target),
        )

    def _counts(self, counts: Sequence[tuple[int, str, int]]) -> Indices:
        """How often each client is counted, from rows with its id and a number [m]."""
        found: Indices = np.zeros(max(self.num_clients, 1 + max((row[0] for row in counts), default=0)), dtype=np.int64)
        for client, _, number in counts:
            found[client] += number
        return found


class _OfClients(NamedTuple):
    """What is computed from the table of clients: the number of rows with each status, and how evenly clients take part."""

    statuses: Mapping[str, int]
    selected: Participation
    admitted: Participation


def _array(column: "pd.Series[Any]") -> Values:
    return column.to_numpy(np.float64)


class KeepsMeasures(Run):
    """A finished run that keeps its measures, for pages that are made again and again."""

    @cached_property
    def measured(self) -> Measured:
        """The measures of the run."""
        return Measured(self)


def measured_of(run: Run) -> Measured:
    """The measures of a run: those that it keeps, or new ones."""
    return run.measured if isinstance(run, KeepsMeasures) else Measured(run)
