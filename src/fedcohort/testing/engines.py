"""What an engine must hold."""

import copy
import dataclasses
import math
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from fedcohort.algorithms import Algorithm, ModelState, Problem, Tensors, Update
from fedcohort.algorithms.local import Training
from fedcohort.algorithms.updates import is_finite
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.core.states import pack, unpack
from fedcohort.engines.base import ClientError, Engine
from fedcohort.engines.local import LocalEngine
from fedcohort.federation.federation import Federation
from fedcohort.models import Mlp, Model
from fedcohort.selection.base import Cohort, Context, GradientNorm, LocalAccuracy, LocalLoss, UpdateNorm
from fedcohort.testing.base import (
    BROKEN,
    HEALTHY,
    HELD_OUT,
    NAN,
    SIZES,
    ControlVariates,
    bits,
    check_model_state,
    during,
    everybody,
    require,
    small_federation,
)
from fedcohort.training.forward import Evaluation
from fedcohort.training.trial import norm_of_update

__all__ = ["Footprints", "MakeEngine", "check_engine"]

TRAINING = Training(batch_size=4, epochs=2)
AHEAD = 64
"""Clients that may be trained before their updates are asked for."""


class MakeEngine(Protocol):
    """Builds an engine; :class:`fedcohort.engines.local.LocalEngine` is one."""

    def __call__(
        self, federation: Federation, model: Model, training: Training, algorithm: Algorithm, seed: int, workers: int, /
    ) -> Engine:
        """A new engine with this many threads or processes."""
        ...


def check_engine(make: MakeEngine) -> None:
    """An engine holds the contract of :class:`fedcohort.engines.base.Engine`: above all, the bits of the local engine.

    The same story (three rounds with client memory, commits, answers, evaluations) is told by the local engine and by engines with
    one, two and three workers. Then: updates stream in cohort order; a client with NaN disturbs nobody; a client's error names it;
    memory is kept for admitted clients only and survives a resume; closing twice is harmless.
    """
    double = dataclasses.replace(TRAINING, precision="float64")
    with during("the engine"), ExitStack() as stack:

        def build(
            make: MakeEngine = make,
            workers: int = 2,
            *,
            seed: int = 3,
            training: Training = TRAINING,
            algorithm: Algorithm | None = None,
            federation: Federation | None = None,
        ) -> Engine:
            people = federation or small_federation()
            engine = make(people, Mlp(hidden=8), training, algorithm or ControlVariates(), seed, workers)
            stack.callback(engine.close)
            return engine

        expected = _story(build(LocalEngine, 1))
        for workers in (1, 2, 3):
            _compare(_story(build(workers=workers)), expected, f"with {workers} workers")
        expected = _story(build(LocalEngine, 1, training=double))
        _compare(_story(build(training=double)), expected, "in double precision")

        engine, other = build(), build(workers=3, seed=4)
        model = engine.initial_model()
        require(bits(other.initial_model()) != bits(model), "initial_model: two seeds, one model")
        _check_cohorts(engine, model)
        _check_shares(engine, model)
        _check_stops(engine, model)
        _check_overflow(engine, model)
        _check_errors(engine, model)
        _check_memory(engine, build(workers=3), model)
        _check_answers(engine, model)
        _check_evaluation(engine, model)
        with tempfile.TemporaryDirectory() as folder:
            many = small_federation([4] * 150, trouble=False)
            _check_streaming(build(algorithm=Footprints(folder=folder), federation=many), Path(folder))
        for _ in range(2):
            with during("close, twice"):
                engine.close()


# --- the same results on all engines ---------------------------------------------------------------------------------------


