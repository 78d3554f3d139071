"""Check the contract of engines on a cluster of several nodes: ``python -m tests.engines.cluster.many_nodes NODES [killer|lose]``.

A process of its own, because a process has one connection to a cluster. ``killer`` kills a host every half second during the
check. ``lose`` removes a node in the middle of a round instead, and compares the updates with those of the local engine.
"""

import os
import signal
import sys
import threading
from contextlib import closing, suppress
from functools import partial
from typing import Any

import numpy as np

from fedcohort.algorithms.training_settings import Training
from fedcohort.engines.cluster.host_pool import HostPool
from fedcohort.engines.cluster.ray_engine import RayEngine
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.models import Mlp
from fedcohort.selection import Cohort
from fedcohort.testing import check_engine
from fedcohort.testing.base import ControlVariates, bits, small_federation


def kill_hosts(pool: HostPool, stop: threading.Event, killed: list[int]) -> None:
    """Kill the process of one host after another."""
    import ray

    while not stop.wait(0.5):
        ready = pool.ready
        if len(ready) > 1:
            with suppress(Exception):
                pid = ray.get(ready[len(killed) % len(ready)].actor.pid.remote(), timeout=5)
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)


def lose_a_node(cluster: Any, node: Any, pool: HostPool) -> None:
    """Remove a node after the first update of a round."""
    algorithm, training, cohort = ControlVariates(), Training(batch_size=4), Cohort(np.arange(150))
    clients = small_federation([6] * 150, trouble=False)
    arguments = clients, Mlp(hidden=8), training, algorithm, 3
    with closing(LocalEngine(*arguments, 2)) as local, closing(RayEngine(*arguments, pool=pool)) as remote:
        model = local.initial_model()
        expected = [bits(update.state) for update in local.train(model, 1, cohort, algorithm)]
        stream = remote.train(model, 1, cohort, algorithm)
        received = [bits(next(stream).state)]
        before = len(pool.ready)
        cluster.remove_node(node, allow_graceful=False)
        received += [bits(update.state) for update in stream]
        assert received == expected
        assert len(pool.ready) < before, "no host was lost"


def main(nodes: int, what: str) -> None:
    """Start the nodes and do ``what``."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    others = [cluster.add_node(num_cpus=1) for _ in range(nodes - 1)]
    cluster.wait_for_nodes()
    pool = HostPool(cluster.address, nodes, patience=120)
    while len(pool.ready) < nodes:
        pool.wait_until_ready()
        pool.refill()
        import ray

        done, _ = ray.wait(list(pool.greetings), timeout=60)
        for greeting in done:
            pool.greet(pool.greetings[greeting])
    assert len({member.facts.node for member in pool.ready if member.facts}) == nodes
    killed: list[int] = []
    if what == "lose":
        lose_a_node(cluster, others[-1], pool)
    elif what == "killer":
        stop = threading.Event()
        killer = threading.Thread(target=kill_hosts, args=(pool, stop, killed))
        killer.start()
        try:
            check_engine(partial(RayEngine, pool=pool))
        finally:
            stop.set()
            killer.join()
        assert len(killed) > 2
    else:
        check_engine(partial(RayEngine, pool=pool))
    print(f"{nodes} nodes, {len(killed)} hosts killed: the contract holds")
    pool.close()
    cluster.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
