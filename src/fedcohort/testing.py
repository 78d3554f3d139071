"""The contracts, as checks that anybody can run: what every strategy, algorithm, partition, model and engine must hold.

A plug-in author calls them from a test; they need no test framework and raise an ``AssertionError`` that says what went wrong:

>>> from fedcohort.selection.uniform import Uniform
>>> check_selector(Uniform)

``make`` is called without arguments, several times, and must give a new object each time: a class with defaults, or
``lambda: MyStrategy(width=3)``. Every check is deterministic.
"""

import copy
import dataclasses
import json
import math
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch

from fedcohort.algorithms.base import Algorithm, Members, ModelState, Problem, RunningMean, Tensors, Update, is_finite
from fedcohort.algorithms.local import Training
from fedcohort.arrays import Indices, Values
from fedcohort.engines.base import ClientError, Engine
from fedcohort.engines.local import LocalEngine
from fedcohort.errors import UsageError
from fedcohort.federation.federation import Federation, Samples
from fedcohort.federation.partition import Rule, describe, partition
from fedcohort.models import Mlp, Model
from fedcohort.parameters import describe as describe_parameters
from fedcohort.parameters import parameters
from fedcohort.plugins import Card
from fedcohort.selection.base import Census, Cohort, LocalLoss, Outcome, Question, Round, Selector, choose
from fedcohort.selection.everyone import All
from fedcohort.states import pack, unpack
from fedcohort.streams import rng

__all__ = [
    "ControlVariates", "MakeEngine", "check_algorithm", "check_engine", "check_model", "check_partition", "check_selector",
]  # fmt: skip


def _require(condition: object, message: str) -> None:
    if not condition:
        raise AssertionError(message)