def _story(engine: Engine) -> dict[str, Any]:
    """Three rounds of an algorithm that uses every hook, and everything else an engine can be asked, as plain data."""
    algorithm = ControlVariates()
    model = engine.initial_model()
    story: dict[str, Any] = {"initial model": model, "trainable": sorted(engine.trainable)}
    rounds = ((HEALTHY[:4], HEALTHY[:2]), (HEALTHY[1:6], HEALTHY[1:6]), (HEALTHY[::-1], HEALTHY[2:3]))
    for t, (clients, admitted) in enumerate(rounds, start=1):
        asked = np.sort(HEALTHY)
        story[f"round {t}, losses"] = engine.answer(model, t, LocalLoss(), asked)
        story[f"round {t}, losses on a batch"] = engine.answer(model, t, LocalLoss(batch=3), asked[::-1].copy())
        story[f"round {t}, accuracies"] = engine.answer(model, t, LocalAccuracy(), asked)
        story[f"round {t}, contexts"] = engine.answer(model, t, Context(loss="robust"), asked)
        story[f"round {t}, norms of gradients"] = engine.answer(model, t, GradientNorm(), asked)
        story[f"round {t}, norms of updates"] = engine.answer(model, t, UpdateNorm(), asked, algorithm)
        updates = list(engine.train(model, t, Cohort(np.array(clients)), algorithm))
        story[f"round {t}, updates"] = [_plain(update) for update in updates]
        model = algorithm.aggregate(model, (u for u in updates if u.client in admitted), everybody(admitted))
        engine.commit(admitted)
        story[f"round {t}, model"] = model
        for split in ("validation", "test"):
            found = engine.evaluate(model, split)
            story[f"round {t}, {split}"] = {"loss": found.loss, "right": found.right, "total": found.total}
    shares = Cohort(np.array(HEALTHY), share=np.linspace(0.0, 1.0, len(HEALTHY)), epochs=np.arange(1, len(HEALTHY) + 1))
    story["parts of updates"] = [_plain(update) for update in engine.train(model, 4, shares, algorithm)]
    engine.commit([])
    for sampling in ("loss", "loss_unbiased"):
        by_loss = Cohort(np.array(HEALTHY), sampling=sampling)
        story[f"batches by {sampling}"] = [_plain(update) for update in engine.train(model, 4, by_loss, algorithm)]
        engine.commit([])
    story["stopped early"] = [_plain(update) for update in engine.train(model, 5, _stopping(HEALTHY), algorithm)]
    engine.commit([])
    memories = engine.state_dict()
    story["memories"] = {key: memories[key] for key in sorted(memories)}
    return story


def _compare(story: dict[str, Any], expected: dict[str, Any], where: str) -> None:
    for part, value in expected.items():
        require(pack({"": story[part]}) == pack({"": value}), f"{where}: {part}: not the bits of the local engine")


def _plain(update: Update) -> dict[str, Any]:
    values = {field.name: copy.deepcopy(getattr(update, field.name)) for field in dataclasses.fields(Update)}
    values["sent"] = None if update.sent is None else sorted(update.sent)
    values["report"] = dict(sorted(update.report.items()))
    return values


def _train(
    engine: Engine, model: ModelState, t: int, clients: Sequence[int], epochs: Sequence[int] | None = None
) -> list[dict[str, Any]]:
    """The updates of a round as plain data."""
    cohort = Cohort(np.array(clients, dtype=np.int64), epochs=None if epochs is None else np.array(epochs))
    return [_plain(update) for update in engine.train(model, t, cohort, ControlVariates())]


# --- training --------------------------------------------------------------------------------------------------------------


def _check_cohorts(engine: Engine, model: ModelState) -> None:
    """Order, counts, work; a client's result depends on client, round and model only; the model given is left alone."""
    clients = list(HEALTHY)
    before = bits(model)
    updates = _train(engine, model, 1, clients)
    order = [u["client"] for u in updates]
    require(order == clients, f"train: cohort {clients}, but updates of {order}")
    for u in updates:
        where, n = f"train, client {u['client']}", SIZES[u["client"]]
        require(u["num_samples"] == n, f"{where}: {u['num_samples']} samples, not {n}")
        require(u["steps"] == 2 * math.ceil(n / 4), f"{where}: {u['steps']} steps in 2 epochs of {n} samples by 4")
        require(u["work"] == 1.0 and u["failure"] is None, f"{where}: work {u['work']}, failure {u['failure']}")
        missing = {"loss", "square_loss", "samples", "steps", "accuracy"} - set(u["report"])
        require(not missing, f"{where}: does not report {sorted(missing)}")
        check_model_state(u["state"], model, where)

    backwards = _train(engine, model, 1, clients[::-1])[::-1]
    require(_alike(backwards, updates), "train: a client's place in the cohort changes its result")
    require(_alike(_train(engine, model, 1, clients[2:3]), updates[2:3]), "train: a client alone has another result")
    require(not _alike(_train(engine, model, 2, clients), updates), "train: rounds 1 and 2 have the same batches")
    require(_train(engine, model, 1, []) == [], "train: an empty cohort has no updates")

    uneven = _train(engine, model, 1, clients[:4], epochs=[1, 4, 2, 0])
    require(_alike(uneven[2:3], updates[2:3]), "train: the epochs of one client change the result of another")
    for u, epochs in zip(uneven, (1, 4, 2, 0), strict=True):
        steps = epochs * math.ceil(SIZES[u["client"]] / 4)
        fine = u["steps"] == steps and u["work"] == epochs / 2
        require(fine, f"train, {epochs} epochs instead of 2: {u['steps']} steps of {steps}, work {u['work']}")
    idle = uneven[3]
    require(
        bits(idle["state"]) == before and "loss" not in idle["report"], "train, 0 epochs: not the model it was given"
    )
    require(bits(model) == before, "train: changed the model that it was given")


