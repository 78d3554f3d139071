"""The contract of an algorithm."""

import copy
import dataclasses
import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from typing import Literal

import numpy as np
import torch

from fedcohort.algorithms import Algorithm, ModelState, Update
from fedcohort.algorithms.base import adds_correction, check_hooks
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.errors import UsageError
from fedcohort.core.files.state_files import pack, unpack
from fedcohort.core.user_code.unseeded_draws import ADVICE, drawn_since, generator_states, is_own
from fedcohort.core.words.formatted_values import in_words
from fedcohort.engines.base import Engine
from fedcohort.engines.initial_network import build_module
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.models import Mlp, Model
from fedcohort.models.given_models import AnyModel, as_model
from fedcohort.selection import Cohort
from fedcohort.testing.base import (
    HEALTHY,
    bits,
    check_card,
    check_described,
    check_model_state,
    clone,
    during,
    members_of,
    new_from,
    require,
    server_tools,
    small_federation,
)
from fedcohort.training.stack import cannot_stack

__all__ = ["check_algorithm", "compare_updates"]

Precision = Literal["float32", "float64"]
MODEL = Mlp(hidden=4)


def check_algorithm(make: Callable[[], Algorithm], *, averages: bool = False, model: AnyModel = MODEL) -> None:
    """Check the contract of :class:`fedcohort.algorithms.Algorithm`.

    A round without updates changes nothing (R10). A round in which all clients return the received model does not change it. Inputs
    are not changed. Updates are not kept in memory unless ``keeps_models`` is set. An algorithm that is resumed continues
    to the same bits. If the client half works on stacks of clients, each client of a stack gets the same result as alone. If it has a
    :meth:`correction <fedcohort.algorithms.Algorithm.correction>`, it adds what ``correct`` adds.

    Args:
        make: returns a new algorithm.
        averages: whether the new model is a weighted mean of the clients' models (server_lr = 1); that mean is then checked as well.
        model: the model that clients train, for algorithms that use its parts: a :class:`fedcohort.Model`, or a function or class that
            builds a network. Samples have 6 numbers, and there are 3 classes.

    Raises:
        AssertionError: the contract is broken; the message says where.
    """
    algorithm, trained = new_from(make), as_model(model)
    check_described(algorithm)
    check_card(algorithm)
    try:
        check_hooks(algorithm)
    except UsageError as error:
        raise AssertionError(str(error)) from None
    _check_local_training(algorithm)

    def ready() -> Algorithm:
        algorithm = make()
        with during(f"{type(algorithm).__name__}: prepare"):
            algorithm.prepare(server_tools(trained))
        return algorithm

    precisions: tuple[Precision, ...] = ("float32", "float64")
    for precision in precisions:
        _check_rounds(ready, trained, precision)
        _check_merging(ready, trained, precision)
    _check_correction(ready, trained)
    _check_stacked(ready, trained)
    if averages:
        for dtype in (torch.float32, torch.float64):
            _check_mean(ready, dtype)


def _check_local_training(algorithm: Algorithm) -> None:
    where = f"{type(algorithm).__name__}.local_training"
    training = Training(batch_size=4)
    with during(where):
        wanted = algorithm.local_training(training)
        require(isinstance(wanted, Training), f"{where}: must return a Training")
        require(training == Training(batch_size=4), f"{where}: changed the given Training; use dataclasses.replace")
        require(algorithm.local_training(training) == wanted, f"{where}: two calls gave two results")


def _build_engine(algorithm: Algorithm, model: Model, precision: Precision) -> LocalEngine:
    training = Training(batch_size=4, precision=precision)
    return LocalEngine(small_federation(), model, training, algorithm, 1, workers=1)


