"""Parts that several contract checks share, with a small federation that has one client for each kind of problem."""

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar, TypeVar

import numpy as np
import torch

from fedcohort.algorithms import Algorithm, Members, ModelState, Problem, RunningMean, Tensors, Update, WeightMode
from fedcohort.algorithms.server_tools import ServerTools
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.errors import shown
from fedcohort.core.files.state_files import pack
from fedcohort.core.parameters import describe, has_source, parameters
from fedcohort.core.plugins import Card
from fedcohort.core.random_streams import rng
from fedcohort.core.user_code.own_code import ends_in_own_code, with_place
from fedcohort.core.user_code.unseeded_draws import ADVICE, drawn_since, generator_states, is_own
from fedcohort.core.words.formatted_values import in_words
from fedcohort.engines.initial_network import build_module
from fedcohort.federation.federation import Federation, Samples
from fedcohort.models import Model

__all__ = [
    "BROKEN", "HEALTHY", "HELD_OUT", "NAN", "SIZES", "ControlVariates", "bits", "check_card", "check_described", "check_kind",
    "check_model_state", "clone", "during", "during_seeded", "members_of", "new_from", "require", "server_tools", "small_federation",
]  # fmt: skip


T = TypeVar("T")


def require(condition: object, complaint: str) -> None:
    """Raise an AssertionError unless ``condition`` holds; unlike ``assert``, also under ``python -O``."""
    if not condition:
        raise AssertionError(complaint)


@contextmanager
def during(what: str) -> Iterator[None]:
    """Turn an error raised inside into an AssertionError that says where it happened."""
    try:
        yield
    except Exception as error:
        if isinstance(error, AssertionError) and not ends_in_own_code(error):
            raise  # a complaint of a check
        advice = (
            "; change a copy of what was given" if isinstance(error, ValueError) and "read-only" in str(error) else ""
        )
        raise AssertionError(f"{what}: raised {with_place(error)}{advice}") from error


@contextmanager
def during_seeded(what: str, plugin: object, setting: str) -> Iterator[None]:
    """As :func:`during`; also refuses draws of a user's plug-in from generators without a seed.

    Args:
        what: what happens, for messages.
        plugin: the object, or the function, that is called.
        setting: the setting that names it in experiments.
    """
    before = generator_states()
    with during(what), warnings.catch_warnings():
        for told_by_complaints in ("which FedCohort does not seed", "when it is asked again"):
            warnings.filterwarnings("ignore", message=f".*{told_by_complaints}")
        yield
    drawn = drawn_since(before, generator_states())
    require(not drawn or not is_own(plugin), f"{what}: draws from {in_words(drawn)}; {ADVICE[setting]}")


def new_from(make: Callable[[], T]) -> T:
    """A new object; ``make`` must be a function or a class.

    Raises:
        AssertionError: it is an object; the message says what to give.
    """
    if not callable(make) or isinstance(make, torch.nn.Module):
        raise AssertionError(
            f"make = {shown(make)}: give a function or a class that returns a new object in each call, such as "
            f"lambda: {type(make).__name__}()"
        )
    return make()


def check_described(plugin: object) -> None:
    """Check that the parameters are declared, and that each has a docstring, unless the class has no source to read it from."""
    cls = type(plugin)
    require(hasattr(cls, "__pydantic_fields__"), f"{cls.__name__}: mark the class with @parameters")
    if not has_source(cls):
        return
    for parameter in describe(cls):
        where = f"{cls.__name__}.{parameter.name}"
        require(parameter.doc.strip(), f"{where}: write a docstring under the field; the documentation prints it")


def check_kind(plugin: object, base: type, name: str) -> None:
    """Check that a plug-in extends the class of its kind, and that its parameters are declared and described.

    Args:
        plugin: the plug-in.
        base: the class.
        name: where users import it from, such as ``"fedcohort.federation.Latency"``.
    """
    require(isinstance(plugin, base), f"{type(plugin).__name__}: does not extend {name}")
    check_described(plugin)


def check_card(plugin: object) -> None:
    """Check that the class has a complete card."""
    where = f"{type(plugin).__name__}.card"
    card = getattr(plugin, "card", None)
    if not isinstance(card, Card):
        raise AssertionError(f"{where}: is missing; give the class a Card with its source and status")
    for field in dataclasses.fields(Card):
        require(
            getattr(card, field.name).strip(),
            f"{where}.{field.name}: is empty; write a text, or leave it out for the default",
        )
    require(card.status in ("paper", "code", "ours"), f"{where}.status = {card.status!r}: use paper, code or ours")


# --- models as data --------------------------------------------------------------------------------------------------------


def bits(state: Mapping[str, object]) -> bytes:
    """The exact content of a state as bytes, independent of the order of its entries."""
    return pack({key: state[key] for key in sorted(state)})


def clone(state: ModelState) -> ModelState:
    """A copy of a state."""
    return {key: value.clone() for key, value in state.items()}


def check_model_state(state: ModelState, like: ModelState, where: str) -> None:
    """Check that a state has the entries, types and shapes of ``like``, and is contiguous and finite."""
    require(
        list(state) == list(like), f"{where}: its entries differ from the model's: {sorted(set(state) ^ set(like))}"
    )
    for key, value in state.items():
        actual, wanted = f"{value.dtype} {list(value.shape)}", f"{like[key].dtype} {list(like[key].shape)}"
        require(actual == wanted, f"{where}: {key} is {actual}, not {wanted}")
        require(value.is_contiguous(), f"{where}: {key} is not contiguous")
        require(torch.isfinite(value).all(), f"{where}: {key} has NaN or infinite entries")


