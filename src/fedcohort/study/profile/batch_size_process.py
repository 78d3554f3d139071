"""Measure one mini-batch size, in the process that ``python -m fedcohort.study.profile.batch_size_process`` starts.

Passes over the clients' data are timed step by step, one client at a time on one thread, until the 95% interval of the mean is small
enough or the time is up. Then a few rounds are played for the accuracy. Memory is the peak of each client's training: resident in the
process or, if training runs on a GPU, allocated there by torch; timing then waits for the GPU.
"""

import itertools
import json
import math
import sys
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import NamedTuple

import numpy as np
from torch import Tensor

from fedcohort import measures
from fedcohort.algorithms import Algorithm, Problem, Tensors
from fedcohort.core.arrays import Indices, Values
from fedcohort.experiment import Experiment
from fedcohort.experiment.given_objects import Given
from fedcohort.experiment.tasks import label_kind
from fedcohort.rounds import RunState, play_round
from fedcohort.runs.prepare_run import prepare
from fedcohort.selection import Cohort, LocalAccuracy
from fedcohort.study.profile.batch_size_profile import Order, Size
from fedcohort.study.profile.peak_memory import PeakMemory

__all__ = ["StepTimer", "measure", "relative_precision"]

CLIENTS = 50
"""Largest number of clients to time, evenly spread over all clients."""

PASSES = 5
"""Smallest number of passes over the clients for an interval."""


@dataclass(frozen=True)
class Step:
    """One timed step of local training: the client, the number of samples, and the wall time."""

    client: int
    samples: int
    seconds: float


class Pass(NamedTuple):
    """One pass over the data of the timed clients."""

    seconds: float
    samples: int


@dataclass
class Timing:
    """The measurements of local training.

    Attributes:
        clients: the timed clients.
        num_samples: training samples of each client of the federation.
        steps: the steps of all passes.
        passes: the passes.
        where: where memory was measured: ``resident`` or ``device``.
        memory_before: bytes in use before training.
        peaks: peak memory in bytes by client.
    """

    clients: Indices
    num_samples: Indices
    where: str
    memory_before: float
    steps: list[Step] = field(default_factory=list)
    passes: list[Pass] = field(default_factory=list)
    peaks: dict[int, float] = field(default_factory=dict)


def measure(order: Order) -> Size:
    """Measure one batch size in this process."""
    described = tomllib.loads(order.toml)
    described["training"]["batch_size"] = order.size
    described["engine"] |= {"plan": "loop", "workers": 1}
    experiment = Experiment(**described)
    with prepare(experiment, Given(data_dir=order.data_dir)) as (run_state, _):
        timing = _timed(run_state, order)
        run_state.engine.commit([])
        with BatchAccuracy(run_state.algorithm) as batches:
            accuracy, by_client = _played(run_state, order.rounds, batches)
    size = _size(order, timing, accuracy, by_client)
    numeric = label_kind(experiment.training) == "numbers"
    return replace(size, batch_accuracy=[] if numeric else batches.by_position())


def _timed(run_state: RunState, order: Order) -> Timing:
    """Time passes over the clients until the interval is small enough or the time is up."""
    memory = PeakMemory(str(run_state.device))
    num_samples = run_state.clock.num_samples
    timing = Timing(_spread(np.flatnonzero(num_samples > 0)), num_samples, memory.where, memory.now())
    timer = StepTimer(run_state.algorithm, memory.wait)
    start = time.perf_counter()

    def train(t: int, client: int) -> None:
        timer.client = client
        memory.reset()
        list(run_state.engine.train(run_state.model, t, Cohort(np.array([client])), run_state.algorithm))

    with timer:
        train(1, int(timing.clients[0]))  # the first steps load libraries, so they are not counted
        timer.steps.clear()
        for t in itertools.count(2):
            before = len(timer.steps)
            for client in timing.clients.tolist():
                train(t, client)
                timing.peaks[client] = max(timing.peaks.get(client, 0.0), memory.peak())
            steps = timer.steps[before:]
            timing.passes.append(Pass(sum(step.seconds for step in steps), sum(step.samples for step in steps)))
            tight = relative_precision(timing.passes) <= order.precision
            late = time.perf_counter() - start > order.seconds
            if (len(timing.passes) >= PASSES and tight) or (len(timing.passes) >= 2 and late):
                break
    timing.steps = timer.steps
    return timing


def _played(run_state: RunState, rounds: int, batches: "BatchAccuracy") -> tuple[float, Values]:
    """Play rounds, and return the test accuracy after the last round, and the accuracy on each client's data, float64 [m]."""
    accuracy, by_client = math.nan, np.full(len(run_state.clock.num_samples), np.nan)
    for t in range(1, rounds + 1):
        last = t == rounds
        batches.round = t
        row = play_round(run_state, t, test=last, local_accuracy=LocalAccuracy() if last else None)
        accuracy = row.test_accuracy
        if row.client_accuracy is not None:
            by_client = np.asarray(row.client_accuracy, np.float64)
    return accuracy, by_client