@contextmanager
def _during(what: str) -> Iterator[None]:
    """An error raised inside is a broken contract; say where it happened."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f"{what}: raised {type(error).__name__}: {error}") from error


def _check_described(thing: object) -> None:
    """Parameters are declared and each has its sentence; so has the card, where there is one."""
    cls = type(thing)
    _require(hasattr(cls, "__pydantic_fields__"), f"{cls.__name__}: mark the class with @parameters")
    for parameter in describe_parameters(cls):
        _require(
            parameter.doc.strip(),
            f"{cls.__name__}.{parameter.name}: write a sentence under the field; the docs print it",
        )


def _check_card(thing: Any) -> None:
    name = type(thing).__name__
    card = getattr(thing, "card", None)
    _require(isinstance(card, Card), f"{name}.card: give the class a Card with its source and status")
    assert card is not None
    for field in dataclasses.fields(Card):
        _require(getattr(card, field.name).strip(), f"{name}.card.{field.name}: is empty")
    _require(card.status in ("paper", "code", "ours"), f"{name}.card.status = {card.status!r}: paper, code or ours")


# --- selectors -------------------------------------------------------------------------------------------------------------

ROUNDS = 12
NEEDS = {"histogram", "validation", "update_norm", "update"}


@dataclass(frozen=True)
class _World:
    """A federation that a strategy plays against: functions of the round, so that a resumed run meets the same."""

    name: str
    m: int = 12
    k: int = 3
    present: Callable[[int, int], list[int]] = lambda t, m: [i for i in range(m) if (i + t) % 5]
    fails: Callable[[int], bool] = lambda client: False
    silent: bool = False
    """Answers, reports and accuracies are NaN or infinite."""
    alike: bool = False
    """Nothing distinguishes one client or round from another."""


_WORLDS = (
    _World("an ordinary run"),
    _World("few clients available", present=lambda t, m: [*range(t % 5)] if t % 3 else [*range(m)]),
    _World("nobody answers", silent=True),
    _World("all clients alike", alike=True),
    _World("client 0 always fails", fails=lambda client: client == 0, present=lambda t, m: [*range(m)]),
    _World("everybody always fails", fails=lambda client: True),
    _World("k = m", k=12, present=lambda t, m: [*range(m)]),
    _World("one client", m=1, k=1, present=lambda t, m: [0]),
)


class _Reply:
    """All that a strategy may see of an update."""

    __slots__ = ("client", "report")

    def __init__(self, client: int, report: dict[str, float]) -> None:
        self.client = client
        self.report = report


def check_selector(make: Callable[[], Selector]) -> None:
    """A selection strategy holds the contract of :class:`fedcohort.selection.base.Selector`.

    Against eight small federations (few available, no answers, ties, failures, k = m, one client) it returns distinct available
    clients in the right number, with reasons; the same generator gives the same picks; it goes on after a resume as if it had never
    stopped; it changes nothing that it was given.
    """
    selector = make()
    name = type(selector).__name__
    _check_described(selector)
    _check_card(selector)
    _require(selector.needs <= NEEDS, f"{name}.needs: {sorted(selector.needs - NEEDS)} unknown; known: {sorted(NEEDS)}")
    for world in _WORLDS:
        where = f"{name}, {world.name}"
        straight = _play(_ready(make, world), world, range(1, ROUNDS + 1))
        again = _play(_ready(make, world), world, range(1, ROUNDS + 1))
        _require(
            straight == again,
            f"{where}: the same generators gave other picks; draw from round.rng only\n{straight}\n{again}",
        )
        half = _ready(make, world)
        _play(half, world, range(1, ROUNDS // 2 + 1))
        with _during(f"{where}: saving and loading its state"):
            saved = pack(half.state_dict())
            resumed = _ready(make, world)
            resumed.load_state_dict(unpack(saved))
            _require(
                pack(resumed.state_dict()) == saved,
                f"{where}: state_dict() after load_state_dict() is not what was loaded",
            )
        rest = _play(resumed, world, range(ROUNDS // 2 + 1, ROUNDS + 1))
        _require(
            rest == straight[ROUNDS // 2 :],
            f"{where}: resumed after round {ROUNDS // 2} it picks other clients; state_dict() must hold all that select() uses\n"
            f"straight {straight[ROUNDS // 2 :]}\nresumed  {rest}",
        )


def _ready(make: Callable[[], Selector], world: _World) -> Selector:
    selector = make()
    sizes = np.full(world.m, 20) if world.alike else rng(0, "contract-sizes").integers(10, 60, world.m)
    histogram = np.stack([sizes // 2, sizes - sizes // 2, np.zeros_like(sizes)], axis=1)
    if not world.alike:
        histogram[::2] = histogram[::2, ::-1]
    shown = _frozen(histogram) if "histogram" in selector.needs else None
    with _during(f"{type(selector).__name__}, {world.name}: setup"):
        selector.setup(Census(_frozen(sizes), 3, world.k, shown))
    return selector


def _play(selector: Selector, world: _World, rounds: Iterable[int]) -> list[list[int]]:
    """The picks of these rounds, each checked."""
    picks = []
    for t in rounds:
        where = f"{type(selector).__name__}, {world.name}, round {t}"
        available = _frozen(np.array(world.present(t, world.m), dtype=np.int64))
        durations = rng(0, "contract-durations", t).uniform(1, 9, world.m)
        durations[:: 1 if t == 1 else 3] = np.nan
        if world.alike:
            durations[:] = 5.0
        asked: list[Question] = []
        ask = _asker(selector, world, t, available, asked)
        k = min(world.k, len(available))
        round_ = Round(t, k, available, rng(0, "select", t), 10.0 * t, _frozen(durations), ask)
        with _during(f"{where}: select"):
            cohort = choose(selector, round_)
        _check_cohort(cohort, round_, selector, where)
        if asked:
            for field in ("asks", "discloses"):
                said = getattr(selector.card, field)
                _require(said != "nothing", f"{where}: asked {asked[0].kind}, but card.{field} says {said!r}")
        with _during(f"{where}: admit"):
            outcome = _outcome(selector, world, t, cohort)
        with _during(f"{where}: observe"):
            selector.observe(outcome)
        picks.append(cohort.clients.tolist())
    return picks


def _asker(
    selector: Selector, world: _World, t: int, available: Indices, asked: list[Question]
) -> Callable[[Question, Indices], Values]:
    def ask(question: Question, clients: Indices) -> Values:
        who = f"{type(selector).__name__}, {world.name}, round {t}: ask({question!r})"
        clients = np.asarray(clients)
        _require(np.isin(clients, available).all(), f"{who}: asks clients that are not available")
        _require(
            Question.from_json(json.loads(json.dumps(question.to_json()))) == question,
            f"{who}: the question does not survive to_json and from_json",
        )
        asked.append(question)
        values = rng(0, f"contract-{question.kind}", t).uniform(0, 3, (world.m, question.numbers))[clients]
        if world.alike:
            values[:] = 1.0
        if world.silent:
            values[:] = np.resize([np.nan, np.inf, np.nan, -np.inf], values.shape)
        elif t % 4 == 0:
            values[:1] = np.nan
        return _frozen(values[:, 0] if question.numbers == 1 else values)

    return ask


def _outcome(selector: Selector, world: _World, t: int, cohort: Cohort) -> Outcome:
    n = len(cohort)
    trained = np.array([not world.fails(int(client)) for client in cohort.clients], dtype=bool)
    draw = rng(0, "contract-outcome", t)
    reports = {name: draw.uniform(0, 2, world.m)[cohort.clients] for name in ("loss", "square_loss", "accuracy")}
    reports |= {"samples": np.full(n, 20.0), "steps": np.full(n, 5.0)}
    if "update_norm" in selector.needs:
        reports["update_norm"] = draw.uniform(0, 2, world.m)[cohort.clients]
    if "update" in selector.needs:
        reports["update"] = draw.normal(size=(world.m, 7))[cohort.clients]
    for values in reports.values():
        values[~trained] = np.nan
        if world.alike:
            values[trained] = 1.0
        if world.silent:
            values[:] = np.nan
    replies = [
        _Reply(int(client), {name: float(v[i]) for name, v in reports.items() if v.ndim == 1 and np.isfinite(v[i])})
        for i, client in enumerate(cohort.clients)
        if trained[i]
    ]
    admitted = list(selector.admit(iter(replies)))
    order = [next((i for i, reply in enumerate(replies) if reply is one), -1) for one in admitted]
    _require(
        order == sorted(set(order)) and -1 not in order,
        f"{type(selector).__name__}, {world.name}, round {t}: admit must pass on the updates it was given, in their order",
    )
    names = {reply.client for reply in admitted}
    accuracy = 0.5 if world.alike else math.nan if world.silent else float(draw.uniform())
    class_accuracy = np.array([accuracy, accuracy / 2, np.nan])
    return Outcome(
        t=t,
        cohort=cohort,
        trained=_frozen(trained),
        admitted=_frozen(np.array([int(client) in names for client in cohort.clients], dtype=bool)),
        reports={} if world.silent else {name: _frozen(values) for name, values in reports.items()},
        durations=_frozen(np.full(n, 5.0) if world.alike else draw.uniform(1, 9, n)),
        duration=9.0,
        accuracy=accuracy,
        class_accuracy=_frozen(class_accuracy),
    )


def _check_cohort(cohort: Cohort, round_: Round, selector: Selector, where: str) -> None:
    available, n = round_.available, len(cohort)
    if isinstance(selector, All):
        _require(n == len(available), f"{where}: {n} of {len(available)} available clients")
    elif cohort.multiplicity is not None and len(available) > round_.k:
        draws = int(cohort.multiplicity.sum())
        _require(draws == round_.k or selector.variable_size, f"{where}: {draws} draws instead of k = {round_.k}")
    elif not selector.variable_size:
        _require(
            n == round_.k, f"{where}: {n} clients instead of min(k, available) = {round_.k}; is it of variable_size?"
        )
    _check_aligned(cohort, where)
    _require(cohort.why is not None, f"{where}: say why: Cohort(…, why=Why(candidates, scores, terms, note))")
    assert cohort.why is not None
    why, candidates = cohort.why, np.asarray(cohort.why.candidates)
    _require(why.note.strip(), f"{where}: Why.note is empty; say what kind of choice it was")
    _require(len(np.unique(candidates)) == len(candidates), f"{where}: Why.candidates names a client twice")
    _require(np.isin(candidates, available).all(), f"{where}: Why.candidates names clients that are not available")
    _require(np.isin(cohort.clients, candidates).all(), f"{where}: Why.candidates lacks clients that were selected")
    for name, values in {"scores": why.scores, **why.terms}.items():
        values = np.asarray(values)
        _require(
            values.shape == candidates.shape and values.dtype.kind == "f",
            f"{where}: Why {name}: {values.dtype} {list(values.shape)}; must be one float for each of {len(candidates)} candidates",
        )


def _check_aligned(cohort: Cohort, where: str) -> None:
    limits: dict[str, tuple[str, float, float]] = {
        "multiplicity": ("iu", 1, math.inf),
        "inclusion": ("f", 1e-12, 1 + 1e-9),
        "weights": ("f", 0, math.inf),
        "epochs": ("iu", 1, math.inf),
        "share": ("f", 0, 1),
    }
    for name, (kinds, low, high) in limits.items():
        values = getattr(cohort, name)
        if values is not None:
            fine = (
                values.dtype.kind in kinds and np.isfinite(values).all() and ((values >= low) & (values <= high)).all()
            )
            _require(fine, f"{where}: Cohort.{name} = {values}: must lie within {low:g} and {high:g}")
    if cohort.stop is not None:
        with _during(f"{where}: Cohort.stop must be plain data with a 'rule'"):
            _require("rule" in json.loads(json.dumps(dict(cohort.stop))), f"{where}: Cohort.stop names no rule")


def _frozen(array: Any) -> Any:
    array = np.array(array)
    array.setflags(write=False)
    return array


# --- a small federation, with one client of each kind of trouble -----------------------------------------------------------

HEALTHY, NAN, BROKEN = (6, 0, 3, 1, 7, 2, 4), 8, 9
"""Clients that train well, in no order; one whose numbers overflow; one whose data raise an error."""

SIZES = (9, 16, 5, 23, 12, 0, 30, 7, 8, 6)


def _federation(sizes: Sequence[int] = SIZES, trouble: bool = True) -> Federation:
    draw = rng(0, "contract-data")

    def samples(n: int) -> Samples:
        labels = draw.integers(0, 3, n)
        features = draw.normal(size=(n, 6)) + 2.0 * np.eye(3, 6)[labels]
        return Samples(torch.from_numpy(features.astype(np.float32)), torch.from_numpy(labels))

    offsets = np.concatenate([[0], np.cumsum(sizes)])
    train = samples(int(offsets[-1]))
    if trouble:
        train.features[offsets[NAN] : offsets[NAN + 1]] = 3e38
        train.labels[offsets[BROKEN]] = 99
    shift, scale = torch.zeros(6, dtype=torch.float64), torch.ones(6, dtype=torch.float64)
    return Federation(train, offsets, samples(40), samples(150), ("a", "b", "c"), shift, scale)


@parameters
class ControlVariates(Algorithm):
    """SCAFFOLD for plain SGD, without its options: it uses every hook of an algorithm, which is what the checks need of it."""

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
        """c_i⁺ = c_i − c + (w − y)/(H·η); sends c_i⁺ − c_i, keeps c_i⁺."""
        kept, sent = {}, {}
        for name, y in problem.parameters.items():
            zero = torch.zeros_like(y, memory_format=torch.contiguous_format)
            old, c = problem.memory.get("c", {}).get(name, zero), problem.received.get("c", {}).get(name, zero)
            kept[name] = old - c + (problem.anchor[name] - y.detach()) / (problem.steps * problem.lr)
            sent[name] = kept[name] - old
        return {"c": sent}, {"c": kept}

    def broadcast(self) -> dict[str, Tensors]:
        """c; nothing as long as it is 0."""
        return {"c": self.c} if self.c else {}

    def begin(self, model: ModelState, members: Members) -> tuple[RunningMean, RunningMean]:
        """One mean of models, one of changes."""
        return super().begin(model, members), RunningMean()

    def add(self, fold: tuple[RunningMean, RunningMean], update: Update, weight: float) -> None:
        """Models are weighted, changes are not."""
        super().add(fold[0], update, weight)
        fold[1].add(update.extra["c"], 1.0)

    def end(self, fold: tuple[RunningMean, RunningMean], model: ModelState, members: Members) -> ModelState:
        """c ← c + |R_t|/m · mean(Δc_i)."""
        share = fold[1].total / members.num_clients
        self.c = {name: share * change + (self.c[name] if self.c else 0.0) for name, change in fold[1].result().items()}
        return super().end(fold[0], model, members)


# --- algorithms ------------------------------------------------------------------------------------------------------------


def check_algorithm(make: Callable[[], Algorithm], *, averages: bool = False) -> None:
    """An algorithm holds the contract of :class:`fedcohort.algorithms.base.Algorithm`.

    A round without updates changes nothing (R10); a round in which nobody learned anything leaves the model as it is; inputs are not
    changed; updates are not hoarded unless it ``keeps_models``; resumed from its saved state it goes on to the same bits.

    Args:
        make: gives a new algorithm.
        averages: the new model is a weighted mean of the clients' models (server_lr = 1); then that mean is checked too.
    """
    algorithm = make()
    name = type(algorithm).__name__
    _check_described(algorithm)
    _check_card(algorithm)
    training = Training(batch_size=4)
    before = copy.deepcopy(training)
    with _during(f"{name}: local_training"):
        wanted = algorithm.local_training(training)
        _require(isinstance(wanted, Training), f"{name}.local_training: must return a Training")
        _require(
            training == before, f"{name}.local_training: changed the settings it was given; use dataclasses.replace"
        )
        _require(algorithm.local_training(training) == wanted, f"{name}.local_training: two calls, two results")
    for precision in ("float32", "float64"):
        _check_rounds(make, name, precision)
        _check_merging(make, name, precision)
    if averages:
        _check_mean(make, name)


def _members(clients: Sequence[int]) -> Members:
    return Members(
        num_clients=len(SIZES),
        total_samples=sum(SIZES),
        k=len(clients),
        inclusion=dict.fromkeys(clients, len(clients) / len(SIZES)),
        weights={client: 1.0 + client for client in clients},
    )


def _learn(
    algorithm: Algorithm, engine: Engine, model: ModelState, rounds: Iterable[int], name: str
) -> tuple[ModelState, list[Update]]:
    """Play rounds with three healthy clients each; the model, and copies of the last round's updates."""
    updates: list[Update] = []
    for t in rounds:
        clients = [HEALTHY[(t + i) % len(HEALTHY)] for i in range(3)]
        with _during(f"{name}, round {t}"):
            updates = list(engine.train(model, t, Cohort(np.array(clients)), algorithm))
            kept = copy.deepcopy(updates)
            new = algorithm.aggregate(model, iter(updates), _members(clients))
            engine.commit(clients)
            pack(algorithm.broadcast())
        _check_model_state(new, model, f"{name}, round {t}")
        model, updates = new, kept
    return model, updates