# --- a federation ----------------------------------------------------------------------------------------------------------

SIZES = (9, 16, 5, 23, 12, 0, 30, 7, 8, 6)
HEALTHY = (6, 0, 3, 1, 7, 2, 4)
"""Clients that train without problems, in arbitrary order. Client 5 has no data."""
HELD_OUT = 2
"""Number of samples that each client holds out of its training."""
NAN, BROKEN = 8, 9
"""A client with a training that overflows, and a client with data that raise an error."""
UNKNOWN_LABEL = 99
"""The label of the first sample of the client with data that raise an error."""


def small_federation(sizes: Sequence[int] = SIZES, *, trouble: bool = True) -> Federation:
    """A federation of three classes in six dimensions; with ``trouble``, client 8 overflows and client 9 raises an error."""
    draw = rng(0, "contract-data")

    def samples(n: int) -> Samples:
        labels = draw.integers(0, 3, n)
        features = draw.normal(size=(n, 6)) + 2.0 * np.eye(3, 6)[labels]
        return Samples(torch.from_numpy(features.astype(np.float32)), torch.from_numpy(labels))

    held = np.where(np.array(sizes) > 0, HELD_OUT, 0)
    offsets = np.concatenate([[0], np.cumsum(np.array(sizes) + held)])
    train = samples(int(offsets[-1]))
    if trouble:
        train.features[offsets[NAN] : offsets[NAN + 1]] = torch.inf
        train.labels[offsets[BROKEN]] = UNKNOWN_LABEL
    shift, scale = torch.zeros(6, dtype=torch.float64), torch.ones(6, dtype=torch.float64)
    return Federation(train, offsets, samples(40), samples(150), ("a", "b", "c"), shift, scale, held)


def server_tools(model: Model) -> ServerTools:
    """The tools that an algorithm gets to run models on the server."""
    federation = small_federation(trouble=False)
    return ServerTools(
        build=lambda: build_module(model, federation, 1),
        prepared=federation.prepare,
        num_classes=federation.num_classes,
        public=federation.test.features,
        validation=(federation.validation.features, federation.validation.labels),
        seed=1,
    )


def members_of(clients: Sequence[int], t: int = 1, trainable: frozenset[str] | None = None) -> Members:
    """The members of round ``t`` with these clients, with everything that any weight mode needs."""
    return Members(
        num_clients=len(SIZES),
        total_samples=sum(SIZES),
        k=len(clients),
        inclusion=dict.fromkeys(clients, len(clients) / len(SIZES)),
        weights={client: 1.0 + client for client in clients},
        t=t,
        trainable=trainable,
    )


# --- an algorithm that uses every hook -------------------------------------------------------------------------------------


@parameters
class ControlVariates(Algorithm):
    """SCAFFOLD for plain SGD without its options: a small algorithm that uses every hook."""

    weights: WeightMode = "uniform"
    """Weights of the models; changes of the control variates are not weighted."""
    card: ClassVar[Card] = Card(source="Karimireddy et al. 2020, arXiv:1910.06378", status="paper", cost="O(kP)")
    corrects: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.c: Tensors = {}

    def local_training(self, training: Training) -> Training:
        """Plain SGD."""
        return dataclasses.replace(training, optimizer="sgd", momentum=0.0)

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        """g − c_i + c."""
        c, c_i = problem.received.get("c", {}), problem.memory.get("c", {})
        for name, gradient in gradients.items():
            if name in c_i:
                gradient.sub_(c_i[name])
            if name in c:
                gradient.add_(c[name])

    def finish(self, problem: Problem) -> tuple[dict[str, Tensors], dict[str, Tensors]]:
        """c_i⁺ = c_i − c + (w − y)/(H·η), or c_i without a step; sends c_i⁺ − c_i, keeps c_i⁺."""
        c, c_i = problem.received.get("c", {}), problem.memory.get("c", {})
        kept, sent = {}, {}
        for name, y in problem.parameters.items():
            zero = torch.zeros_like(y, memory_format=torch.contiguous_format)
            sent[name] = zero
            if problem.steps:
                sent[name] = (problem.anchor[name] - y.detach()) / (problem.steps * problem.lr) - c.get(name, zero)
            kept[name] = c_i.get(name, zero) + sent[name]
        return {"c": sent}, {"c": kept}

    def broadcast(self) -> dict[str, Tensors]:
        """The server's control variate c, once it is not 0."""
        return {"c": self.c} if self.c else {}

    def begin(self, model: ModelState, members: Members) -> tuple[RunningMean, RunningMean]:
        """Start one mean of the models and one of the changes."""
        return super().begin(model, members), RunningMean()

    def add(self, fold: tuple[RunningMean, RunningMean], update: Update, weight: float) -> None:
        """Add a model with its weight, and a change without one."""
        super().add(fold[0], update, weight)
        fold[1].add(update.extra["c"], 1.0)

    def end(self, fold: tuple[RunningMean, RunningMean], model: ModelState, members: Members) -> ModelState:
        """c ← c + |R_t|/m · mean(Δc_i)."""
        share = fold[1].total / members.num_clients
        change = fold[1].result()
        self.c = {name: share * value + self.c.get(name, 0.0) for name, value in change.items()}
        return super().end(fold[0], model, members)
