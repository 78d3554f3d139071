"""Measure heterogeneity at scale: time and memory for building a federation of a million clients.

    python benchmarks/heterogeneity_scale.py [--only partition-iid …] [--repeat 1] [--json]

:data:`MEASUREMENTS` lists the measurements. Each runs in a process of its own, so that its peak memory is known; this includes the
interpreter, the imports and the inputs. The exit code is 1 if a measurement exceeds its limit.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Literal

import numpy as np

from fedcohort.core.processor import processor
from fedcohort.federation.partition import describe, partition
from fedcohort.federation.partitions import PARTITIONS

SAMPLES, CLIENTS, CLASSES = 10_000_000, 1_000_000, 10

Redraw = Literal["client", "round", "mixed"]


@dataclass(frozen=True)
class Measured:
    """The result of a measurement."""

    seconds: float
    """Wall time, without inputs and imports."""
    cpu_seconds: float
    """Processor time of the same, over all threads."""
    note: str = ""
    """A short description of the outcome."""


@dataclass(frozen=True)
class Measurement:
    """What to measure, and its limits."""

    run: Callable[[], Measured]
    limit_s: float | None = None
    limit_gb: float | None = None


def timed(work: Callable[[], str]) -> Measured:
    """Run ``work`` once and measure its time; it returns the note."""
    wall, cpu = time.perf_counter(), time.process_time()
    note = work()
    return Measured(time.perf_counter() - wall, time.process_time() - cpu, note)


def inputs() -> tuple[np.ndarray, np.ndarray]:
    """Labels of ten classes of nearly equal size in random order, and writers with at least one sample each."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, SAMPLES)
    writers = np.concatenate([np.arange(CLIENTS), rng.integers(0, CLIENTS, SAMPLES - CLIENTS)])
    return labels, writers


def make_partition(name: str, **parameters: object) -> Measured:
    """One partition of 10 million samples over a million clients."""
    labels, writers = inputs()
    rule = PARTITIONS.find(name, "name")(**parameters)

    def work() -> str:
        split = partition(rule, labels, CLIENTS, 0, writers)
        sizes = split.sizes
        least, middle, most = sizes.min(), int(np.median(sizes)), sizes.max()
        return f"sizes {least}, {middle}, {most} (minimum, median, maximum), {len(split.order):,} samples kept"

    return timed(work)


def describe_partition() -> Measured:
    """The report on a partition of this size."""
    labels, _ = inputs()
    split = partition(PARTITIONS.find("dirichlet_client", "name")(), labels, CLIENTS, 0)

    def work() -> str:
        report = describe(labels, split, CLASSES)
        return f"effective alpha {report.effective_alpha:.3f}, {report.num_classes.mean():.2f} classes per client"

    return timed(work)


def refuse_partition() -> Measured:
    """An impossible partition: the time until the message that says what would work."""
    from fedcohort.core.errors import UsageError

    labels, _ = inputs()
    rule = PARTITIONS.find("dirichlet_class", "name")()

    def work() -> str:
        try:
            partition(rule, labels, CLIENTS, 0)
        except UsageError as error:
            return str(error)
        return "no error"

    return timed(work)


def draw_rounds(availability: str, latency: Redraw = "client", network: str = "share", **law: float) -> Measured:
    """Availability and latency of one round, drawn as in a run: the median of ten rounds after the first."""
    from fedcohort.experiment import Systems
    from fedcohort.federation.latency import ShiftedExponential
    from fedcohort.federation.simulated_clock import Clock

    tables = {
        name: field.default.table for name, field in Systems.model_fields.items() if name in ("availability", "network")
    }
    laws = tables["availability"].find(availability, "name")(**law), tables["network"].find(network, "name")()
    sizes = np.random.default_rng(0).integers(1, 200, CLIENTS)
    begin = time.perf_counter()
    clock = Clock(sizes, 0, ShiftedExponential(redraw=latency), *laws, rounds=1000, model_bytes=1000)
    there = len(clock.available(1))
    clock.nominal(1)
    start = time.perf_counter() - begin

    def work(t: int) -> Measured:
        return timed(lambda: f"{len(clock.available(t))} {clock.nominal(t)[0]}")

    found = sorted((work(t) for t in range(2, 12)), key=lambda one: one.seconds)[5]
    return Measured(
        found.seconds, found.cpu_seconds, f"{there:,} clients available; the first round took {start:.3f} s"
    )


