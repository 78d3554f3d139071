"""The contract of an engine's training: cohorts, shares of updates, early stopping, errors, memory, streaming."""

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from fedcohort.algorithms import Algorithm, ModelState, Problem, Tensors
from fedcohort.algorithms.updates import is_finite
from fedcohort.core.files.state_files import pack, unpack
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.engines.base import ClientError, Engine
from fedcohort.selection import Cohort, LocalLoss
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
    require,
)
from fedcohort.testing.updates import PlainUpdate, alike_updates, as_plain, stopping_cohort, trained

__all__ = [
    "Footprints",
    "check_cohorts",
    "check_errors",
    "check_memory",
    "check_overflow",
    "check_shares",
    "check_stops",
    "check_streaming",
]

AHEAD = 64
"""Number of clients that an engine may train before their updates are requested."""


def check_cohorts(engine: Engine, model: ModelState) -> None:
    """Check order, counts and work. A client's result depends on client, round and model only; the given model does not change."""
    clients = list(HEALTHY)
    before = bits(model)
    updates = trained(engine, model, 1, clients)
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

    backwards = trained(engine, model, 1, clients[::-1])[::-1]
    require(alike_updates(backwards, updates), "train: the position of a client in the cohort changes its result")
    require(
        alike_updates(trained(engine, model, 1, clients[2:3]), updates[2:3]),
        "train: a client that trains alone has a different result",
    )
    require(
        not alike_updates(trained(engine, model, 2, clients), updates), "train: rounds 1 and 2 drew the same batches"
    )
    require(trained(engine, model, 1, []) == [], "train: an empty cohort must have no updates")

    uneven = trained(engine, model, 1, clients[:4], epochs=[1, 4, 2, 0])
    require(alike_updates(uneven[2:3], updates[2:3]), "train: the epochs of one client change the result of another")
    for u, epochs in zip(uneven, (1, 4, 2, 0), strict=True):
        steps = epochs * math.ceil(SIZES[u["client"]] / 4)
        fine = u["steps"] == steps and u["work"] == epochs / 2
        require(fine, f"train, {epochs} epochs instead of 2: {u['steps']} steps of {steps}, work {u['work']}")
    idle = uneven[3]
    require(
        bits(idle["state"]) == before and "loss" not in idle["report"],
        "train, 0 epochs: the update is not the received model",
    )
    require(bits(model) == before, "train: changed the given model")


def check_shares(engine: Engine, model: ModelState) -> None:
    """Check that whole tensors are left out, by client and round, and that the reported norm is that of the whole update."""
    clients = HEALTHY[:5]

    def with_share(share: float, t: int = 1, clients: Sequence[int] = clients) -> list[PlainUpdate]:
        cohort = Cohort(np.array(clients, dtype=np.int64), share=np.full(len(clients), share))
        return [as_plain(update) for update in engine.train(model, t, cohort, ControlVariates())]

    without_share, half, nothing = trained(engine, model, 1, clients), with_share(0.5), with_share(0.0)
    for u, whole in zip(half, without_share, strict=True):
        _check_half_update(u, whole, model, engine.trainable)
    for u in nothing:
        sent = engine.trainable & set(u["sent"])
        require(not sent, f"train, share 0, client {u['client']}: sent {sorted(sent)}")
    patterns = {tuple(u["sent"]) for t in range(1, 5) for u in with_share(0.5, t)}
    require(len(patterns) > 1, f"train, share 0.5: every client sends the same tensors in every round: {patterns}")
    require(
        alike_updates(with_share(0.5, clients=clients[::-1])[::-1], half),
        "train, share 0.5: the tensors sent depend on the position in the cohort",
    )
    everything = with_share(1.0)
    require(all(set(u["sent"]) == set(model) for u in everything), "train, share 1: a tensor was left out")
    complaint = "train, share 1: differs from the update without a share"
    states = [[u["state"] for u in updates] for updates in (everything, without_share)]
    require(pack({"": states[0]}) == pack({"": states[1]}), complaint)


def _check_half_update(u: PlainUpdate, whole: PlainUpdate, model: ModelState, trainable: frozenset[str]) -> None:
    """Check an update of share 0.5 against the ``whole`` update of the same client, which started from ``model``."""
    where = f"train, share 0.5, client {u['client']}"
    names = sorted(trainable & set(model))
    expected = {name: (whole["state"] if name in u["sent"] else model)[name] for name in names}
    require(
        bits({name: u["state"][name] for name in names}) == bits(expected),
        f"{where}: must hold the tensors that were sent, and the received tensors in place of the others",
    )
    norms = [float((whole["state"][name].double() - model[name].double()).norm()) for name in names]
    norm = u["report"].get("update_norm", math.nan)
    require(
        math.isclose(norm, math.hypot(*norms), rel_tol=1e-6),
        f"{where}: update_norm {norm} is not the norm of the whole update",
    )
    alike = {**u["report"], "update_norm": 0.0} == {**whole["report"], "update_norm": 0.0}
    require(alike and u["steps"] == whole["steps"], f"{where}: sending fewer tensors changed the training")


