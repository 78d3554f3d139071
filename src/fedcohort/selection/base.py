"""What a selection strategy is, what it sees, and what it may ask clients.

A strategy receives a :class:`Census` once, a :class:`Round` every round, returns a :class:`Cohort`, and is told the
:class:`Outcome`. It never sees a client, a model or an engine; that is why one file serves the simulator, a cluster and a real
federation. The edge rules that hold for every choice live here, once: too few clients (R1), ties (R2), answers that are not numbers
(R4). Clients without data are never available (R7, the clock), and repeats carry a multiplicity (R5, the weights).
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedcohort.core.arrays import MANY, Indices, Values, nth_highest
from fedcohort.core.errors import UsageError
from fedcohort.core.plugins import Card

__all__ = [
    "QUESTIONS", "Card", "Census", "Cohort", "Context", "GradientNorm", "Indices", "LocalAccuracy", "LocalLoss", "LossChange",
    "Outcome", "Question", "Reported", "Round", "Selector", "Speed", "UpdateNorm", "Values", "Why", "best", "choose",
    "rank_losses", "successive", "top",
]  # fmt: skip

# --- what the server knows -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Census:
    """What the server knows of the clients before the first round.

    Attributes:
        num_samples: training samples of each client, int64 [m].
        num_classes: number of classes K.
        k: number of clients asked for per round.
        histogram: label counts, int64 [m, K]; only for strategies that declare ``needs = {"histogram"}``, else None.
        epochs: local epochs E of nominal work.
        num_parameters: trainable parameters P of the model, the length of an update; 0 if that is not known.
        batch_size: samples in a batch of local training (B); 0 means all of a client's.
        rounds: of the run (n); 0 if that is not known.
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
        """m."""
        return len(self.num_samples)


# --- what a strategy may ask clients ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """Something every asked client works out with the current model and answers in a few numbers.

    Class attributes: ``reveals`` says in words what the server learns about the client, ``downloads_model`` whether the model
    must be sent for it, ``numbers`` how many 4-byte numbers come back, ``passes`` how many forward passes over the
    client's training data it costs, ``trains`` whether the client does this round's local training to find the answer, which
    is then not paid for again if it is selected.
    """

    reveals: ClassVar[str]
    downloads_model: ClassVar[bool] = True
    numbers: ClassVar[int] = 1
    trains: ClassVar[bool] = False

    @property
    def kind(self) -> str:
        """The name under which the question stands in the cost ledger."""
        return type(self).__name__

    @property
    def passes(self) -> float:
        """Forward passes over the client's training data; a gradient counts three."""
        return 1.0

    def cost(self, answers: Values) -> Values:
        """Forward passes that each of these answers [n] or [n, numbers] took, float64 [n]."""
        return np.full(len(answers), self.passes)

    @property
    def told(self) -> str:
        """What the server learns, for this very question."""
        return self.reveals

    def to_json(self) -> dict[str, Any]:
        """A description that crosses a process border; :data:`QUESTIONS` names the class to rebuild."""
        return {"kind": type(self).__name__, **dataclasses.asdict(self)}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> "Question":
        """The question that :meth:`to_json` described."""
        fields = dict(value)
        return QUESTIONS[fields.pop("kind")](**fields)


@dataclass(frozen=True)
class LocalLoss(Question):
    """Mean cross-entropy of the current model on the client's training data.

    Attributes:
        batch: use one random mini-batch of this size instead of all training data; 0 means all.
    """

    reveals: ClassVar[str] = "the mean loss of the current model on its training data"
    batch: int = 0

    @property
    def passes(self) -> float:
        """One pass, or none worth counting for a single batch."""
        return 0.0 if self.batch else 1.0

    @property
    def told(self) -> str:
        """Of all training data, or of a batch."""
        return (
            f"the mean loss of the current model on {self.batch} of its training samples"
            if self.batch
            else self.reveals
        )


@dataclass(frozen=True)
class LocalAccuracy(Question):
    """Share of the client's own samples that the current model predicts right, by the labels that the client has.

    Attributes:
        held_out: of the samples that the client holds out, instead of its training data.
    """

    reveals: ClassVar[str] = "the accuracy of the current model on its data"
    held_out: bool = False