def _check_shares(engine: Engine, model: ModelState) -> None:
    """Tensors are left out whole, by client and round; what is not sent is not there; the norm is of the whole update."""
    clients = HEALTHY[:5]

    def sent(share: float, t: int = 1, clients: Sequence[int] = clients) -> list[dict[str, Any]]:
        cohort = Cohort(np.array(clients, dtype=np.int64), share=np.full(len(clients), share))
        return [_plain(update) for update in engine.train(model, t, cohort, ControlVariates())]

    whole, half, nothing = _train(engine, model, 1, clients), sent(0.5), sent(0.0)
    names = {name for name in model if name in engine.trainable}
    for u, before, none in zip(half, whole, nothing, strict=True):
        where = f"train, share 0.5, client {u['client']}"
        there = names & set(u["sent"])
        kept = {name: (before["state"] if name in there else model)[name] for name in names}
        found = {name: u["state"][name] for name in names}
        require(
            bits(found) == bits(kept), f"{where}: must hold what was sent, and what it received in place of the rest"
        )
        norms = [float((before["state"][name].double() - model[name].double()).norm()) for name in names]
        norm = u["report"].get("update_norm", math.nan)
        require(math.isclose(norm, math.hypot(*norms), rel_tol=1e-6), f"{where}: update_norm {norm} is not the whole's")
        alike = {**u["report"], "update_norm": 0.0} == {**before["report"], "update_norm": 0.0}
        require(alike and u["steps"] == before["steps"], f"{where}: sending less changed the training")
        require(not names & set(none["sent"]), f"train, share 0, client {u['client']}: sent {none['sent']}")
    patterns = {tuple(u["sent"]) for t in range(1, 5) for u in sent(0.5, t)}
    require(len(patterns) > 1, f"train, share 0.5: every client sends {patterns} in every round")
    require(
        _alike(sent(0.5, clients=clients[::-1])[::-1], half), "train, share 0.5: depends on the place in the cohort"
    )
    everything = sent(1.0)
    require(all(set(u["sent"]) == set(model) for u in everything), "train, share 1: something was left out")
    complaint = "train, share 1: not the update without a share"
    states = [[u["state"] for u in updates] for updates in (everything, whole)]
    require(pack({"": states[0]}) == pack({"": states[1]}), complaint)


def _stopping(clients: Sequence[int], theta: float = 0.723, epochs: int = 6) -> Cohort:
    """A cohort that stops at a quantile of the held-out scores."""
    stop = {"rule": "conformal", "alpha": 0.7, "theta": theta}
    return Cohort(np.array(clients), epochs=np.full(len(clients), epochs), stop=stop)


def _check_stops(engine: Engine, model: ModelState) -> None:
    """A rule ends training after whole epochs; the update is that of so many epochs, and says how many and why."""
    found = [_plain(update) for update in engine.train(model, 1, _stopping(HEALTHY), ControlVariates())]
    used = [int(u["report"].get("epochs", 0)) for u in found]
    require({1, 6} < set(used), f"train, stop: everybody used the same epochs, or they were not counted: {used}")
    plain = _train(engine, model, 1, HEALTHY, epochs=used)
    for u, same in zip(found, plain, strict=True):
        where = f"train, stop, client {u['client']}"
        said = {"q_hat", "set_size", "done", "calibration", "epochs"}
        require(said <= set(u["report"]), f"{where}: reports {sorted(u['report'])}, not {sorted(said)}")
        require(u["report"]["done"] == float(u["report"]["q_hat"] <= 0.723), f"{where}: done or not? {u['report']}")
        require(u["report"]["done"] or u["report"]["epochs"] == 6, f"{where}: stopped before it was done")
        alike = bits(u["state"]) == bits(same["state"]) and u["work"] == same["work"] and u["steps"] == same["steps"]
        require(alike, f"{where}: not the update of {u['report']['epochs']:g} epochs without a rule")
        checks = u["report"]["epochs"] * HELD_OUT / u["num_samples"]
        require(math.isclose(u["passes"], same["passes"] + checks), f"{where}: passes of its checks are not counted")


