"""Keep what ``make bench-gpu`` has measured: build/bench-gpu.json becomes results/gpu-speed.json, from which the docs have a table.

    python -m benchmarks.gpu_result [build/bench-gpu.json] [--commit COMMIT]

The file may come from another machine. The commit is that of the code that was measured, by default that of this folder.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

from results.result_file import commit, depends, sources, today, write

COLUMNS = [
    "workload", "contestant", "arithmetic", "s per round", "× the bare loop", "× centralized", "samples/s", "GPU memory, GB",
]  # fmt: skip
CENTRAL, BARE = "one centralized loop", "bare loop"
MODULES = ["engines/device", "engines/local_engine", "training/recorded_passes"]


def rows_of(work: dict[str, Any]) -> list[list[str]]:
    """The contestants of a workload; ratios are to contestants in the same arithmetic."""
    title = f"{work['work']}, {work['epochs']} epoch{'s' if work['epochs'] > 1 else ''}"
    measured = [row for row in work["rows"] if not row["failure"]]

    def seconds(name: str, arithmetic: str) -> float:
        found = (one["median"] for one in measured if one["name"].startswith(name) and one["arithmetic"] == arithmetic)
        return next(found, math.nan)

    return [
        [
            title,
            row["name"].removesuffix(f", {row['arithmetic']}").replace(", 1 intra-op thread", ""),
            row["arithmetic"],
            f"{row['median']:.3g}",
            f"{seconds(BARE, row['arithmetic']) / row['median']:.2f}",
            f"{seconds(CENTRAL, row['arithmetic']) / row['median']:.2f}",
            f"{row['samples_per_second']:,.0f}",
            f"{row['gpu_gb']:.1f}",
        ]
        for row in measured
    ]


def main() -> None:
    """Read the measured workloads, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", default="build/bench-gpu.json", type=Path)
    parser.add_argument("--commit", default="", help="the code that was measured")
    parser.add_argument("--command", default="make bench-gpu", help="the command that measured it")
    args = parser.parse_args()
    works = sorted(json.loads(args.file.read_text("utf-8"))["works"], key=lambda one: one["work"])
    torch = next(row["torch"] for row in works[0]["rows"] if row.get("torch"))
    write(
        "gpu-speed",
        {
            "command": args.command,
            "commit": args.commit or commit(),
            "date": today(),
            "processor": f"{works[0]['limits']['processor']}, {works[0]['cores']} cores",
            "versions": {"python": works[0]["python"], "torch": torch},
            "seconds": round(sum(one["seconds"] for one in works), 1),
            "depends": depends([f"src/fedcohort/{name}.py" for name in MODULES], sources()),
            "table": {"columns": COLUMNS, "rows": [row for one in works for row in rows_of(one)]},
            "rates": works[-1]["limits"]["rates"],
        },
    )


if __name__ == "__main__":
    main()