@dataclass(frozen=True)
class Speed(Question):
    """How long the client expects to need in this round for nominal work: computing, and sending (down and up).

    The client need not have taken part before, and works nothing out with the model. In a simulation the clock answers.
    """

    reveals: ClassVar[str] = "how long it expects to compute and to send"
    downloads_model: ClassVar[bool] = False
    numbers: ClassVar[int] = 2

    @property
    def passes(self) -> float:
        """None."""
        return 0.0


@dataclass(frozen=True)
class Context(Question):
    """What a contextual bandit learns of a client: a loss of the current model on its training data, and the cross-entropy on the
    samples that it holds out (on its training data, if it has no such samples).

    Attributes:
        loss: ``ce``, the cross-entropy, or ``robust``, FLASH's, with the model's own outputs as pseudo-labels.
        alpha, beta, log_zero: of the robust loss, see :class:`fedcohort.algorithms.losses.Robust`.
    """

    reveals: ClassVar[str] = "the losses of the current model on its training and on its held-out data"
    numbers: ClassVar[int] = 2
    loss: str = "ce"
    alpha: float = 0.1
    beta: float = 4.0
    log_zero: float = -4.0

    @property
    def passes(self) -> float:
        """One pass over the training data, and one over the held-out samples, which are a quarter of that at 80/20."""
        return 1.25


@dataclass(frozen=True)
class LossChange(Question):
    """By how much a round of training would change the mean loss of the current model on the client's training data.

    The round is played on a copy of the model: the participants train as in any round, the run's algorithm merges their updates, and
    everybody who is asked compares. Nobody keeps anything of it. Its training stands in the ledger under this kind as well.

    Attributes:
        participants: ids of the clients that train.
    """

    reveals: ClassVar[str] = "the change of its mean loss over a round of training that is thrown away"
    participants: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "participants", tuple(self.participants))

    @property
    def passes(self) -> float:
        """One before, one after; training is counted apart."""
        return 2.0


@dataclass(frozen=True)
class GradientNorm(Question):
    """‖∇F_i(w^t)‖₂: the norm of the full gradient of the mean cross-entropy on the client's training data, in evaluation mode."""

    reveals: ClassVar[str] = "the norm of the current model's gradient on its training data"

    @property
    def passes(self) -> float:
        """One gradient."""
        return 3.0


@dataclass(frozen=True)
class UpdateNorm(Question):
    """‖Δ_i‖₂, the norm of the update that the client has after this round's local training, and what the training cost.

    Every asked client trains, on a copy; the model and the client's memory stay as they were. A client that is selected sends the
    very update whose norm it reported. Two numbers: the norm over trainable parameters, and the training's forward passes.
    """

    reveals: ClassVar[str] = "the norm of its update"
    numbers: ClassVar[int] = 2
    trains: ClassVar[bool] = True

    @property
    def passes(self) -> float:
        """Those of the training, which each client reports: not known beforehand."""
        return float("nan")

    def cost(self, answers: Values) -> Values:
        """What the clients reported."""
        return np.nan_to_num(answers[:, 1], nan=0.0, posinf=0.0, neginf=0.0)


QUESTIONS: dict[str, type[Question]] = {
    "LocalLoss": LocalLoss,
    "LocalAccuracy": LocalAccuracy,
    "Speed": Speed,
    "Context": Context,
    "LossChange": LossChange,
    "GradientNorm": GradientNorm,
    "UpdateNorm": UpdateNorm,
}
"""Every question by name. A new one is added here, its answer in ``training/forward.py``, or ``training/trial.py`` if it trains."""


S = TypeVar("S", bound=np.generic)

