"""A small, seeded part of every attack; ``make campaign`` plays all of it. The usual tests have one of them.

If a case fails here, ``python -m tests.campaign --only ATTACK --case NUMBER`` repeats it alone.
"""

import sys
from collections.abc import Iterator

import pytest

from tests.campaign.catalogue import ATTACKS
from tests.campaign.worker import Worker
from tests.repetitions import slow_unless

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the attacks need Linux")


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A process that plays cases, for all tests of this file."""
    worker = Worker(tmp_path_factory.mktemp("campaign"))
    yield worker
    worker.close()


USUAL = ("kills",)


@pytest.mark.parametrize("name", slow_unless(USUAL.__contains__, ATTACKS))
def test_the_small_part_of_an_attack_finds_no_failure(name: str, worker: Worker) -> None:
    attack = ATTACKS[name]
    outcomes = [worker.play(name, 0, number, attack.limit) for number in attack.small]
    reasons = [outcome.unavailable for outcome in outcomes if outcome.unavailable is not None]
    if reasons:
        pytest.skip(reasons[0])
    failures = [f"{name}, case {one.number}: {one.failure}" for one in outcomes if one.failure is not None]
    assert not failures, "\n".join(failures)
    assert sum(outcome.count for outcome in outcomes) >= len(outcomes) // 2
