"""A run for reports, which read its tables many times."""

import sys
from functools import cached_property
from pathlib import Path

from fedcohort.record import Portrait, Run
from fedcohort.record.verification import signature
from fedcohort.study.compare_existing_runs import FirstRounds

__all__ = ["CachedRun", "FinishedRuns"]


class CachedRun(FirstRounds):
    """A run that reads each of its tables from the database once, up to the round that was the last one when it was opened.

    More rounds can be recorded between two reads, so that rounds, bytes and times would count different ones.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run, sys.maxsize)  # this reads the status before the last round, which can only be later

    @property
    def meta(self) -> dict[str, str]:
        """As in :class:`fedcohort.record.Run`."""
        return dict(self._known_meta)

    @cached_property
    def _known_meta(self) -> dict[str, str]:
        return super().meta

    @cached_property
    def portrait(self) -> Portrait:
        """As in :class:`fedcohort.record.Run`."""
        return super().portrait


class FinishedRuns:
    """The finished runs of a live page, which are not read again for every new round of the others."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[object, CachedRun]] = {}

    def kept(self, run: Run) -> CachedRun:
        """The run with its tables: those of the last time, if it is finished and its files are the same."""
        facts = signature(run.path)
        known = self._known.get(run.path)
        if known is not None and known[0] == facts:
            return known[1]
        self._known.pop(run.path, None)
        cached = CachedRun(run)
        if cached.meta.get("status") == "finished":
            self._known[run.path] = (facts, cached)
        return cached
