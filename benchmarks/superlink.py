"""Measure how many SuperNodes one SuperLink carries, with light SuperNodes: threads that speak Flower's protocol and run no ClientApp.

    python benchmarks/superlink.py [--nodes 10 100 300] [--bytes 8000 640000 44000000] [--most 2e9] [--out results/superlink.json]

A SuperLink with TLS and a database, as in docs/deployment.md, gets light SuperNodes, which sign every request and poll every 3 s as
Flower's do. A ServerApp first measures the SuperLink while nothing happens. Then it plays phases as a deployment does: every node gets
the same bytes and sends as many bytes of its own back, in windows of at most 32 nodes. Nodes whose reply does not come, for example
because a node was too busy for its heartbeat, are counted. A phase that takes too long ends after fewer nodes. A combination that
would carry more than ``--most`` bytes in one direction is left out. Everything is on one machine: processor time of the SuperLink is
measured, and waiting times are those of a machine that is also all SuperNodes. Each combination is added to the results as soon as it
is measured.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # for the processes of the tests

SERVER = """
import json, os, threading, time
from pathlib import Path
import psutil
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from fedcohort.flower.exchange import exchange
from fedcohort.flower.sites.envelope import bytes_in, request_message

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    settings = context.run_config
    count, size, link = int(settings["nodes"]), int(settings["bytes"]), psutil.Process(int(settings["link"]))
    while len(nodes := sorted(grid.get_node_ids())) < count:
        time.sleep(0.5)
    largest = [0, 0]

    def watch() -> None:
        while True:
            for i, process in enumerate((link, psutil.Process())):
                largest[i] = max(largest[i], process.memory_info().rss)
            time.sleep(0.2)

    def used() -> float:
        times = link.cpu_times()
        return times.user + times.system

    threading.Thread(target=watch, daemon=True).start()
    began, before = time.monotonic(), used()
    time.sleep(float(settings["idle"]))
    idle = (used() - before) / (time.monotonic() - began)
    window, phases = max(1, min(32, 2**29 // size)), []
    for t in range(int(settings["phases"])):
        data, began, before, failed = os.urandom(size), time.monotonic(), used(), []
        for first in range(0, count, window):
            requests = [request_message(node, data, t, 3600.0) for node in nodes[first : first + window]]
            done = exchange(grid, requests, 1800.0)
            replies = list(done.first().values())
            assert len(replies) == len(requests)
            assert all(len(bytes_in(reply) or b"") == size for reply in replies if not reply.has_error())
            failed += [str(reply.error) for reply in replies if reply.has_error()]
            reached, seconds = first + len(requests), time.monotonic() - began
            print(f"{reached} nodes after {seconds:.0f} s, {len(failed)} without a reply", flush=True)
            if seconds > 60 * float(settings["minutes"]):
                break
        phases.append({
            "seconds": time.monotonic() - began, "processor_seconds": used() - before, "nodes": reached,
            "failed": len(failed), "failures": sorted(set(failed)),
        })
    found = {
        "idle_cores": idle, "phases": phases, "window": window, "superlink_bytes": largest[0], "serverapp_bytes": largest[1],
    }
    Path(settings["out"]).write_text(json.dumps(found))
"""
CLIENT = """
from flwr.clientapp import ClientApp

app = ClientApp()
"""
AT_ONCE = threading.Semaphore(2)
"""Large replies are built by two nodes at a time, so that the light SuperNodes need little memory."""


def light_node(address: str, authority: str, number: int) -> None:
    """A SuperNode without a ClientApp: replies with as many bytes as it gets."""
    from flwr.supernode.fleet_http_connection import http_request_response

    time.sleep(0.02 * number)
    with http_request_response(address, False, Path(authority).read_bytes()) as connection:
        while True:
            if not _work(connection):
                time.sleep(3)


def _work(connection: "tuple") -> bool:  # type: ignore[type-arg]
    """Take one message and reply to it; False if there is none."""
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, iterate_object_tree
    from flwr.supercore.inflatable.inflatable_utils import pull_objects

    from fedcohort.flower.sites.envelope import reply_message

    _, receive, send, _, _, pull_object, push_object, confirm = connection
    if (got := receive()) is None:
        return False
    message, tree = got
    run = message.metadata.run_id
    with AT_ONCE:
        names = [each.object_id for each in iterate_object_tree(tree)]
        pulled = [len(each) for each in pull_objects(names, lambda name: pull_object(run, name)).values()]
        confirm(run, message.metadata.message_id)
        reply = reply_message(os.urandom(_payload(sum(pulled))), message)
        reply.metadata.__dict__["_message_id"] = reply.object_id
        objects = {name: each.deflate() for name, each in get_all_nested_objects(reply).items()}
        wanted, session = send(reply, get_object_tree(reply), 0.0)
        for name in wanted:
            push_object(run, session, name, objects[name])
    return True


def _payload(pulled: int) -> int:
    """The bytes that a message carried: those of all its objects (Flower cuts large arrays), without what Flower adds to them."""
    return next(size for size in SIZES if 0 <= pulled - size < 7000)


SIZES: list[int] = []


def light(address: str, authority: str, count: int) -> None:
    """Run light SuperNodes until the process is ended."""
    from fedcohort.testing.flower_grid import _identify

    _identify()
    threads = [threading.Thread(target=light_node, args=(address, authority, i), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def write_app(folder: Path, package: str) -> None:
    """Replace the halves of a deployment's app with those of the measurement."""
    (folder / package / "server.py").write_text(SERVER)
    (folder / package / "client.py").write_text(CLIENT)
    path = folder / "pyproject.toml"
    text = path.read_text()
    head = text[: text.index("[tool.flwr.app.config]")]
    path.write_text(
        f'{head}[tool.flwr.app.config]\nnodes = 1\nbytes = 1\nlink = 1\nidle = 1.0\nphases = 1\nminutes = 60.0\nout = ""\n'
    )


def measure(count: int, sizes: list[int], phases: int, minutes: float, idle: float, add: "Adding") -> None:
    """Measure a number of nodes with each number of bytes, on a new SuperLink."""
    from tests.flower.deployed.real_federation import RealFederation, waited_for

    with TemporaryDirectory() as temporary, RealFederation(Path(temporary) / "app", "", sites=1) as there:
        write_app(there.folder, there.package)
        there.start_superlink(authentication=False)
        words = ("--light", str(count), "--address", f"127.0.0.1:{there.port}", "--authority", "certificates/ca.crt")
        there.start("light", sys.executable, str(Path(__file__).resolve()), *words, "--bytes", *map(str, sizes))
        for size in sizes:
            out, load = there.folder / f"{size}.json", os.getloadavg()[0]
            link = there.processes["superlink"].pid
            config = f"nodes={count} bytes={size} link={link} idle={idle} phases={phases} minutes={minutes} out='{out}'"
            there.start("run", "flwr", "run", ".", "here", "--stream", "--run-config", config)

            def done(out: Path = out) -> bool:
                assert there.processes["run"].poll() is None or out.exists(), there.output("run") + there.output(
                    "light"
                )
                return out.exists()

            waited_for(done, f"{count} nodes × {size:,} bytes", 7200)
            there.end("run")
            time.sleep(1)
            add({"nodes": count, "bytes": size, "load_before": load, **json.loads(out.read_text())})


class Adding:
    """Adds rows to the results, and prints them.

    Args:
        path: the file; rows of the same combination are replaced.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, row: dict[str, object]) -> None:
        print(json.dumps(row), flush=True)
        words = ["git", "rev-parse", "--short=12", "HEAD"]
        commit = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
        row |= {
            "commit": commit, "date": datetime.now(UTC).isoformat(timespec="seconds"), "flwr": version("flwr"),
            "python": platform.python_version(), "cores": os.cpu_count(),
        }  # fmt: skip
        old = json.loads(self.path.read_text())["rows"] if self.path.exists() else []
        kept = [each for each in old if (each["nodes"], each["bytes"]) != (row["nodes"], row["bytes"])]
        rows = sorted([*kept, row], key=lambda each: (each["bytes"], each["nodes"]))
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text(json.dumps({"command": "python benchmarks/superlink.py", "rows": rows}, indent=1) + "\n")


def main() -> None:
    """Measure all combinations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[10, 100, 300])
    parser.add_argument("--bytes", type=int, nargs="+", default=[8_000, 640_000, 44_000_000])
    parser.add_argument("--most", type=float, default=2e9, help="bytes in one direction in a phase; more is left out")
    parser.add_argument("--phases", type=int, default=2)
    parser.add_argument(
        "--minutes", type=float, default=60.0, help="a phase ends after the window that reaches this time"
    )
    parser.add_argument("--idle", type=float, default=30.0, help="seconds without messages that are measured")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "superlink.json")
    parser.add_argument("--light", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("--authority", help=argparse.SUPPRESS)
    args = parser.parse_args()
    SIZES.extend(args.bytes)
    if args.light:
        light(args.address, args.authority, args.light)
        return
    for count in args.nodes:
        sizes = [size for size in args.bytes if count * size <= args.most]
        if sizes:
            measure(count, sizes, args.phases, args.minutes, args.idle, Adding(args.out))


if __name__ == "__main__":
    main()