# --- one round -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Round:
    """What a strategy sees when it chooses.

    Attributes:
        t: round number, from 1.
        k: clients to choose, already at most ``len(available)``; with over-commitment more than are waited for.
        available: ids of the clients that can be chosen, ascending, int64.
        rng: this round's generator; the same in every run with the same seed, whatever happened before.
        clock: simulated time so far.
        durations: last known time of each client for a round of nominal work, float64 [m]; NaN where never measured. A client that
            was late counts with the time that the server waited for it.
        ask: ``ask(question, clients)`` returns float64 [len(clients)] (or [len(clients), numbers]), NaN where nobody answered.
        compute_times, upload_times: the parts of ``durations`` that are computation and communication (down and up), float64 [m];
            NaN where never measured. All three can be read only, and change after ``select``: what is to be kept is copied.
        notes: what the rules that hold for every strategy had to do while this one chose, in words; they end in the record.
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
        for name in ("compute_times", "upload_times"):
            if len(getattr(self, name)) != len(self.durations):
                object.__setattr__(self, name, np.full(len(self.durations), np.nan))

    def of(self, values: NDArray[S]) -> NDArray[S]:
        """What of ``values`` [m, …] is the available clients', to be read only: all of it, uncopied, where everybody is there."""
        found = values.view() if len(self.available) == len(values) else values[self.available]
        found.flags.writeable = False
        return found

    def sample(self, count: int, among: Indices | None = None, probabilities: Values | None = None) -> Indices:
        """Draw ``count`` distinct clients from ``among`` (all available), uniformly or by successive weighted draws."""
        pool = self.available if among is None else among
        return self.rng.choice(pool, size=min(count, len(pool)), replace=False, p=probabilities)

    def draw(self, weights: Values, count: int | None = None, among: Indices | None = None) -> Indices:
        """``count`` (k) distinct clients of ``among`` (all available) by successive draws, each with probability ∝ weight, in order.

        ``weights`` is aligned with ``among``. Clients without a weight (0 or less, or NaN) come last, at random.
        """
        pool = self.available if among is None else among
        return pool[successive(weights, self.k if count is None else count, self.rng)]

    def top(self, scores: Values, count: int | None = None, among: Indices | None = None) -> Indices:
        """The ``count`` (k) clients of ``among`` (all available) with the highest scores; see :func:`top` for ties and NaN.

        ``scores`` is aligned with ``among``.
        """
        pool = self.available if among is None else among
        count = self.k if count is None else count
        if 0 < count < len(pool) and np.isnan(scores.max()):
            unknown = np.count_nonzero(np.isnan(scores))
            self.notes.append(f"{unknown} of {len(pool)} scores are not numbers: uniform chance for them")
        return pool[top(scores, count, self.rng)]


def successive(weights: Values | Indices, count: int, rng: np.random.Generator) -> Indices:
    """Positions of ``count`` successive draws without replacement, each with probability ∝ weight, in the order of the draws.

    Positions without a weight (0 or less, or NaN) come after all others, at random; so do all when there is no weight at all.
    """
    count = min(count, len(weights))
    if count <= 0:
        return np.zeros(0, dtype=np.int64)
    weights = np.asarray(weights, dtype=np.float64)
    if len(weights) >= MANY and 1e-200 < weights.max() < 1e200 and 8 * count * weights.max() < weights.sum():
        return _by_trial(weights, count, rng)
    # An exponential race: i arrives after an exponential time of rate w_i. The first to arrive is i with probability w_i/Σw, and
    # the race among the rest starts afresh (no memory), so the first arrivals follow the law of successive draws, in O(m) however
    # many there are. By logarithms, so that no weight is too small or too large.
    arrivals = np.log(rng.exponential(size=len(weights)))
    arrivals -= np.log(weights, where=weights > 0, out=np.full(len(weights), -1e6))
    first = np.argpartition(arrivals, count - 1)[:count]
    return first[np.argsort(arrivals[first])]


def _by_trial(weights: Values | NDArray[np.bool_], count: int, rng: np.random.Generator) -> Indices:
    """The same for few of many, none of whom outweighs the others: propose anybody, and take it with probability w_i/max w.

    Who was taken before is not taken again, which leaves the others' chances in proportion. About count·n·max w/Σw proposals.
    """
    n, largest, taken = len(weights), weights.max(), dict[int, None]()
    each = n * largest / weights.sum()
    while len(taken) < count:
        proposed = rng.integers(n, size=math.ceil((count - len(taken)) * each) + 16)
        accepted = proposed[rng.random(len(proposed)) * largest < weights[proposed]]
        taken.update(dict.fromkeys(accepted.tolist()))
    return np.fromiter(taken, dtype=np.int64)[:count]


def top(scores: Values, k: int, rng: np.random.Generator) -> Indices:
    """Positions of the ``k`` highest scores, best first.

    Ties are broken by one random key per position (R2). A NaN score cannot be ranked: that position follows the uniform rule
    instead, in with probability k/n and out otherwise (R4).
    """
    found, scores, keys = _highest(scores, k, rng)
    return found[np.lexsort((keys, -scores))]