def _learn(
    algorithm: Algorithm, engine: Engine, model: ModelState, rounds: Iterable[int]
) -> tuple[ModelState, list[Update]]:
    """Play rounds of three clients; return the model and the updates of the last round."""
    updates: list[Update] = []
    for t in rounds:
        where = f"{type(algorithm).__name__}, round {t}"
        clients = [HEALTHY[(t + i) % len(HEALTHY)] for i in range(3)]
        before = generator_states()
        with during(where):
            updates = list(engine.train(model, t, Cohort(np.array(clients)), algorithm))
            members = members_of(clients, t, engine.trainable)
            new = algorithm.aggregate(model, iter(copy.deepcopy(updates)), members)
            engine.commit(clients)
            pack(algorithm.broadcast())
        drawn = drawn_since(before, generator_states())
        require(not drawn or not is_own(algorithm), f"{where}: draws from {in_words(drawn)}; {ADVICE['algorithm']}")
        check_model_state(new, model, where)
        model = new
    return model, updates


def _check_rounds(make: Callable[[], Algorithm], network: Model, precision: Precision) -> None:
    """Compare four rounds in a row with two rounds, a save and a resume, and two more; play a round without updates in between."""
    straight = make()
    name = type(straight).__name__
    with closing(_build_engine(straight, network, precision)) as engine:
        model, _ = _learn(straight, engine, engine.initial_model(), [1, 2])
        with during(f"{name}: saving its state"):
            saved = pack({"model": model, "algorithm": straight.state_dict(), "engine": engine.state_dict()})
        same = straight.aggregate(model, iter(()), members_of([]))
        require(bits(same) == bits(model), f"{name}: no update was admitted, but the model changed (R10)")
        state = pack({"": straight.state_dict()})
        require(
            state == pack({"": unpack(saved)["algorithm"]}),
            f"{name}: no update was admitted, but the state changed (R10)",
        )
        expected, _ = _learn(straight, engine, model, [3, 4])
    resumed = make()
    # The client half may run in another process, where it has its parameters but no server state.
    with closing(_build_engine(make(), network, precision)) as engine:
        loaded = unpack(saved)
        with during(f"{name}: loading its state"):
            resumed.load_state_dict(loaded["algorithm"])
            engine.load_state_dict(loaded["engine"])
        after_resume, _ = _learn(resumed, engine, loaded["model"], [3, 4])
    complaint = f"{name}: resumed after round 2, with clients in another process, it reaches another model"
    complaint += "; broadcast() must send everything that clients need, and finish() return all that they remember"
    require(bits(after_resume) == bits(expected), complaint)
    ends = pack({"": resumed.state_dict()}) == pack({"": straight.state_dict()})
    require(ends, f"{name}: resumed after round 2, it reaches another state")


def _check_merging(make: Callable[[], Algorithm], network: Model, precision: Precision) -> None:
    """Check aggregation: nothing learned, unchanged inputs, a client of weight 0, a single client, no updates kept in memory."""
    algorithm = make()
    name = f"{type(algorithm).__name__}, {precision}"
    with closing(_build_engine(algorithm, network, precision)) as engine:
        model = engine.initial_model()
        _, updates = _learn(algorithm, engine, clone(model), [1])
        members = members_of([update.client for update in updates], 1, engine.trainable)

    def inputs() -> list[bytes]:
        return [bits(model), *(bits(update.state) for update in updates), *(pack(update.extra) for update in updates)]

    for update in updates:
        with during(f"{name}: weigh"):
            weight = float(make().weigh(update, members))
        complaint = f"{name}: weigh returned {weight} for client {update.client}; must be finite and at least 0"
        require(0 <= weight < math.inf, complaint)
    before = inputs()
    expected = make().aggregate(model, iter(updates), members)
    require(inputs() == before, f"{name}: aggregate changed the given model or updates")

    if algorithm.weights != "n_total_model":
        idle = [dataclasses.replace(update, state=clone(model)) for update in updates]
        merged = make().aggregate(model, iter(idle), members)
        require(
            bits(merged) == bits(model), f"{name}: every client sent back the received model, but the model changed"
        )

    garbage = {key: torch.full_like(value, math.nan) for key, value in model.items()}
    empty = dataclasses.replace(updates[0], num_samples=0, state=garbage)
    if make().weigh(empty, members) == 0:
        merged = make().aggregate(model, iter([empty, *updates]), members)
        require(bits(merged) == bits(expected), f"{name}: an update of weight 0 changed the result")

    check_model_state(make().aggregate(model, iter(updates[:1]), members), model, f"{name}, a single client")
    if not algorithm.keeps_models:
        _check_streaming(make(), model, updates[0])


