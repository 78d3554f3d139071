"""Compare FedCohort's plans, a bare loop and other simulators on the same workloads: medians, ratios, peak memory.

    python benchmarks/bench.py [--works W1 W1b64 W2 W3] [--turns 5] [--quick] [--peers DIR] [--device cuda] [--out FILE.json]

On a GPU, every contestant computes in each of FedCohort's arithmetics, and a centralized loop with batches of 640 is one more
contestant. Only the contestants of one arithmetic share the GPU's memory.

Every contestant is a process that has loaded its data and model, and plays a round when it reads the number of the round. The
contestants take turns; while one computes, the others wait. A turn is one round, or several rounds in workloads with short
rounds. The first turn is not measured. The number of steps is compared with that of the workload. Memory is the sum of the peaks
of a contestant's processes. If a contestant ends, does not reply, or takes another number of steps, its row in the table says so.
``--peers`` is a folder of virtual environments, see peers/README.md. Results are written after every workload, in addition to
those that the file already has.
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
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from works import NAMES, Work, work

HERE = Path(__file__).parent
ARITHMETICS = ("exact", "tf32", "bf16")
CENTRAL = "one centralized loop, batch 640"
PEERS = ("flower", "pfl", "fedjax", "fluke", "flgo", "fedlab")


def environment() -> dict[str, str]:
    """Environment variables of a contestant's process, which tell where its modules are."""
    missing = any(find_spec(name) is None for name in ("pydantic", "annotated_types", "platformdirs"))
    path = [str(HERE), *([str(HERE / "stand_ins")] if missing else []), os.environ.get("PYTHONPATH", "")]
    # every contestant chooses its own number of threads
    return {name: v for name, v in os.environ.items() if name != "OMP_NUM_THREADS"} | {
        "PYTHONPATH": os.pathsep.join(path)
    }


