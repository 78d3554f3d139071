"""Freed memory stays in the process, as long as the C library has such a setting and the user has not chosen another."""

import subprocess
import sys

import pytest

from fedcohort.core import freed_memory
from fedcohort.core.freed_memory import keep_freed_memory

STEPS = """
import resource, sys, threading
from fedcohort.core.freed_memory import keep_freed_memory

kept = sys.argv[1] == "kept" and keep_freed_memory()

import torch

def steps(count):
    for _ in range(count):
        pieces = [torch.ones(2**20 + 999 * i) for i in range(40)]
        del pieces

def faults():
    steps(3)
    counts = [resource.getrusage(resource.RUSAGE_SELF).ru_minflt]
    for _ in range(3 if kept else 1):
        steps(4)
        counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
    found.append(min(after - before for before, after in zip(counts, counts[1:])))

found = []
torch.set_num_threads(1)
faults()
thread = threading.Thread(target=faults)
thread.start()
thread.join()
print(kept, *found)
"""


def glibc() -> bool:
    return freed_memory._glibc() is not None


@pytest.mark.skipif(not glibc(), reason="the C library is not glibc")
@pytest.mark.slow
def test_pages_are_used_again_in_every_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """160 tensors of 4 MiB, of which 40 exist at a time, in the main thread and in another one.

    The fewest page faults of three trials with kept pages count, since a busy system takes pages away from idle processes.
    """
    for name in ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)

    def faults(way: str) -> tuple[str, list[int]]:
        ran = subprocess.run([sys.executable, "-c", STEPS, way], capture_output=True, text=True, check=True)
        kept, *numbers = ran.stdout.split()
        return kept, [int(number) for number in numbers]

    kept, few = faults("kept")
    assert kept == "True"
    _, many = faults("not kept")
    assert all(others > 10 * own for own, others in zip(few, many, strict=True)), f"{few} {many}"


def test_settings_of_the_user_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "100000")
    assert not keep_freed_memory.__wrapped__()


def test_another_c_library_has_no_such_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freed_memory, "_glibc", lambda: None)
    monkeypatch.setattr("fedcohort.core.freed_memory.os.environ", {})
    assert not keep_freed_memory.__wrapped__()