def _alike(one: list[dict[str, Any]], two: list[dict[str, Any]]) -> bool:
    return pack({"": one}) == pack({"": two})


def _check_overflow(engine: Engine, model: ModelState) -> None:
    """NaN stays with its client."""
    healthy = _train(engine, model, 1, HEALTHY[:3])
    cohort = Cohort(np.array([HEALTHY[0], NAN, *HEALTHY[1:3]]))
    first, ill, *rest = engine.train(model, 1, cohort, ControlVariates())
    require(not is_finite(ill), f"train: client {NAN} overflows, but its update is finite")
    require(all(map(math.isfinite, ill.report.values())), f"train: client {NAN} reports {ill.report}")
    complaint = f"train: client {NAN} has NaN, and others suffer"
    require(_alike([_plain(update) for update in (first, *rest)], healthy), complaint)
    losses = engine.answer(model, 1, LocalLoss(), np.array([HEALTHY[0], NAN, HEALTHY[1]]))
    require(np.isfinite(losses).tolist() == [True, False, True], f"answer: client {NAN} overflows; losses {losses}")


def _check_errors(engine: Engine, model: ModelState) -> None:
    """An error in a client's work names the client, its own error first, and the engine works on."""
    asked = np.array([HEALTHY[0], BROKEN, HEALTHY[1]])
    healthy = _train(engine, model, 1, HEALTHY[:3])
    works: dict[str, Callable[[], object]] = {
        "train": lambda: _train(engine, model, 1, [HEALTHY[0], BROKEN, *HEALTHY[1:]]),
        "answer": lambda: engine.answer(model, 1, LocalLoss(), asked),
    }
    for what, work in works.items():
        try:
            work()
        except ClientError as error:
            begins = str(error).startswith(f"client {BROKEN}: IndexError: ")
            require(begins, f"{what}: an error begins with client and cause, not {str(error)[:80]!r}")
            require(error.__cause__ is not None, f"{what}: a ClientError must chain its cause")
        except Exception as error:
            raise AssertionError(
                f"{what}: client {BROKEN} raises an error, but {type(error).__name__} came out"
            ) from error
        else:
            raise AssertionError(f"{what}: client {BROKEN} raises an error, but nothing came out")
        require(_alike(_train(engine, model, 1, HEALTHY[:3]), healthy), f"{what}: broken after a client's error")


def _check_memory(engine: Engine, fresh: Engine, model: ModelState) -> None:
    """Memory is kept for admitted clients only, and travels in the state."""
    clients = HEALTHY[:2]
    before = _train(engine, model, 1, clients)
    engine.commit([])
    require(
        _alike(_train(engine, model, 1, clients), before), "commit: a client that was not admitted has a new memory"
    )
    engine.commit(clients[:1])
    after = _train(engine, model, 1, clients)
    require(not _alike(after[:1], before[:1]), "commit: an admitted client has no new memory")
    require(_alike(after[1:], before[1:]), "commit: a client that was not admitted has a new memory")
    known = sorted(engine.state_dict())
    require(known == [str(clients[0])], f"state_dict: memories of {known}, not of client {clients[0]} only")
    with during("state_dict and load_state_dict"):
        fresh.load_state_dict(unpack(pack(engine.state_dict())))
    require(_alike(_train(fresh, model, 1, clients), after), "load_state_dict: a memory was lost or changed")
    engine.load_state_dict({})
    require(
        _alike(_train(engine, model, 1, clients), before), "load_state_dict: memory that was not loaded is still there"
    )


@parameters
class Footprints(Algorithm):
    """FedAvg that leaves a file for every client trained, so that it shows across processes how far an engine runs ahead."""

    folder: str
    """Where the files go."""
    card: ClassVar[Card] = Card(source="the contract suite", status="ours")

    def finish(self, problem: Problem) -> tuple[dict[str, Tensors], dict[str, Tensors]]:
        """Leave a file."""
        tempfile.NamedTemporaryFile(dir=self.folder, delete=False).close()
        return {}, {}