@dataclass
class Contestant:
    """A process that plays rounds."""

    name: str
    command: list[str]
    arithmetic: str = "exact"
    log: Path = Path()
    process: Any = None
    limit: float = 0.0
    seconds: list[float] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    memory: float = float("nan")
    gpu_memory: float = 0.0
    learned: list[float] = field(default_factory=list)
    failure: str = ""

    def start(self, logs: Path, limit: float) -> None:
        """Start the process. No reply may take longer than ``limit`` seconds."""
        self.limit, self.log = limit, logs / f"{self.name.replace(' ', '_').replace(',', '')}.log"
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log.open("w"),
            text=True,
            env=environment(),
        )

    def ready(self) -> None:
        """Wait until the contestant has loaded everything."""
        self.facts = self._reply()

    def play(self, round: int, measured: bool, steps: int) -> None:
        """Play one round; its time is kept if it is ``measured``. A wrong number of steps is a failure."""
        if self.failure:
            return
        try:
            self.process.stdin.write(f"{round}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self.failure = self._last_words()
            return
        reply = self._reply()
        if reply and reply["steps"] != steps:
            self.failure = f"{reply['steps']} steps instead of {steps}"
        elif reply:
            self.seconds += [reply["seconds"]] * measured
            self.gpu_memory = max(self.gpu_memory, reply.get("gpu_gb", 0.0))
            self.learned = self.learned or reply.get("learned", [])

    def stop(self) -> None:
        """Read the peak memory, then end the process."""
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
            self.failure = f"replied {line.strip()!r}" if line else self._last_words()
            return {}
        return reply

    def _last_words(self) -> str:
        """Why the process ended: the last line of its log."""
        said = self.log.read_text(errors="replace").strip().splitlines()
        return f"ended: {said[-1][:200].replace('|', '/')}" if said else "ended"


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
    """The contestants of a workload."""
    common = ["--work", name, "--turns", str(args.turns + 1), "--device", args.device]
    common += ["--quick"] * args.quick + (["--epochs", str(args.epochs)] if args.epochs else [])

    def one(title: str, script: str, arithmetic: str, *options: str) -> Contestant:
        told = [title, arithmetic] if len(kinds) > 1 else [title]
        command = [sys.executable, str(HERE / script), *options, "--arithmetic", arithmetic, *common]
        return Contestant(", ".join(told), command, arithmetic)

    kinds = args.arithmetics or (ARITHMETICS if args.device == "cuda" else ("exact",))
    cores = len(os.sched_getaffinity(0))
    plans = args.plans or (
        ["loop", "threads", "stacked"] if name == "W2" or args.device == "cuda" else ["loop", "threads"]
    )
    found = []
    for kind in kinds:
        found.append(one("bare loop, 1 intra-op thread", "bare.py", kind, "--threads", "1"))
        if args.device == "cpu":
            found.append(one(f"bare loop, {cores} intra-op threads", "bare.py", kind, "--threads", str(cores)))
        if args.device == "cuda":
            found.append(one(CENTRAL, "central.py", kind))
        found += [one(f"FedCohort {plan}", "ours.py", kind, "--plan", plan) for plan in plans]
    for peer in PEERS if args.peers else ():
        place = Path(args.peers) / peer
        if (place / ".done").exists():
            found.append(Contestant(peer, [str(place / "bin/python"), str(HERE / f"peers/{peer}_peer.py"), *common]))
        else:
            print(f"{peer}: not installed in {args.peers}, omitted", flush=True)
    return found


def limits(name: str, args: argparse.Namespace, known: dict[str, Any]) -> dict[str, Any]:
    """Operations per sample and rates of the machine, see limits.py. On a GPU, rates that are ``known`` are not measured again."""
    command = [sys.executable, str(HERE / "limits.py"), "--work", name, "--device", args.device]
    again = args.device == "cpu" or not known
    command += [] if again else ["--no-rates"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    if done.returncode:
        print(f"limits.py failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}", flush=True)
        return {}
    found: dict[str, Any] = json.loads(done.stdout)
    return found if again else found | {"rates": known}


def start(entrants: list[Contestant], name: str, args: argparse.Namespace) -> None:
    """Start all contestants, and wait until they are ready."""
    logs = Path(args.logs) / name
    logs.mkdir(parents=True, exist_ok=True)
    for one in entrants:
        one.start(logs, args.limit)
        if args.device == "cpu":  # few cores: load one after another; with a GPU, contestants load at the same time
            one.ready()
    for one in entrants:
        if args.device != "cpu":
            one.ready()


def play(entrants: list[Contestant], plan: Work, args: argparse.Namespace, end: float) -> None:
    """Play the turns of all contestants, as many as fit before the time ``end``, and stop the contestants."""
    for turn in range(args.turns + 1):
        before = time.time()
        for one in entrants:
            for round in range(turn * plan.turn, (turn + 1) * plan.turn):
                one.play(round, measured=turn > 0, steps=plan.steps(round))
        now = time.time()
        if turn and now + (now - before) > end:
            break
    for one in entrants:
        one.stop()


def measure(name: str, args: argparse.Namespace, known: dict[str, Any]) -> dict[str, Any]:
    """Measure one workload: the turns of all contestants, as many as fit into the time limit. ``known``: rates of the machine."""
    begin, load = time.time(), os.getloadavg()[0]
    plan = work(name, args.turns + 1, args.quick, args.epochs)
    entrants = contestants(name, args)
    groups = [[one for one in entrants if one.arithmetic == kind] for kind in ARITHMETICS]
    groups = [group for group in groups if group]
    for number, group in enumerate(groups, 1):
        start(group, name, args)
        play(group, plan, args, begin + args.seconds * number / len(groups))
    machine = limits(name, args, known)
    operations = plan.samples(1) * machine.get("operations_a_sample", float("nan"))

    def median(one: Contestant) -> float:
        return statistics.median(one.seconds) if one.seconds and not one.failure else float("nan")

    def least(prefix: str, kind: str | None = None) -> float:
        """The shortest median of the contestants with this beginning of their name and this arithmetic."""
        found = [median(o) for o in entrants if o.name.startswith(prefix) and kind in (None, o.arithmetic)]
        return min((seconds for seconds in found if seconds == seconds), default=float("nan"))

    def apart(one: Contestant) -> float:
        """The largest relative difference to the loop in the distance that each parameter moved in the first round."""
        loops = [o for o in entrants if o.name.startswith("FedCohort loop") and o.arithmetic == one.arithmetic]
        if not one.learned or not loops or not loops[0].learned:
            return float("nan")
        return max(abs(a - b) / b for a, b in zip(one.learned, loops[0].learned, strict=True) if b)

    rows = []
    for one in entrants:
        rates = [rate for told, rate in machine.get("rates", {}).items() if told.endswith(f", {one.arithmetic}")]
        rows.append(
            {
                "name": one.name,
                "arithmetic": one.arithmetic,
                "median": median(one),
                "rounds": one.seconds,
                "against_floor": least("bare") / median(one),
                "against_loop": least("FedCohort loop", one.arithmetic) / median(one),
                "against_exact_loop": least("FedCohort loop", "exact") / median(one),
                "against_central": least(CENTRAL, one.arithmetic) / median(one),
                "samples_per_second": plan.samples(1) / median(one),
                "gflops": operations / median(one) / 1e9,
                "of_ceiling": operations / median(one) / 1e9 / max(rates, default=float("nan")),
                "apart": apart(one),
                "learned": one.learned,
                "memory_gb": one.memory,
                "gpu_gb": one.gpu_memory,
                "failure": one.failure,
                **{key: value for key, value in one.facts.items() if key != "ready"},
            }
        )
    return {
        "work": name,
        "device": args.device,
        "quick": args.quick,
        "epochs": plan.epochs,
        "steps": plan.steps(1),
        "longest": max(plan.epochs * -(-len(plan.clients[client]) // plan.batch) for client in plan.cohorts[1]),
        "samples": plan.samples(1),
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "load_at_begin": load,
        "seconds": time.time() - begin,
        "limits": machine,
        "rows": rows,
    }


COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "median s per round": lambda row: f"{row['median']:.3g}",
    "× the better bare loop": lambda row: f"{row['against_floor']:.2f}",
    "GFLOP/s": lambda row: f"{row['gflops']:,.0f}",
    "peak memory, GB": lambda row: f"{row['memory_gb']:.2f}",
}
MANY: dict[str, Callable[[dict[str, Any]], str]] = {
    "median s per round": COLUMNS["median s per round"],
    "× the loop, exact": lambda row: f"{row['against_exact_loop']:.2f}",
    "× the loop, same arithmetic": lambda row: f"{row['against_loop']:.2f}",
    "× centralized, same arithmetic": lambda row: f"{row['against_central']:.2f}",
    "× the best bare loop": COLUMNS["× the better bare loop"],
    "samples/s": lambda row: f"{row['samples_per_second']:,.0f}",
    "TFLOP/s": lambda row: f"{row['gflops'] / 1e3:.2f}",
    "of the ceiling": lambda row: f"{row['of_ceiling']:.1%}",
    "from the loop": lambda row: f"{row['apart']:.0e}" if row["apart"] == row["apart"] else "–",
    "GPU memory, GB": lambda row: f"{row['gpu_gb']:.2f}",
}
"""The columns of a table with several arithmetics."""


def table(found: dict[str, Any]) -> str:
    """The results of a workload as a Markdown table."""
    columns = COLUMNS if found["device"] == "cpu" else MANY
    lines = [
        f"**{found['work']}**: {found['steps']} steps, {found['samples']} samples per round{' (quick)' if found['quick'] else ''}",
        "",
        f"| | {' | '.join(columns)} |",
        f"|{' --- |' * (len(columns) + 1)}",
    ]
    for row in found["rows"]:
        failed = [f"failed: {row['failure']}", *["–"] * (len(columns) - 1)]
        cells = failed if row["failure"] else [column(row).replace("nan%", "–") for column in columns.values()]
        lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    rates = found["limits"].get("rates", {})
    if rates:
        told = ", ".join(f"{name} {value:,.0f}" for name, value in rates.items())
        where = "one thread" if found["device"] == "cpu" else "the GPU"
        lines += ["", f"Measured on {where}, GFLOP/s: {told}."]
    if step := found["limits"].get("step_ms"):
        least = max(found["steps"] / found["cores"], found["longest"]) * step["beside"] / 1e3
        lines[-1] += (
            f" A step of the network without anything around it, on one thread: {step['alone']:.2f} ms alone, {step['beside']:.2f} ms "
            f"while every core does the same; a round of such steps: {least:.3g} s."
        )
    rounds = max(len(row["rounds"]) for row in found["rows"])
    processor = found["limits"].get("processor") or found["machine"]
    told = f"{processor}, {found['cores']} cores, load {found['load_at_begin']:.1f} at the start"
    return "\n".join([*lines, "", f"{rounds} rounds each; {told}, {found['seconds']:.0f} s in total."])


def rates_in(out: Path, device: str) -> dict[str, Any]:
    """The rates of this device in a file of results; empty if there are none."""
    works = json.loads(out.read_text(encoding="utf-8"))["works"] if out.exists() else []
    return next((one["limits"]["rates"] for one in works if one["device"] == device and one["limits"].get("rates")), {})


def keep(found: dict[str, Any], out: Path) -> None:
    """Write the results to the file, in place of earlier results of the same workload."""
    before = json.loads(out.read_text(encoding="utf-8"))["works"] if out.exists() else []
    same = ("work", "device", "quick")
    others = [one for one in before if any(one.get(key) != found[key] for key in same)]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"works": [*others, found]}, indent=1), encoding="utf-8")


