"""Which plan is the fastest here: a few real steps of each, on the real model and data, once.

Loop and threads give the same bits, so the faster of them is taken. Stacks give the same to rounding; they are taken only where they
need at most :data:`CLEARLY` of that time. The answer is kept in the user's cache, under everything that it can depend on: machine,
cores, versions, network, data type, batch, optimiser, loss, algorithm, and how many clients of how many steps there are.
"""

import dataclasses
import hashlib
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from fedcohort.algorithms import Algorithm, ModelState
from fedcohort.algorithms.local import Training
from fedcohort.core.arrays import Indices
from fedcohort.engines.device import Arithmetic
from fedcohort.engines.local import LocalEngine, Plan, build_module, threads_for
from fedcohort.federation.cache import cache_folder
from fedcohort.federation.federation import Federation
from fedcohort.models import Model
from fedcohort.selection import Cohort
from fedcohort.training.local import DTYPES
from fedcohort.training.stacked import cannot_stack

__all__ = ["CLEARLY", "Choice", "choose_plan"]

CLEARLY = 0.8
"""Stacks are taken if they need at most this share of the time of the faster other plan."""
SECONDS = 0.15
"""What one round of measured steps should take in the loop."""
SLOW = 0.5
"""Seconds of one step from which on there is nothing to gain: the time goes into the arithmetic, not into calls."""
ROUNDS = 3
CLIENTS = 40


