"""Rounds on a private Ray cluster beside rounds of the local engine, in turns, on an idle machine.

python benchmarks/cluster.py [--works W2 W3] [--turns 7] [--only rounds|large|growth] [--keep]

* ``rounds``: wall time of a round for each plan, as a ratio to the local plan ``threads``, and the driver's processor time per client.
* ``large``: a round of 10,000 clients of W2 with means of blocks: wall time, and processor time of the driver.
* ``growth``: memory of the driver and of the hosts over 300 rounds of W2.

``--keep`` writes results/cluster.json, from which the table in docs/cluster.md is made.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from nets import build
from ours import federation
from works import Work, work

from fedcohort.algorithms import Members, ModelState
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.threads import one_thread
from fedcohort.engines.cluster.host_pool import HostPool
from fedcohort.engines.cluster.ray_engine import RayEngine
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.models import as_model
from fedcohort.selection import Cohort

sys.path.insert(0, str(Path(__file__).parents[1]))
from results import result_file

HOSTS = 2
COMMAND = "make bench-ray KEEP=1"


class Contestant:
    """An engine that plays rounds of a workload."""

    def __init__(self, name: str, load: Work, make: Callable[..., Any]) -> None:
        self.name, self.load, self.algorithm = name, load, FedAvg()
        training = Training(batch_size=load.batch, epochs=load.epochs, lr=load.lr, momentum=load.momentum)
        self.engine = make(federation(load), as_model(lambda: build(load.net)), training, self.algorithm, 0, HOSTS)
        self.model: ModelState = self.engine.initial_model()
        self.wall: list[float] = []
        self.driver: list[float] = []

    def play(self, t: int, clients: np.ndarray) -> None:
        """Play round ``t`` with these clients."""
        begin, used = time.perf_counter(), time.process_time()
        members = Members(
            len(self.load.clients), sum(map(len, self.load.clients)), len(clients), t=t, trainable=self.engine.trainable
        )
        updates = self.engine.train(self.model, t, Cohort(clients), self.algorithm)
        self.model = self.algorithm.aggregate(self.model, updates, members)
        self.wall.append(time.perf_counter() - begin)
        self.driver.append(time.process_time() - used)


def rounds(pool: HostPool, name: str, turns: int) -> list[dict[str, Any]]:
    """All plans in turns; the first round of each is not counted."""
    load = work(name, turns + 1)

    def ray(plan: Any) -> Callable[..., Any]:
        return lambda *arguments: RayEngine(*arguments, pool=pool, plan=plan)

    contestants = [
        Contestant("local, threads", load, LocalEngine),
        Contestant("ray, threads", load, ray("threads")),
        Contestant("ray, means", load, ray("means")),
    ]
    for turn in range(turns + 1):
        for contestant in contestants:
            for t in range(load.turn):
                contestant.play(turn * load.turn + t + 1, load.cohorts[turn])
    rows = []
    for contestant in contestants:
        skipped = load.turn
        wall = statistics.median(contestant.wall[skipped:])
        floor = statistics.median(contestants[0].wall[skipped:])
        rows.append(
            {
                "work": name,
                "engine": contestant.name,
                "clients": len(load.cohorts[0]),
                "hosts": HOSTS,
                "round_s": wall,
                "ratio": wall / floor,
                "driver_ms_per_client": 1000 * statistics.median(contestant.driver[skipped:]) / len(load.cohorts[0]),
            }
        )
        contestant.engine.close()
    return rows


def large(pool: HostPool, clients: int = 10_000) -> list[dict[str, Any]]:
    """Rounds of a cohort of many clients, each of which trains on the 60 samples of a W2 client."""
    load = work("W2", 2)
    load = Work(**{**vars(load), "clients": [load.clients[i % len(load.clients)] for i in range(clients)]})
    contestant = Contestant("ray, means", load, lambda *arguments: RayEngine(*arguments, pool=pool, plan="means"))
    with closing(contestant.engine):
        for t in (1, 2, 3):
            contestant.play(t, np.arange(clients))
    return [
        {
            "work": f"W2, {clients:,} clients",
            "engine": "ray, means",
            "round_s": statistics.median(contestant.wall[1:]),
            "driver_s": statistics.median(contestant.driver[1:]),
        }
    ]


def growth(pool: HostPool, count: int = 300) -> list[dict[str, Any]]:
    """Memory after a tenth of the rounds, and at the end: of this process, and of all processes of Ray."""
    load = work("W2", 2)
    contestant = Contestant("ray, threads", load, lambda *arguments: RayEngine(*arguments, pool=pool))
    seen = []
    with closing(contestant.engine):
        for t in range(1, count + 1):
            contestant.play(t, load.cohorts[t % len(load.cohorts)])
            if t in (count // 10, count):
                me = psutil.Process()
                hosts = [
                    process.memory_info().rss
                    for process in me.children(recursive=True)
                    if "ray::" in " ".join(process.cmdline())
                ]
                seen.append((me.memory_info().rss, sum(hosts)))
    (first, first_hosts), (last, last_hosts) = seen
    return [
        {
            "work": f"W2, {count} rounds",
            "driver_growth": last / first - 1,
            "hosts_growth": last_hosts / first_hosts - 1,
        }
    ]


def main() -> None:
    """Measure, print, and write the figures if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--works", nargs="+", default=["W2", "W3"])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--only", nargs="+", default=["rounds", "large", "growth"])
    parser.add_argument("--quick", action="store_true", help="two turns, and a tenth of the clients and rounds")
    parser.add_argument("--keep", action="store_true", help="write results/cluster.json")
    args = parser.parse_args()
    begin, made_by, known = time.perf_counter(), result_file.commit(), result_file.sources()
    pool = HostPool(hosts=HOSTS)
    rows: list[dict[str, Any]] = []
    with one_thread():
        if "rounds" in args.only:
            rows += [row for name in args.works for row in rounds(pool, name, 2 if args.quick else args.turns)]
        if "large" in args.only:
            rows += large(pool, 1_000 if args.quick else 10_000)
        if "growth" in args.only:
            rows += growth(pool, 30 if args.quick else 300)
    for row in rows:
        print(", ".join(f"{key} {value:.3g}" if isinstance(value, float) else str(value) for key, value in row.items()))
    pool.close()
    if args.keep:
        files = ["benchmarks/cluster.py", "benchmarks/works.py"]
        about = result_file.provenance(COMMAND, files, time.perf_counter() - begin, made_by, known)
        about["versions"]["ray"] = version("ray")
        result_file.write("cluster", about | {"rows": rows})


if __name__ == "__main__":
    main()