def _check_rounds(make: Callable[[], Algorithm], name: str, precision: Any) -> None:
    """Four rounds straight; two, saved, and two more; a round without updates in between."""

    def start() -> tuple[Algorithm, LocalEngine]:
        algorithm = make()
        training = Training(batch_size=4, precision=precision)
        return algorithm, LocalEngine(_federation(), Mlp(hidden=4), training, algorithm, 1, workers=1)

    straight, engine = start()
    with closing(engine):
        model, _ = _learn(straight, engine, engine.initial_model(), [1, 2], name)
        saved = pack({"model": model, "algorithm": straight.state_dict(), "engine": dict(engine.state_dict())})
        same = straight.aggregate(model, iter(()), _members([]))
        _require(
            _bits(same) == _bits(model) and pack(straight.state_dict()) == pack(unpack(saved)["algorithm"]),
            f"{name}: a round in which nobody was admitted changed the model or the algorithm's state (R10)",
        )
        expected, _ = _learn(straight, engine, model, [3, 4], name)
    resumed, engine = start()
    with closing(engine):
        with _during(f"{name}: loading its state"):
            state = unpack(saved)
            resumed.load_state_dict(state["algorithm"])
            engine.load_state_dict(state["engine"])
        found, _ = _learn(resumed, engine, state["model"], [3, 4], name)
    _require(_bits(found) == _bits(expected), f"{name}: resumed after round 2 it comes to another model")
    _require(
        pack(resumed.state_dict()) == pack(straight.state_dict()),
        f"{name}: resumed after round 2 it ends in another state",
    )