def _check_streaming(engine: Engine, folder: Path) -> None:
    """A slow reader is not buried under updates; a stream that is given up leaves the engine usable."""
    model = engine.initial_model()
    stream = iter(engine.train(model, 1, Cohort(np.arange(150)), Footprints(folder=str(folder))))
    first = _plain(next(stream))
    time.sleep(0.5)
    ahead = len(list(folder.iterdir()))
    require(ahead <= AHEAD, f"train: {ahead} of 150 clients were trained before the second update was taken")
    del stream
    again = _train(engine, model, 1, [0, 1])
    require(_alike(again[:1], [first]), "train: broken after a stream was given up")


# --- forward passes --------------------------------------------------------------------------------------------------------


def _check_answers(engine: Engine, model: ModelState) -> None:
    clients = np.array(HEALTHY)
    losses = engine.answer(model, 1, LocalLoss(), clients)
    fine = losses.dtype == np.float64 and losses.shape == clients.shape
    require(fine, f"answer: {losses.dtype} {list(losses.shape)}, not float64 {list(clients.shape)}")
    alone = engine.answer(model, 1, LocalLoss(), clients[3:4])
    require(alone.tolist() == losses[3:4].tolist(), "answer: a client asked alone answers something else")
    require(engine.answer(model, 1, LocalLoss(), clients[:0]).shape == (0,), "answer: nobody was asked")
    accuracies = engine.answer(model, 1, LocalAccuracy(), clients)
    require(bool(((accuracies >= 0) & (accuracies <= 1)).all()), f"answer: accuracies {accuracies} outside [0, 1]")
    norms = engine.answer(model, 1, GradientNorm(), clients)
    require(bool((np.isfinite(norms) & (norms > 0)).all()), f"answer: norms of gradients {norms}")
    for algorithm in (ControlVariates(), None):
        trial = engine.answer(model, 1, UpdateNorm(), clients, algorithm)
        require(trial.shape == (len(clients), 2), f"answer: {list(trial.shape)}, not two numbers a client")
        updates = engine.train(model, 1, Cohort(clients), algorithm or ControlVariates())
        sent = [[norm_of_update(update, model, sorted(engine.trainable)), update.passes] for update in updates]
        require(
            trial.tolist() == sent, f"answer: norms and passes {trial.tolist()} of updates, but then {sent} were sent"
        )
    batch, later = (engine.answer(model, t, LocalLoss(batch=3), clients) for t in (1, 2))
    require(batch.tolist() != later.tolist(), "answer: rounds 1 and 2 drew the same mini-batches")


def _check_evaluation(engine: Engine, model: ModelState) -> None:
    for split, size in (("validation", 40), ("test", 150)):
        found = engine.evaluate(model, split)
        fine = found.total.shape == (3,) and found.total.sum() == size and (found.right <= found.total).all()
        require(fine and math.isfinite(found.loss), f"evaluate({split!r}) of {size} samples: {found}")
    _check_evaluation_beside(engine, model)
    try:
        engine.evaluate(model, "train")
    except UsageError:
        return
    raise AssertionError("evaluate('train'): must be a UsageError; only 'validation' and 'test' exist")


def _check_evaluation_beside(engine: Engine, model: ModelState) -> None:
    """An evaluation that waits for the next cohort is of its own model, and disturbs nobody else's work."""
    expected, updates = engine.evaluate(model, "test"), _train(engine, model, 1, HEALTHY)
    other = {name: value + 1 if value.is_floating_point() else value for name, value in model.items()}
    found, unread = engine.evaluate_beside(model, "test"), engine.evaluate_beside(other, "validation")
    engine.answer(other, 1, LocalLoss(), np.array(HEALTHY))
    asked: list[threading.Thread] = []

    def meanwhile() -> bool:
        asked.append(threading.current_thread())
        return False

    engine.meanwhile = meanwhile
    require(_alike(_train(engine, model, 1, HEALTHY), updates), "evaluate_beside: training came out differently")
    require(
        set(asked) <= {threading.current_thread()}, "meanwhile: called by another thread than who takes the updates"
    )
    engine.meanwhile = lambda: False
    require(_same_numbers(found(), expected), "evaluate_beside: not the result of evaluate")
    require(found.done(), "evaluate_beside: gave its result and says that it is not done")
    require(_same_numbers(found(), expected), "evaluate_beside: asked twice, it answers differently")
    require(_same_numbers(unread(), engine.evaluate(other, "validation")), "evaluate_beside: mixed up two models")


def _same_numbers(found: Evaluation, expected: Evaluation) -> bool:
    fine: bool = found.loss == expected.loss and (found.right == expected.right).all()
    return fine and bool((found.total == expected.total).all())
