"""What an algorithm is: how clients learn (the client half) and how their results merge (the server half).

Both halves of an algorithm stand in one class, so that a file reads like the paper. The client half runs under every plan of
the local training engine, for one client or for a stack of clients: it is written with elementwise tensor operations on the
dictionaries of a :class:`Problem`. The server half is a fold over updates: ``begin → add → … → end``; updates arrive one after
another, in cohort order, and need not be kept.
"""

import itertools
import math
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from annotated_types import Gt, Le
from torch import Tensor

from fedcohort.algorithms.local import Training
from fedcohort.algorithms.server import ServerTools
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import NotInKey, parameters
from fedcohort.core.plugins import Card
from fedcohort.core.threads import aside

__all__ = [
    "LARGE",
    "Algorithm",
    "Members",
    "ModelState",
    "Problem",
    "RunningMean",
    "Tensors",
    "Update",
    "WeightMode",
    "blend",
    "is_finite",
    "per_client",
    "takes_plain_steps",
]

Tensors = dict[str, Tensor]
ModelState = dict[str, Tensor]
"""All entries of a model's state dictionary, contiguous: parameters, float buffers, integer buffers."""

WeightMode = Literal["n_selected", "uniform", "n_total_delta", "scaled", "unbiased", "cohort", "n_total_model"]

LARGE: tuple[WeightMode, ...] = ("scaled", "unbiased", "cohort")
"""Weight modes whose weights can be large: the others are normalised, or never above 1."""


# --- what passes between client and server ---------------------------------------------------------------------------------


class Together(Protocol):
    """The models of clients that trained together, none of which is written out until somebody looks at it."""

    size: int
    """Number of models."""
    num_bytes: int
    """Of one model."""

    def state_of(self, position: int) -> ModelState:
        """The model of the client at this position."""
        ...

    def is_finite(self, position: int) -> bool:
        """Whether all its entries are."""
        ...

    def mean(self, weights: Mapping[int, float]) -> ModelState:
        """Σ a_i w_i/Σ a_i over the clients at these positions, without writing a model out."""
        ...


@dataclass
class Update:
    """What one client sends back.

    Attributes:
        client: id.
        num_samples: N_i, training samples.
        steps: H_i, optimiser steps done.
        state: the trained model w_i; empty after a failure. Where clients trained :attr:`together`, it is worked out when somebody
            looks at it.
        extra: what the algorithm sends beside the model, name → tensors.
        report: numbers for the server: see :class:`fedcohort.selection.Outcome`.
        passes: forward passes over the client's training data that the training cost; a gradient counts three.
        work: work done over nominal work (epochs of the experiment); 1 unless a strategy changed it.
        sent: names of the tensors that were sent; None means all.
        failure: why there is no result, in words; None if there is one.
        late: why the server did not wait for the result, in words; None if it did. Set by the clock.
        duration: simulated time the client needed; set by the clock.
        together: the models among which this one still is, and its position there.
    """

    client: int
    num_samples: int
    steps: int
    state: ModelState
    extra: dict[str, Tensors] = field(default_factory=dict)
    report: dict[str, float] = field(default_factory=dict)
    passes: float = 3.0
    work: float = 1.0
    sent: frozenset[str] | None = None
    failure: str | None = None
    late: str | None = None
    duration: float = float("nan")
    together: tuple[Together, int] | None = None

    @staticmethod
    def among(together: Together, position: int, client: int, num_samples: int, steps: int) -> "Update":
        """An update whose model is still among others'."""
        update = Update(client, num_samples, steps, {}, together=(together, position))
        del update.state
        return update

    def __getattr__(self, name: str) -> Any:
        """The state, when it is looked at for the first time."""
        if name != "state" or self.together is None:
            raise AttributeError(name)
        models, position = self.together
        self.state = models.state_of(position)
        return self.state

    @property
    def pending(self) -> tuple[Together, int] | None:
        """Where the model is, if nobody has looked at it; None if it is in ``state``."""
        return None if "state" in vars(self) else self.together

    @property
    def num_bytes(self) -> int:
        """Uncompressed bytes that the client sends: the model, or the tensors named in ``sent``, and ``extra``."""
        tensors = itertools.chain(*(group.values() for group in self.extra.values()))
        if self.pending is not None and self.sent is None:
            model = self.pending[0].num_bytes
        else:
            model = _num_bytes(t for name, t in self.state.items() if self.sent is None or name in self.sent)
        return model + _num_bytes(tensors)