def _check_merging(make: Callable[[], Algorithm], name: str, precision: Any) -> None:
    """Nothing learned; a client of weight 0; a single client; inputs unchanged; nothing hoarded."""
    algorithm = make()
    training = Training(batch_size=4, precision=precision)
    engine = LocalEngine(_federation(), Mlp(hidden=4), training, algorithm, 1, workers=1)
    with closing(engine):
        model = engine.initial_model()
        _, updates = _learn(algorithm, engine, model, [1], name)
    clients = [update.client for update in updates]
    members = _members(clients)

    if algorithm.weights != "n_total_model":
        idle = [dataclasses.replace(update, state=_copy(model)) for update in updates]
        merged = make().aggregate(model, iter(idle), members)
        _require(
            _bits(merged) == _bits(model), f"{name}: every client sent the model back, but it changed ({precision})"
        )

    before = _bits(model), [_bits(update.state) for update in updates], pack({"u": [u.extra for u in updates]})
    expected = make().aggregate(model, iter(updates), members)
    after = _bits(model), [_bits(update.state) for update in updates], pack({"u": [u.extra for u in updates]})
    _require(before == after, f"{name}: aggregate changed the model or the updates that it was given")

    garbage = {key: torch.full_like(value, math.nan) for key, value in updates[0].state.items()}
    nobody = dataclasses.replace(updates[0], num_samples=0, state=garbage)
    if make().weigh(nobody, members) == 0:
        merged = make().aggregate(model, iter([nobody, *updates]), members)
        _require(_bits(merged) == _bits(expected), f"{name}: an update of weight 0 changed the result")

    alone = make().aggregate(model, iter(updates[:1]), members)
    _check_model_state(alone, model, f"{name}, a single client")

    if not algorithm.keeps_models:
        alive: list[weakref.ref[torch.Tensor]] = []

        def stream() -> Iterator[Update]:
            for _ in range(12):
                update = copy.deepcopy(updates[0])
                alive.append(weakref.ref(next(iter(update.state.values()))))
                held = sum(reference() is not None for reference in alive)
                _require(
                    held <= 4, f"{name}: holds {held} updates at once; fold them one by one, or say keeps_models = True"
                )
                yield update

        make().aggregate(model, stream(), members)