def main() -> None:
    """Measure the workloads, print the tables, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--works", nargs="+", default=["W1", "W1b64", "W2", "W3"], choices=NAMES)
    parser.add_argument(
        "--turns", type=int, default=5, help="measured turns of each contestant, if they fit into the time limit"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=float("inf"),
        help="time limit of a workload: no turn starts that would end later",
    )
    parser.add_argument("--quick", action="store_true", help="make rounds a fifth as long")
    parser.add_argument("--epochs", type=int, help="local epochs of a round, instead of those of the workload")
    parser.add_argument("--plans", nargs="+", help="FedCohort's plans; by default those that suit the workload")
    parser.add_argument(
        "--arithmetics", nargs="+", choices=ARITHMETICS, help="by default, all on a GPU and exact on a CPU"
    )
    parser.add_argument("--peers", help="folder with the virtual environments of other simulators")
    parser.add_argument("--limit", type=float, default=600, help="seconds within which a contestant must reply")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--logs", default="build/bench-logs")
    parser.add_argument("--out", default="build/bench.json")
    args = parser.parse_args()
    for name in args.works:
        found = measure(name, args, rates_in(Path(args.out), args.device))
        print(table(found), end="\n\n", flush=True)
        keep(found, Path(args.out))


if __name__ == "__main__":
    main()
