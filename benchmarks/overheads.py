"""Measure everything except local training: rounds with a growing number of clients (W5), questions, overhead, start, memory.

    python benchmarks/overheads.py [--quick] [--only growth questions share start memory leak] [--out FILE.json]

Each measurement runs in a process of its own, so that its peak memory is known.

growth     rounds of W2 (100 clients with 60 samples) in federations of 10² to 10⁶ clients, by strategy: time and memory
questions  asking 1,000 clients with 50 samples for their loss, compared with one pass over the same samples in large batches
share      whole runs of W1, W2 and W3 with their record: the share of the time in which no client is being trained
start      building a federation of a million clients with one sample each; ``fedcohort run`` on digits with one round
memory     a model of 45 MB and 1,000 selected clients: the peak above the memory before the round
leak       resident memory after 60 and after 300 rounds of W2
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PARTS = ("growth", "questions", "share", "start", "memory", "leak")


def peak() -> float:
    """Peak resident memory of this process, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def resident() -> float:
    """Current resident memory of this process, in GB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return float(line.split()[1]) / 2**20
    return float("nan")


def data(shape: tuple[int, ...], samples: int, test: int = 1000) -> Any:
    """A data set of random pixels."""
    import numpy as np

    from fedcohort import from_arrays

    rng = np.random.default_rng(0)
    features = rng.integers(0, 256, (samples, *shape), dtype=np.uint8)
    labels = np.arange(samples) % 10
    return from_arrays((features, labels), (features[:test], labels[:test]), standardise=True)


def described(name: str, clients: int, k: int, strategy: str = "uniform", **values: Any) -> Any:
    """An experiment like W1, W2 or W3."""
    import fedcohort

    settings: dict[str, dict[str, Any]] = {
        "W1": {"model": "cnn_a", "training": {"batch_size": 16, "lr": 0.01}},
        "W2": {"model": {"name": "mlp", "hidden": 200}, "training": {"batch_size": 20, "lr": 0.1, "momentum": 0.0}},
        "W3": {"model": "cnn_a", "training": {"batch_size": 10, "lr": 0.01, "momentum": 0.0}},
    }
    return fedcohort.Experiment(
        **{
            "seeds": 1,
            "federation": {"clients": clients, "partition": "iid"},
            "selection": {"name": strategy, "k": k},
            **settings[name],
            **values,
        }
    )


def growth(args: argparse.Namespace) -> Any:
    """Median seconds of a round by number of clients and strategy, with the sizes in turns."""
    sizes = [10**2, 10**3, 10**4] if args.quick else [10**2, 10**3, 10**4, 10**5, 10**6]
    rows = []
    for strategy in ("uniform", "ucb", "oort"):
        turns = [
            [alone("one_growth", clients, strategy, 5 if args.quick else 20) for clients in sizes] for _ in range(3)
        ]
        medians = [{key: statistics.median(row[key] for row in found) for key in ("seconds", "beside_training", "peak_gb")}
                   for found in zip(*turns, strict=True)]  # fmt: skip
        for clients, row in zip(sizes, medians, strict=True):
            rows.append(
                {"strategy": strategy, "clients": clients, **row, "ratio": row["seconds"] / medians[1]["seconds"]}
            )
            print(f"growth: {rows[-1]}", flush=True)
    return rows


def one_growth(clients: int, strategy: str, rounds: int) -> Any:
    """Rounds of W2, with 100 selected clients, in a federation of this number of clients with 60 samples each.

    All samples are views of the same image: 47 GB of pixels would measure the machine's memory instead.
    """
    import numpy as np
    import torch

    from fedcohort.core.tensor_sizes import num_bytes
    from fedcohort.engines.local_engine import LocalEngine
    from fedcohort.federation.federation import Federation, Samples
    from fedcohort.federation.simulated_clock import Clock
    from fedcohort.models import as_model
    from fedcohort.rounds import RunState, play_round
    from fedcohort.selection import Census

    experiment = described("W2", clients, 100, strategy, engine={"plan": "stacked"}, rounds=rounds)
    begin = time.perf_counter()
    pixels = torch.randint(0, 256, (1, 1, 28, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    train = Samples(pixels.expand(60 * clients, 1, 28, 28), torch.zeros(1, dtype=torch.int64).expand(60 * clients))
    few = Samples(train.features[:1000].clone(), train.labels[:1000].clone())
    one = torch.ones(1, 1, 1)
    offsets = np.arange(clients + 1) * 60
    federation = Federation(train, offsets, few, few, tuple(map(str, range(10))), 128 * one, one / 64)
    algorithm, selector = experiment.algorithm.build(), experiment.selection.build()
    model = as_model(experiment.model.build())
    engine = LocalEngine(federation, model, experiment.training, algorithm, 0, plan="stacked")
    first, systems = engine.initial_model(), experiment.systems
    laws = systems.latency.build(), systems.availability.build(), systems.network.build()
    clock = Clock(federation.num_samples, 0, *laws, rounds=rounds, model_bytes=num_bytes([first]), epochs=1)
    selector.setup(Census(federation.num_samples, 10, 100, None, clock.epochs))
    run_state = RunState(0, 100, clock, selector, algorithm, engine, first)
    ready = time.perf_counter() - begin
    seconds, beside = [], []
    for t in range(1, rounds + 1):
        begin = time.perf_counter()
        row = play_round(run_state, t, test=False)
        seconds.append(time.perf_counter() - begin)
        beside.append(seconds[-1] - row.wall.get("training", 0.0))
    engine.close()
    return {
        "clients": clients, "strategy": strategy, "seconds": statistics.median(seconds[2:]),
        "beside_training": statistics.median(beside[2:]), "ready": ready, "peak_gb": peak(),
    }  # fmt: skip


def one_million(clients: int) -> Any:
    """The time from arrays to a run that can start, with one sample for each client."""
    from fedcohort.experiment import Cell
    from fedcohort.experiment.given_objects import Given
    from fedcohort.runs.prepare_run import prepare

    given = Given(data=data((1, 28, 28), clients))
    experiment = Cell("", 0, described("W2", clients, 100)).experiment
    begin, before = time.perf_counter(), peak()
    with prepare(experiment.single(0), given):
        return {"clients": clients, "ready": time.perf_counter() - begin, "peak_gb": peak(), "data_gb": before}


def questions(args: argparse.Namespace) -> Any:
    """Seconds for asking all clients, and for one stream of the same samples in batches of 128, in turns: through the model as PyTorch
    has it, and through the engine's model, in which large products are faster."""
    return [alone("one_question", name, 200 if args.quick else 1000) for name in ("W2", "W3")]


