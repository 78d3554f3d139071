"""A run for reports, which read its tables many times."""

import sys
from functools import cached_property

from fedcohort.record import Portrait, Run
from fedcohort.study.compare_existing_runs import FirstRounds

__all__ = ["CachedRun"]


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
