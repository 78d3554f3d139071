"""Hosts are replaced by two threads: the one that plays rounds, and the one that awaits models of a lost host. Without Ray."""

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from fedcohort.engines.cluster import host_pool
from fedcohort.engines.cluster.host_pool import HostPool


class SlowRay:
    """The part of Ray that a pool uses; the start of an actor takes a moment."""

    exceptions = SimpleNamespace(RayError=RuntimeError)

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> dict[str, float]:
        return {}

    def method(self, **_: Any) -> Any:
        return lambda function: function

    def remote(self, **_: Any) -> Any:
        return lambda _: SimpleNamespace(remote=self.start)

    def start(self) -> Any:
        time.sleep(0.05)
        return SimpleNamespace(facts=SimpleNamespace(remote=object))

    def kill(self, actor: object, *, no_restart: bool) -> None:
        assert no_restart


def test_two_threads_that_replace_a_host_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_pool, "ray_module", SlowRay)
    pool = HostPool(hosts=2)
    lost, together = pool.members[0], threading.Barrier(2)

    def replace() -> None:
        together.wait()
        pool.lose(lost)
        pool.refill()

    threads = [threading.Thread(target=replace) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(pool.members) == 2
    assert lost not in pool.members