@dataclass(frozen=True)
class Choice:
    """A plan and why.

    Attributes:
        plan: the fastest.
        why: in words, with the measured times.
        seconds: of one client's step, by plan; empty where nothing was measured.
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
    """The fastest plan for ``k`` clients a round; the other arguments are those of :class:`fedcohort.engines.local.LocalEngine`."""
    workers = workers or threads_for(federation.device)
    settings = algorithm.local_training(training)
    module = build_module(model, federation, seed).to(dtype=DTYPES[training.precision])
    unstackable = cannot_stack(module, federation, algorithm, training)
    sizes = federation.num_samples
    clients = _typical(sizes, min(k, CLIENTS))
    batch = settings.batch_size or max(1, int(np.median(sizes[clients])))
    entry = _entry(
        machine=[platform.machine(), _processor(), workers, _accelerator(federation.device), arithmetic],
        versions=[version("fedcohort"), torch.__version__],
        network=[repr(module), [list(p.shape) for p in module.parameters()], list(federation.sample_shape)],
        data=str(federation.train.source.dtype),
        training=dataclasses.asdict(settings),
        algorithm=[type(algorithm).__qualname__, unstackable],
        clients=[len(clients), batch, np.minimum(-(-sizes[clients] // batch), 8).tolist()],
    )
    if (known := _read(entry)) is not None:
        return known
    if workers == 1 and unstackable is not None:
        return Choice("loop", f"one core, and no stacks: {unstackable}", {})

    def engine(plan: Plan, people: Federation) -> LocalEngine:
        return LocalEngine(people, model, training, algorithm, seed, workers, plan=plan, arithmetic=arithmetic)

    with closing(engine("loop", _cut(federation, clients[:1], batch))) as probe:
        start = probe.initial_model()
        _play(probe, start, algorithm, 1)
        begin = clock()
        _play(probe, start, algorithm, 1)
        step = clock() - begin
    if step > SLOW:
        choice = Choice("threads", f"one step takes {step:.1f} s, all of it arithmetic", {"loop": step})
        _write(entry, choice)
        return choice
    budget = max(1.0, SECONDS / max(step, 1e-6))
    count = int(np.clip(budget, min(len(clients), max(2 * workers, 8)), len(clients)))
    people = _cut(federation, clients[:count], batch * int(np.clip(budget // count, 1, 8)))
    plans: list[Plan] = ["loop"]
    if workers > 1:
        plans.append("threads")
    if unstackable is None:
        plans.append("stacked")
    engines = {plan: engine(plan, people) for plan in plans}
    times: dict[Plan, list[float]] = {plan: [] for plan in plans}
    try:
        steps = {plan: _play(engines[plan], start, algorithm, count) for plan in plans}  # warm
        for _ in range(ROUNDS):
            for plan in plans:
                begin = clock()
                _play(engines[plan], start, algorithm, count)
                times[plan].append((clock() - begin) / steps[plan])
    finally:
        for one in reversed(engines.values()):  # each puts back the switches that it found
            one.close()
    choice = _decide({plan: statistics.median(values) for plan, values in times.items()}, unstackable)
    if probe.draws and choice.plan == "threads":
        choice = dataclasses.replace(
            choice, why=f"{choice.why}; the model draws random numbers: one forward pass at a time"
        )
    _write(entry, choice)
    return choice


def _decide(seconds: dict[Plan, float], unstackable: str | None) -> Choice:
    """The fastest, with the reason."""
    exact = min((plan for plan in seconds if plan != "stacked"), key=lambda plan: seconds[plan])
    times = ", ".join(f"{plan} {value * 1e3:.2g}" for plan, value in seconds.items()) + " ms a step"
    plan: Plan = exact
    if "stacked" in seconds and seconds["stacked"] <= CLEARLY * seconds[exact]:
        plan = "stacked"
    why = times if unstackable is None else f"{times}; no stacks: {unstackable}"
    return Choice(plan, why, {str(name): value for name, value in seconds.items()})


def _play(engine: LocalEngine, start: ModelState, algorithm: Algorithm, clients: int) -> int:
    """One round of one epoch; the steps done."""
    cohort = Cohort(np.arange(clients), epochs=np.ones(clients, dtype=np.int64))
    return max(1, sum(update.steps for update in engine.train(start, 1, cohort, algorithm)))


def _typical(sizes: Indices, count: int) -> Indices:
    """``count`` clients with data whose sizes are spread as all are."""
    order = np.argsort(sizes, kind="stable")
    order = order[sizes[order] > 0]
    if len(order) <= count:
        return order
    return order[((np.arange(count) + 0.5) * len(order) / count).astype(np.int64)]


def _cut(federation: Federation, clients: Indices, most: int) -> Federation:
    """A federation of these clients with at most so many samples each."""
    sizes = np.minimum(federation.num_samples[clients], most)
    rows = np.concatenate(
        [np.arange(federation.offsets[c], federation.offsets[c] + n) for c, n in zip(clients, sizes, strict=True)]
    )
    index = torch.from_numpy(rows).to(federation.device)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return dataclasses.replace(federation, train=federation.train[index], offsets=offsets, held=None, noise=None)


# --- the cache -------------------------------------------------------------------------------------------------------------


def _entry(**depends_on: Any) -> Path:
    key = hashlib.sha256(json.dumps(depends_on, sort_keys=True, default=str).encode()).hexdigest()[:24]
    return cache_folder("plans") / f"{key}.json"


def _processor() -> str:
    """The processor's name, where the system tells."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith(("model name", "CPU part")):
                return line.partition(":")[2].strip()
    return platform.processor()


def _accelerator(device: torch.device) -> str:
    """Which GPU; or that there is none."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _read(entry: Path) -> Choice | None:
    """The answer that was kept; None without one, or if it cannot be read."""
    try:
        kept = json.loads(entry.read_text(encoding="utf-8"))
        if kept["plan"] not in ("loop", "threads", "stacked"):
            return None
        return Choice(cast(Plan, kept["plan"]), str(kept["why"]), dict(kept["seconds"]), known=True)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(entry: Path, choice: Choice) -> None:
    """Keep the answer; without a place for it, it is measured again next time. The first of two processes wins for both."""
    fresh = entry.with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        fresh.write_text(
            json.dumps({"plan": choice.plan, "why": choice.why, "seconds": choice.seconds}), encoding="utf-8"
        )
        with suppress(FileExistsError):
            os.link(fresh, entry)
        fresh.unlink()
