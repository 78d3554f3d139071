"""What is worked out beside."""

import os
import signal
import time

import pytest

from fedcohort.threads import aside


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_works_aside_too() -> None:
    """It has no thread of its parent's, and would wait for one forever."""
    assert aside(lambda: 1).result() == 1
    child = os.fork()
    if child == 0:
        os._exit(aside(lambda: 7).result())
    for _ in range(1500):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.02)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the forked process hangs")
    assert os.waitstatus_to_exitcode(status) == 7
