"""Measure what durable checkpoints cost per round in W1, W2 and W3. Timings need an idle machine, and the disk that runs lie on.

    python benchmarks/durability.py [--rounds 40] [--only W1 W2 W3] [--runs FOLDER]

Each workload is run with the default ``measures.durable_seconds``, with 0 (every checkpoint is durable), and with a number that makes
only the first and the last checkpoint durable. The share is the additional time of a round compared with that number.
"""

import argparse
import tempfile
from pathlib import Path

from overheads import data, described

import fedcohort

SHAPES = {"W1": (1, 28, 28), "W2": (1, 28, 28), "W3": (3, 32, 32)}
NEVER = 1e9


def seconds_per_round(name: str, rounds: int, durable_seconds: float, folder: Path) -> float:
    """Mean wall time of a round in seconds."""
    experiment = described(name, 100, 10, rounds=rounds, measures={"durable_seconds": durable_seconds})
    run = fedcohort.run(experiment, data=data(SHAPES[name], 6000), runs=folder / f"{name}-{durable_seconds}")
    return float(run.wall["total"].iloc[2:].mean())


def main() -> None:
    """Print one line for each workload and setting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--only", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--runs", default=None, help="a folder on the disk that is measured")
    args = parser.parse_args()
    for name in args.only:
        with tempfile.TemporaryDirectory(dir=args.runs) as folder:
            bare = seconds_per_round(name, args.rounds, NEVER, Path(folder))
            for setting in (5.0, 0.0):
                measured = seconds_per_round(name, args.rounds, setting, Path(folder))
                print(
                    f"{name}, durable_seconds = {setting:g}: {1000 * measured:.1f} ms a round, {measured / bare - 1:+.1%}"
                )


if __name__ == "__main__":
    main()
