"""The finished runs of a live page, of which everything is read and computed once."""

from pathlib import Path

from fedcohort.record import Run
from fedcohort.record.verification import signature
from fedcohort.report.cached_run import CachedRun
from fedcohort.report.reading import Reading
from fedcohort.study.run_measures import KeepsMeasures

__all__ = ["FinishedRuns", "reading_of"]


class _KeptRun(KeepsMeasures, CachedRun):
    """A finished run with its tables, its measures and what charts compute from them.

    Attributes:
        reading: the run as the charts of the last page needed it; None before the first page.
    """

    reading: Reading | None = None


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
        if not run.finished:
            return CachedRun(run)
        kept = _KeptRun(run)
        self._known[run.path] = (facts, kept)
        return kept


def reading_of(run: Run, label: str) -> Reading:
    """A run under a label; what was computed for the page before is kept if the run is."""
    if not isinstance(run, _KeptRun):
        return Reading(run, label)
    before = run.reading
    if before is None or before.label != label:
        run.reading = Reading(run, label) if before is None else before.called(label)
    assert run.reading is not None
    return run.reading