def _check_mean(make: Callable[[], Algorithm], name: str) -> None:
    """Identical models, order, one client, integer entries."""
    draw = torch.Generator().manual_seed(0)
    for dtype in (torch.float32, torch.float64):
        states = [
            {"w": torch.randn(50, generator=draw, dtype=torch.float64).to(dtype), "seen": torch.tensor(i)}
            for i in (3, 9, 5)
        ]
        updates = [Update(i, n, 1, state) for i, (n, state) in enumerate(zip((7, 100, 31), states, strict=True))]
        start, members = {"w": torch.zeros(50, dtype=dtype), "seen": torch.tensor(0)}, _members([0, 1, 2])

        def merge(updates: Iterable[Update], start: ModelState = start, members: Members = members) -> ModelState:
            return make().aggregate(start, iter(updates), members)

        alike = [dataclasses.replace(update, state=_copy(states[1])) for update in updates * 4]
        _require(
            _bits(merge(alike)) == _bits(states[1]), f"{name}: the mean of identical models is not that model ({dtype})"
        )
        _require(
            _bits(merge(updates[:1])) == _bits(states[0]), f"{name}: the mean of one model is not that model ({dtype})"
        )
        mean, back = merge(updates), merge(updates[::-1])
        _require(torch.allclose(mean["w"], back["w"], rtol=1e-6, atol=1e-7), f"{name}: the order of updates matters")
        _require(
            mean["seen"].dtype == torch.int64 and int(mean["seen"]) == 9,
            f"{name}: integer entries must stay integers and take the maximum, got {mean['seen']}",
        )


def _check_model_state(state: ModelState, like: ModelState, where: str) -> None:
    _require(list(state) == list(like), f"{where}: the model's entries changed: {sorted(set(state) ^ set(like))}")
    for key, value in state.items():
        _require(
            value.dtype == like[key].dtype and value.shape == like[key].shape and value.is_contiguous(),
            f"{where}: {key} is {value.dtype} {list(value.shape)}; must be contiguous {like[key].dtype} {list(like[key].shape)}",
        )
        _require(torch.isfinite(value).all(), f"{where}: {key} has NaN or infinite entries")


def _copy(state: ModelState) -> ModelState:
    return {key: value.clone() for key, value in state.items()}


def _bits(state: Mapping[str, Any]) -> bytes:
    return pack({key: state[key] for key in sorted(state)})


# --- partitions, models ----------------------------------------------------------------------------------------------------


