"""Which mini-batch size to train with: time, memory and accuracy of each, measured in a process of its own.

A batch size is judged by a fresh process, so that its peak memory is its own. There, passes over the clients' data are timed step by
step, one client at a time on one thread, and repeated until the 95 % interval of the mean is tight enough or the time is up; then a
few rounds are played for the accuracy. Memory is the peak of each client's training: what the process had resident or, where training
runs on a GPU, what torch had allocated there; the clock then waits for the GPU. :func:`fedcohort.measures.best_batch_size` gives two
recommendations: the most samples per second, and the best trade-off of time, memory and accuracy.
"""

import json
import math
import resource
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedcohort import measures
from fedcohort.core.errors import UsageError
from fedcohort.experiment import Experiment

__all__ = ["Profile", "Recommendation", "Size", "profile"]

SIZES = (8, 16, 32, 64)
"""Batch sizes that are measured by default."""

CLIENTS = 50
"""Clients that are timed at most, evenly spread over all."""

PASSES = 5
"""Passes over the clients that an interval needs at least."""


@dataclass(frozen=True)
class Size:
    """What one batch size came to.

    Attributes:
        batch_size: mini-batch size.
        batch_seconds, batch_seconds_sd: mean and standard deviation of the time of a mini-batch.
        samples_per_second: mean over passes.
        precision: half the 95 % interval of the mean time of a sample, as a share of it.
        tight: whether that is as small as was asked for.
        passes: over the clients' data.
        memory: peak bytes over all clients: resident in the process, or allocated on the device.
        memory_sd: standard deviation of the clients' own peaks.
        memory_before: the part of it that was there before training: Python, torch and the data.
        where: ``resident`` or ``device``.
        accuracy: on the test set, after the rounds.
        client_accuracy: mean over all clients of the same model's accuracy on their own data.
        clients: of each timed client: ``client``, ``samples``, ``batch_seconds``, ``batch_seconds_sd``, ``samples_per_second``,
            ``memory`` (the highest of its passes), ``accuracy``.
    """

    batch_size: int
    batch_seconds: float
    batch_seconds_sd: float
    samples_per_second: float
    precision: float
    tight: bool
    passes: int
    memory: float
    memory_sd: float
    memory_before: float
    where: str
    accuracy: float
    client_accuracy: float
    clients: list[dict[str, float]]


@dataclass(frozen=True)
class Recommendation:
    """A batch size, by which rule, and why."""

    rule: str
    batch_size: int
    reason: str


@dataclass(frozen=True)
class Profile:
    """All batch sizes, and what follows.

    Attributes:
        name: of the experiment.
        rounds: that were played for the accuracy.
        sizes: one a batch size, ascending.
        recommendations: by throughput, and by trade-off.
    """

    name: str
    rounds: int
    sizes: list[Size]
    recommendations: list[Recommendation]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @staticmethod
    def load(path: str | Path) -> "Profile":
        """What `fedcohort profile --json` printed, from a file.

        Raises:
            UsageError: it is something else.
        """
        try:
            found = json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=float)
            sizes = [Size(**_known(one)) for one in found["sizes"]]
            picks = [Recommendation(**one) for one in found["recommendations"]]
            profile = Profile(str(found["name"]), int(found["rounds"]), sizes, picks)
        except (OSError, ValueError, TypeError, KeyError):
            raise UsageError(f"{path}: not a profile; `fedcohort profile --json > {path}` makes one") from None
        if not sizes or not all(one.clients for one in sizes):
            raise UsageError(f"{path}: a profile without a batch size; `fedcohort profile --json > {path}` makes one")
        return profile


