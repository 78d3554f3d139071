"""The processor of this machine, and the number of its cores that this process may use."""

import os
import platform
from contextlib import suppress
from pathlib import Path

__all__ = ["cores", "processor"]

FACTS = {"cpu family": "family", "model": "model"}
"""Numbers in ``/proc/cpuinfo`` that tell processors of the same name apart."""


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
    """The processor's name, with family and model on Linux, because virtual machines give several processors the same name; or its
    architecture if the system does not say more."""
    with suppress(OSError):
        facts: dict[str, str] = {}
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            facts.setdefault(key.strip(), value.strip())  # of the first core
        if "model name" in facts:
            numbers = [f"{name} {facts[key]}" for key, name in FACTS.items() if key in facts]
            return facts["model name"] + (f" ({', '.join(numbers)})" if numbers else "")
        if "CPU part" in facts:
            return facts["CPU part"]
    return platform.processor() or platform.machine()
