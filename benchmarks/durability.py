"""Measure what durable checkpoints cost per round in W1, W2 and W3. Timings need an idle machine, and the disk that runs lie on.

    python benchmarks/durability.py [--rounds 40] [--only W1 W2 W3] [--runs FOLDER] [--sittings 5] [--keep]

Each workload is run with the default ``measures.durable_seconds``, with 0 (every one is durable), and with a number that makes
only the first and the last checkpoint durable. The share is the additional time of a round compared with that number: the median
of several sittings, which differ by several percent. ``--keep`` writes results/durability.json, from which the table in
docs/reliability.md is made.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from overheads import data, described

import fedcohort

sys.path.insert(0, str(Path(__file__).parents[1]))
from results.result_file import commit, provenance, sources, write

SHAPES = {"W1": (1, 28, 28), "W2": (1, 28, 28), "W3": (3, 32, 32)}
NEVER = 1e9


def seconds_per_round(name: str, rounds: int, durable_seconds: float, folder: Path) -> float:
    """Mean wall time of a round in seconds."""
    experiment = described(name, 100, 10, rounds=rounds, measures={"durable_seconds": durable_seconds})
    run = fedcohort.run(experiment, data=data(SHAPES[name], 6000), runs=folder / f"{name}-{durable_seconds}")
    return float(run.wall["total"].iloc[2:].mean())


def sitting(name: str, rounds: int, folder: str | None) -> tuple[float, float, float]:
    """Seconds of a round without durable checkpoints, and the shares that are added by the default and by 0."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        bare, usual, always = (seconds_per_round(name, rounds, setting, Path(place)) for setting in (NEVER, 5.0, 0.0))
    return bare, usual / bare - 1, always / bare - 1


def main() -> None:
    """Print one line for each workload."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--only", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--runs", default=None, help="a folder on the disk that is measured")
    parser.add_argument("--sittings", type=int, default=5)
    parser.add_argument("--keep", action="store_true", help="write results/durability.json")
    args = parser.parse_args()
    begin, made_by, known, rows = time.perf_counter(), commit(), sources(), []
    for name in args.only:
        found = [sitting(name, args.rounds, args.runs) for _ in range(args.sittings)]
        bare, usual, always = (statistics.median(column) for column in zip(*found, strict=True))
        rows.append(
            [f"{name}, {1000 * bare:.0f} ms a round", *(f"{share:+.1%}".replace("-", "−") for share in (usual, always))]
        )
        print(": ".join([rows[-1][0], ", ".join(rows[-1][1:])]), flush=True)
    if args.keep:
        command = "python benchmarks/durability.py --keep"
        heads = ["workload", "`durable_seconds = 5` (default)", "`durable_seconds = 0`"]
        made = provenance(command, ["benchmarks/durability.py"], time.perf_counter() - begin, made_by, known)
        write("durability", made | {"table": {"columns": heads, "rows": rows}})


if __name__ == "__main__":
    main()
