"""FedCohort's plans, a bare loop and other simulators on the same work, taking turns: medians, ratios, peak memory.

    python benchmarks/bench.py [--works W1 W1b64 W2 W3] [--turns 5] [--quick] [--peers DIR] [--device cuda] [--out FILE.json]

Every contestant is a process that holds its data and model and plays rounds when it is told to; the others wait meanwhile. A turn is
one round, or several where rounds are short. The first turn of each is not measured. Steps are compared with what the work consists
of. Memory is the sum of the peaks of a contestant's processes. Who dies, hangs or takes other steps gets a line that says so.
``--peers`` is a folder of virtual environments, see peers/README.md.
"""

import argparse
import contextlib
import json
import os
import platform
import select
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from works import NAMES, work

HERE = Path(__file__).parent
PEERS = ("flower", "pfl", "fedjax", "fluke", "flgo", "fedlab")


def environment() -> dict[str, str]:
    """Variables of a contestant's process: where it finds its modules."""
    missing = any(find_spec(name) is None for name in ("pydantic", "annotated_types", "platformdirs"))
    path = [str(HERE), *([str(HERE / "stand_ins")] if missing else []), os.environ.get("PYTHONPATH", "")]
    # everybody chooses the number of threads for themselves
    return {name: v for name, v in os.environ.items() if name != "OMP_NUM_THREADS"} | {
        "PYTHONPATH": os.pathsep.join(path)
    }


