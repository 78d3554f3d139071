"""Peak memory of this process or of its GPU."""

import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType

__all__ = ["PeakMemory"]


class PeakMemory:
    """Measure the peak memory of one client's training after another: allocated by torch on a GPU, else resident in this process.

    On Linux the peak of a process can be reset, so that each client has its own peak. On other systems a client's peak is the highest
    so far.

    Args:
        device: the device of the tensors, such as ``cpu`` or ``cuda:1``.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.where = "device" if device.startswith("cuda") else "resident"

    def now(self) -> float:
        """Bytes in use."""
        if self.where == "device":
            return float(_cuda().memory_allocated(self.device))
        return self.peak()

    def reset(self) -> None:
        """Reset the peak."""
        if self.where == "device":
            _cuda().reset_peak_memory_stats(self.device)
        else:
            with suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5", encoding="ascii")

    def peak(self) -> float:
        """The most bytes in use since the last reset."""
        if self.where == "device":
            return float(_cuda().max_memory_allocated(self.device))
        with suppress(OSError):
            for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
                if line.startswith("VmHWM:"):
                    return 1024.0 * float(line.split()[1])
        return _peak_by_the_system()

    def wait(self) -> None:
        """Wait until the device has finished all its work."""
        if self.where == "device":
            _cuda().synchronize(self.device)


def _peak_by_the_system() -> float:
    """The most bytes that were resident since this process began, by the call of the system."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        import psutil

        memory = psutil.Process().memory_info()
        return float(getattr(memory, "peak_wset", memory.rss))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak if sys.platform == "darwin" else 1024 * peak)


def _cuda() -> ModuleType:
    import torch

    return torch.cuda