def check_partition(make: Callable[[], Rule], *, complete: bool = True) -> None:
    """A partition rule gives every sample to at most one client, everyone at least ``min_size``, and the same lists for a seed.

    Args:
        make: gives a new rule.
        complete: every sample goes to somebody.
    """
    rule = make()
    name = type(rule).__name__
    _check_described(rule)
    labels = rng(0, "contract-labels").permutation(np.repeat(np.arange(10), 60))
    writers = np.arange(len(labels)) % 24
    for m, seed in ((1, 0), (6, 0), (6, 1), (12, 2)):
        where = f"{name}, {m} clients, seed {seed}"
        with _during(where):
            split = partition(make(), labels, m, seed, writers)
            again = partition(make(), labels.copy(), m, seed, writers.copy())
        _require(
            np.array_equal(split.order, again.order) and np.array_equal(split.offsets, again.offsets),
            f"{where}: the same seed gave other lists; draw from rng only",
        )
        _require(len(np.unique(split.order)) == len(split.order), f"{where}: a sample has two owners")
        _require(
            len(split.order) == len(labels) or not complete, f"{where}: {len(labels) - len(split.order)} samples lost"
        )
        _require(
            split.num_clients == m and split.sizes.min() >= rule.min_size, f"{where}: sizes {split.sizes.tolist()}"
        )
        counts = describe(labels, split, 10).counts
        held = np.stack([np.bincount(labels[split.samples(i)], minlength=10) for i in range(m)])
        _require(np.array_equal(counts, held), f"{where}: the counts per class do not match the lists")


def check_model(make: Callable[[], Model], *, shape: tuple[int, ...] = (1, 8, 8), num_classes: int = 5) -> None:
    """A model builds, for samples of ``shape``, a module that gives finite logits and learns; the same seed gives the same weights."""
    model = make()
    name = type(model).__name__
    _check_described(model)
    federation = _federation(trouble=False)
    features = torch.randn(7, *shape, generator=torch.Generator().manual_seed(0))
    images = dataclasses.replace(
        federation,
        train=Samples(features, torch.zeros(7, dtype=torch.int64)),
        classes=tuple(map(str, range(num_classes))),
    )
    from fedcohort.engines.local import build_module

    with _during(f"{name}, samples of {shape}"):
        module, again, other = (build_module(make(), images, seed) for seed in (0, 0, 1))
        _require(_bits(module.state_dict()) == _bits(again.state_dict()), f"{name}: one seed, two initial models")
        _require(_bits(module.state_dict()) != _bits(other.state_dict()), f"{name}: two seeds, one initial model")
        for dtype in (torch.float32, torch.float64):
            logits = module.to(dtype)(features.to(dtype))
            _require(
                logits.shape == (7, num_classes) and logits.dtype == dtype and bool(torch.isfinite(logits).all()),
                f"{name}: logits are {logits.dtype} {list(logits.shape)}; must be finite {dtype} [batch, classes]",
            )
        logits.square().sum().backward()  # type: ignore[no-untyped-call]
        idle = [key for key, value in module.named_parameters() if value.requires_grad and value.grad is None]
        _require(not idle, f"{name}: no gradient reaches {idle}")
        _require(module.eval()(features[:1].double()).shape == (1, num_classes), f"{name}: a batch of one sample")


# --- engines ---------------------------------------------------------------------------------------------------------------


class MakeEngine(Protocol):
    """Builds an engine; :class:`fedcohort.engines.local.LocalEngine` is one."""

    def __call__(
        self, federation: Federation, model: Model, training: Training, algorithm: Algorithm, seed: int, workers: int, /
    ) -> Engine:
        """A new engine with this many threads or processes."""


@parameters
class _Footprints(Algorithm):
    """FedAvg that leaves a file for every client trained, so that it shows across processes how far an engine runs ahead."""

    folder: str
    """Where the files go."""
    card: ClassVar[Card] = Card(source="the contract suite", status="ours")

    def finish(self, problem: Problem) -> tuple[dict[str, Tensors], dict[str, Tensors]]:
        """Leave a file."""
        tempfile.NamedTemporaryFile(dir=self.folder, delete=False).close()  # noqa: SIM115
        return {}, {}


def check_engine(make: MakeEngine) -> None:
    """An engine holds the contract of :class:`fedcohort.engines.base.Engine`: above all, the same bits as the local engine.

    The same story (three rounds with client memory, commits, answers, evaluations) is told by the local engine and by engines with one,
    two and three workers. Then: updates stream in cohort order; a client with NaN disturbs nobody; a client's error names it; memory is
    kept for admitted clients only and survives a resume; closing twice is harmless.
    """
    training = Training(batch_size=4, epochs=2)
    with ExitStack() as stack:

        def build(
            make: MakeEngine = make,
            workers: int = 2,
            algorithm: Algorithm | None = None,
            training: Training = training,
            federation: Federation | None = None,
            seed: int = 3,
        ) -> Engine:
            engine = make(
                federation or _federation(), Mlp(hidden=8), training, algorithm or ControlVariates(), seed, workers
            )
            stack.callback(engine.close)
            return engine

        expected = _story(build(LocalEngine, 1))
        for workers in (1, 2, 3):
            _compare(_story(build(workers=workers)), expected, f"with {workers} workers")
        double = dataclasses.replace(training, precision="float64")
        _compare(_story(build(training=double)), _story(build(LocalEngine, 1, training=double)), "in double precision")
        engine, fresh = build(), build(workers=3)
        _require(
            _bits(build(seed=4).initial_model()) != _bits(engine.initial_model()), "initial_model: two seeds, one model"
        )
        _check_cohorts(engine)
        _check_errors(engine)
        _check_memory(engine, fresh)
        _check_answers(engine)
        _check_evaluation(engine)
        with tempfile.TemporaryDirectory() as folder:
            many = _federation([4] * 150, trouble=False)
            _check_streaming(build(algorithm=_Footprints(folder=folder), federation=many), Path(folder))
        engine.close()
        with _during("close, a second time"):
            engine.close()


