"""The contract of an engine: the bits of the local engine, whatever the number of workers."""

import dataclasses
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np

from fedcohort.algorithms import Algorithm
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.files.state_files import pack
from fedcohort.engines.base import Engine
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.federation.federation import Federation
from fedcohort.models import Mlp, Model
from fedcohort.selection import Cohort, Context, GradientNorm, LocalAccuracy, LocalLoss, UpdateNorm
from fedcohort.testing.base import (
    HEALTHY,
    ControlVariates,
    bits,
    during,
    members_of,
    require,
    small_federation,
)
from fedcohort.testing.engine_answers import check_answers, check_evaluation
from fedcohort.testing.engine_training import (
    Footprints,
    check_cohorts,
    check_errors,
    check_memory,
    check_overflow,
    check_shares,
    check_stops,
    check_streaming,
)
from fedcohort.testing.frozen_parameters import PartlyFrozen, check_frozen
from fedcohort.testing.updates import as_plain, stopping_cohort

__all__ = ["MakeEngine", "check_engine"]

TRAINING = Training(batch_size=4, epochs=2)


class MakeEngine(Protocol):
    """A callable that builds an engine; :class:`fedcohort.engines.local_engine.LocalEngine` is an example."""

    def __call__(
        self, federation: Federation, model: Model, training: Training, algorithm: Algorithm, seed: int, workers: int, /
    ) -> Engine:
        """Build an engine with ``workers`` threads or processes."""
        ...


def check_engine(make: MakeEngine, *, memories_elsewhere: bool = False) -> None:
    """Check the contract of :class:`fedcohort.engines.base.Engine`.

    The engine must give the bits of the local engine in the same scenario (three rounds with client memory, commits, answers and
    evaluations), with one, two and three workers. In addition: updates arrive in cohort order; NaN in one client does not affect other
    clients; an error in a client's work names the client; memory is kept for admitted clients only and survives a resume; closing
    twice is harmless.

    Args:
        make: builds the engine.
        memories_elsewhere: whether memories stay with the owners of the data, so that the engine's state has only references to them.
            The references are then not compared with the local engine's memories; everything that depends on memories is.

    Raises:
        AssertionError: the contract is broken; the message says where.
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
            model: Model | None = None,
        ) -> Engine:
            clients, network = federation or small_federation(), model or Mlp(hidden=8)
            engine = make(clients, network, training, algorithm or ControlVariates(), seed, workers)
            stack.callback(engine.close)
            return engine

        by_name = memories_elsewhere
        expected = _scenario(build(LocalEngine, 1), by_name)
        for workers in (1, 2, 3):
            _compare(_scenario(build(workers=workers), by_name), expected, f"with {workers} workers")
        expected = _scenario(build(LocalEngine, 1, training=double), by_name)
        _compare(_scenario(build(training=double), by_name), expected, "in double precision")

        frozen = partial(build, model=PartlyFrozen(), algorithm=FedAvg())
        check_frozen(frozen(), frozen(LocalEngine, 1))

        engine, another_seed = build(), build(workers=3, seed=4)
        model = engine.initial_model()
        require(bits(another_seed.initial_model()) != bits(model), "initial_model: two seeds gave the same model")
        check_cohorts(engine, model)
        check_shares(engine, model)
        check_stops(engine, model)
        check_overflow(engine, model)
        check_errors(engine, model)
        check_memory(engine, build(workers=3), model)
        check_answers(engine, model)
        check_evaluation(engine, model)
        with tempfile.TemporaryDirectory() as folder:
            many = small_federation([4] * 150, trouble=False)
            check_streaming(build(algorithm=Footprints(folder=folder), federation=many), Path(folder))
        for _ in range(2):
            with during("close, twice"):
                engine.close()


def _scenario(engine: Engine, only_names_of_memories: bool) -> dict[str, object]:
    """Play three rounds of an algorithm that uses every hook, and call everything else an engine offers; the results as plain data."""
    algorithm = ControlVariates()
    model = engine.initial_model()
    results: dict[str, object] = {"initial model": model, "trainable": sorted(engine.trainable)}
    rounds = ((HEALTHY[:4], HEALTHY[:2]), (HEALTHY[1:6], HEALTHY[1:6]), (HEALTHY[::-1], HEALTHY[2:3]))
    for t, (clients, admitted) in enumerate(rounds, start=1):
        asked = np.sort(HEALTHY)
        results[f"round {t}, losses"] = engine.answer(model, t, LocalLoss(), asked)
        results[f"round {t}, losses on a batch"] = engine.answer(model, t, LocalLoss(batch=3), asked[::-1].copy())
        results[f"round {t}, accuracies"] = engine.answer(model, t, LocalAccuracy(), asked)
        results[f"round {t}, contexts"] = engine.answer(model, t, Context(loss="robust"), asked)
        results[f"round {t}, norms of gradients"] = engine.answer(model, t, GradientNorm(), asked)
        results[f"round {t}, norms of updates"] = engine.answer(model, t, UpdateNorm(), asked, algorithm)
        updates = list(engine.train(model, t, Cohort(np.array(clients)), algorithm))
        results[f"round {t}, updates"] = [as_plain(update) for update in updates]
        model = algorithm.aggregate(model, (u for u in updates if u.client in admitted), members_of(admitted))
        engine.commit(admitted)
        results[f"round {t}, model"] = model
        for split in ("validation", "test"):
            evaluation = engine.evaluate(model, split)
            results[f"round {t}, {split}"] = {
                "loss": evaluation.loss,
                "right": evaluation.right,
                "total": evaluation.total,
            }
    shares = Cohort(np.array(HEALTHY), share=np.linspace(0.0, 1.0, len(HEALTHY)), epochs=np.arange(1, len(HEALTHY) + 1))
    results["parts of updates"] = [as_plain(update) for update in engine.train(model, 4, shares, algorithm)]
    engine.commit([])
    for sampling in ("loss", "loss_unbiased"):
        by_loss = Cohort(np.array(HEALTHY), sampling=sampling)
        results[f"batches by {sampling}"] = [as_plain(update) for update in engine.train(model, 4, by_loss, algorithm)]
        engine.commit([])
    results["stopped early"] = [
        as_plain(update) for update in engine.train(model, 5, stopping_cohort(HEALTHY), algorithm)
    ]
    engine.commit([])
    results["memories"] = _memories(engine, only_names_of_memories)
    return results


def _memories(engine: Engine, only_names: bool) -> dict[str, object]:
    """The memories in the state of an engine, or only the clients that have one."""
    memories = engine.state_dict()
    return {key: None if only_names else memories[key] for key in sorted(memories)}


def _compare(results: dict[str, object], expected: dict[str, object], where: str) -> None:
    for part, value in expected.items():
        require(pack({"": results[part]}) == pack({"": value}), f"{where}: {part}: differs from the local engine")