def _check_correction(make: Callable[[], Algorithm], network: Model = MODEL) -> None:
    """Compare training by ``correction`` with training by ``correct`` in two rounds, with and without memory; equal to rounding."""
    if not adds_correction(make()):
        return
    federation, training = small_federation(), Training(batch_size=4, epochs=2, precision="float64")
    name = f"{type(make()).__name__}.correction"
    algorithms = make(), make()
    with ExitStack() as stack:
        engines = [LocalEngine(federation, network, training, algorithm, 1, plan="loop") for algorithm in algorithms]
        for engine in engines:
            stack.callback(engine.close)
        with engines[1]._trainer() as trainer:
            trainer.program = None  # gradients one by one
        model = engines[0].initial_model()
        clients = HEALTHY[:3]
        for t in (1, 2):
            with during(f"{name}, round {t}"):
                at_once, one_by_one = (
                    list(engine.train(model, t, Cohort(np.array(clients)), algorithm))
                    for engine, algorithm in zip(engines, algorithms, strict=True)
                )
                for update, expected in zip(at_once, one_by_one, strict=True):
                    compare_updates(expected, update, f"{name}, round {t}, client {update.client}")
                members = members_of(clients, t, engines[0].trainable)
                new = algorithms[0].aggregate(model, iter(copy.deepcopy(one_by_one)), members)
                algorithms[1].aggregate(model, iter(copy.deepcopy(one_by_one)), members)
                for engine in engines:
                    engine.commit(clients[:2])
            model = new


def _check_stacked(make: Callable[[], Algorithm], network: Model) -> None:
    """Compare stacked and single training in two rounds of clients of different sizes, with and without memory; equal to rounding."""
    federation, training = small_federation(), Training(batch_size=4, epochs=2, precision="float64")
    if cannot_stack(build_module(network, federation, 1).double(), federation, make(), Training()) is not None:
        return
    name = f"{type(make()).__name__}, on a stack of clients"
    algorithms = make(), make()
    with ExitStack() as stack:
        engines = (
            LocalEngine(federation, network, training, algorithms[0], 1, plan="loop"),
            LocalEngine(federation, network, training, algorithms[1], 1, workers=1, plan="stacked"),
        )
        for engine in engines:
            stack.callback(engine.close)
            engine.stacks = 2
        model = engines[0].initial_model()
        for t, clients in ((1, HEALTHY[:3]), (2, HEALTHY)):
            with during(f"{name}, round {t}"):
                epochs = np.array([1, 3, 2, 0, 2, 2, 1])[: len(clients)]
                cohort = Cohort(np.array(clients), epochs=epochs)
                one_by_one, stacked = (
                    list(engine.train(model, t, cohort, algorithm))
                    for engine, algorithm in zip(engines, algorithms, strict=True)
                )
                for update, in_stack in zip(one_by_one, stacked, strict=True):
                    compare_updates(update, in_stack, f"{name}, round {t}, client {update.client}")
                trained = [update for update in one_by_one if update.failure is None]
                members = members_of([update.client for update in trained], t, engines[0].trainable)
                new = algorithms[0].aggregate(model, iter(copy.deepcopy(trained)), members)
                algorithms[1].aggregate(model, iter(copy.deepcopy(trained)), members)
                for engine in engines:
                    engine.commit(clients[:2])
            model = new