def profile(
    experiment: Experiment,
    *,
    sizes: Sequence[int] = SIZES,
    rounds: int = 3,
    seconds: float = 20.0,
    precision: float = 0.05,
    data_dir: str | Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> Profile:
    """Measure batch sizes on this machine.

    Args:
        experiment: its base, under its first seed.
        sizes: mini-batch sizes.
        rounds: rounds that are played with each for the accuracy; 0 for none, and no trade-off.
        seconds: time for the passes of one size at most.
        precision: the interval that is tight enough, as a share of the mean.
        data_dir: a local mirror of data sets in Hub layout.
        progress: called with every size before it is measured.

    Raises:
        UsageError: a size that cannot be, or the description cannot be run.
    """
    if not sizes or min(sizes) < 1 or len(set(sizes)) < len(sizes):
        raise UsageError(
            f"--batch-size {', '.join(map(str, sizes)) or 'none'}: give different sizes of at least 1, such as 8 and 16"
        )
    if rounds < 0:
        raise UsageError(f"rounds = {rounds}: at least 0, which plays none")
    if not seconds > 0:
        raise UsageError(f"seconds = {seconds:g}: above 0, such as 20")
    if not 0 < precision < 1:
        raise UsageError(f"precision = {precision:g}: between 0 and 1, such as 0.05")
    measured = []
    for size in sorted(sizes):
        if progress is not None:
            progress(size)
        order = {
            "toml": experiment.single(experiment.seed).to_toml(),
            "size": size,
            "rounds": rounds,
            "seconds": seconds,
        }
        measured.append(
            _in_a_fresh_process(
                order | {"precision": precision, "data_dir": None if data_dir is None else str(data_dir)}
            )
        )
    return Profile(experiment.name, rounds, measured, recommend(measured))


def recommend(sizes: Sequence[Size]) -> list[Recommendation]:
    """Both rules, with reasons in words."""
    batches = [one.batch_size for one in sizes]
    speed = np.array([one.samples_per_second for one in sizes])
    best = batches.index(measures.best_batch_size(batches, speed))
    slowest = int(speed.argmin())
    reason = f"{speed[best]:,.0f} samples per second"
    reason += (
        f", {speed[best] / speed[slowest]:.2g} times as many as with {batches[slowest]}" if best != slowest else ""
    )
    rivals = [b for i, b in enumerate(batches) if i != best and _overlap(sizes[best], sizes[i])]
    if rivals:
        reason += f"; not told apart from {', '.join(map(str, rivals))}: the intervals overlap"
    found = [Recommendation("throughput", batches[best], reason)]
    accuracy = np.array([one.accuracy for one in sizes])
    if np.isfinite(accuracy).all():
        memory = np.array([one.memory for one in sizes])
        pick = measures.best_batch_size(batches, speed, memory=memory, accuracy=accuracy, rule="tradeoff")
        one = sizes[batches.index(pick)]
        parts = f"{1e6 / one.samples_per_second:,.0f} µs a sample, {one.memory / 1e6:,.0f} MB, {100 * one.accuracy:.1f} % accuracy"
        found.append(
            Recommendation("tradeoff", pick, f"the best mean of time, memory and error, each scaled to 0 to 1: {parts}")
        )
    return found


def _overlap(a: Size, b: Size) -> bool:
    low, high = sorted((a, b), key=lambda one: one.samples_per_second)
    return low.samples_per_second * (1 + low.precision) >= high.samples_per_second * (1 - high.precision)


def _known(one: dict[str, Any]) -> dict[str, Any]:
    """Numbers of a size as they were before JSON, which has no NaN."""
    clients = [{key: _number(value) for key, value in row.items()} for row in one["clients"]]
    kept = {key: value if isinstance(value, str | bool | int) else _number(value) for key, value in one.items()}
    return kept | {"clients": clients}


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) else math.nan


# --- one size, in a process of its own --------------------------------------------------------------------------------------------