def _num_bytes(tensors: Iterable[Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def is_finite(update: Update) -> bool:
    """Whether every number of the update can enter a model."""
    if update.pending is not None:
        models, position = update.pending
        groups = [*update.extra.values()] if models.is_finite(position) else [update.state]
    else:
        groups = [update.state, *update.extra.values()]
    return all(_all_finite(t) for group in groups for t in group.values() if t.is_floating_point())


def _all_finite(values: Tensor) -> bool:
    """Whether no entry is NaN or infinite. A finite sum says so, at a tenth of the price; finite numbers may also sum to infinity."""
    return math.isfinite(float(values.sum())) or bool(torch.isfinite(values).all())


class Problem(Protocol):
    """The local problem of one client during its training, or of a stack of clients (a leading axis on every tensor).

    Attributes:
        parameters: the trainable parameters y, changed in place by the optimiser.
        anchor: the parameters w^t that the client received; same names.
        received: what the server sent beside the model, as the algorithm's :meth:`Algorithm.broadcast` made it.
        memory: the client's own state, as the algorithm's :meth:`Algorithm.finish` left it at its last admitted update; empty at first
            (in a stack: zeros for a client that has none yet, unless none has).
        training: the settings of local training, as the algorithm wants them; the same for all clients of a stack.
        lr: learning rate of this round (in a stack, a number or [clients]).
        steps: optimiser steps done so far (in a stack, int64 [clients]); see :func:`per_client`.
        t: round, from 1.
        num_samples: N_i, the client's training samples (in a stack, int64 [clients]).
        batch: the current batch, as positions in the client's training samples, int64 [B] (in a stack [clients, B], short batches
            padded).
        held_out: (features, labels) of the client's held-out part, as stored; empty where there is none, or too little for batch norm.
        notes: what the algorithm wants to find again at the next step of this training; empty at first. (In a stack, tensors in it
            have the client axis too, and clients that are done leave it together with the parameters.)
        rng: the algorithm's own randomness in this training, keyed by round and client.
    """

    parameters: Tensors
    anchor: Tensors
    received: Mapping[str, Tensors]
    memory: Mapping[str, Tensors]
    training: Training
    lr: float | Tensor
    steps: int | Tensor
    t: int
    num_samples: int
    batch: Tensor
    notes: dict[str, Any]

    @property
    def held_out(self) -> tuple[Tensor, Tensor]:
        """See above."""
        ...

    @property
    def rng(self) -> np.random.Generator:
        """See above."""
        ...

    def backward(self, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The objective's gradient on the current batch into ``.grad`` of the parameters, samples weighted by ``weights`` [B] (and
        still divided by B); what is reported of the step: the cross-entropy of each sample, and the number of right ones."""
        ...

    def gradient(self, at: Tensors | None = None) -> Tensors:
        """The objective's gradient on the current batch, at the current parameters or ``at`` others."""
        ...

    def full_gradient(self, at: Tensors) -> Tensors:
        """The objective's gradient over all the client's training samples, ``at`` these parameters: one more pass."""
        ...

    def losses_and_gradient(self, at: Tensors, weights: Tensor | None = None) -> tuple[Tensor, Tensors]:
        """The objective of each sample of the batch [B], and the gradient of its (weighted) mean, ``at`` other parameters."""
        ...

    def cross_entropy_gradient(self, features: Tensor, labels: Tensor) -> Tensors:
        """The gradient of the mean cross-entropy on other samples, as stored, at the current parameters."""
        ...

    def received_loss(self) -> float | Tensor:
        """The mean objective of the received model over the client's training samples, in evaluation mode: one forward pass.
        (In a stack, float64 [clients].)"""
        ...


# --- the server's arithmetic -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Members:
    """What the server half knows about the clients of a round.

    Attributes:
        num_clients: m.
        total_samples: N over all clients.
        k: clients asked for.
        multiplicity, inclusion, weights: of the cohort, by client id; empty where the cohort has none.
        t: the round, from 1.
        trainable: names of the trainable parameters, which is what server optimisers move; None takes all floating-point entries.
    """

    num_clients: int
    total_samples: int
    k: int
    multiplicity: Mapping[int, int] = field(default_factory=dict)
    inclusion: Mapping[int, float] = field(default_factory=dict)
    weights: Mapping[int, float] = field(default_factory=dict)
    t: int = 1
    trainable: frozenset[str] | None = None

    def trains(self, name: str, value: Tensor) -> bool:
        """Whether an entry of the model is trained; batch-norm statistics and counters are not."""
        return value.is_floating_point() if self.trainable is None else name in self.trainable


class RunningMean:
    """Weighted mean of model states, one at a time, in float64: mean ← mean + (x − mean)·a/A.

    The mean of identical models is that model exactly. Floating-point entries are averaged, each over the clients that sent it;
    integer counters take the maximum. ``total`` is the sum of all weights.
    """

    def __init__(self) -> None:
        self.total = 0.0
        self._totals: dict[str, float] = {}
        self.mean: Tensors = {}
        self._dtypes: dict[str, torch.dtype] = {}
        self._together: Together | None = None
        self._weights: dict[int, float] = {}
        self._coming: tuple[Future[ModelState], float] | None = None

    def include(self, update: Update, weight: float) -> None:
        """Include the model of ``update``, as far as it was sent. Of models that are still together, the mean enters at once."""
        if update.pending is None or update.sent is not None:
            self.add(update.state, weight, update.sent)
            return
        together, position = update.pending
        if together is not self._together or position in self._weights:
            self._enter()
        self._together = together
        self._weights[position] = weight
        if len(self._weights) == together.size:  # nobody else will come, and the next ones may not be there yet
            self._enter()

    def _enter(self) -> None:
        """The mean of the models that were together; every other one is worked out beside what comes next."""
        if self._together is not None:
            mean, total = partial(self._together.mean, self._weights), sum(self._weights.values())
            if self._coming is None:
                self._coming = aside(mean), total
            else:
                found = mean()
                self._arrive()
                self._add(found, total)
        self._together, self._weights = None, {}

    def _arrive(self) -> None:
        """The mean that was worked out aside."""
        if self._coming is not None:
            mean, total = self._coming
            self._coming = None
            self._add(mean.result(), total)

    def add(self, state: ModelState, weight: float, names: frozenset[str] | None = None) -> None:
        """Include ``state``, or only its entries ``names``, with ``weight`` > 0."""
        self._arrive()
        self._add(state, weight, names)

    def _add(self, state: ModelState, weight: float, names: frozenset[str] | None = None) -> None:
        self.total += weight
        for name, value in state.items():
            if names is not None and name not in names:
                continue
            self._totals[name] = self._totals.get(name, 0.0) + weight
            share = weight / self._totals[name]
            if name not in self.mean:
                self._dtypes[name] = value.dtype
                self.mean[name] = value.to(torch.float64, copy=True) if value.is_floating_point() else value.clone()
            elif value.is_floating_point():
                self.mean[name].lerp_(value.double(), share)
            else:
                torch.maximum(self.mean[name], value, out=self.mean[name])

    def result(self) -> ModelState:
        """The mean, in the dtypes that came in."""
        self._enter()
        self._arrive()
        return {name: value.to(self._dtypes[name]) for name, value in self.mean.items()}


def blend(start: ModelState, end: ModelState, share: float) -> ModelState:
    """(1 − share)·start + share·end over floating-point entries, in float64; ``end``'s integer entries.

    >>> import torch
    >>> blend({"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([0.8, 2.4])}, 0.5)["w"]
    tensor([0.9000, 2.2000])
    """
    if share == 1.0:
        return end
    return {
        name: torch.lerp(start[name].double(), value.double(), share).to(value.dtype)
        if value.is_floating_point()
        else value
        for name, value in end.items()
    }


def per_client(value: float | Tensor, like: Tensor) -> float | Tensor:
    """A number, or one number a client of a stack [clients], in a shape that multiplies ``like`` [clients, …]."""
    if isinstance(value, Tensor) and value.dim():
        return value.reshape(value.shape + (1,) * (like.dim() - value.dim()))
    return value


# --- the algorithm ---------------------------------------------------------------------------------------------------------


@parameters
class Algorithm:
    """Both halves of a federated algorithm; a subclass changes what its paper changes. As it stands it is FedAvg's arithmetic."""

    weights: WeightMode = "n_selected"
    """How updates are weighted: n_selected (N_i over the admitted), uniform, n_total_delta (N_i over all, on differences), scaled
    (m/k times that), unbiased (p_i over the inclusion probability), cohort (the strategy's own), n_total_model (a known bug, to
    reproduce it)."""
    server_lr: Annotated[float, Gt(0), Le(1)] = 1.0
    """Server damping s: the new model is (1 − s)·old + s·merged."""
    max_weight: Annotated[Annotated[float, Gt(0)] | None, NotInKey((None,))] = None
    """No update weighs more than this; for scaled, unbiased and cohort, whose weights can be large. The record notes the largest."""

    card: ClassVar[Card]
    needs: ClassVar[frozenset[str]] = frozenset()
    """What the algorithm cannot do without: ``holdout``, ``public``."""
    keeps_models: ClassVar[bool] = False
    """True for algorithms whose server half needs every admitted model at once."""
    corrects: ClassVar[bool] = False
    """True for algorithms that change gradients; :meth:`correct` is not called otherwise."""
    stacks: ClassVar[bool] = False
    """True for algorithms whose own :meth:`backward`, :meth:`correct` and :meth:`finish` work on a stack of clients as well as on
    one. A class that overrides one of them says so itself; without any of them there is nothing to say."""
    pools: ClassVar[bool] = False
    """True for algorithms that train one client which holds everybody's data; selection and systems then have nothing to say."""
    tools: ClassVar["ServerTools | None"] = None
    """What the server half works with, see :meth:`prepare`; no part of the state."""

    def title(self, training: Training) -> str:
        """What tables call the algorithm under these settings; it says so if that is no longer its source's algorithm."""
        return type(self).__name__

    # the client half: it may run in another process, so it knows the parameters and what was broadcast, not the server's state

    def local_training(self, training: Training) -> Training:
        """The settings of local training under this algorithm; the experiment's by default."""
        return training

    def backward(self, problem: Problem) -> tuple[Tensor, Tensor]:
        """Put the gradients of what is minimised on the current batch into the parameters; see :meth:`Problem.backward`."""
        return problem.backward()

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        """Change ``gradients`` in place before the optimiser's step; only called if :attr:`corrects`."""

    def finish(self, problem: Problem) -> tuple[dict[str, Tensors], dict[str, Tensors]]:
        """After local training: what is sent beside the model, and the client's new memory (kept once the server admits it)."""
        return {}, {}

    # the server half

    def prepare(self, tools: ServerTools) -> None:
        """Called once before the first round of a run, and again when it is resumed: what the server half may work with."""
        vars(self)["tools"] = tools

    def broadcast(self) -> dict[str, Tensors]:
        """What every selected client receives beside the model."""
        return {}

    def weigh(self, update: Update, members: Members) -> float:
        """The weight of an update before normalisation; 0 leaves it out."""
        weight = self._weight(update, members)
        return weight if self.max_weight is None else min(weight, self.max_weight)

    def _weight(self, update: Update, members: Members) -> float:
        """The weight by the weight mode."""
        if members.weights and self.weights == "cohort":
            return members.weights[update.client]
        times = members.multiplicity.get(update.client, 1)
        share = update.num_samples / members.total_samples
        match self.weights:
            case "uniform":
                return float(times)
            case "n_selected":
                return float(times * update.num_samples)
            case "n_total_delta" | "n_total_model":
                return times * share
            case "scaled":
                return times * share * members.num_clients / members.k
            case "unbiased" if update.client in members.inclusion:
                return share / members.inclusion[update.client]
        raise UsageError(
            f"algorithm.weights = {self.weights!r}: the selection strategy gives no "
            f"{'inclusion probabilities' if self.weights == 'unbiased' else 'weights'}; use n_selected or uniform"
        )

    def begin(self, model: ModelState, members: Members) -> Any:
        """Start a round's fold."""
        return RunningMean()

    def add(self, fold: Any, update: Update, weight: float) -> None:
        """Fold in one admitted update."""
        fold.include(update, weight)

    def end(self, fold: Any, model: ModelState, members: Members) -> ModelState:
        """The merged model; at least one update was folded in. State of the algorithm changes here and in :meth:`step` only."""
        return self.scale(model, {**model, **fold.result()}, fold.total)  # an entry that nobody sent stays as it was

    def weighed(self) -> Mapping[int, float]:
        """Weights that the last round's updates entered with, by client, where :meth:`end` changed those of :meth:`weigh`."""
        return {}

    def scale(self, model: ModelState, mean: ModelState, total: float) -> ModelState:
        """The merged model that the weight mode makes of a weighted mean of models and the sum of its weights."""
        match self.weights:
            case "n_selected" | "uniform":
                return mean
            case "n_total_model":
                return {name: value * total if value.is_floating_point() else value for name, value in mean.items()}
            case _:
                return blend(model, mean, total)

    def step(self, model: ModelState, merged: ModelState, members: Members) -> ModelState:
        """How the server goes from the old model towards the merged one: damping, or a server optimiser of its own."""
        return blend(model, merged, self.server_lr)

    def aggregate(self, model: ModelState, updates: Iterable[Update], members: Members) -> ModelState:
        """Merge a round's admitted updates into ``model``; ``model`` itself if there is none (R10)."""
        fold, empty = self.begin(model, members), True
        for update in updates:
            weight = self.weigh(update, members)
            if weight > 0:
                self.add(fold, update, weight)
                empty = False
        return model if empty else self.step(model, self.end(fold, model, members), members)

    def state_dict(self) -> dict[str, Any]:
        """The server's state: everything on ``self`` that is neither a parameter nor its tools."""
        fixed = {"tools", *getattr(self, "__dataclass_fields__", {})}
        return {name: value for name, value in vars(self).items() if name not in fixed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what :meth:`state_dict` gave."""
        for name, value in state.items():
            setattr(self, name, value)


def takes_plain_steps(algorithm: Algorithm) -> bool:
    """Whether a client of this algorithm does nothing in a step but follow the gradient of its loss on the batch."""
    return not algorithm.corrects and getattr(algorithm.backward, "__func__", None) is Algorithm.backward
