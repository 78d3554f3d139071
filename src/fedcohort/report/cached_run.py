"""A run for reports, which read its tables many times."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fedcohort.record import Portrait, Run
from fedcohort.record.verification import signature

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CachedRun", "FinishedRuns"]


class CachedRun(Run):
    """A run that reads each of its tables from the database once."""

    def __init__(self, run: Run) -> None:
        super().__init__(run.path)

    def _meta(self) -> dict[str, str]:
        return dict(self._known_meta)

    @cached_property
    def _known_meta(self) -> dict[str, str]:
        return super()._meta()

    @cached_property
    def rounds(self) -> "pd.DataFrame":
        """As in :class:`fedcohort.record.Run`."""
        return super().rounds

    @cached_property
    def clients(self) -> "pd.DataFrame":
        """As in :class:`fedcohort.record.Run`."""
        return super().clients

    @cached_property
    def ledger(self) -> "pd.DataFrame":
        """As in :class:`fedcohort.record.Run`."""
        return super().ledger

    @cached_property
    def portrait(self) -> Portrait:
        """As in :class:`fedcohort.record.Run`."""
        return super().portrait

    @cached_property
    def wall(self) -> "pd.DataFrame":
        """As in :class:`fedcohort.record.Run`."""
        return super().wall


class FinishedRuns:
    """The finished runs of a live page, which are not read again for every new round of the others."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[object, CachedRun]] = {}

    def kept(self, run: Run) -> Run:
        """The run with its tables, if it is finished and its files are those of the last time; otherwise the run as it is."""
        facts = signature(run.path)
        known = self._known.get(run.path)
        if known is not None and known[0] == facts:
            return known[1]
        self._known.pop(run.path, None)
        if run.meta.get("status") != "finished":
            return run
        cached = CachedRun(run)
        self._known[run.path] = (facts, cached)
        return cached