def draw_late(**law: float) -> Measured:
    """A late round that is drawn first, as in a resumed run: Markov chains are followed back only as far as needed."""
    from fedcohort.federation.availability import Markov

    presence = Markov(**law).presence(CLIENTS, 1000, 0)
    return timed(lambda: f"round 900: {int(presence(900).sum()):,} clients available")


def _round(availability: str, latency: Redraw = "client", network: str = "share", **law: float) -> Measurement:
    return Measurement(partial(draw_rounds, availability, latency, network, **law), limit_s=0.050)


def _partition(name: str, **parameters: object) -> Measurement:
    return Measurement(partial(make_partition, name, **parameters), limit_s=10.0, limit_gb=1.5)


MEASUREMENTS: dict[str, Measurement] = {
    "partition-iid": _partition("iid"),
    "partition-iid-stratified": _partition("iid", stratified=True),
    "partition-dirichlet_class": _partition("dirichlet_class", min_size=0),
    "partition-dirichlet_class-plain": _partition("dirichlet_class", variant="plain", min_size=0),
    "partition-dirichlet_client": _partition("dirichlet_client"),
    "partition-dirichlet_client-each": _partition("dirichlet_client", alpha=0.05, convention="alpha_each"),
    "partition-dirichlet_client-lognormal": _partition("dirichlet_client", sizes="lognormal", min_size=0),
    "partition-shards": _partition("shards"),
    "partition-random_fractions": _partition("random_fractions", min_size=0),
    "partition-dominant_class": _partition("dominant_class"),
    "partition-dominant_class-natural": _partition("dominant_class", natural=True, min_size=1),
    "partition-natural": _partition("natural", min_size=1),
    "partition-quantity": _partition("quantity", min_size=0),
    "partition-quantity-lognormal": _partition("quantity", law="lognormal", min_size=0),
    "describe": Measurement(describe_partition, limit_s=10.0, limit_gb=1.5),
    "refuse": Measurement(refuse_partition, limit_s=120.0),
    "round-always": _round("always"),
    "round-bernoulli": _round("bernoulli"),
    "round-markov": _round("markov"),
    "round-markov-slow": _round("markov", p_on=0.01, p_off=0.01),
    "round-diurnal": _round("diurnal"),
    "round-bernoulli-fresh-latency": _round("bernoulli", "round"),
    "round-bernoulli-mixed-latency": _round("bernoulli", "mixed"),
    "round-markov-mixed-latency-network": _round("markov", "mixed", "lognormal"),
    "resume-markov": Measurement(draw_late, limit_s=5.0),
    "resume-markov-slow": Measurement(partial(draw_late, p_on=0.01, p_off=0.01)),
}


def peak_gb() -> float:
    """Peak resident memory of this process, in GB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e9 if sys.platform == "darwin" else 1e9 / 1024)


def in_a_process(name: str) -> dict[str, object]:
    """Run a measurement in a process of its own."""
    command = [sys.executable, __file__, "--child", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Run the measurements, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--only", nargs="*", choices=MEASUREMENTS, default=list(MEASUREMENTS), help="the measurements to run"
    )
    parser.add_argument("--repeat", type=int, default=1, help="repetitions; the fastest counts")
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    parser.add_argument("--child", choices=MEASUREMENTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        measured = MEASUREMENTS[options.child].run()
        print(json.dumps(asdict(measured) | {"peak_gb": peak_gb()}))
        return 0
    if not options.json:
        print(
            f"{SAMPLES:,} samples, {CLIENTS:,} clients, {CLASSES} classes; {processor()}, ",
            end="",
        )
        print(
            f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, numpy {np.__version__}, Python {platform.python_version()}"
        )
        print(f"{'measurement':38} {'wall s':>8} {'CPU s':>8} {'peak GB':>8}  ")
    over = 0
    for name in options.only:
        limits = MEASUREMENTS[name]
        found = min((in_a_process(name) for _ in range(options.repeat)), key=lambda one: float(str(one["seconds"])))
        wall, cpu, peak = (float(str(found[key])) for key in ("seconds", "cpu_seconds", "peak_gb"))
        bad = wall > (limits.limit_s or np.inf) or peak > (limits.limit_gb or np.inf)
        over += bad
        if options.json:
            print(json.dumps({"name": name, **found, "over_limit": bool(bad)}), flush=True)
        else:
            print(
                f"{name:38} {wall:8.3f} {cpu:8.3f} {peak:8.2f}{'  ABOVE ITS LIMIT' if bad else ''}  {found['note']}",
                flush=True,
            )
    return int(over > 0)


if __name__ == "__main__":
    sys.exit(main())
