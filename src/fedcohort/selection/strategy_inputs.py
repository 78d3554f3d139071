"""What a strategy receives: the census before the first round, the round when it chooses, and the outcome afterwards."""

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, field
from difflib import get_close_matches
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedcohort.core.arrays import Indices, Values, read_only
from fedcohort.core.errors import UsageError
from fedcohort.selection.cohort import Cohort
from fedcohort.selection.draws import successive
from fedcohort.selection.questions import Question
from fedcohort.selection.ranking import top

__all__ = ["Census", "Outcome", "Reported", "Round", "epochs_used"]


@dataclass(frozen=True)
class Census:
    """What the server knows about the clients before the first round.

    Attributes:
        num_samples: training samples of each client, int64 [m].
        num_classes: number of classes K.
        k: number of clients to select per round; if it changes (``selection.k_steps``), that of the first round.
        histogram: label counts, int64 [m, K]; None unless the strategy declares ``needs = {"histogram"}``.
        epochs: local epochs E of nominal work.
        num_parameters: trainable parameters P of the model, the length of an update; 0 if unknown.
        batch_size: samples in a mini-batch of local training (B); 0 means all samples of the client.
        rounds: number of rounds of the run (n); 0 if unknown.
    """

    num_samples: Indices
    num_classes: int
    k: int
    histogram: Indices | None = None
    epochs: int = 1
    num_parameters: int = 0
    batch_size: int = 32
    rounds: int = 0

    @property
    def num_clients(self) -> int:
        """Number of clients m."""
        return len(self.num_samples)


Entry = TypeVar("Entry", bound=np.generic)


@dataclass(frozen=True)
class Round:
    """What a strategy sees when it chooses.

    The arrays of times are read-only, and the server updates them in place after ``select``: copy what you want to keep.

    Attributes:
        t: round number, from 1.
        k: number of clients to choose, at most ``len(available)``. With over-commitment, this is more than the server waits for.
        available: ids of the available clients, ascending, int64; read-only.
        rng: random generator of this round. It depends only on the seed and the round, not on earlier draws.
        clock: simulated time so far.
        durations: last known time of each client for a round of nominal work, float64 [m]; NaN if never measured. For a client that
            was late, the time that the server waited for it (divided by the work that was requested, if that was more than nominal),
            unless a longer time was already known. The array changes when times are measured; copy it to keep it.
        ask: ``ask(question, clients)`` returns float64 [len(clients)] (or [len(clients), numbers]), with NaN for a missing answer.
        compute_times, upload_times: the computation and communication (down and up) parts of ``durations``, float64 [m]; NaN if
            never measured. They are those of the last time that the client was not late.
        notes: what an edge rule (R4) changed in this choice, in words; stored in the record.
    """

    t: int
    k: int
    available: Indices
    rng: np.random.Generator
    clock: float
    durations: Values
    ask: Callable[[Question, Indices], Values]
    compute_times: Values = field(default_factory=lambda: np.zeros(0))
    upload_times: Values = field(default_factory=lambda: np.zeros(0))
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        object.__setattr__(self, "available", read_only(self.available))
        for name in ("compute_times", "upload_times"):
            if len(getattr(self, name)) != len(self.durations):
                object.__setattr__(self, name, np.full(len(self.durations), np.nan))

    def of(self, values: NDArray[Entry]) -> NDArray[Entry]:
        """The rows of ``values`` [m, …] that belong to the available clients, read-only; not copied if all clients are available."""
        rows = values.view() if len(self.available) == len(values) else values[self.available]
        rows.flags.writeable = False
        return rows

    def sample(self, count: int, among: Indices | None = None, probabilities: Values | None = None) -> Indices:
        """Draw ``count`` distinct clients from ``among`` (default: all available), uniformly or by successive weighted draws."""
        pool = self.available if among is None else among
        return self.rng.choice(pool, size=min(count, len(pool)), replace=False, p=probabilities)

    def candidates(self, count: int | None) -> Indices:
        """``count`` available clients (but at least k), drawn uniformly; all of them if ``count`` is None or there are no more."""
        wanted = len(self.available) if count is None else max(count, self.k)
        return self.available if wanted >= len(self.available) else self.sample(wanted)

    def draw(self, weights: Values, count: int | None = None, among: Indices | None = None) -> Indices:
        """Draw ``count`` (default: k) distinct clients from ``among`` (default: all available), one by one ∝ weight.

        The result is in the order of the draws. ``weights`` is aligned with ``among``; clients without a weight (0 or less, or NaN)
        come last, in random order.
        """
        pool, weights = self.available if among is None else among, np.asarray(weights)
        _check_aligned(weights, pool, "weights")
        return pool[successive(weights, self.k if count is None else count, self.rng)]

    def top(self, scores: Values, count: int | None = None, among: Indices | None = None) -> Indices:
        """The ``count`` (default: k) clients of ``among`` (default: all available) with the highest scores, best first.

        ``scores`` is aligned with ``among``. Ties are random (R2), and a NaN score is selected with probability count/n (R4).
        """
        pool, scores = self.available if among is None else among, np.asarray(scores)
        count = self.k if count is None else count
        _check_aligned(scores, pool, "scores")
        if 0 < count < len(pool) and np.isnan(scores.max()):
            unknown = np.count_nonzero(np.isnan(scores))
            self.notes.append(
                f"{unknown} of {len(pool)} scores are NaN: these clients are selected with probability k/n"
            )
        return pool[top(scores, count, self.rng)]