def best(scores: Values, k: int, rng: np.random.Generator) -> Indices:
    """As :func:`top`, in no order, which is faster when k is large."""
    return _highest(scores, k, rng)[0]


def _highest(scores: Values, k: int, rng: np.random.Generator) -> tuple[Indices, Values, Values]:
    """Positions of the ``k`` highest scores, their scores, ±∞ for NaN, and the keys of ties.

    Of many only those who are found get a key, and ties that are too many are drawn: the same law, without a key for everybody.
    """
    n = len(scores)
    keys = rng.random(n) if n < MANY else None
    if k <= 0:
        return np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0)
    if n and np.isnan(scores.max()):
        scores = np.where(np.isnan(scores), np.where(rng.random(n) < k / n, np.inf, -np.inf), scores)
    if k >= n:
        found = np.arange(n)
    else:
        threshold = nth_highest(scores, k)
        above, equal = np.flatnonzero(scores > threshold), scores == threshold
        found = np.concatenate([above, _some(equal, k - len(above), keys, rng)])
    return found, scores[found], rng.random(len(found)) if keys is None else keys[found]


def _some(marked: NDArray[np.bool_], count: int, keys: Values | None, rng: np.random.Generator) -> Indices:
    """``count`` of the marked positions: those with the lowest keys, or, without keys, drawn."""
    if keys is None and 8 * count < np.count_nonzero(marked):
        return _by_trial(marked, count, rng)
    among = np.flatnonzero(marked)
    if count == len(among):
        return among
    return (
        rng.choice(among, count, replace=False)
        if keys is None
        else among[np.argpartition(keys[among], count - 1)[:count]]
    )


def rank_losses(losses: Values) -> Values:
    """Losses reported by clients, ready for "highest first": NaN and ±∞ rank last (R4)."""
    return np.where(np.isfinite(losses), losses, -np.inf)


# --- what a strategy returns -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Why:
    """The reasons of one choice, kept for the record.

    Attributes:
        candidates: the clients that were compared, int64 [n]; of very many without a score some are enough, those with the lowest ids.
        scores: their scores, float64 [n].
        terms: what each score is made of, name → float64 [n].
        note: what kind of choice it was, such as ``"random: first rounds"``.
    """

    candidates: Indices
    scores: Values
    terms: Mapping[str, Values] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Cohort:
    """The clients that take part in a round, and how much each does. All arrays are aligned with ``clients``.

    Attributes:
        clients: distinct client ids, int64 [n], best first where there is an order.
        multiplicity: how often each was drawn by a sampler with replacement (R5); None means once.
        inclusion: probability with which each was included; needed by ``weights = "unbiased"``.
        weights: aggregation weights that replace the weight mode, for samplers that bring their own.
        epochs: local epochs of each client; None means the experiment's.
        share: probability with which each client sends each trainable tensor of its update; None means that all are sent.
        unsent: what a tensor that was not sent counts as in the average: left_out (the mean is over those who sent it), or unchanged.
        sampling: how clients fill their batches: shuffled (every sample once an epoch); loss (drawn with replacement, with probability
            ∝ the loss at the beginning of the epoch, which takes one more forward pass an epoch); or loss_unbiased (the same, and the
            loss of sample j counts 1/(n·probability), so that gradients of batches have the mean that they have when shuffled).
        stop: a rule that ends local training before ``epochs``, as plain data: ``{"rule": name, **settings}``.
        why: the reasons.
    """

    clients: Indices
    multiplicity: Indices | None = None
    inclusion: Values | None = None
    weights: Values | None = None
    epochs: Indices | None = None
    share: Values | None = None
    unsent: Literal["left_out", "unchanged"] = "left_out"
    sampling: Literal["shuffled", "loss", "loss_unbiased"] = "shuffled"
    stop: Mapping[str, Any] | None = None
    why: Why | None = None

    def __len__(self) -> int:
        return len(self.clients)

    def __post_init__(self) -> None:
        for name in ("multiplicity", "inclusion", "weights", "epochs", "share"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.clients):
                raise ValueError(f"Cohort.{name} has {len(values)} entries for {len(self.clients)} clients")
        for name, valid in (("unsent", ("left_out", "unchanged")), ("sampling", ("shuffled", "loss", "loss_unbiased"))):
            if getattr(self, name) not in valid:
                raise ValueError(f"Cohort.{name} = {getattr(self, name)!r}: valid are {', '.join(map(repr, valid))}")


