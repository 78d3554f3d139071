"""The signals that ask a process to end: Ctrl-C (SIGINT), SIGTERM, and SIGHUP, which a closed terminal sends."""

import signal
import sys
import threading
from _thread import interrupt_main
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

__all__ = ["SIGNALS", "Signalled", "handle", "handled", "number_of", "raise_again", "raise_signalled"]

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


_MOMENT = 0.01
"""Seconds after which :func:`raise_again` sends a signal again."""


def raise_again(ignored: "UnraisableHookArgs") -> None:
    """A hook of the errors that Python ignores, as in destructors and at the end of every import: a signal that was raised there is
    sent again. Otherwise, it would be lost, and the command would go on."""
    if isinstance(ignored.exc_value, Signalled):
        again = threading.Timer(_MOMENT, _send_to_main, [ignored.exc_value.signum])
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(ignored)


def _send_to_main(signum: int) -> None:
    """Send a signal to the main thread. On Windows, which cannot, its handler is called when Python next looks for signals; a thread
    that waits for a lock would not look."""
    main = threading.main_thread().ident
    if main is not None and hasattr(signal, "pthread_kill"):
        signal.pthread_kill(main, signum)
    else:
        interrupt_main(signal.Signals(signum))


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
