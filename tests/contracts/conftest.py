"""Worker processes that the tests of this folder share, so that each process imports torch only once."""

from collections.abc import Iterator

import pytest

from tests.engines.process_engine import Pool


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """Three processes."""
    pool = Pool(3)
    yield pool
    pool.close()
    assert [process.exitcode for process in pool.processes] == [0, 0, 0]
