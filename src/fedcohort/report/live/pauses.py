"""Limit how much of a core the pages of a live server take.

Making the page of many runs, or of runs with many rounds, takes seconds, and the runs need the same cores.
"""

import time
from collections.abc import Callable

__all__ = ["Pauses"]

PAUSE = 4.0
"""Length of the pause after a page, as a multiple of the processor time that it took: pages then take at most a fifth of a core."""

SHORT = 0.5
"""Processor time in seconds of pages without a pause: an open page asks for news every two seconds only."""


class Pauses:
    """Which news open pages are told: none during the pause after a page was made.

    Args:
        clock: the wall clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: dict[
            str, tuple[str, float]
        ] = {}  # by experiment: the version of its last page, and when its pause ends
        self._over = False

    def made(self, name: str, version: str, seconds: float) -> None:
        """Note that a page of an experiment was made, in so many ``seconds`` of processor time."""
        first = not self._last  # it also imported what pages need
        pause = 0.0 if first or seconds < SHORT else PAUSE * seconds
        self._last[name] = version, self._clock() + pause

    def told(self, name: str, version: str) -> str:
        """The version of an experiment's page that open pages are told, if ``version`` is the latest one."""
        last, end = self._last.get(name, (version, 0.0))
        return last if self._clock() < end and not self._over else version

    def end(self) -> None:
        """Tell all news at once from now on."""
        self._over = True