def one_question(name: str, clients: int) -> Any:
    """Measure one workload on one core."""
    import numpy as np
    import torch
    from torch.nn import functional

    from fedcohort.engines.initial_network import build_module
    from fedcohort.engines.local_engine import LocalEngine
    from fedcohort.experiment import Cell
    from fedcohort.experiment.given_objects import Given
    from fedcohort.models import as_model
    from fedcohort.runs.prepare_run import prepare
    from fedcohort.selection import LocalLoss

    shape = (1, 28, 28) if name == "W2" else (3, 32, 32)
    experiment = described(name, clients, 10, engine={"workers": 1})
    with prepare(Cell("", 0, experiment.single(0)).experiment, Given(data=data(shape, 50 * clients))) as (run_state, _):
        engine, asked = run_state.engine, np.arange(clients)
        assert isinstance(engine, LocalEngine)
        federation, trainer = engine.federation, engine._trainers.get()
        engine._trainers.put(trainer)
        torch.set_num_threads(1)
        features, labels = federation.train.features, federation.train.labels
        plain = build_module(as_model(experiment.model.build()), federation, 0).eval()
        plain = plain.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's annotations lack it
        found: dict[str, list[float]] = {"asked": [], "stream": [], "own_stream": []}

        def stream(module: torch.nn.Module) -> None:
            with torch.no_grad():
                for block, right in zip(features.split(128), labels.split(128), strict=True):
                    float(functional.cross_entropy(module(federation.prepare(block, torch.float32)), right))

        for _ in range(8):
            for what, work in (
                ("asked", lambda: engine.answer(run_state.model, 1, LocalLoss(), asked)),
                ("stream", lambda: stream(plain)),
                ("own_stream", lambda: stream(trainer.show(run_state.model))),
            ):
                begin = time.perf_counter()
                work()
                found[what].append(time.perf_counter() - begin)
    seconds = {what: statistics.median(values[1:]) for what, values in found.items()}
    ratio = seconds["asked"] / seconds["stream"]
    return {"model": name, "clients": clients, **seconds, "ratio": ratio}