def _check_aligned(values: Values, pool: Indices, name: str) -> None:
    """Refuse scores or weights that do not belong to the clients: the others would be left out without a word."""
    if np.shape(values) != np.shape(pool):
        raise UsageError(
            f"round.{'top' if name == 'scores' else 'draw'}: {name} with shape {list(np.shape(values))} for {len(pool)} clients; "
            "give one for each"
        )


@dataclass(frozen=True)
class Outcome:
    """The result of a round. Arrays are aligned with ``cohort.clients``.

    The server passes ``reports``, name → float64 [n]; a strategy can read them with :meth:`billed_report` only.

    Attributes:
        t: round number.
        cohort: the strategy's choice, as it was carried out.
        trained: True for clients with a finite update that came back, bool [n].
        admitted: True for clients with an update that entered the model, bool [n].
        billed_report(name): one number that each client sent with its update, float64 [n], NaN if missing. Every client measures
            ``loss`` (mean over the local steps of the mini-batch cross-entropy), ``square_loss`` (mean of the squared sample losses
            in the first pass), ``samples`` (distinct samples trained on), ``steps``, and ``accuracy`` (running, last epoch). These
            are sent only if the strategy reads them: the first call bills 4 bytes per client. ``update_norm`` and ``update``
            (flattened, [n, P]) exist if the strategy declares them in ``needs``; reading them costs nothing more.
        durations: simulated time of each client, float64 [n]: for a late client the time that the server waited, for a failed one NaN.
        duration: simulated time of the round.
        accuracy: accuracy of the new model on the server's validation set, in [0, 1], or its R² for numeric labels. This and the next
            two are NaN or empty without a validation set, and if the strategy does not have ``validation`` in ``needs``: only with it
            does the next round wait for the evaluation.
        class_accuracy: the same per class, float64 [K]; NaN for classes without validation samples.
        validation_losses: cross-entropy of the new model on each validation sample, −ln of the true class's probability, float64 [n];
            the squared error of numeric labels, which are scaled to standard deviation 1. Of a sequence with a label for each
            position, the mean over its positions.
    """

    t: int
    cohort: Cohort
    trained: NDArray[np.bool_]
    admitted: NDArray[np.bool_]
    reports: InitVar[Mapping[str, Values]]
    """Only for constructing an outcome: name of a report → float64 [n]."""
    durations: Values
    duration: float
    accuracy: float = math.nan
    class_accuracy: Values = field(default_factory=lambda: np.zeros(0))
    validation_losses: Values = field(default_factory=lambda: np.zeros(0))
    # Strategies read reports through `billed_report` only, so that the ledger knows which of them clients had to send.
    _reports: Mapping[str, Values] = field(init=False, repr=False, compare=False)
    _billed: set[str] = field(init=False, repr=False, compare=False, default_factory=set)

    def __post_init__(self, reports: Mapping[str, Values]) -> None:
        object.__setattr__(self, "_reports", reports)

    def billed_report(self, name: str) -> Values:
        """One report of the cohort's clients; all NaN if no client sent it. The ledger counts the bytes of every report read.

        A name that no client uses and that is nearly one that they use is mentioned by a warning.
        """
        self._billed.add(name)
        if name in self._reports:
            return self._reports[name]
        if near := get_close_matches(name, self._reports, 1, 0.8):
            warnings.warn(f"billed_report({name!r}): no client reports it; did you mean {near[0]!r}?", stacklevel=2)
        return np.full(len(self.cohort), np.nan)

    @property
    def billed(self) -> frozenset[str]:
        """Names of the reports that the strategy has read."""
        return frozenset(self._billed)


def epochs_used(outcome: Outcome) -> Values:
    """The number of epochs that each client of a round reports, float64 [n]; NaN if it reports none.

    Clients report it if the cohort has a stopping rule. It is always sent and billed, so that reading it costs nothing more.
    """
    return outcome._reports.get("epochs", np.full(len(outcome.cohort), np.nan))


class Reported(Protocol):
    """What a strategy sees of an update when it decides whether to admit it.

    Attributes:
        client: id of the client.
        report: the numbers that the client reports, by name.
    """

    client: int
    report: dict[str, float]
