"""Hosts on this machine: a Ray cluster that the tests of a process share."""

import os
from collections.abc import Iterator

import pytest

from fedcohort.engines.cluster.host_pool import HostPool


@pytest.fixture(scope="session")
def hosts() -> Iterator[HostPool]:
    """Three hosts on a private cluster."""
    pytest.importorskip("ray")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault(
        "RAY_worker_niceness", "0"
    )  # with Ray's 15, hosts start only when the other tests leave a core idle
    pool = HostPool(hosts=3, patience=60)
    yield pool
    pool.close()
