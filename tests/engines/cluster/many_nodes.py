"""Check the contract of engines on a cluster of several nodes: ``python -m tests.engines.cluster.many_nodes NODES [WHAT]``.

A process of its own, because a process has one connection to a cluster. WHAT is one of

* ``killer``: a host is killed every half second during the check;
* ``lose``: a node is removed in the middle of a round instead, and the updates are compared with those of the local engine;
* ``data``: it is counted how often data travel to nodes with two hosts each;
* ``processors``: one node has the instructions of an older processor;
* ``gpus``: all nodes but the first say that they have two GPUs, and hosts compute on a device that pretends to be one.
"""

import logging
import os
import signal
import sys
import threading
from contextlib import closing, suppress
from functools import partial
from typing import Any

import numpy as np
import torch

from fedcohort.algorithms import Algorithm
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.processor import processor
from fedcohort.engines.cluster.host_pool import HostPool
from fedcohort.engines.cluster.ray_engine import ClusterPlan, RayEngine
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.federation.federation import Federation, Samples
from fedcohort.models import Mlp
from fedcohort.selection import Cohort, LocalLoss
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
    algorithm, training, cohort = ControlVariates(), Training(batch_size=4, epochs=40), Cohort(np.arange(600))
    clients = small_federation([6] * 600, trouble=False)
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


