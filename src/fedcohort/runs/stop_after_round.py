"""Let signals end a run after the round that is being played."""

import multiprocessing
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from fedcohort.core.signals import handled

__all__ = ["Interrupted", "Stop", "finish_the_round"]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, SIGTERM or SIGHUP: the round was finished and recorded. The message says how to resume.

    Like every :class:`KeyboardInterrupt`, it ends a loop over runs whose body has ``except Exception``.

    Attributes:
        signum: number of the signal.
    """

    def __init__(self, message: str = "stopped", signum: int = signal.SIGINT) -> None:
        super().__init__(message, signum)  # both, so that it can be sent to another process
        self.signum = int(signum)

    def __str__(self) -> str:
        return str(self.args[0])


class Stop:
    """Whether a signal asked the run to end.

    It has no lock, as a :class:`threading.Event` has: a second signal can come while the first one is handled, and would wait for it.

    Attributes:
        asked: whether one did.
        signum: number of that signal.
    """

    def __init__(self) -> None:
        self.asked = False
        self.signum: int = signal.SIGINT


@contextmanager
def finish_the_round() -> Iterator[Stop]:
    """Let Ctrl-C, SIGTERM and SIGHUP set ``asked`` instead of interrupting the round; a second signal interrupts it.

    In a process that another process started for a part of its work, later signals are ignored, because a terminal sends a signal to
    both, and the other process sends it again.
    """
    stop = Stop()

    def ask_to_stop(signum: int, _: object) -> None:
        if not stop.asked:
            stop.asked, stop.signum = True, signum
        if multiprocessing.parent_process() is None:
            restore()

    with handled(ask_to_stop) as restore:
        yield stop