class BatchAccuracy:
    """Record the training accuracy of every mini-batch, before its step.

    Inside its ``with`` block, two methods of the algorithm are replaced by methods that also count.

    Attributes:
        round: the round that is played.
    """

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm, self.round = algorithm, 0
        self._open: list[tuple[Tensor, int]] = []
        self._found: dict[tuple[int, int], list[float]] = {}

    def __enter__(self) -> "BatchAccuracy":
        backward, finish = self.algorithm.backward, self.algorithm.finish

        def counted(problem: Problem) -> tuple[Tensor, Tensor]:
            losses, correct = backward(problem)
            self._open.append((correct, len(problem.batch)))
            return losses, correct

        def finished(problem: Problem) -> tuple[dict[str, Tensors], dict[str, Tensors]]:
            for position, (correct, samples) in enumerate(self._open):
                self._found.setdefault((self.round, position), []).append(float(correct) / samples)
            self._open.clear()
            return finish(problem)

        vars(self.algorithm).update(backward=counted, finish=finished)
        return self

    def __exit__(self, *_: object) -> None:
        for name in ("backward", "finish"):
            vars(self.algorithm).pop(name)

    def by_position(self) -> list[float]:
        """The mean over clients of the mini-batches at each position of each round, in order."""
        return [float(np.mean(self._found[key])) for key in sorted(self._found)]


class StepTimer:
    """Time the steps of local training: each from its start to the start of the next, the last one to the end of the client's work.

    Inside its ``with`` block, two methods of the algorithm are replaced by methods that also take the time.

    Args:
        algorithm: the algorithm.
        wait: returns when the device has finished its work; a GPU works asynchronously.

    Attributes:
        client: the client that is training now.
        steps: the steps so far.
    """

    def __init__(self, algorithm: Algorithm, wait: Callable[[], None] = lambda: None) -> None:
        self.algorithm, self.wait = algorithm, wait
        self.steps: list[Step] = []
        self.client = -1
        self._open: list[tuple[float, int]] = []

    def __enter__(self) -> "StepTimer":
        backward, finish = self.algorithm.backward, self.algorithm.finish

        def timed(problem: Problem) -> tuple[Tensor, Tensor]:
            self.wait()
            self._open.append((time.perf_counter(), len(problem.batch)))
            return backward(problem)

        def finished(problem: Problem) -> tuple[dict[str, Tensors], dict[str, Tensors]]:
            self.wait()
            stamps = [at for at, _ in self._open] + [time.perf_counter()]
            for (begin, samples), end in zip(self._open, stamps[1:], strict=True):
                self.steps.append(Step(self.client, samples, end - begin))
            self._open.clear()
            return finish(problem)

        vars(self.algorithm).update(backward=timed, finish=finished)
        return self

    def __exit__(self, *_: object) -> None:
        for name in ("backward", "finish"):
            vars(self.algorithm).pop(name)


def _spread(clients: Indices) -> Indices:
    """At most :data:`CLIENTS` of the clients, evenly spread."""
    places = np.linspace(0, len(clients) - 1, min(CLIENTS, len(clients))).round().astype(np.int64)
    return clients[np.unique(places)]


def relative_precision(passes: Sequence[tuple[float, int]]) -> float:
    """Half the width of the 95% interval of the mean time per sample over passes, as a share of the mean.

    Args:
        passes: seconds and samples of each pass.
    """
    from scipy.special import stdtrit

    if len(passes) < 2:
        return math.inf
    each = np.array([seconds / samples for seconds, samples in passes])
    half = float(stdtrit(len(each) - 1, 0.975)) * float(each.std(ddof=1)) / math.sqrt(len(each))
    return half / float(each.mean())


def _size(order: Order, timing: Timing, accuracy: float, by_client: Values) -> Size:
    """The measurements of one batch size."""
    mean, sd = measures.mean_sd(_batch_seconds(timing.steps, order.size))
    precision, peaks = relative_precision(timing.passes), timing.peaks
    rows = []
    for client in timing.clients.tolist():
        own = [step for step in timing.steps if step.client == client]
        if own:
            rows.append(_client(own, timing, order.size, float(by_client[client])))
    return Size(
        batch_size=order.size,
        batch_seconds=mean,
        batch_seconds_sd=sd,
        samples_per_second=sum(samples for _, samples in timing.passes) / sum(seconds for seconds, _ in timing.passes),
        precision=precision,
        tight=precision <= order.precision,
        passes=len(timing.passes),
        memory=max(peaks.values()),
        memory_sd=measures.mean_sd(list(peaks.values()))[1],
        memory_before=timing.memory_before,
        where=timing.where,
        accuracy=accuracy,
        client_accuracy=float(np.nanmean(by_client)) if np.isfinite(by_client).any() else math.nan,
        clients=rows,
        largest_client=int(timing.num_samples.max()),
    )


def _client(steps: Sequence[Step], timing: Timing, batch_size: int, accuracy: float) -> dict[str, float]:
    """The measurements of one client, from its steps."""
    mean, sd = measures.mean_sd(_batch_seconds(steps, batch_size))
    client, samples = steps[0].client, sum(step.samples for step in steps)
    return {
        "client": client,
        "samples": float(timing.num_samples[client]),
        "batch_seconds": mean,
        "batch_seconds_sd": sd,
        "memory": timing.peaks[client],
        "accuracy": accuracy,
        "samples_per_second": samples / sum(step.seconds for step in steps),
    }


def _batch_seconds(steps: Sequence[Step], batch_size: int) -> list[float]:
    """The times of full mini-batches, or of all mini-batches if none is full."""
    full = [step.seconds for step in steps if step.samples == batch_size]
    return full or [step.seconds for step in steps]


if __name__ == "__main__":
    print(json.dumps(asdict(measure(Order(**json.load(sys.stdin))))))
