"""Hosts that are lost or cannot be started are replaced. Without Ray."""

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from fedcohort.core.errors import UsageError
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
    """The one that plays rounds, and the one that awaits models of a lost host."""
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


def test_a_run_without_hosts_does_not_keep_a_core_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(SlowRay):
        waits = 0

        def wait(self, references: list[Any], *, num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
            Broken.waits += 1
            return references[:num_returns], references[num_returns:]

        def get(self, reference: object) -> object:
            raise RuntimeError("no room")

    monkeypatch.setattr(host_pool, "ray_module", Broken)
    monkeypatch.setattr(host_pool, "lost_errors", lambda: (RuntimeError,))
    monkeypatch.setattr(host_pool, "PAUSE", 0.1)
    monkeypatch.setattr(host_pool, "NOTICE_SECONDS", 0.0)
    pool = HostPool(hosts=1, patience=0.5)
    with pytest.raises(
        UsageError, match=r"no host has answered for 0 s .* \(the last one could not be started: no room\)"
    ):
        pool.wait_until_ready()
    assert Broken.waits < 20
