"""A run for reports, which read its tables many times."""

from functools import cached_property
from typing import TYPE_CHECKING

from fedcohort.record import Run

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CachedRun"]


class CachedRun(Run):
    """A run that reads each of its tables from the database once."""

    def __init__(self, run: Run) -> None:
        super().__init__(run.path)

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
    def wall(self) -> "pd.DataFrame":
        """As in :class:`fedcohort.record.Run`."""
        return super().wall
