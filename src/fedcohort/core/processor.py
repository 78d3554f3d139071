"""The processor of this machine, and the number of its cores that this process may use."""

import os
import platform
from contextlib import suppress
from pathlib import Path

__all__ = ["cores", "processor"]


def cores() -> int:
    """Number of cores that this process may use, at least 1.

    It is the number of cores that the system lets this process run on, where the system says so: ``taskset`` and batch systems may
    permit fewer than the machine has. Python 3.13 and later also read ``PYTHON_CPU_COUNT``. macOS and Windows with an older Python
    only know the number of all cores.
    """
    for count in (_process_cpu_count, _cores_of_affinity, os.cpu_count):
        if found := count():
            return found
    return 1


def _process_cpu_count() -> int | None:
    """The number that Python 3.13 and later know; None with an older Python."""
    return os.process_cpu_count() if hasattr(os, "process_cpu_count") else None


def _cores_of_affinity() -> int | None:
    """Number of cores in the set that the process may run on; None on systems without such sets."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def processor() -> str:
    """The processor's name, or its architecture if the system does not say more."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith(("model name", "CPU part")):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