def share(args: argparse.Namespace) -> Any:
    """The time of whole runs by activity, with and without a test after every round."""
    works = {"W1": (12, 3, 50_000, 6), "W2": (1000, 100, 60_000, 60), "W3": (1000, 50, 50_000, 12)}
    rows = []
    for name, (clients, k, samples, rounds) in works.items():
        for tested in (False, True):
            rows.append(alone("one_share", name, clients, k, samples // (4 if args.quick else 1), rounds, tested))
            print(f"share: {rows[-1]}", flush=True)
    return rows


def one_share(name: str, clients: int, k: int, samples: int, rounds: int, tested: bool) -> Any:
    """One run, from its third round to the last but one: the share of the time in which no client was being trained, and the median
    seconds of each part of a round. With ``tested``, 10,000 images are evaluated after every round.

    If the first layer of a stack is carried through its samples (W2), the changes of all its steps are computed in one product, AᵀX,
    together with the mean. This counts as training. ``last_product`` is its share of the time, as far as no client was being
    trained."""
    import fedcohort
    from fedcohort.training.stack import Stack
    from fedcohort.training.stack.linear_chain_descent import Models
    from fedcohort.training.trainer import Trainer

    at_work: list[tuple[float, float]] = []
    last: list[tuple[float, float]] = []

    def watch(kind: Any, name: str, times: list[tuple[float, float]]) -> None:
        work = getattr(kind, name)

        def watched(*args: Any, **values: Any) -> Any:
            begin = time.perf_counter()
            try:
                return work(*args, **values)
            finally:
                times.append((begin, time.perf_counter()))

        setattr(kind, name, watched)

    watch(Trainer, "train", at_work)
    watch(Stack, "train", at_work)
    watch(Models, "mean", last)
    experiment = described(
        name,
        clients,
        k,
        rounds=rounds,
        engine={"plan": "stacked" if name == "W2" else "threads"},
        federation={
            "clients": clients,
            "partition": {"name": "dirichlet_class", "alpha": 0.05} if name == "W1" else "iid",
        },
        measures={"evaluate_every": 1 if tested else rounds},
    )
    ends: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        shape = (1, 28, 28) if name == "W2" else (3, 32, 32)
        wall = fedcohort.run(
            experiment,
            data=data(shape, samples, min(10_000, samples)),
            runs=folder,
            progress=lambda *_: ends.append(time.perf_counter()),
        ).wall
    first, last_end = ends[2], ends[-2]

    def part(times: list[tuple[float, float]]) -> float:
        return covered([(max(a, first), min(b, last_end)) for a, b in times]) / (last_end - first)

    training = part(at_work + last)
    parts = {str(name): round(float(value), 4) for name, value in wall.iloc[2:-1].median().items()}
    return {
        "work": name, "tested": tested, "round": (last_end - first) / (rounds - 4), "not_training": 1 - training,
        "last_product": training - part(at_work), "seconds": parts,
    }  # fmt: skip


def covered(intervals: list[tuple[float, float]]) -> float:
    """Length of the union of the intervals, in seconds."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def start(args: argparse.Namespace) -> Any:
    """Seconds until a first round can start."""
    million = alone("one_million", 10**5 if args.quick else 10**6)
    import_time = timed(
        [
            sys.executable,
            "-c",
            "import fedcohort.runs.play_run, fedcohort.runs.prepare_run, fedcohort.engines.local_engine, pandas",
        ]
    )
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "fedcohort",
            "run",
            "--runs",
            folder,
            "--quiet",
            "--set",
            "rounds=1",
            "--set",
            "seeds=1",
        ]
        run = timed(command)
    return {"one_sample_each": million, "imports": import_time, "digits_one_round": run}


def timed(command: list[str]) -> float:
    """Wall time of a command in seconds, the better of two."""
    found = []
    for _ in range(2):
        begin = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found.append(time.perf_counter() - begin)
    return min(found)


def memory(args: argparse.Namespace) -> Any:
    """Peak memory of rounds with 16 and with 1,000 clients, by plan."""
    return [
        alone("one_memory", plan, k)
        for plan in ("threads", "stacked")
        for k in ((16, 100) if args.quick else (16, 1000))
    ]


def one_memory(plan: str, k: int) -> Any:
    """One round of a perceptron of 45 MB; clients have two samples and take one step each."""
    from fedcohort.experiment import Cell
    from fedcohort.experiment.given_objects import Given
    from fedcohort.rounds import play_round
    from fedcohort.runs.prepare_run import prepare

    values: dict[str, Any] = {"model": {"name": "mlp", "hidden": 14_100}, "engine": {"plan": plan}, "rounds": 1}
    experiment = described("W2", 1000, k, **values)
    with prepare(Cell("", 0, experiment.single(0)).experiment, Given(data=data((1, 28, 28), 2000))) as (run_state, _):
        before = resident()
        play_round(run_state, 1, test=False)
        size = sum(value.nbytes for value in run_state.model.values()) / 2**20
    return {"plan": plan, "k": k, "model_mb": size, "peak_above_gb": peak() - before, "peak_gb": peak()}


def leak(args: argparse.Namespace) -> Any:
    """Resident memory over a long run."""
    return alone("one_leak", 30 if args.quick else 300)


def one_leak(rounds: int) -> Any:
    """Rounds of W2 with stacks."""
    from fedcohort.experiment import Cell
    from fedcohort.experiment.given_objects import Given
    from fedcohort.rounds import play_round
    from fedcohort.runs.prepare_run import prepare

    experiment = described("W2", 1000, 100, engine={"plan": "stacked"}, rounds=rounds)
    seen = {}
    with prepare(Cell("", 0, experiment.single(0)).experiment, Given(data=data((1, 28, 28), 60_000))) as (run_state, _):
        for t in range(1, rounds + 1):
            play_round(run_state, t, test=False)
            if t in (rounds // 5, rounds):
                seen[t] = resident()
    first, last = seen.values()
    return {"rounds": rounds, "gb": seen, "growth": last / first - 1}


def alone(function: str, *values: Any) -> Any:
    """Call a function of this file in a new process."""
    command = [sys.executable, __file__, "--call", json.dumps([function, *values])]
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Run the measurements, print the results, and write them to the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", default="build/overheads.json")
    parser.add_argument("--call", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.call:
        name, *values = json.loads(args.call)
        print(json.dumps(globals()[name](*values)))
        return
    found: dict[str, Any] = {"load_at_begin": os.getloadavg()[0]}
    begin = time.time()
    for part in args.only:
        work: Callable[[argparse.Namespace], Any] = globals()[part]
        found[part] = work(args)
        print(f"{part}: {json.dumps(found[part])}", flush=True)
    found["seconds"] = time.time() - begin
    Path(args.out).parent.mkdir(parents=True, exist_ok=True)
    Path(args.out).write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