@dataclass(frozen=True)
class Outcome:
    """What became of a cohort. Arrays are aligned with ``cohort.clients``.

    Attributes:
        t: round number.
        cohort: the choice, as it was carried out.
        trained: True where an update came back, bool [n].
        admitted: True where the update entered the model, bool [n].
        reports: what clients sent beside their update, name → float64 [n], NaN where nothing came: ``loss`` (mean over the local
            steps of the mini-batch cross-entropy), ``square_loss`` (mean of the squared sample losses in the first pass),
            ``samples`` (distinct samples trained on), ``steps``, ``accuracy`` (running, last epoch); and, for a strategy that declares
            them in ``needs``, ``update_norm`` and ``update`` (flattened, [n, P]).
        durations: simulated time of each client, float64 [n]: for one that was late the time that the server waited, NaN for one that
            failed.
        duration: simulated time of the round.
        accuracy: accuracy of the new model on the server's validation set, in [0, 1]; NaN without one. This and the next two are
            only told to strategies with ``validation`` in ``needs``: for others nobody waits for it, they are NaN and empty.
        class_accuracy: the same per class, float64 [K]; NaN where a class has no validation samples.
        validation_losses: cross-entropy of the new model on each validation sample, −ln of the right class's probability, float64 [n];
            empty without a validation set.
        read: names of the reports that the strategy has asked for.
    """

    t: int
    cohort: Cohort
    trained: NDArray[np.bool_]
    admitted: NDArray[np.bool_]
    reports: Mapping[str, Values]
    durations: Values
    duration: float
    accuracy: float = math.nan
    class_accuracy: Values = field(default_factory=lambda: np.zeros(0))
    validation_losses: Values = field(default_factory=lambda: np.zeros(0))
    read: set[str] = field(default_factory=set, compare=False, repr=False)

    def report(self, name: str) -> Values:
        """One report of the cohort's clients; all NaN when nobody sent it. What is read is what clients are billed for."""
        self.read.add(name)
        return self.reports.get(name, np.full(len(self.cohort), np.nan))


class Reported(Protocol):
    """What a strategy may see of an update that it admits or not."""

    client: int
    report: dict[str, float]


U = TypeVar("U", bound=Reported)


# --- the strategy ----------------------------------------------------------------------------------------------------------


