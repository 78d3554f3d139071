"""The choice of the fastest plan on this machine, by timing real steps of each plan on the real model and data, and means of models.

Loop and threads give the same bits; the loop is taken only if threads need more than :data:`EVEN` times its time. Stacks give the same
results to rounding; they are taken only if they need at most :data:`CLEARLY` of the time of the plan that would be taken otherwise.
The choice is kept in the user's cache. Its key has everything that it can depend on: machine, cores, versions, network, data type,
batch size, optimizer, loss, algorithm, and the number of clients and of their steps.
"""

import dataclasses
import hashlib
import json
import math
import platform
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import cast

import numpy as np
import torch
from filelock import FileLock
from torch import nn

from fedcohort.algorithms import Algorithm, ModelState
from fedcohort.algorithms.training_settings import Training
from fedcohort.algorithms.weighted_means import RunningMean
from fedcohort.core.arrays import Indices
from fedcohort.core.files.durable_files import replace_file
from fedcohort.core.files.user_cache import cache_folder
from fedcohort.core.processor import processor
from fedcohort.engines.device import Arithmetic
from fedcohort.engines.initial_network import build_module
from fedcohort.engines.local_engine import LocalEngine, Plan
from fedcohort.engines.thread_numbers import threads_for
from fedcohort.federation.federation import Federation
from fedcohort.models import Model
from fedcohort.selection import Cohort
from fedcohort.training.client_hooks import settings_under
from fedcohort.training.networks.model_states import DTYPES
from fedcohort.training.programs.network_rows import is_sequence, row_of
from fedcohort.training.stack import cannot_stack

__all__ = ["CLEARLY", "Choice", "choose_plan"]

CLEARLY = 0.8
"""Stacks are taken if they need at most this share of the time of the plan that would be taken otherwise."""
EVEN = 1.5
"""Threads are preferred to the loop if they need at most this many times its time: they also share evaluations and questions to
clients, which are not measured, and the times of short rounds vary."""
SECONDS = 0.1
"""Seconds that one round of measured steps should take in the loop."""
CLOSE = 0.5, 1.6
"""Stacks that need between these shares of the time of the faster of the other plans are measured again if clients were cut, with
:data:`LONGER` rounds. With few steps for each client, stacks look too fast, or too slow if it takes long to prepare a client."""
LONGER = 4
"""How many times as long the rounds are when plans are measured again."""
SLOW = 0.5
"""Seconds of a step above which plans are not compared: such a step is nearly all arithmetic, which is the same in all plans."""
FEW = 10
"""Number of steps from which the time of a step is estimated, unless they take too long."""
TURNS = 3
"""Number of measured turns of every plan."""
IN_A_ROW = 10
"""Maximum number of rounds of a turn. Short rounds follow one another, as in a run, where they find their data in the caches."""
CLIENTS = 128
"""Maximum number of clients in a measured round."""


@dataclass(frozen=True)
class Choice:
    """A plan and why.

    Attributes:
        plan: the fastest plan.
        why: the reason in words, with the measured times.
        seconds: time of one client's step, by plan; empty if nothing was measured.
        known: whether the answer was in the cache.
    """

    plan: Plan
    why: str
    seconds: dict[str, float]
    known: bool = False

    def __str__(self) -> str:
        return f"plan {self.plan}: {self.why}{' (measured before)' if self.known else ''}"