def large_federation(num_bytes: int) -> tuple[Federation, int]:
    """Sixteen clients whose samples have about so many bytes, and the exact number."""
    sizes = [num_bytes // (16 * 4 * 1024)] * 16
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(sum(sizes) + 10, 1024, generator=generator)
    labels = torch.arange(len(features)) % 3
    train, test = Samples(features[:-10], labels[:-10]), Samples(features[-10:].clone(), labels[-10:])
    federation = Federation(
        train=train,
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        validation=test,
        test=test,
        classes=("a", "b", "c"),
        shift=torch.zeros(1024),
        scale=torch.ones(1024),
    )
    return federation, features[:-10].nbytes


def bytes_by_node() -> dict[str, int]:
    """Number of bytes of all objects that were ever made in the shared memory of each node, also of copies from other nodes."""
    import ray
    from ray._private.internal_api import node_stats

    stats = {
        node["NodeID"]: node_stats(node["NodeManagerAddress"], node["NodeManagerPort"], include_memory_info=False)
        for node in ray.nodes()
        if node["Alive"]
    }
    return {node: said.store_stats.cumulative_created_bytes for node, said in stats.items()}


def count_data(pool: HostPool) -> None:
    """Every node receives the data once, although it has two hosts and plays three rounds with questions."""
    federation, num_bytes = large_federation(48 * 2**20)
    before, algorithm, clients = bytes_by_node(), FedAvg(), np.arange(16)
    with closing(RayEngine(federation, Mlp(hidden=2), Training(batch_size=64), algorithm, 3, pool=pool)) as engine:
        model = engine.initial_model()
        for t in (1, 2, 3):
            engine.answer(model, t, LocalLoss(), clients)
            list(engine.train(model, t, Cohort(clients), algorithm))
    grown = {node: made - before[node] for node, made in bytes_by_node().items()}
    working = {member.facts.node for member in pool.ready if member.facts}
    assert len(pool.ready) == 2 * len(working)
    for node in working:
        assert num_bytes <= grown[node] < 1.5 * num_bytes, (num_bytes, grown)
    print(f"{num_bytes:,} bytes of data; made in the memory of each node:", ", ".join(f"{n:,}" for n in grown.values()))


def check_warning(pool: HostPool, lines: list[str]) -> None:
    """One line says which host computes otherwise. Its results differ from the local ones in the last bits only."""
    [other] = [member.facts for member in pool.ready if member.facts and member.facts.instructions == "DEFAULT"]
    here = torch.backends.cpu.get_cpu_capability()
    assert here != "DEFAULT", "this machine has the oldest instructions itself"
    told = f"{other.name} computes on {processor()} with DEFAULT instructions, and this machine on {processor()} with {here}"
    assert [line for line in lines if "instructions" in line] == [f"{told}: results may differ in the last bits"], lines
    algorithm, cohort = FedAvg(), Cohort(np.arange(20))
    arguments = small_federation([16] * 20, trouble=False), Mlp(hidden=8), Training(batch_size=4), algorithm, 3
    with closing(LocalEngine(*arguments, 2)) as local, closing(RayEngine(*arguments, pool=pool)) as remote:
        model = local.initial_model()
        updates = [list(engine.train(model, 1, cohort, algorithm)) for engine in (local, remote)]
        for here_too, there in zip(*updates, strict=True):
            for name, value in here_too.state.items():
                np.testing.assert_allclose(value.numpy(), there.state[name].numpy(), rtol=0, atol=1e-5)


def check_gpus(pool: HostPool, nodes: int) -> None:
    """Every host has a GPU of its own, on a node that has one; its tensors are there, and its results are those of the CPU."""
    import ray

    def own_gpu(_: Any) -> tuple[str, ...]:
        from tests.engines import pretend

        pretend.install()
        visible = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
        context = ray.get_runtime_context()
        assert context.get_accelerator_ids()["GPU"] == visible
        return context.get_node_id(), *visible

    def devices(host: Any) -> set[str]:
        return {site.federation.device.type for site in host._sites.values()}

    def on_hosts(function: Any) -> list[Any]:
        return ray.get([member.actor.__ray_call__.remote(function) for member in pool.ready])

    with_gpus = {node["NodeID"] for node in ray.nodes() if node["Resources"].get("GPU")}
    assert len(with_gpus) == nodes - 1
    assert set(on_hosts(own_gpu)) == {(node, gpu) for node in with_gpus for gpu in ("0", "1")}
    cohort, clients = Cohort(np.arange(20)), small_federation([16] * 20, trouble=False)
    cases: list[tuple[ClusterPlan, Algorithm]] = [
        ("threads", ControlVariates()), ("stacked", FedAvg()), ("means", FedAvg())
    ]  # fmt: skip
    for plan, algorithm in cases:
        arguments = clients, Mlp(hidden=8), Training(batch_size=4), algorithm, 3
        remote = RayEngine(*arguments, pool=pool, plan=plan, device="pretend:0")
        assert remote.plan == plan
        with closing(LocalEngine(*arguments, 2)) as local, closing(remote):
            model = local.initial_model()
            asked, answers = (engine.answer(model, 1, LocalLoss(), cohort.clients) for engine in (local, remote))
            updates = [list(engine.train(model, 1, cohort, algorithm)) for engine in (local, remote)]
            assert set[str]().union(*on_hosts(devices)) == {"pretend"}  # of the hosts that had work
            np.testing.assert_allclose(answers, asked, rtol=1e-5)
            for here_too, there in zip(*updates, strict=True):
                for name, value in here_too.state.items():
                    np.testing.assert_allclose(value.numpy(), there.state[name].numpy(), rtol=0, atol=1e-5)


def main(nodes: int, what: str) -> None:
    """Start the nodes and do ``what``."""
    from ray.cluster_utils import Cluster

    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("fedcohort").addHandler(handler)
    cores = 2 if what in ("data", "gpus") else 1
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": cores, "include_dashboard": False})
    old: dict[str, Any] = {"env_vars": {"ATEN_CPU_CAPABILITY": "default"}} if what == "processors" else {}
    gpus = 2 if what == "gpus" else 0
    others = [cluster.add_node(num_cpus=cores, num_gpus=gpus, **old) for _ in range(nodes - 1)]
    cluster.wait_for_nodes()
    pool = HostPool(cluster.address, 0 if gpus else cores * nodes, gpu=gpus > 0, patience=120)
    while len(pool.ready) < pool.size:
        pool.wait_until_ready()
        pool.refill()
        import ray

        done, _ = ray.wait(list(pool.greetings), timeout=60)
        for greeting in done:
            pool.greet(pool.greetings[greeting])
    assert len({member.facts.node for member in pool.ready if member.facts}) == (nodes - 1 if gpus else nodes)
    killed: list[int] = []
    if what == "data":
        count_data(pool)
    elif what == "processors":
        check_warning(pool, lines)
    elif what == "gpus":
        assert pool.size == 2 * len(others)
        check_gpus(pool, nodes)
    elif what == "lose":
        lose_a_node(cluster, others[-1], pool)
    elif what == "killer":
        stop = threading.Event()
        killer = threading.Thread(target=kill_hosts, args=(pool, stop, killed))
        killer.start()
        try:
            for _ in range(5):  # on a fast machine, the contract is over before many are killed
                check_engine(partial(RayEngine, pool=pool))
                if len(killed) > 2:
                    break
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