def _train(engine: Engine, model: ModelState, t: int, clients: Sequence[int], **more: Any) -> list[dict[str, Any]]:
    """The updates of a round as plain data."""
    algorithm = more.pop("algorithm", None) or ControlVariates()
    updates = list(engine.train(model, t, Cohort(np.array(clients, dtype=np.int64), **more), algorithm))
    return [_plain(update) for update in updates]


def _plain(update: Update) -> dict[str, Any]:
    values = {field.name: getattr(update, field.name) for field in dataclasses.fields(Update)}
    values["sent"] = None if update.sent is None else sorted(update.sent)
    values["report"] = dict(sorted(update.report.items()))
    return values


def _story(engine: Engine) -> dict[str, Any]:
    """Three rounds of an algorithm that uses every hook, and everything else an engine can be asked, as plain data."""
    algorithm = ControlVariates()
    model = engine.initial_model()
    story: dict[str, Any] = {"initial model": model, "trainable": sorted(engine.trainable)}
    rounds = ((HEALTHY[:4], HEALTHY[:2]), (HEALTHY[1:6], HEALTHY[1:6]), (HEALTHY[::-1], HEALTHY[2:3]))
    for t, (clients, admitted) in enumerate(rounds, start=1):
        everyone = np.arange(8)
        everyone = everyone[everyone != 5]
        story[f"round {t}: losses"] = engine.answer(model, t, LocalLoss(), everyone)
        story[f"round {t}: losses on a batch"] = engine.answer(model, t, LocalLoss(batch=3), everyone[::-1].copy())
        updates = list(engine.train(model, t, Cohort(np.array(clients)), algorithm))
        story[f"round {t}: updates"] = [_plain(copy.deepcopy(update)) for update in updates]
        model = algorithm.aggregate(model, (u for u in updates if u.client in admitted), _members(admitted))
        engine.commit(admitted)
        story[f"round {t}: model"] = model
        for split in ("validation", "test"):
            found = engine.evaluate(model, split)
            story[f"round {t}: {split}"] = {"loss": found.loss, "right": found.right, "total": found.total}
    memories = engine.state_dict()
    story["memories"] = {key: memories[key] for key in sorted(memories)}
    return story


def _compare(story: dict[str, Any], expected: dict[str, Any], where: str) -> None:
    for part, value in expected.items():
        _require(pack({"": story[part]}) == pack({"": value}), f"{where}: {part}: not the bits of the local engine")


def _check_cohorts(engine: Engine) -> None:
    """Order, counts, work; a client's result depends on client, round and model only; the model given is left alone."""
    model = engine.initial_model()
    before, clients = _bits(model), list(HEALTHY)
    updates = _train(engine, model, 1, clients)
    _require(
        [u["client"] for u in updates] == clients, f"train: cohort {clients}, updates {[u['client'] for u in updates]}"
    )
    again = {u["client"]: u for u in _train(engine, model, 1, clients[::-1])}
    alone = _train(engine, model, 1, clients[2:3])[0]
    other = _train(engine, model, 2, clients)
    for u in updates:
        client, steps = u["client"], 2 * math.ceil(SIZES[u["client"]] / 4)
        where = f"train, client {client}"
        _require(
            u["num_samples"] == SIZES[client] and u["steps"] == steps,
            f"{where}: {u['num_samples']} samples, {u['steps']}",
        )
        _require(u["work"] == 1.0 and u["failure"] is None, f"{where}: work {u['work']}, failure {u['failure']}")
        _require(
            {"loss", "square_loss", "samples", "steps", "accuracy"} <= set(u["report"]),
            f"{where}: reports {u['report']}",
        )
        _check_model_state(u["state"], model, where)
        _require(pack(again[client]) == pack(u), f"{where}: its place in the cohort changes its result")
    _require(pack(alone) == pack(updates[2]), "train: a client alone comes to another result than in a cohort")
    _require(
        any(pack(one) != pack(two) for one, two in zip(updates, other, strict=True)),
        "train: rounds 1 and 2 have the same batches",
    )
    epochs = np.array([1, 4, 2])
    uneven = _train(engine, model, 1, clients[:3], epochs=epochs)
    for u, n in zip(uneven, epochs, strict=True):
        _require(
            u["steps"] == n * math.ceil(SIZES[u["client"]] / 4) and u["work"] == n / 2,
            f"train with {n} epochs: {u['steps']} steps, work {u['work']}",
        )
    _require(pack(uneven[2]) == pack(updates[2]), "train: the epochs of one client change the result of another")
    _require(_train(engine, model, 1, []) == [], "train: an empty cohort has no updates")
    _require(_bits(model) == before, "train: changed the model that it was given")