def choose_plan(
    federation: Federation,
    model: Model,
    training: Training,
    algorithm: Algorithm,
    seed: int,
    workers: int,
    k: int,
    arithmetic: Arithmetic = "exact",
    clock: Callable[[], float] = time.perf_counter,
) -> Choice:
    """The fastest plan for ``k`` clients a round.

    Args:
        federation, model, training, algorithm, seed, arithmetic: as for :class:`fedcohort.engines.local_engine.LocalEngine`.
        workers: number of threads; 0 means the engine's default.
        k: clients per round.
        clock: gives the time in seconds.
    """
    settings = settings_under(algorithm, training)
    module = build_module(model, federation, seed).to(dtype=DTYPES[training.precision])
    workers = workers or threads_for(module, federation.device)
    unstackable = cannot_stack(module, federation, algorithm, training)
    sizes = federation.num_samples
    clients = _typical(sizes, min(k, CLIENTS))
    batch = settings.batch_size or max(1, int(np.median(sizes[clients])))
    entry = _entry(
        machine=[platform.machine(), processor(), workers, _accelerator(federation.device), arithmetic],
        versions=[version("fedcohort"), torch.__version__],
        network=[
            repr(module),
            [list(p.shape) for p in module.parameters()],
            list(federation.sample_shape),
            *_row(module, federation),
        ],
        data=str(federation.train.source.dtype),
        training=dataclasses.asdict(settings),
        algorithm=[type(algorithm).__qualname__, unstackable],
        clients=[len(clients), batch, *_magnitudes(-(-sizes[clients] // batch))],
    )
    if (known := _read(entry)) is not None:
        return known
    if workers == 1 and unstackable is not None:
        return Choice("loop", f"one thread, and clients cannot be stacked: {unstackable}", {})

    def engine(plan: Plan, clients: Federation) -> LocalEngine:
        return LocalEngine(clients, model, training, algorithm, seed, workers, plan=plan, arithmetic=arithmetic)

    stopwatch = _Stopwatch(engine, algorithm, clock)
    step, takes_turns = stopwatch.step(federation, clients[-1:], batch)
    if step > SLOW:
        choice = Choice("threads", f"one step takes {step:.1f} s, nearly all of it arithmetic", {"loop": step})
    else:
        budget = max(1.0, SECONDS / max(step, 1e-6))  # steps of one round
        count = int(np.clip(budget, min(len(clients), max(2 * workers, 8)), len(clients)))
        measured = _typical(sizes, count)
        needed = -(-sizes[measured] // batch)
        plans: list[Plan] = ["loop"]
        plans += ["threads"] if workers > 1 else []
        plans += ["stacked"] if unstackable is None else []
        seconds = stopwatch.steps(plans, _cut(federation, measured, batch * _most_steps(needed, budget)))
        if needed.sum() > budget and _is_close(seconds):
            longer = _cut(federation, measured, batch * _most_steps(needed, LONGER * budget))
            seconds = stopwatch.steps(plans, longer)
        choice = _decide(seconds, unstackable, takes_turns)
    _write(entry, choice)
    return choice


def _row(module: nn.Module, federation: Federation) -> list[list[str]]:
    """The layers of a network whose text does not show that it is a row of layers, in a list; empty for other networks."""
    row = None if is_sequence(module) else row_of(module, federation.sample_shape)
    return [] if row is None else [[str(layer) for layer in row]]


class _Stopwatch:
    """Measures how long steps take.

    Args:
        engine: builds an engine for a plan and some clients.
        algorithm: the run's algorithm.
        clock: gives the time in seconds.
    """

    def __init__(
        self, engine: Callable[[Plan, Federation], LocalEngine], algorithm: Algorithm, clock: Callable[[], float]
    ) -> None:
        self.engine, self.algorithm, self.clock = engine, algorithm, clock

    def step(self, federation: Federation, client: Indices, batch: int) -> tuple[float, bool]:
        """Seconds of a step of this client in the loop, and whether threads take turns in forward passes of the model."""
        seconds, takes_turns = self._first_steps(_cut(federation, client, batch))
        if seconds < SECONDS / FEW and federation.num_samples[client].sum() > batch:
            # the time of a single step has that of a client in it
            seconds, _ = self._first_steps(_cut(federation, client, FEW * batch))
        return seconds, takes_turns

    def _first_steps(self, client: Federation) -> tuple[float, bool]:
        """As :meth:`step`, from all steps of the only client of a federation."""
        with closing(self.engine("loop", client)) as probe:
            start = probe.initial_model()
            _play(probe, start, self.algorithm, 1)  # the first call prepares what later calls use
            begin = self.clock()
            steps = _play(probe, start, self.algorithm, 1)
            return (self.clock() - begin) / steps, probe.takes_turns

    def steps(self, plans: list[Plan], clients: Federation) -> dict[Plan, float]:
        """Seconds of one client's step by each plan, the least of all turns: other work on the machine only makes a turn longer."""
        count = clients.num_clients
        times: dict[Plan, list[float]] = {plan: [] for plan in plans}
        with ExitStack() as opened:  # closes the last engine first, as each restores the switches that it found
            engines = {plan: opened.enter_context(closing(self.engine(plan, clients))) for plan in plans}
            start = engines["loop"].initial_model()
            begin = self.clock()
            steps = {plan: _play(engines[plan], start, self.algorithm, count) for plan in plans}  # not timed
            rounds = int(np.clip(SECONDS * len(plans) / max(self.clock() - begin, 1e-6), 1, IN_A_ROW))
            for _ in range(TURNS):
                for plan in plans:
                    begin = self.clock()
                    for _ in range(rounds):
                        _play(engines[plan], start, self.algorithm, count)
                    times[plan].append((self.clock() - begin) / rounds / steps[plan])
        return {plan: min(values) for plan, values in times.items()}


def _is_close(seconds: Mapping[Plan, float]) -> bool:
    """Whether stacks may be faster or slower than the other plans once clients have all of their samples."""
    if "stacked" not in seconds:
        return False
    share = seconds["stacked"] / min(value for plan, value in seconds.items() if plan != "stacked")
    return CLOSE[0] < share < CLOSE[1]


def _decide(seconds: dict[Plan, float], unstackable: str | None, takes_turns: bool) -> Choice:
    """The plan to take, with the reason."""
    exact: Plan = "threads" if seconds.get("threads", math.inf) <= EVEN * seconds["loop"] else "loop"
    plan = exact
    if "stacked" in seconds and seconds["stacked"] <= CLEARLY * seconds[exact]:
        plan = "stacked"
    reasons = [", ".join(f"{name} {value * 1e3:.2g}" for name, value in seconds.items()) + " ms per step"]
    if unstackable is not None:
        reasons.append(f"clients cannot be stacked: {unstackable}")
    if plan == "threads" and seconds["threads"] > seconds["loop"]:
        reasons.append("threads also share evaluations and questions to clients")
    if plan != "stacked" and seconds.get("stacked", math.inf) < seconds[plan]:
        reasons.append(f"stacks, which change last digits, are taken if they need at most {CLEARLY:.0%} of the time")
    if takes_turns and plan == "threads":
        reasons.append("the model draws random numbers: one forward pass at a time")
    return Choice(plan, "; ".join(reasons), {str(name): value for name, value in seconds.items()})


def _play(engine: LocalEngine, start: ModelState, algorithm: Algorithm, clients: int) -> int:
    """Train the first ``clients`` clients for one epoch, and average their models; returns the number of steps."""
    cohort = Cohort(np.arange(clients), epochs=np.ones(clients, dtype=np.int64))
    mean, steps = RunningMean(), 0
    for update in engine.train(start, 1, cohort, algorithm):
        if update.failure is None:
            mean.include(update, 1.0)
            steps += update.steps
    mean.result()
    return max(1, steps)


def _typical(sizes: Indices, count: int) -> Indices:
    """``count`` clients that have samples, with sizes at even quantiles of all sizes."""
    order = np.argsort(sizes, kind="stable")
    order = order[sizes[order] > 0]
    if len(order) <= count:
        return order
    return order[((np.arange(count) + 0.5) * len(order) / count).astype(np.int64)]


def _most_steps(steps: Indices, budget: float) -> int:
    """Maximum number of steps of a client so that all clients together take at most ``budget`` steps, at least 1.

    Clients are cut as little as possible, because stacks of clients with few samples are much faster.
    """
    limits = np.unique(steps)
    totals = np.minimum(steps, limits[:, None]).sum(axis=1)
    fitting = int((totals <= budget).sum())  # the limits that fit
    if fitting == len(limits):
        return int(limits[-1])
    below, total = (int(limits[fitting - 1]), int(totals[fitting - 1])) if fitting else (0, 0)
    return max(1, below + int((budget - total) // (steps > below).sum()))


def _cut(federation: Federation, clients: Indices, most: int) -> Federation:
    """A federation of these clients with at most ``most`` samples each."""
    sizes = np.minimum(federation.num_samples[clients], most)
    rows = np.concatenate(
        [np.arange(federation.offsets[c], federation.offsets[c] + n) for c, n in zip(clients, sizes, strict=True)]
    )
    index = torch.from_numpy(rows).to(federation.device)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return dataclasses.replace(federation, train=federation.train[index], offsets=offsets, held=None, noise=None)


def _magnitudes(steps: Indices) -> list[int]:
    """The mean and the largest number of steps, as powers of two: seeds with similar partitions have the same."""
    return [round(math.log2(max(1.0, number))) for number in (float(steps.mean()), float(steps.max()))]


# --- the cache -------------------------------------------------------------------------------------------------------------


def _entry(**depends_on: object) -> Path:
    """The file of the cache for an answer that depends on these values."""
    key = hashlib.sha256(json.dumps(depends_on, sort_keys=True, default=str).encode()).hexdigest()[:24]
    return cache_folder("plans") / f"{key}.json"


def _accelerator(device: torch.device) -> str:
    """The GPU's name, or the type of another device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _read(entry: Path) -> Choice | None:
    """The answer in the cache; None if there is none, or if it cannot be read."""
    try:
        kept = json.loads(entry.read_text(encoding="utf-8"))
        if kept["plan"] not in ("loop", "threads", "stacked"):
            return None
        return Choice(cast(Plan, kept["plan"]), str(kept["why"]), dict(kept["seconds"]), known=True)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(entry: Path, choice: Choice) -> None:
    """Keep the answer, if the cache can be written to. If two processes write at the same time, the first answer stays."""
    content = json.dumps({"plan": choice.plan, "why": choice.why, "seconds": choice.seconds})
    # some file systems have no locks, and a folder that cannot be written has none either
    with suppress(OSError, NotImplementedError), FileLock(f"{entry.parent}.lock", timeout=10):
        if _read(entry) is None:
            replace_file(entry, content.encode())