def check_stops(engine: Engine, model: ModelState) -> None:
    """Check that a stopping rule ends training after whole epochs, and that the update reports the number of epochs and the reason."""
    stopped = [as_plain(update) for update in engine.train(model, 1, stopping_cohort(HEALTHY), ControlVariates())]
    used = [int(u["report"].get("epochs", 0)) for u in stopped]
    require(
        {1, 6} < set(used),
        f"train, stop: all clients used the same number of epochs, or the epochs were not counted: {used}",
    )
    plain = trained(engine, model, 1, HEALTHY, epochs=used)
    for u, same in zip(stopped, plain, strict=True):
        where = f"train, stop, client {u['client']}"
        expected = {"q_hat", "set_size", "done", "calibration", "epochs"}
        require(expected <= set(u["report"]), f"{where}: reports {sorted(u['report'])}, not {sorted(expected)}")
        require(
            u["report"]["done"] == float(u["report"]["q_hat"] <= 0.723),
            f"{where}: the report 'done' does not agree with 'q_hat': {u['report']}",
        )
        require(
            u["report"]["done"] or u["report"]["epochs"] == 6,
            f"{where}: stopped early, but reports that it is not done",
        )
        alike = bits(u["state"]) == bits(same["state"]) and u["work"] == same["work"] and u["steps"] == same["steps"]
        require(alike, f"{where}: differs from {u['report']['epochs']:g} epochs without a stopping rule")
        checks = u["report"]["epochs"] * HELD_OUT / u["num_samples"]
        require(
            math.isclose(u["passes"], same["passes"] + checks),
            f"{where}: the forward passes of the stopping rule are not counted",
        )


def check_overflow(engine: Engine, model: ModelState) -> None:
    """Check that NaN in one client does not affect other clients."""
    healthy = trained(engine, model, 1, HEALTHY[:3])
    cohort = Cohort(np.array([HEALTHY[0], NAN, *HEALTHY[1:3]]))
    first, ill, *rest = engine.train(model, 1, cohort, ControlVariates())
    require(not is_finite(ill), f"train: client {NAN} overflows, but its update is finite")
    require(
        all(map(math.isfinite, ill.report.values())),
        f"train: client {NAN} reports {ill.report}; must leave out numbers that are not finite",
    )
    complaint = f"train: NaN in client {NAN} changed the updates of other clients"
    require(alike_updates([as_plain(update) for update in (first, *rest)], healthy), complaint)
    losses = engine.answer(model, 1, LocalLoss(), np.array([HEALTHY[0], NAN, HEALTHY[1]]))
    require(np.isfinite(losses).tolist() == [True, False, True], f"answer: client {NAN} overflows; losses {losses}")


def check_errors(engine: Engine, model: ModelState) -> None:
    """Check that an error in a client's work names the client and its cause, and that the engine still works afterwards."""
    asked = np.array([HEALTHY[0], BROKEN, HEALTHY[1]])
    healthy = trained(engine, model, 1, HEALTHY[:3])
    works: dict[str, Callable[[], object]] = {
        "train": lambda: trained(engine, model, 1, [HEALTHY[0], BROKEN, *HEALTHY[1:]]),
        "answer": lambda: engine.answer(model, 1, LocalLoss(), asked),
    }
    for what, work in works.items():
        try:
            work()
        except ClientError as error:
            begins = str(error).startswith(f"client {BROKEN}: IndexError: ")
            require(begins, f"{what}: an error must begin with client and cause, not {str(error)[:80]!r}")
            require(error.__cause__ is not None, f"{what}: a ClientError must chain its cause")
        except Exception as error:
            raise AssertionError(
                f"{what}: client {BROKEN} raises an error, but the engine raised {type(error).__name__}, not ClientError"
            ) from error
        else:
            raise AssertionError(f"{what}: client {BROKEN} raises an error, but the engine raised none")
        require(
            alike_updates(trained(engine, model, 1, HEALTHY[:3]), healthy),
            f"{what}: the engine no longer works after a client's error",
        )


def check_memory(engine: Engine, fresh: Engine, model: ModelState) -> None:
    """Check that memory is kept for admitted clients only, and is part of the state."""
    clients = HEALTHY[:2]
    before = trained(engine, model, 1, clients)
    engine.commit([])
    require(
        alike_updates(trained(engine, model, 1, clients), before),
        "commit: a client that was not admitted has a new memory",
    )
    engine.commit(clients[:1])
    after = trained(engine, model, 1, clients)
    require(not alike_updates(after[:1], before[:1]), "commit: an admitted client has no new memory")
    require(alike_updates(after[1:], before[1:]), "commit: a client that was not admitted has a new memory")
    known = sorted(engine.state_dict())
    require(known == [str(clients[0])], f"state_dict: memories of {known}, not of client {clients[0]} only")
    with during("state_dict and load_state_dict"):
        fresh.load_state_dict(unpack(pack(engine.state_dict())))
    require(alike_updates(trained(fresh, model, 1, clients), after), "load_state_dict: a memory was lost or changed")
    engine.load_state_dict({})
    require(
        alike_updates(trained(engine, model, 1, clients), before),
        "load_state_dict: memory that was not loaded is still kept",
    )


@parameters
class Footprints(Algorithm):
    """FedAvg that writes a file for every trained client, so that a check can count trained clients in all processes."""

    folder: str
    """Folder of the files."""
    card: ClassVar[Card] = Card(source="the contract suite", status="ours")

    def finish(self, problem: Problem) -> tuple[dict[str, Tensors], dict[str, Tensors]]:
        """Write a file."""
        tempfile.NamedTemporaryFile(dir=self.folder, delete=False).close()
        return {}, {}


def check_streaming(engine: Engine, folder: Path) -> None:
    """Check that an engine does not train far ahead of a slow reader, and still works after a stream is abandoned."""
    model = engine.initial_model()
    stream = iter(engine.train(model, 1, Cohort(np.arange(150)), Footprints(folder=str(folder))))
    first = as_plain(next(stream))
    time.sleep(0.5)
    ahead = len(list(folder.iterdir()))
    require(ahead <= AHEAD, f"train: {ahead} of 150 clients were trained before the second update was requested")
    del stream
    again = trained(engine, model, 1, [0, 1])
    require(alike_updates(again[:1], [first]), "train: the engine no longer works after a stream was abandoned")
