"""Run a command that must not outlive another process: ``python -m fedcohort.flower.sites.kept_process COMMAND …``.

The other process holds the writing end of this one's input. When it ends, in whatever way, the input ends as well, and this process
ends the command with all processes of its group. SIGTERM reaches the command as a member of the group; this process then waits for it.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

__all__ = ["main"]

GRACE_SECONDS = 5.0


def main(command: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    threading.Thread(target=_end_with_input, args=(process,), daemon=True).start()
    return process.wait()


def _end_with_input(process: "subprocess.Popen[bytes]") -> None:
    """Wait for the end of this process's input; then end the command, and the group if this process leads it."""
    os.read(0, 1)
    with suppress(ProcessLookupError):
        process.terminate()
    deadline = time.monotonic() + GRACE_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