def compare_updates(expected: Update, actual: Update, where: str) -> None:
    """Check that two updates are equal: counts exactly, tensors and reports to 7 digits."""
    for field in ("client", "num_samples", "steps", "passes", "work", "sent", "failure"):
        value, wanted = getattr(actual, field), getattr(expected, field)
        require(value == wanted, f"{where}: {field} is {value}, not {wanted}")
    kinds, wanted_kinds = sorted(actual.extra), sorted(expected.extra)
    require(kinds == wanted_kinds, f"{where}: sends {kinds}, not {wanted_kinds}")
    _compare_tensors(expected.state, actual.state, f"{where}: state")
    for kind, tensors in expected.extra.items():
        _compare_tensors(tensors, actual.extra[kind], f"{where}: {kind}")
    names, wanted_names = sorted(actual.report), sorted(expected.report)
    require(names == wanted_names, f"{where}: reports {names}, not {wanted_names}")
    for key, reported in expected.report.items():
        close = math.isclose(actual.report[key], reported, rel_tol=1e-7)
        require(close, f"{where}: reports {key} {actual.report[key]}, not {reported}")


def _compare_tensors(expected: Mapping[str, torch.Tensor], actual: Mapping[str, torch.Tensor], where: str) -> None:
    require(list(actual) == list(expected), f"{where} has {sorted(actual)}, not {sorted(expected)}")
    for key, wanted in expected.items():
        value = actual[key]
        alike = value.shape == wanted.shape and value.dtype == wanted.dtype
        require(alike, f"{where}, {key}: shape or dtype differs")
        close = torch.allclose(value, wanted, rtol=1e-7, atol=1e-9)
        require(close, f"{where}, {key}: differs by {(value - wanted).abs().max():.3g}")


def _check_streaming(algorithm: Algorithm, model: ModelState, update: Update) -> None:
    alive: list[weakref.ref[torch.Tensor]] = []

    def stream() -> Iterator[Update]:
        for client in range(12):
            copied = dataclasses.replace(copy.deepcopy(update), client=client)
            alive.append(weakref.ref(next(iter(copied.state.values()))))
            held = sum(reference() is not None for reference in alive)
            complaint = (
                f"{type(algorithm).__name__}: keeps {held} updates in memory; fold them one by one, or set keeps_models"
            )
            require(held <= 4, complaint)
            yield copied

    algorithm.aggregate(model, stream(), members_of(range(12)))


def _check_mean(make: Callable[[], Algorithm], dtype: torch.dtype) -> None:
    """Check the mean: identical models, one client, order, integer entries."""
    name = f"{type(make()).__name__}, {dtype}"
    draw = torch.Generator().manual_seed(0)
    start: ModelState = {"w": torch.zeros(50, dtype=dtype), "seen": torch.tensor(0)}
    updates = [
        Update(
            i, n, 1, {"w": torch.randn(50, generator=draw, dtype=torch.float64).to(dtype), "seen": torch.tensor(seen)}
        )
        for i, (n, seen) in enumerate(((7, 3), (100, 9), (31, 5)))
    ]

    def merge(updates: Iterable[Update]) -> ModelState:
        return make().aggregate(start, iter(updates), members_of([0, 1, 2]))

    model = updates[0].state
    alike = [dataclasses.replace(update, state=clone(model)) for update in updates * 4]
    require(bits(merge(alike)) == bits(model), f"{name}: the mean of identical models is not that model")
    require(bits(merge(updates[:1])) == bits(model), f"{name}: the mean of one model is not that model")
    mean, reversed_mean = merge(updates), merge(updates[::-1])
    require(
        torch.allclose(mean["w"], reversed_mean["w"], rtol=1e-6, atol=1e-7),
        f"{name}: the order of updates changes the mean by more than rounding",
    )
    counter = mean["seen"]
    fine = counter.dtype == torch.int64 and int(counter) == 9
    require(fine, f"{name}: an integer entry must stay an integer and become the maximum, 9, not {counter}")
