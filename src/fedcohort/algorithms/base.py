"""The contract of an algorithm: how clients train (the client half) and how the server merges the results (the server half).

One class holds both halves, so that a file reads like the paper. The client half runs under every plan of the local training
engine, for one client or for a stack of clients: it is written with elementwise tensor operations on the dictionaries of a
:class:`~fedcohort.algorithms.local_problem.Problem`. The server half is a fold over updates, ``begin → add → … → end``; updates
arrive one after another, in cohort order, and need not be kept.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Gt, Le
from torch import Tensor

from fedcohort.algorithms.local_problem import Problem
from fedcohort.algorithms.server_tools import ServerTools
from fedcohort.algorithms.training_settings import Training
from fedcohort.algorithms.updates import Members, ModelState, Tensors, Update
from fedcohort.algorithms.weighted_means import RunningMean, blend
from fedcohort.core.errors import UsageError, nearest, shown
from fedcohort.core.files.state_files import as_before
from fedcohort.core.parameters import NotInKey, parameters
from fedcohort.core.plugins import Card, LabelKind, check_card
from fedcohort.core.user_code.method_signatures import check_methods

__all__ = [
    "LARGE_WEIGHT_MODES",
    "Algorithm",
    "Correction",
    "WeightMode",
    "adds_correction",
    "check_hooks",
    "coefficients_of",
    "takes_plain_steps",
]

WeightMode = Literal["n_selected", "uniform", "n_total_delta", "scaled", "unbiased", "cohort", "n_total_model"]
"""How the server weights updates; the guide to algorithms explains each mode."""

LARGE_WEIGHT_MODES: tuple[WeightMode, ...] = ("scaled", "unbiased", "cohort")
"""Weight modes that can give large weights; in the other modes, weights are normalized or at most 1."""

NEEDS = frozenset({"holdout", "public"})
"""What an algorithm can require."""

MERGING = ("aggregate", "begin", "add", "end", "scale", "step")
"""The methods that merge the updates of a round."""


@dataclass(frozen=True)
class Correction:
    """What an algorithm adds to the gradients in every step of a training: μ·(y − w), and then a shift.

    Attributes:
        shift: a constant for each parameter, by name, in the order of the parameters; empty for none.
        proximal: μ.
    """

    shift: Tensors = field(default_factory=dict)
    proximal: float = 0.0


@parameters
class Algorithm:
    """Both halves of a federated algorithm. A subclass overrides what its paper changes; the defaults are those of FedAvg."""

    weights: WeightMode = "n_selected"
    """How updates are weighted: n_selected (N_i over the admitted samples), uniform, n_total_delta (N_i over all samples, on
    differences), scaled (m/k times n_total_delta), unbiased (p_i over the inclusion probability), cohort (the strategy's own weights),
    n_total_model (N_i over all samples, on models, which shrinks the model; reproduces a known mistake)."""
    server_lr: Annotated[float, Gt(0), Le(1)] = 1.0
    """Server damping s: the new model is (1 − s)·old + s·merged."""
    max_weight: Annotated[Annotated[float, Gt(0)] | None, NotInKey((None,))] = None
    """Largest weight of an update, for modes with large weights (scaled, unbiased, cohort). The record notes the largest weight."""

    card: ClassVar[Card]
    """Source and status of the algorithm, and what it asks and discloses."""
    needs: ClassVar[frozenset[str]] = frozenset()
    """What the algorithm requires: ``holdout``, ``public``."""
    keeps_models: ClassVar[bool] = False
    """True for algorithms with a server half that needs all admitted models at the same time."""
    corrects: ClassVar[bool] = False
    """True for algorithms that change gradients. Otherwise, :meth:`correct` is not called."""
    stacks: ClassVar[bool] = False
    """True if :meth:`backward`, :meth:`correct` and :meth:`finish` of this class also work on a stack of clients. A class that
    overrides one of these methods must set it anew; for a class that overrides none of them, it has no effect."""
    pools: ClassVar[bool] = False
    """True for algorithms that train one client with the data of all clients; the sections selection and systems have no effect."""
    tools: ClassVar["ServerTools | None"] = None
    """Tools of the server half, which :meth:`prepare` sets; not part of the state."""

    def __init_subclass__(cls, **settings: object) -> None:
        """Refuse declarations that cannot be read, and methods with other arguments, where the class is defined."""
        super().__init_subclass__(**settings)
        check_methods(cls, Algorithm)
        check_card(cls)
        needs = cls.__dict__.get("needs", frozenset())
        if isinstance(needs, str) or not isinstance(needs, Set | property):
            raise UsageError(
                f"{cls.__name__}.needs = {shown(needs)}: should be a set, such as frozenset({{'holdout'}})"
            )

    def title(self, training: Training) -> str:
        """The algorithm's name in tables; with settings that its source does not cover, the name says so."""
        return type(self).__name__

    def refuses(self, labels: LabelKind) -> str:
        """Why the algorithm cannot work if labels are ``"classes"`` or ``"numbers"``; empty, the default, if it can."""
        return ""

    # The client half. It may run in another process, so it can use the parameters and what was broadcast, but not the server's state.

    def local_training(self, training: Training) -> Training:
        """The settings of local training under this algorithm; by default those of the experiment."""
        return training

    def backward(self, problem: Problem) -> tuple[Tensor, Tensor]:
        """Put the gradients of the objective on the current batch into the parameters; see :meth:`Problem.backward`."""
        return problem.backward()

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        """Change ``gradients`` before the optimizer's step, in place or by setting entries; only called if :attr:`corrects`."""

    def correction(self, problem: Problem) -> Correction | None:
        """What :meth:`correct` adds in every step of this training of one client; None, the default, if it does more than that.

        With a correction, many steps can be one call, with the same bits. A class that overrides :meth:`correct` must override this
        method, too, or :meth:`correct` is called before each step.
        """
        return None

    def finish(self, problem: Problem) -> tuple[dict[str, Tensors], dict[str, Tensors]]:
        """Called after local training. Returns what is sent beside the model, and the client's new memory, which replaces the old
        memory if the update is admitted; each as kind → name → tensor. Tensors of the problem are copied."""
        return {}, {}

    # The server half.

    def prepare(self, tools: ServerTools) -> None:
        """Receive the tools of the server half; called before the first round of a run, and again when the run is resumed."""
        vars(self)["tools"] = tools

    def broadcast(self) -> dict[str, Tensors]:
        """What every selected client receives beside the model."""
        return {}

    def weigh(self, update: Update, members: Members) -> float:
        """The weight of an update before normalization; 0 leaves it out."""
        weight = self._weight(update, members)
        return weight if self.max_weight is None else min(weight, self.max_weight)

    def _weight(self, update: Update, members: Members) -> float:
        """The weight under the weight mode."""
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
        """Start the fold of a round."""
        return RunningMean()

    def add(self, fold: Any, update: Update, weight: float) -> None:
        """Add one admitted update to the fold."""
        fold.include(update, weight)

    def end(self, fold: Any, model: ModelState, members: Members) -> ModelState:
        """The merged model; the fold has at least one update. The algorithm's state changes only here and in :meth:`step`."""
        with_unsent = {**model, **fold.result()}  # entries that no client sent keep their value
        return self.scale(model, with_unsent, fold.total)

    def weighed(self) -> Mapping[int, float]:
        """Final weights of the last round's updates, by client, if :meth:`end` changed those of :meth:`weigh`; otherwise empty."""
        return {}

    def coefficients(self, weights: Mapping[int, float]) -> Mapping[int, float]:
        """The coefficient c_i with which each update entered the model, by client: the new model is w + Σ c_i Δ_i.

        With ``n_total_model`` it is Σ c_i w_i, damped. These are the coefficients of a weighted mean. A class that changes how updates
        are merged has none, unless it defines this method, too (:func:`coefficients_of`).

        Args:
            weights: the weights before normalization, by client.
        """
        total = sum(weights.values()) if self.weights in ("n_selected", "uniform") else 1.0
        return {client: self.server_lr * weight / total if total > 0 else 0.0 for client, weight in weights.items()}

    def scale(self, model: ModelState, mean: ModelState, total: float) -> ModelState:
        """The merged model under the weight mode.

        Args:
            model: the model before the round.
            mean: weighted mean of the clients' models.
            total: sum of the weights.
        """
        match self.weights:
            case "n_selected" | "uniform":
                return mean
            case "n_total_model":
                return {name: value * total if value.is_floating_point() else value for name, value in mean.items()}
            case _:
                return blend(model, mean, total)

    def step(self, model: ModelState, merged: ModelState, members: Members) -> ModelState:
        """The model after the round, from the old model and the merged model: damping, or a server optimizer of a subclass."""
        return blend(model, merged, self.server_lr)

    def aggregate(self, model: ModelState, updates: Iterable[Update], members: Members) -> ModelState:
        """Merge the admitted updates of a round into ``model``; returns ``model`` itself if there are none (R10)."""
        fold, empty = self.begin(model, members), True
        if type(self).add is Algorithm.add and not hasattr(fold, "include"):
            raise UsageError(
                f"{type(self).__name__}.begin returned {shown(fold)}; return what add(fold, update, weight) fills"
            )
        for update in updates:
            weight = float(self.weigh(update, members))  # a class of a user may return a tensor
            if weight > 0:
                self.add(fold, update, weight)
                empty = False
        return model if empty else self.step(model, self.end(fold, model, members), members)

    def state_dict(self) -> dict[str, Any]:
        """The server's state: all attributes of ``self`` except parameters and tools."""
        fixed = {"tools", *getattr(self, "__dataclass_fields__", {})}
        return {name: value for name, value in vars(self).items() if name not in fixed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that :meth:`state_dict` returned."""
        for name, value in state.items():
            setattr(self, name, as_before(value, getattr(self, name, None)))


def check_hooks(algorithm: Algorithm) -> None:
    """Refuse a class with a method that would never be called, or with needs that do not exist.

    Raises:
        UsageError: it overrides ``correct`` or ``correction`` without ``corrects = True``, or ``correction`` alone; or it needs
            something else than ``holdout`` and ``public``.
    """
    name = type(algorithm).__name__
    unknown = min(set(algorithm.needs) - NEEDS, key=str, default=None)
    if unknown is not None:
        raise UsageError(f"{name}.needs: there is no {shown(unknown)}; {nearest(str(unknown), NEEDS)}")
    own = [hook for hook in ("correct", "correction") if getattr(type(algorithm), hook) is not getattr(Algorithm, hook)]
    if own and not algorithm.corrects:
        raise UsageError(f"{name}.{own[0]} would never be called; set corrects = True in the class {name}")
    if own == ["correction"]:
        raise UsageError(
            f"{name}.correction says what correct adds, and {name} defines no correct; define it, too, for plans that call it"
        )


def coefficients_of(algorithm: Algorithm, weights: Mapping[int, float]) -> Mapping[int, float]:
    """What :meth:`Algorithm.coefficients` returns; empty if a subclass of the class that defines it merges updates in its own way: the
    new model need not be such a sum then, as with a median or a server optimizer."""
    stated = _defined_at(algorithm, "coefficients")
    merges = any(_defined_at(algorithm, name) < stated for name in MERGING)
    return {} if merges else algorithm.coefficients(weights)


def adds_correction(algorithm: Algorithm) -> bool:
    """Whether clients of this algorithm follow the gradient of their loss plus what :meth:`Algorithm.correction` returns."""
    own_backward = getattr(algorithm.backward, "__func__", None) is not Algorithm.backward
    replaced = any(name in vars(algorithm) for name in ("correct", "correction"))
    stated = _defined_at(algorithm, "correction") <= _defined_at(algorithm, "correct")
    return algorithm.corrects and not own_backward and not replaced and stated


def _defined_at(algorithm: Algorithm, name: str) -> int:
    """The position of the class that defines this method among the bases of the algorithm's class; 0 for the class itself."""
    return next(i for i, base in enumerate(type(algorithm).__mro__) if name in vars(base))


def takes_plain_steps(algorithm: Algorithm) -> bool:
    """Whether clients of this algorithm follow the plain gradient of their loss on each batch."""
    return not algorithm.corrects and getattr(algorithm.backward, "__func__", None) is Algorithm.backward