def _in_a_fresh_process(order: dict[str, Any]) -> Size:
    done = subprocess.run(
        [sys.executable, "-m", "fedcohort.study.profiling"],
        input=json.dumps(order),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        words = done.stderr.strip().splitlines()
        raise UsageError(
            words[-1].removeprefix("fedcohort.core.errors.UsageError: ")
            if words
            else "the measuring process ended early"
        )
    return Size(**json.loads(done.stdout.splitlines()[-1]))


def _measure(order: dict[str, Any]) -> Size:
    from fedcohort.rounds import play_round
    from fedcohort.runs.given import Given
    from fedcohort.runs.prepare import prepare
    from fedcohort.selection.base import Cohort, LocalAccuracy

    described = tomllib.loads(order["toml"])
    described["training"]["batch_size"] = order["size"]
    described["engine"] |= {"plan": "loop", "workers": 1}
    experiment = Experiment(**described)
    with prepare(experiment, Given(data_dir=order["data_dir"])) as (game, _):
        memory = _Memory(game.device.type)
        memory_before = memory.now()
        peaks: dict[int, float] = {}
        clients = _spread(np.flatnonzero(game.clock.num_samples > 0))
        watch = _Watch(game.algorithm, memory.wait)
        passes: list[tuple[float, int]] = []
        start, t = time.perf_counter(), 0
        with watch:
            while True:
                t += 1
                before = len(watch.steps)
                for watch.client in (clients[:1] if t == 1 else clients).tolist():
                    memory.reset()
                    list(game.engine.train(game.model, t, Cohort(np.array([watch.client])), game.algorithm))
                    if t > 1:
                        peaks[watch.client] = max(peaks.get(watch.client, 0.0), memory.peak())
                if t == 1:  # the first steps load libraries
                    watch.steps.clear()
                    continue
                new = watch.steps[before if t > 2 else 0 :]
                passes.append((sum(step.seconds for step in new), sum(step.samples for step in new)))
                tight = _precision(passes) <= order["precision"]
                if (len(passes) >= PASSES and tight) or (
                    len(passes) >= 2 and time.perf_counter() - start > order["seconds"]
                ):
                    break
        game.engine.commit([])
        accuracy, served = math.nan, np.full(len(game.clock.num_samples), np.nan)
        for t in range(1, order["rounds"] + 1):
            last = t == order["rounds"]
            row = play_round(game, t, test=last, clients=LocalAccuracy() if last else None)
            accuracy = row.test_accuracy
            served = served if row.client_accuracy is None else np.asarray(row.client_accuracy, np.float64)
    return _summed_up(order, watch.steps, passes, clients, (memory.where, memory_before, peaks), accuracy, served)


@dataclass(frozen=True)
class _Step:
    client: int
    samples: int
    seconds: float


class _Watch:
    """Times the steps of local training: from the begin of one to the begin of the next, the last one to the end of the client's work.

    It stands in for two methods of an algorithm while it is entered, and changes nothing of what they do. ``client`` is whose work is
    timed. ``wait`` returns when a GPU has done what it was told; without it, only the telling would be timed.
    """

    def __init__(self, algorithm: Any, wait: Callable[[], None] = lambda: None) -> None:
        self.algorithm, self.wait = algorithm, wait
        self.steps: list[_Step] = []
        self.client = -1
        self._open: list[tuple[float, int]] = []

    def __enter__(self) -> "_Watch":
        backward, finish = self.algorithm.backward, self.algorithm.finish

        def timed(problem: Any) -> Any:
            self.wait()
            self._open.append((time.perf_counter(), len(problem.batch)))
            return backward(problem)

        def finished(problem: Any) -> Any:
            self.wait()
            stamps = [at for at, _ in self._open] + [time.perf_counter()]
            for (begin, samples), end in zip(self._open, stamps[1:], strict=True):
                self.steps.append(_Step(self.client, samples, end - begin))
            self._open.clear()
            return finish(problem)

        vars(self.algorithm).update(backward=timed, finish=finished)
        return self

    def __exit__(self, *_: object) -> None:
        for name in ("backward", "finish"):
            vars(self.algorithm).pop(name)


def _spread(clients: np.ndarray) -> np.ndarray:
    return clients[np.unique(np.linspace(0, len(clients) - 1, min(CLIENTS, len(clients))).round().astype(np.int64))]


def _precision(passes: Sequence[tuple[float, int]]) -> float:
    """Half the 95 % interval of the mean seconds of a sample over passes, as a share of the mean."""
    from scipy.special import stdtrit

    if len(passes) < 2:
        return math.inf
    each = np.array([seconds / samples for seconds, samples in passes])
    half = float(stdtrit(len(each) - 1, 0.975)) * float(each.std(ddof=1)) / math.sqrt(len(each))
    return half / float(each.mean())


class _Memory:
    """Peak memory of one client's training after another: torch's on a GPU, else what is resident in this process.

    Linux can forget a process' peak, so that each client has its own; elsewhere a client's peak is the highest so far.

    Args:
        device: ``cpu`` or ``cuda``.
    """

    def __init__(self, device: str) -> None:
        self.where = "device" if device == "cuda" else "resident"

    def now(self) -> float:
        """Bytes that are in use."""
        if self.where == "device":
            return float(_cuda().memory_allocated())
        return self.peak()

    def reset(self) -> None:
        """Forget the peak."""
        if self.where == "device":
            _cuda().reset_peak_memory_stats()
        else:
            with suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5", encoding="ascii")

    def peak(self) -> float:
        """Bytes, at most, since the peak was forgotten."""
        if self.where == "device":
            return float(_cuda().max_memory_allocated())
        with suppress(OSError):
            for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
                if line.startswith("VmHWM:"):
                    return 1024.0 * float(line.split()[1])
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return float(peak if sys.platform == "darwin" else 1024 * peak)

    def wait(self) -> None:
        """Until the device has done what it was told."""
        if self.where == "device":
            _cuda().synchronize()


def _cuda() -> Any:
    import torch

    return torch.cuda


def _summed_up(
    order: dict[str, Any],
    steps: Sequence[_Step],
    passes: Sequence[tuple[float, int]],
    clients: np.ndarray,
    memory: tuple[str, float, dict[int, float]],
    accuracy: float,
    served: np.ndarray,
) -> Size:
    full = [step for step in steps if step.samples == order["size"]] or list(steps)
    mean, sd = measures.mean_sd([step.seconds for step in full])
    precision = _precision(passes)
    where, before, peaks = memory
    rows = []
    for client in clients.tolist():
        own = [step for step in steps if step.client == client]
        if not own:
            continue
        whole = [step.seconds for step in own if step.samples == order["size"]] or [step.seconds for step in own]
        own_mean, own_sd = measures.mean_sd(whole)
        rows.append(
            {
                "client": client, "samples": sum(step.samples for step in own) / len(passes), "batch_seconds": own_mean,
                "batch_seconds_sd": own_sd, "memory": peaks[client], "accuracy": float(served[client]),
                "samples_per_second": sum(step.samples for step in own) / sum(step.seconds for step in own),
            }
        )  # fmt: skip
    return Size(
        batch_size=order["size"],
        batch_seconds=mean,
        batch_seconds_sd=sd,
        samples_per_second=sum(samples for _, samples in passes) / sum(seconds for seconds, _ in passes),
        precision=precision,
        tight=precision <= order["precision"],
        passes=len(passes),
        memory=max(peaks.values()),
        memory_sd=measures.mean_sd(list(peaks.values()))[1],
        memory_before=before,
        where=where,
        accuracy=accuracy,
        client_accuracy=float(np.nanmean(served)) if np.isfinite(served).any() else math.nan,
        clients=rows,
    )


if __name__ == "__main__":
    print(json.dumps(asdict(_measure(json.load(sys.stdin)))))
