"""The Ray engine fulfills the contract of engines, with all its hosts and while hosts are lost."""

from functools import partial

import pytest

from fedcohort.engines.cluster.host_pool import HostPool
from fedcohort.engines.cluster.ray_engine import RayEngine
from fedcohort.testing import check_engine

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.timeout(300)]


def test_the_ray_engine_fulfills_the_contract(hosts: HostPool) -> None:
    check_engine(partial(RayEngine, pool=hosts))
