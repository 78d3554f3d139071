"""Measure reports at scale: the time that ``fedcohort report`` takes, and the size of the page.

    python benchmarks/report_scale.py [--only comparison|large] [--json]

There are two cases, made of runs with random numbers: ``comparison`` has five strategies × three seeds with 100 rounds of 10 out
of 50 clients, and ``large`` has one run with 1,000 rounds of 100 out of 1,000 clients, with a million scored candidates. Each
report is made by a process of its own, twice, and the second time counts: in the first, disk and cache are cold. The processor
time is that of the whole command, including the interpreter and imports (also of torch), so that other work on the machine
matters less than in the wall time. The exit code is 1 if a page is too large or takes too much processor time: 5 s and 6 MB for
the comparison, 20 s and 10 MB for the large run.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from fedcohort import Experiment
from fedcohort.record import ClientRow, LedgerRow, Portrait, Reasons, RoundRow, create_run, writing

STRATEGIES = ("uniform", "ucb", "oort", "powd", "select_by_loss")
LIMITS = {"comparison": (5.0, 6e6), "large": (20.0, 10e6)}
"""Limits of processor time in seconds, and of the page in bytes."""


def large(path: Path, m: int, n: int, k: int, strategy: str = "ucb", seed: int = 0) -> None:
    """Write the record of a run with m clients and n rounds of k selected clients; the numbers are random."""
    rng = np.random.default_rng(seed)
    federation = {"clients": m, "partition": {"name": "iid", "min_size": 1}}
    values = {"name": "large", "rounds": n, "federation": federation, "selection": {"name": strategy, "k": k}}
    experiment = Experiment(**values).single(seed)
    meta = {
        "name": "large",
        "label": strategy,
        "seed": str(seed),
        "key": path.name,
        "row": strategy,
        "data": "none",
        "given": "",
        "algorithm": "FedAvg",
        "ours": "",
    }
    run = create_run(path, experiment.to_toml(), meta)
    facts = {
        "samples": rng.integers(10, 200, m),
        "time": rng.exponential(100, m),
        "counts": rng.integers(0, 20, (m, 10)),
    }
    with writing(run) as writer:
        writer.describe(Portrait(tuple("0123456789"), facts))
        for t in range(1, n + 1):
            chosen = rng.choice(m, k, replace=False).tolist()
            scores = rng.random(m)
            decision = Reasons(
                np.arange(m), np.isin(np.arange(m), chosen).tolist(), scores,
                {"mean_reward": scores / 2, "bonus": scores / 2}, np.zeros(0, dtype=np.int64),
            )  # fmt: skip
            writer.record(
                [RoundRow(
                    round=t, available=m, selected=k, trained=k, admitted=k, simulated_time=10.0 * t, round_time=10.0, steps=5 * k,
                    test_accuracy=t / (t + 50), test_loss=1.0, validation_accuracy=t / (t + 50), validation_loss=1.0,
                    local_accuracy=0.5, train_loss=1.0, class_accuracy=[t / (t + 50)] * 10, note="",
                    clients=[ClientRow(client, "admitted", num_samples=50, steps=5, duration=10.0) for client in chosen],
                    decisions=decision,
                    ledger=[LedgerRow("training", 2 * k, 10**6, 10**6, float(k), 1.0, "its update")], wall={"total": 1.0},
                )],
            )  # fmt: skip


def make(world: str, folder: Path) -> None:
    """Write the runs of one case."""
    if world == "large":
        large(folder / "large", 1000, 1000, 100)
        return
    for strategy in STRATEGIES:
        for seed in range(3):
            large(folder / f"{strategy}-{seed}", 50, 100, 10, strategy, seed)


def report(folder: Path) -> tuple[float, float, int]:
    """Processor time and wall time in seconds of one report in a process of its own, and the size of the page in bytes."""
    page = folder.parent / "report.html"
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "fedcohort", "report", str(folder), "-o", str(page)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall, page.stat().st_size


def main() -> int:
    """Write the runs, report them, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(LIMITS), help="measure one of the two cases")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for world in [options.only] if options.only else LIMITS:
        with tempfile.TemporaryDirectory() as place:
            make(world, Path(place) / "runs")
            report(Path(place) / "runs")
            processor, wall, size = report(Path(place) / "runs")
        seconds, most = LIMITS[world]
        fits = processor < seconds and size < most
        rows.append(
            {"world": world, "processor_s": round(processor, 2), "wall_s": round(wall, 2), "bytes": size, "fits": fits}
        )
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        for row in rows:
            print(f"{row['world']:<12}{row['processor_s']:>7} s processor{row['wall_s']:>8} s wall{row['bytes'] / 1e6:>6.1f} MB"
                  f"{'' if row['fits'] else '  above the limit'}")  # fmt: skip
    return 0 if all(row["fits"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
