"""Settings for all tests."""

import gc
import os
import shutil
import signal
import sys

import psutil
import pytest
from hypothesis import settings

if "PYTEST_XDIST_WORKER" in os.environ:
    # Each of several processes has its share of the cores, before torch reads the number. Otherwise, threads that wait for each other
    # across all processes take up to half of the time.
    share = (os.cpu_count() or 1) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, share)))

SHARED_MEMORY = "/dev/shm"
if (
    sys.platform.startswith("linux")
    and os.access(SHARED_MEMORY, os.W_OK)
    and min(shutil.disk_usage(SHARED_MEMORY).free, psutil.virtual_memory().available) > 8 * 2**30
):
    # The tests' folders lie in memory: runs wait tens of thousands of times until a disk has written what they gave it.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", SHARED_MEMORY)

os.environ.pop("COLUMNS", None)  # the tests' tables must not depend on the width of the terminal

settings.register_profile("no deadline", deadline=None)  # a slow machine must not make a test fail
settings.load_profile("no deadline")

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # in a background job of a shell; the processes that tests start inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Spare the garbage collector the modules and the thousands of collected tests, which stay until the end.

    Otherwise, each of its full passes reads them all again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 20)
