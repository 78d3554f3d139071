"""Measure the cases of cases.toml: ratios to a bare loop, wall time beside processor time.

    python -m benchmarks.cases [--only CASE …] [--turns 5] [--out results/speed-cases.json]

The contestants of a case are processes: the bare loop, which plays with one and with all intra-op threads, and a run of FedCohort for
each plan. They take turns, and while one computes, the others wait. A turn is the same rounds with the same clients for all of them:
those that the run selects. The first turn is not measured. If the turns of a case are short, more of them are measured, up to three
times as many, until they took 20 seconds together. A ratio is the median over the turns. It refers to the better of the two loops. All
contestants must take the same number of optimizer steps. Results of cases that are not measured stay in the file, and so do those of
other processors.

Use a machine that does nothing else. All cases take about half an hour on two cores.
"""

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

from results.result_file import ROOT, commit, provenance, sources
from results.speed_cases import described, details_table

from .contestants import Contestant, Turn, start
from .definitions import CASES, Case

OUT = ROOT / "results" / "speed-cases.json"
PLAYED_SECONDS = 20.0
"""Seconds that all measured turns of a case take together: another process on the machine disturbs short turns most."""
MOST_REPEATS = 3
"""How many times as many turns are played as were asked for, if they are short."""

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def measure(case: Case, turns: int) -> dict[str, Any]:
    """The figures of a case: those of the loop, and of every plan."""
    begin, load = time.perf_counter(), os.getloadavg()[0]
    bare = start(case, "bare")
    plans = [start(case, plan) for plan in case.plans]
    loops: dict[int, list[Turn]] = {threads: [] for threads in (1, CORES)}
    cohorts: list[list[int]] = []
    try:
        cohorts += _play_turn(bare, plans, loops, measured=False)
        measured, first = 0, time.perf_counter()
        while measured < turns or (measured < MOST_REPEATS * turns and time.perf_counter() - first < PLAYED_SECONDS):
            cohorts += _play_turn(bare, plans, loops, measured=True)
            measured += 1
    finally:
        for one in (bare, *plans):
            one.stop()
    seconds = {threads: sum(turn.wall for turn in played) for threads, played in loops.items()}
    threads = min(seconds, key=lambda number: seconds[number]) if not bare.failure else 1
    data = _bytes_of_features(case)
    return {
        "loop": _figures(case, loops[threads], bare, data) | {"threads": threads},
        "plans": {one.name: _against(loops[threads], one, case, data) for one in plans},
        "bound": case.bound(cohorts, CORES) if cohorts else None,
        "turns": measured,
        "load": round(load, 2),
        "seconds": round(time.perf_counter() - begin, 1),
    }


def _play_turn(
    bare: Contestant, plans: list[Contestant], loops: dict[int, list[Turn]], *, measured: bool
) -> list[list[int]]:
    """One turn of all contestants; returns the clients of its rounds. The loop's turns are between those of the plans."""
    cohorts: list[list[int]] = []
    waiting = list(loops)
    for one in plans:
        said = one.play(measured)
        cohorts = cohorts or said.get("clients", [])
        if waiting and cohorts:
            _play_loop(bare, waiting.pop(0), cohorts, loops, said.get("steps"), measured=measured)
    for threads in waiting if cohorts else ():
        _play_loop(bare, threads, cohorts, loops, None, measured=measured)
    return cohorts


def _play_loop(
    bare: Contestant,
    threads: int,
    cohorts: list[list[int]],
    loops: dict[int, list[Turn]],
    steps: int | None,
    *,
    measured: bool,
) -> None:
    """A turn of the loop with this number of intra-op threads."""
    said = bare.play(False, threads=threads, clients=cohorts)
    if said and measured:
        loops[threads].append(Turn(said["wall"], said["processor"], said["steps"]))
    if said and steps is not None and said["steps"] != steps:
        bare.failure = f"{said['steps']} steps, the run took {steps}"


def _figures(case: Case, turns: list[Turn], one: Contestant, data: int) -> dict[str, Any]:
    """Medians of one contestant."""
    if one.failure or not turns:
        return {"failure": one.failure or "no turn"}
    return {
        "wall": statistics.median(turn.wall for turn in turns) / case.rounds,
        "processor": statistics.median(turn.processor for turn in turns) / case.rounds,
        "memory": one.facts["memory"] / data,
    }


def _against(loop: list[Turn], one: Contestant, case: Case, data: int) -> dict[str, Any]:
    """Medians of a plan, and the medians of its ratios to the loop. ``plan`` is the plan that was played in the end."""
    found = _figures(case, one.turns, one, data)
    if "failure" in found or not loop:
        return found
    pairs = list(zip(loop, one.turns, strict=True))
    return found | {
        "plan": one.facts["plan"],
        "ratio": statistics.median(bare.wall / ours.wall for bare, ours in pairs),
        "processor_ratio": statistics.median(bare.processor / ours.processor for bare, ours in pairs),
    }


def _bytes_of_features(case: Case) -> int:
    itemsize = {"uint8": 1, "float32": 4, "tokens": 8}[case.features]
    size = itemsize * int(case.client_sizes().sum())
    for length in case.shape:
        size *= length
    return size


def keep(found: dict[str, Any], path: Path, command: str, seconds: float, made_by: str, known: dict[str, str]) -> None:
    """Write the figures to the file, beside those of other cases and of other processors; each has its commit and date."""
    experiments = [str(file.relative_to(ROOT)) for file in sorted(Path(__file__).parent.glob("*.[pt]*"))]
    facts = provenance(command, experiments, seconds, made_by, known)
    facts["depends"] = {name: known[name] for name in sorted(known)} | facts["depends"]
    own = {name: facts[name] for name in ("commit", "date", "versions", "command")}
    before = json.loads(path.read_text("utf-8"))["result"] if path.exists() else {}
    result = {name: dict(before.get(name, {})) for name in CASES if name in before or name in found}
    for name, figures in found.items():
        result[name][facts["processor"]] = figures | own
    if len({figures["commit"] for of_case in result.values() for figures in of_case.values()}) > 1:
        del facts["depends"]
        facts["older"] = "The cases were not all measured at the same commit."
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(facts | {"result": result}, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Measure the cases, print the figures, and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CASES, metavar="CASE", help=f"cases: {', '.join(CASES)}")
    parser.add_argument("--turns", type=int, default=5, help="measured turns of each contestant, at least")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    begin, made_by, known = time.perf_counter(), commit(), sources()
    found: dict[str, Any] = {}
    for name in args.only or CASES:
        found[name] = measure(CASES[name], args.turns)
        print(described(name, found[name]), flush=True)
    command = "make bench-cases" + (f' ONLY="{" ".join(args.only)}"' if args.only else "")
    keep(found, args.out, command, time.perf_counter() - begin, made_by, known)
    print(f"\n{details_table(found)}\n\n{args.out}: written in {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
