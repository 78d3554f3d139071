"""Keep what ``make bench-gpu`` has measured: build/bench-gpu.json becomes results/gpu-speed.json, from which the docs have a table.

    python -m benchmarks.gpu_result [build/bench-gpu.json] [--commit COMMIT]

The file may come from another machine. The commit is that of the code that was measured, by default that of this folder. Workloads and
arithmetics that the file lacks keep their rows, with the GPU and the commit that they were measured with.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

from results.result_file import commit, depends, names, read, sources, today, write

COLUMNS = [
    "workload", "contestant", "arithmetic", "s per round", "× the bare loop", "× centralized", "samples/s", "GPU memory, GB",
    "GPU", "commit",
]  # fmt: skip
CENTRAL, BARE = "one centralized loop", "bare loop"
ARITHMETICS = ["exact", "tf32", "bf16"]
MODULES = ["engines/device", "engines/local_engine", "training/memory_layouts", "training/recorded_passes"]


def rows_of(work: dict[str, Any], measured_commit: str) -> list[list[str]]:
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
            ratio(seconds(BARE, row["arithmetic"]) / row["median"]),
            ratio(seconds(CENTRAL, row["arithmetic"]) / row["median"]),
            f"{row['samples_per_second']:,.0f}",
            f"{row['gpu_gb']:.1f}",
            model_of(work["limits"]["processor"]),
            measured_commit,
        ]
        for row in measured
    ]


def ratio(value: float) -> str:
    """With two decimals; a dash where the other contestant was not measured."""
    return "–" if math.isnan(value) else f"{value:.2f}"


def model_of(name: str) -> str:
    """The model of a GPU: NVIDIA H100 80GB HBM3 → H100."""
    return name.removeprefix("NVIDIA ").split()[0]


def all_rows(rows: list[list[str]]) -> list[list[str]]:
    """The rows, and those of the present result for other workloads and arithmetics, by workload and arithmetic."""
    kept = read("gpu-speed")["table"]["rows"] if "gpu-speed" in names() else []
    new = {(row[0], row[2]) for row in rows}
    together = [row for row in kept if (row[0], row[2]) not in new] + rows
    return sorted(together, key=lambda row: (row[0], ARITHMETICS.index(row[2])))


def main() -> None:
    """Read the measured workloads, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", default="build/bench-gpu.json", type=Path)
    parser.add_argument("--commit", default="", help="the code that was measured")
    parser.add_argument("--command", default="make bench-gpu", help="the command that measured it")
    args = parser.parse_args()
    works = sorted(json.loads(args.file.read_text("utf-8"))["works"], key=lambda one: one["work"])
    code = args.commit or commit()
    torch = next(row["torch"] for row in works[0]["rows"] if row.get("torch"))
    write(
        "gpu-speed",
        {
            "command": args.command,
            "commit": code,
            "date": today(),
            "processor": f"{works[0]['limits']['processor']}, {works[0]['cores']} cores",
            "versions": {"python": works[0]["python"], "torch": torch},
            "seconds": round(sum(one["seconds"] for one in works), 1),
            "depends": depends([f"src/fedcohort/{name}.py" for name in MODULES], sources()),
            "table": {"columns": COLUMNS, "rows": all_rows([row for one in works for row in rows_of(one, code)])},
            "rates": works[-1]["limits"]["rates"],
        },
    )


if __name__ == "__main__":
    main()