class Selector:
    """A client selection strategy. Subclasses are ``@parameters`` dataclasses; only :meth:`select` must be written.

    Whatever :meth:`setup` and :meth:`observe` put on ``self`` is the strategy's state: arrays indexed by client, numbers, strings,
    None, or dictionaries and lists of these. It is saved with every checkpoint and restored on resume.
    """

    card: ClassVar[Card]
    needs: ClassVar[frozenset[str]] = frozenset()
    """What the strategy cannot do without: ``histogram``, ``validation``, ``holdout``, ``update_norm``, ``update``."""
    gives: ClassVar[frozenset[str]] = frozenset()
    """What all its cohorts carry for weight modes: ``inclusion`` (for ``unbiased``), ``weights`` (for ``cohort``)."""
    variable_size: ClassVar[bool] = False
    """True for strategies whose cohort need not have min(k, number of available clients) members; rule R1 does not fill it up."""

    def setup(self, census: Census) -> None:
        """Called once, before the first round and before a state is loaded; call it first when you override it."""
        self.census = census

    def select(self, round: Round) -> Cohort:
        """Choose the clients of this round."""
        raise NotImplementedError

    def admit(self, updates: Iterable[U]) -> Iterator[U]:
        """Which updates enter the model; everybody's by default. A stream in, a stream out, in the same order.

        It is decided on what clients report, before they send their models: whoever is left out sends numbers only.
        """
        yield from updates

    def observe(self, outcome: Outcome) -> None:
        """Learn from what became of the cohort; nothing by default."""

    def state_dict(self) -> dict[str, Any]:
        """Everything on ``self`` that is neither a parameter nor the census."""
        fixed = {*getattr(self, "__dataclass_fields__", {}), "census", "needs", "gives"}
        return {name: value for name, value in vars(self).items() if name not in fixed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what :meth:`state_dict` gave."""
        for name, value in state.items():
            setattr(self, name, value)


def choose(selector: Selector, round: Round) -> Cohort:
    """One call of ``selector.select``, with the rules that hold for every strategy.

    Nobody available is an empty cohort (R1). With k or fewer available, all of them take part (R1). What comes back is checked:
    distinct clients, all of them available. What the rules had to do (``round.notes``) is added to the reasons.
    """
    if len(round.available) == 0:
        return Cohort(round.available, why=Why(round.available, np.zeros(0), note="nobody available"))
    cohort, name = selector.select(round), type(selector).__name__
    if not isinstance(cohort, Cohort):
        raise UsageError(
            f"{name}.select in round {round.t} returned {type(cohort).__name__}; return a Cohort(clients, why=…)"
        )
    if len(round.available) <= round.k and not selector.variable_size and len(cohort) < len(round.available):
        sure = None if cohort.inclusion is None else np.ones(len(round.available))
        cohort = Cohort(round.available, inclusion=sure, sampling=cohort.sampling, stop=cohort.stop, why=cohort.why)
    _check_numbers(cohort, f"{name}.select in round {round.t}")
    clients = np.asarray(cohort.clients, dtype=np.int64)
    everybody = np.array_equal(clients, round.available)  # distinct and available, without a sort
    if not everybody and (np.diff(np.sort(clients)) == 0).any():
        raise UsageError(
            f"{name}.select returned a client twice in round {round.t}; use Cohort.multiplicity for repeats"
        )
    if not everybody and not _contains(round.available, clients):
        raise UsageError(f"{name}.select returned clients that are not available in round {round.t}")
    wanted = min(round.k, len(round.available))
    if not selector.variable_size and cohort.multiplicity is None and len(clients) != wanted:
        raise UsageError(f"{name}.select returned {len(clients)} clients instead of {wanted} in round {round.t}")
    why = cohort.why
    if round.notes:
        why = Why(clients, np.full(len(clients), np.nan)) if why is None else why
        why = dataclasses.replace(why, note="; ".join([why.note, *round.notes]).removeprefix("; "))
        round.notes.clear()
    return dataclasses.replace(cohort, clients=clients, why=why)


def _contains(available: Indices, clients: Indices) -> bool:
    """Whether all ``clients`` are among ``available``, which ascends."""
    places = np.minimum(np.searchsorted(available, clients), len(available) - 1)
    return bool((available[places] == clients).all())


_LIMITS: dict[str, tuple[type, float, float]] = {
    "multiplicity": (np.integer, 1, np.inf),
    "inclusion": (np.floating, 1e-12, 1 + 1e-9),
    "weights": (np.floating, 0, np.inf),
    "epochs": (np.integer, 1, np.inf),
    "share": (np.floating, 0, 1),
}
"""What the numbers of a cohort must be: whole or not, and between which limits."""


def _check_numbers(cohort: Cohort, where: str) -> None:
    """Ids and epochs are whole numbers, and every number lies where it has a meaning; a fraction is not cut off silently."""
    ids = np.asarray(cohort.clients)
    if len(ids) and not np.issubdtype(ids.dtype, np.integer):
        raise UsageError(f"{where}: Cohort.clients are {ids.dtype}, not whole numbers: {ids[:5].tolist()}")
    if cohort.why is not None and len(cohort.why.scores) != len(cohort.why.candidates):
        raise UsageError(
            f"{where}: Why.scores has {len(cohort.why.scores)}, not one float for each of {len(cohort.why.candidates)} candidates"
        )
    for name, (kind, low, high) in _LIMITS.items():
        values = getattr(cohort, name)
        if values is None or len(values) == 0:
            continue
        values = np.asarray(values)
        if kind is np.integer and not np.issubdtype(values.dtype, np.integer):
            raise UsageError(f"{where}: Cohort.{name} are {values.dtype}, not whole numbers: {values[:5].tolist()}")
        outside = ~(np.isfinite(values) & (values >= low) & (values <= high))
        if outside.any():
            first = np.flatnonzero(outside)[0]
            limits = f"at least {low:g}" if np.isinf(high) else f"within {low:g} and {high:g}"
            raise UsageError(
                f"{where}: Cohort.{name} of client {ids[first]} is {values[first]}; must be finite and {limits}"
            )
