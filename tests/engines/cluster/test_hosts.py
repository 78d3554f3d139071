"""Hosts: data are sent once, and what a host lacks, waits for or computes otherwise is told."""

import logging
import platform
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.processor import processor
from fedcohort.engines.cluster import host_pool, ray_package
from fedcohort.engines.cluster.host_pool import HostPool, Member
from fedcohort.engines.cluster.messages import Failed, Setup
from fedcohort.engines.cluster.ray_engine import RayEngine
from fedcohort.models import Mlp
from fedcohort.selection import Cohort, LocalLoss
from tests.engines.cluster.many_nodes import bytes_by_node, large_federation

pytestmark = pytest.mark.timeout(240)


def play(engine: RayEngine, rounds: int) -> None:
    """Rounds in which all clients are asked and train."""
    clients = np.arange(engine.federation.num_clients)
    with closing(engine):
        for t in range(1, rounds + 1):
            model = engine.initial_model()
            engine.answer(model, t, LocalLoss(), clients)
            list(engine.train(model, t, Cohort(clients), FedAvg()))


@pytest.mark.slow
def test_data_are_sent_once_whatever_is_done_with_them(hosts: HostPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver puts them once, calls name them by reference, and the node's memory receives them once for all its hosts."""
    import ray

    put, setups, others = ray.put, list[Setup](), list[Any]()

    def counted(value: Any) -> Any:
        (setups if isinstance(value, Setup) else others).append(value)
        return put(value)

    monkeypatch.setattr(ray, "put", counted)
    federation, num_bytes = large_federation(8 * 2**20)
    [before] = bytes_by_node().values()
    play(RayEngine(federation, Mlp(hidden=2), Training(batch_size=256), FedAvg(), 0, pool=hosts), rounds=3)
    [after] = bytes_by_node().values()
    assert len(setups) == 1
    assert num_bytes <= after - before < 1.5 * num_bytes
    assert 1 <= len(others) <= 3  # the model, at most once in each round
    assert all(sys.getsizeof(sent.model) < num_bytes / 100 for sent in others)


@pytest.mark.slow
def test_hosts_use_the_data_where_they_lie(hosts: HostPool) -> None:
    """They get views of the memory that all processes of a node share, which cannot be written to."""
    import ray

    federation, _ = large_federation(2**20)

    class Reader:
        def writable(self, setup: list[Any]) -> list[bool]:
            from fedcohort.engines.cluster.messages import federation_of

            clients = ray.get(setup[0]).clients
            source = clients["train"][0]
            shares = np.shares_memory(source, federation_of(clients, "cpu").train.source.numpy())
            return [shares, bool(source.flags.writeable), bool(source.flags.owndata)]

    kind: Any = ray.remote(num_cpus=0)(Reader)
    with closing(RayEngine(federation, Mlp(hidden=2), Training(), FedAvg(), 0, pool=hosts)) as engine:
        reader = kind.remote()
        assert ray.get(reader.writable.remote([engine._setup])) == [True, False, False]
        ray.kill(reader)


def test_a_host_whose_start_was_cancelled_by_ray_is_no_error(hosts: HostPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy cluster, Ray sometimes cancels the start of an actor, and then raises an error when it is ended."""
    ray = pytest.importorskip("ray")

    def cancelled(*_: object) -> None:
        raise ray.exceptions.ActorDiedError

    def nothing_to_end(*_: object, **__: object) -> None:
        raise ray.exceptions.RaySystemError("System error: Actor creation cancelled.")

    monkeypatch.setattr(hosts, "members", [member := Member(None, None)])
    monkeypatch.setattr(hosts, "_not_started", "")
    monkeypatch.setattr(hosts, "_next_start", 0.0)
    monkeypatch.setattr(hosts, "address", "auto")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setattr(ray, "get", cancelled)
    monkeypatch.setattr(ray, "kill", nothing_to_end)
    hosts.greet(member)
    assert hosts.members == []
    assert hosts._not_started.startswith(" (the last one could not be started: ")
    assert hosts._not_started.endswith("; if the cluster was started without a token, set RAY_AUTH_MODE=disabled)")


@pytest.mark.parametrize("differs", ["processor", "instructions"])
def test_a_host_with_another_processor_is_told_once(
    hosts: HostPool, differs: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hosts.wait_until_ready()
    ready = hosts.ready
    caplog.clear()  # on a busy machine, the first host takes so long that there is a notice
    monkeypatch.setattr(hosts, "_warned", set())
    for member in ready:
        hosts.greet(member)
    assert not caplog.messages
    theirs = torch.backends.cpu.get_cpu_capability()
    if differs == "processor":
        monkeypatch.setattr(host_pool, "processor", lambda: "Z80")
        here = f"Z80 with {theirs}"
    else:
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "SVE256")
        here = f"{processor()} with SVE256"
    with caplog.at_level(logging.WARNING, logger="fedcohort"):
        for member in [*ready, *ready]:
            hosts.greet(member)
    [line] = caplog.messages
    assert ready[0].facts is not None
    assert line.startswith(ready[0].facts.name)
    assert f"computes on {processor()} with {theirs} instructions, and this machine on {here}: " in line
    assert line.endswith("results may differ in the last bits")


def test_a_file_that_another_machine_lacks_is_said_to_be_lacking_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the machine of the run, the file exists."""
    try:
        Path("/nowhere/weights.pt").read_bytes()
    except OSError as error:
        failed = Failed.of(error)
    there = platform.node()
    assert "every machine" not in str(failed.error())
    monkeypatch.setattr("platform.node", lambda: "first")
    assert f", on {there}: files must be at the same place, and packages installed, on every machine" in str(
        failed.error()
    )
    assert "every machine" not in str(Failed.of(ValueError("no data")).error())


def test_hosts_with_more_cores_than_a_machine_has_are_said_to_wait_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        {"Alive": True, "Resources": {"CPU": 3.0}}, {"Alive": True, "Resources": {"CPU": 3.0, "GPU": 2.0}},
        {"Alive": True, "Resources": {}}, {"Alive": False, "Resources": {"CPU": 64.0}},
    ]  # fmt: skip
    monkeypatch.setattr(ray_package, "ray_module", lambda: SimpleNamespace(nodes=lambda: nodes))
    assert [ray_package.hosts_with_room(cores, gpu=False) for cores in (1, 2, 3, 4)] == [6, 2, 2, 1]
    assert ray_package.hosts_with_room(1, gpu=True) == 2
    waits = [ray_package.awaited(cores, gpu=False) for cores in (1, 2, 4)]
    assert waits == [
        "a free core of the cluster",
        "2 free cores on one machine of the cluster",
        "4 free cores on one machine of the cluster; the largest has 3, so lower engine.threads_per_client",
    ]
    assert ray_package.awaited(1, gpu=True) == "a free GPU of the cluster"


def test_long_lines_of_ray_end_after_a_word() -> None:
    assert ray_package.first_line(ValueError("short.\nmore")) == "short."
    assert ray_package.first_line(ValueError("words " * 100)).endswith("words …")
    assert ray_package.last_line(ValueError("more\n  short.\n")) == "short."
    assert ray_package.last_line(ValueError()) == "ValueError"