@dataclass
class Contestant:
    """A process that plays rounds."""

    name: str
    command: list[str]
    process: Any = None
    limit: float = 0.0
    seconds: list[float] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    memory: float = float("nan")
    failure: str = ""

    def start(self, log: Path, limit: float) -> None:
        """Begin, and wait until it is ready; no reply may take longer than ``limit`` seconds."""
        self.limit = limit
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("w"),
            text=True,
            env=environment(),
        )
        self.facts = self._reply()

    def play(self, round: int, measured: bool, steps: int) -> None:
        """One round."""
        if self.failure:
            return
        try:
            self.process.stdin.write(f"{round}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self.failure = "ended"
            return
        reply = self._reply()
        if reply and reply["steps"] != steps:
            self.failure = f"{reply['steps']} steps instead of {steps}"
        elif reply and measured:
            self.seconds.append(reply["seconds"])

    def stop(self) -> None:
        """Its memory, then its end."""
        self.memory = _peak(self.process.pid) / 2**30
        if self.process.stdin:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def _reply(self) -> dict[str, Any]:
        if not select.select([self.process.stdout], [], [], self.limit)[0]:
            self.failure = f"no reply in {self.limit:.0f} s"
            self.process.kill()
            return {}
        line = self.process.stdout.readline()
        try:
            reply: dict[str, Any] = json.loads(line)
        except ValueError:
            self.failure = f"said {line.strip()!r}" if line else "ended, see its log"
            return {}
        return reply


def _peak(pid: int) -> float:
    """Peak resident bytes of a process and its descendants, summed."""
    total = 0.0
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                total += 1024 * float(line.split()[1])
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += sum(_peak(int(child)) for child in (task / "children").read_text().split())
    except OSError:
        pass
    return total


def contestants(name: str, args: argparse.Namespace) -> list[Contestant]:
    """Who takes part in a work."""
    common = [
        "--work",
        name,
        "--turns",
        str(args.turns + 1),
        "--device",
        args.device,
        *(["--quick"] if args.quick else []),
    ]
    ours, bare = [sys.executable, str(HERE / "ours.py")], [sys.executable, str(HERE / "bare.py")]
    cores = len(os.sched_getaffinity(0))
    found = [Contestant("bare loop, 1 intra-op thread", [*bare, "--threads", "1", *common])]
    if args.device == "cpu":
        found.append(Contestant(f"bare loop, {cores} intra-op threads", [*bare, "--threads", str(cores), *common]))
    if args.device == "cuda":
        found.append(Contestant("one centralised loop, batch 640", [sys.executable, str(HERE / "central.py"), *common]))
    plans = args.plans or (
        ["loop", "threads", "stacked"] if name == "W2" or args.device == "cuda" else ["loop", "threads"]
    )
    found += [Contestant(f"FedCohort {plan}", [*ours, "--plan", plan, *common]) for plan in plans]
    if args.device == "cuda":
        found += [
            Contestant(f"FedCohort stacked, {kind}", [*ours, "--plan", "stacked", "--arithmetic", kind, *common])
            for kind in ("tf32", "bf16")
        ]
    for peer in PEERS if args.peers else ():
        place = Path(args.peers) / peer
        if (place / ".done").exists():
            found.append(Contestant(peer, [str(place / "bin/python"), str(HERE / f"peers/{peer}_peer.py"), *common]))
        else:
            print(f"{peer}: not installed in {args.peers}, left out", flush=True)
    return found


def limits(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Operations of a sample and rates of the machine, see limits.py."""
    command = [sys.executable, str(HERE / "limits.py"), "--work", name, "--device", args.device]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
    return found


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """One work: everybody's rounds in turn."""
    plan = work(name, args.turns + 1, args.quick)
    everybody = contestants(name, args)
    logs = Path(args.logs)
    logs.mkdir(parents=True, exist_ok=True)
    for one in everybody:
        one.start(logs / f"{name}-{one.name.replace(' ', '_').replace(',', '')}.log", args.limit)
    for turn in range(args.turns + 1):
        for one in everybody:
            for round in range(turn * plan.turn, (turn + 1) * plan.turn):
                one.play(round, measured=turn > 0, steps=plan.steps(round))
    for one in everybody:
        one.stop()
    machine = limits(name, args)
    operations = plan.samples(1) * machine.get("operations_a_sample", float("nan"))
    rows = []
    floors = [statistics.median(one.seconds) for one in everybody if one.name.startswith("bare") and one.seconds]
    floor = min(floors) if floors else float("nan")
    for one in everybody:
        median = statistics.median(one.seconds) if one.seconds else float("nan")
        rows.append(
            {
                "name": one.name,
                "median": median,
                "rounds": one.seconds,
                "against_floor": floor / median,
                "samples_per_second": plan.samples(1) / median,
                "gflops": operations / median / 1e9,
                "memory_gb": one.memory,
                "failure": one.failure,
                **{key: value for key, value in one.facts.items() if key != "ready"},
            }
        )
    common = {
        "work": name,
        "device": args.device,
        "quick": args.quick,
        "steps": plan.steps(1),
        "samples": plan.samples(1),
    }
    return {**common, "limits": machine, "rows": rows}


def table(found: dict[str, Any]) -> str:
    """The work as Markdown."""
    lines = [
        f"**{found['work']}**: {found['steps']} steps, {found['samples']} samples a round{' (quick)' if found['quick'] else ''}",
        "",
        "| | median s a round | × the better bare loop | GFLOP/s | peak memory, GB |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in found["rows"]:
        if row["failure"]:
            lines.append(f"| {row['name']} | failed: {row['failure']} | – | – | – |")
        else:
            lines.append(
                f"| {row['name']} | {row['median']:.3g} | {row['against_floor']:.2f} | {row['gflops']:,.0f} | {row['memory_gb']:.2f} |"
            )
    rates = found["limits"].get("rates", {})
    if rates:
        told = ", ".join(f"{name} {value:,.0f}" for name, value in rates.items())
        where = "one thread" if found["device"] == "cpu" else "the GPU"
        lines += ["", f"Measured on {where}, GFLOP/s: {told}."]
    return "\n".join(lines)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--works", nargs="+", default=["W1", "W1b64", "W2", "W3"], choices=NAMES)
    parser.add_argument("--turns", type=int, default=5, help="measured turns of each contestant")
    parser.add_argument("--quick", action="store_true", help="rounds a fifth as long")
    parser.add_argument("--plans", nargs="+", help="of FedCohort; by default those that the work is known to suit")
    parser.add_argument("--peers", help="folder of virtual environments of other simulators")
    parser.add_argument("--limit", type=float, default=600, help="seconds that a contestant may take for a reply")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--logs", default="build/bench-logs")
    parser.add_argument("--out", default="build/bench.json")
    args = parser.parse_args()
    begin, load = time.time(), os.getloadavg()[0]
    found = []
    for name in args.works:
        found.append(measure(name, args))
        print(table(found[-1]), end="\n\n", flush=True)
    facts = {
        "machine": platform.machine(), "cores": len(os.sched_getaffinity(0)), "python": platform.python_version(),
        "load_at_begin": load, "seconds": time.time() - begin, "device": args.device,
    }  # fmt: skip
    print(f"{facts['machine']}, {facts['cores']} cores, load {load:.1f} when it began, {facts['seconds']:.0f} s in all")
    Path(args.out).parent.mkdir(parents=True, exist_ok=True)
    Path(args.out).write_text(json.dumps({**facts, "works": found}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