def _check_errors(engine: Engine) -> None:
    """Numbers that overflow stay with their client; an error in a client's work names it, and the engine works on."""
    model = engine.initial_model()
    healthy = _train(engine, model, 1, HEALTHY[:3])
    cohort = Cohort(np.array([HEALTHY[0], NAN, *HEALTHY[1:3]]))
    updates = list(engine.train(model, 1, cohort, ControlVariates()))
    _require(not is_finite(updates[1]), f"train: client {NAN} overflows, but its update is finite")
    _require(all(map(math.isfinite, updates[1].report.values())), f"train: client {NAN} reports {updates[1].report}")
    for update, alone in zip([updates[0], *updates[2:]], healthy, strict=True):
        _require(
            pack(_plain(update)) == pack(alone), f"train: client {NAN} has NaN, and client {update.client} suffers"
        )
    losses = engine.answer(model, 1, LocalLoss(), np.array([HEALTHY[0], NAN, HEALTHY[1]]))
    _require(np.isfinite(losses).tolist() == [True, False, True], f"answer: client {NAN} overflows; losses {losses}")

    works: dict[str, Callable[[], object]] = {
        "train": lambda: _train(engine, model, 1, [HEALTHY[0], BROKEN, *HEALTHY[1:]]),
        "answer": lambda: engine.answer(model, 1, LocalLoss(), np.array([HEALTHY[0], BROKEN, HEALTHY[1]])),
    }
    for what, work in works.items():
        try:
            work()
        except ClientError as error:
            _require(
                str(error).startswith(f"client {BROKEN}: IndexError: "),
                f"{what}: an error must begin with the client and its own error, not {str(error)[:80]!r}",
            )
            _require(error.__cause__ is not None, f"{what}: a ClientError must chain its cause")
        else:
            raise AssertionError(f"{what}: client {BROKEN} raises an error, but no ClientError came out")
        _require(
            pack({"": _train(engine, model, 1, HEALTHY[:3])}) == pack({"": healthy}), f"{what}: broken after an error"
        )


def _check_memory(engine: Engine, fresh: Engine) -> None:
    """Memory is kept for admitted clients, until a later commit, and travels in the state."""
    model, (a, b) = engine.initial_model(), HEALTHY[:2]
    first = {u["client"]: u for u in _train(engine, model, 1, [a, b])}
    engine.commit([])
    second = {u["client"]: u for u in _train(engine, model, 1, [a, b])}
    _require(pack(second[a]) == pack(first[a]), "commit: a client that was not admitted kept its new memory")
    engine.commit([a])
    third = {u["client"]: u for u in _train(engine, model, 1, [a, b])}
    _require(pack(third[a]) != pack(first[a]), "commit: an admitted client lost its memory")
    _require(pack(third[b]) == pack(first[b]), "commit: a client that was not admitted kept its new memory")
    _require(
        set(engine.state_dict()) == {str(a)}, f"state_dict: memories of {sorted(engine.state_dict())}, not of [{a}]"
    )
    with _during("state_dict and load_state_dict"):
        fresh.load_state_dict(unpack(pack(engine.state_dict())))
    loaded = {u["client"]: u for u in _train(fresh, model, 1, [b, a])}
    _require(pack(loaded[a]) == pack(third[a]), "load_state_dict: a client's memory was lost or changed")
    engine.load_state_dict({})
    forgotten = _train(engine, model, 1, [a])[0]
    _require(
        pack(forgotten) == pack(first[a]), "load_state_dict: memory that the loaded state does not have is still there"
    )


def _check_answers(engine: Engine) -> None:
    model, clients = engine.initial_model(), np.array(HEALTHY)
    losses = engine.answer(model, 1, LocalLoss(), clients)
    _require(
        losses.dtype == np.float64 and losses.shape == clients.shape, f"answer: {losses.dtype} {list(losses.shape)}"
    )
    one = engine.answer(model, 1, LocalLoss(), clients[3:4])
    _require(one.tolist() == losses[3:4].tolist(), "answer: a client asked alone says something else")
    _require(engine.answer(model, 1, LocalLoss(), clients[:0]).shape == (0,), "answer: nobody asked, nothing answered")
    batch, later = (engine.answer(model, t, LocalLoss(batch=3), clients) for t in (1, 2))
    _require(batch.tolist() != later.tolist(), "answer: rounds 1 and 2 drew the same mini-batches")


def _check_evaluation(engine: Engine) -> None:
    model = engine.initial_model()
    for split, size in (("validation", 40), ("test", 150)):
        found = engine.evaluate(model, split)
        _require(int(found.total.sum()) == size and math.isfinite(found.loss), f"evaluate({split!r}): {found}")
        _require((found.right <= found.total).all() and found.total.shape == (3,), f"evaluate({split!r}): {found}")
    try:
        engine.evaluate(model, "train")
    except UsageError:
        return
    raise AssertionError("evaluate('train'): must be a UsageError; only 'validation' and 'test' exist")


def _check_streaming(engine: Engine, folder: Path) -> None:
    """A slow reader is not buried under updates; a stream that is given up leaves the engine usable."""
    algorithm = _Footprints(folder=str(folder))
    model = engine.initial_model()
    stream = engine.train(model, 1, Cohort(np.arange(150)), algorithm)
    first = _plain(next(stream))
    time.sleep(0.5)
    ahead = len(list(folder.iterdir()))
    _require(ahead <= 64, f"train: {ahead} of 150 clients were trained before the second update was taken")
    stream.close()
    _require(
        pack(_train(engine, model, 1, [0, 1], algorithm=algorithm)[0]) == pack(first),
        "train: broken after a stream was given up",
    )
