"""The signals that ask a process to end: Ctrl-C (SIGINT), SIGTERM, and SIGHUP, which a closed terminal sends."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["SIGNALS", "Signalled", "handle", "handled", "number_of", "raise_signalled"]

Handler = Callable[[int, FrameType | None], Any]

SIGNALS: tuple[int, ...] = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""The signals of this system; Windows has no SIGHUP."""


class Signalled(KeyboardInterrupt):
    """A signal asked the process to end.

    Attributes:
        signum: number of the signal.
    """

    def __init__(self, signum: int = signal.SIGINT) -> None:
        super().__init__(signum)
        self.signum = int(signum)


def raise_signalled(signum: int, _: FrameType | None = None) -> None:
    """A handler of signals.

    Raises:
        Signalled: always.
    """
    _raised[:] = [signum]
    raise Signalled(signum)


_raised: list[int] = []
"""The last signal that :func:`raise_signalled` handled."""


def number_of(interrupt: KeyboardInterrupt) -> int:
    """Number of the signal that caused ``interrupt``. Compiled code, such as Ray's, may have raised one of its own in place of
    :class:`Signalled`."""
    last = _raised[0] if _raised else signal.SIGINT
    return int(getattr(interrupt, "signum", last))


def handle(handler: Handler) -> dict[int, Any]:
    """Handle the signals that end a process with ``handler``; returns the handlers before.

    A signal that the process ignores stays ignored, as SIGHUP under ``nohup``. Other threads than the main thread cannot handle
    signals: there, nothing changes.
    """
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for signum in SIGNALS:
            previous = signal.getsignal(signum)
            if previous not in (signal.SIG_IGN, None):
                before[signum] = previous
                signal.signal(signum, handler)
    return before


@contextmanager
def handled(handler: Handler) -> Iterator[Callable[[], None]]:
    """:func:`handle` the signals during a block; yields a function that restores the handlers before."""
    before = handle(handler)

    def restore() -> None:
        for signum, previous in before.items():
            signal.signal(signum, previous)

    try:
        yield restore
    finally:
        restore()
