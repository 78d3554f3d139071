"""Hosts on this machine: a Ray cluster that the tests of a process share."""

import os
from collections.abc import Iterator

import pytest

from fedcohort.engines.cluster.host_pool import HostPool


@pytest.fixture(scope="session")
def hosts() -> Iterator[HostPool]:
    """Three hosts on a private cluster."""
    pytest.importorskip("ray")
    os.environ["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1")
    pool = HostPool(hosts=3, patience=60)
    yield pool
    pool.close()
