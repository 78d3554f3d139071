"""End the processes of a pool: after a signal, and after one of them was killed."""

import os
import signal
import threading
import time
from collections.abc import Collection, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import TYPE_CHECKING

from fedcohort.core.signals import raise_signalled

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

__all__ = ["SignalCount", "end_together", "stop"]

LOOK_SECONDS = 0.05
"""Seconds between two looks at whether a further signal was received."""


class SignalCount:
    """A handler of signals that raises an error, until the processes are being ended; from then on, it only counts.

    An error at that time could come between the end of a process and Python's note of it. Python would then wait for the process for
    ever.

    Attributes:
        held: whether signals are only counted.
        num_signals: number of signals since then.
    """

    def __init__(self) -> None:
        self.held, self.num_signals = False, 0

    def __call__(self, signum: int, _: FrameType | None = None) -> None:
        """Handle a signal.

        Raises:
            Signalled: signals are not only counted yet.
        """
        if not self.held:
            raise_signalled(signum)
        self.num_signals += 1


def stop(
    pool: ProcessPoolExecutor,
    processes: set[BaseProcess],
    signum: int,
    begun: "Synchronized[int]",
    signals: SignalCount,
) -> None:
    """Let the processes of a pool finish their rounds, and wait for their end; another signal ends them at once.

    If none of them has ``begun`` to work, they are ended at once, too: they would go on with their imports before they end.
    """
    pool.shutdown(wait=False, cancel_futures=True)
    with begun.get_lock():  # no process begins meanwhile
        for process in processes if not begun.value else ():
            process.kill()
    for process in processes:
        if process.pid is not None and process.is_alive():
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(process.pid, signum if os.name != "nt" else signal.SIGTERM)
    _wait_for(processes, signals)  # the pool no longer does, after the call above


def _wait_for(processes: Iterable[BaseProcess], signals: SignalCount) -> None:
    """Return when these processes have ended; another signal ends them at once."""
    while running := [process for process in processes if process.is_alive()]:
        for process in running if signals.num_signals else ():
            process.kill()
        wait([process.sentinel for process in running], LOOK_SECONDS)


def end_together(processes: Collection[BaseProcess]) -> None:
    """From now on, kill all these processes if one of them is killed, or was before; called before the end of a pool is waited for.

    The killed one may have held the lock of the pool's queue: the others would wait for the lock for ever.
    """
    threading.Thread(target=_end_with_the_first_killed, args=(processes,), daemon=True).start()


def _end_with_the_first_killed(processes: Collection[BaseProcess]) -> None:
    """Wait until all processes have ended, or one of them was killed; then kill the others."""
    left = set(processes)
    while left:
        sentinels = wait([process.sentinel for process in left])
        ended = {process for process in left if process.sentinel in sentinels}
        left -= ended
        if any(_was_killed(process) for process in ended):
            for process in left:
                process.kill()


def _was_killed(process: BaseProcess) -> bool:
    """Whether a process that has ended was killed by a signal. Another thread may be the one that learns it from the system."""
    while process.exitcode is None:
        time.sleep(LOOK_SECONDS / 10)
    return process.exitcode < 0
