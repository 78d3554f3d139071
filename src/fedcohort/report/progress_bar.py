"""A progress bar for Python and notebooks, made by tqdm: how many runs are finished, and the round of the one that is played."""

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fedcohort.core.errors import UsageError, shown
from fedcohort.experiment import Cell
from fedcohort.record import RoundRow
from fedcohort.study.run_comparison import Watch

if TYPE_CHECKING:
    from fedcohort.runs.play_run import Progress

__all__ = ["ProgressBar", "in_notebook", "shown_progress"]

log = logging.getLogger("fedcohort")
"""Its messages are written above the bar."""


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


class ProgressBar(Watch):
    """A bar over runs; the run that is played counts with the share of its rounds that are done."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # without ipywidgets, the bar is text
            from tqdm.auto import tqdm
        self._make = tqdm
        self._bar: Any = None
        self._done: set[tuple[str, int]] = set()

    def begin(self, runs: int) -> None:
        """Show an empty bar for so many runs."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._bar = self._make(
                total=runs,
                unit="run",
                leave=False,
                bar_format="{desc} {percentage:3.0f}% |{bar}| {elapsed}<{remaining}",
            )
        log.addFilter(self._make_room)

    def _make_room(self, _: logging.LogRecord) -> bool:
        """Clear the line of the bar before a message is written, which would otherwise go on in this line."""
        self._bar.clear()
        return True

    def __call__(self, cell: Cell, row: RoundRow) -> None:
        """Show a round that was played."""
        rounds = cell.experiment.rounds
        self._move(row.round / rounds, f"{cell.label}, seed {cell.seed}: round {row.round:,} of {rounds:,}")

    def finished(self, cell: Cell) -> None:
        """Show a run that is finished."""
        self._done.add((cell.label, cell.seed))
        self._move(0.0, f"{len(self._done)} of {self._bar.total} runs")

    def _move(self, part: float, words: str) -> None:
        """Move the bar to the finished runs and a part of another one."""
        self._bar.n = min(len(self._done) + part, self._bar.total)
        self._bar.set_description_str(words, refresh=False)
        self._bar.refresh()

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            log.removeFilter(self._make_room)
            self._bar.close()


@contextmanager
def shown_progress(progress: "Progress | bool | None") -> "Iterator[tuple[Progress | None, Watch]]":
    """What shows the progress of runs during the block: what is called after every round, and what hears of finished runs.

    Args:
        progress: a function to call after every round; True for a bar, False for nothing, and None for a bar in notebooks only.

    Raises:
        UsageError: ``progress`` is something else.
    """
    if callable(progress):
        yield progress, Watch()
        return
    if progress is not None and not isinstance(progress, bool):
        raise UsageError(f"progress = {shown(progress)}: give a function of a cell and a row, True for a bar, or False")
    if not (in_notebook() if progress is None else progress):
        yield None, Watch()
        return
    bar = ProgressBar()
    try:
        yield bar, bar
    finally:
        bar.close()
