"""Runs of a live page: of finished ones, everything is read and computed once."""

from fedcohort.record import Run
from fedcohort.report.data.cached_run import CachedRun
from fedcohort.report.data.reading import Reading
from fedcohort.study.run_measures import KeepsMeasures

__all__ = ["reading_of", "with_tables"]


class _KeptRun(KeepsMeasures, CachedRun):
    """A finished run with its tables, its measures and what charts compute from them.

    Attributes:
        reading: the run as the charts of the last page needed it; None before the first page.
    """

    reading: Reading | None = None


def with_tables(run: Run) -> CachedRun:
    """The run with its tables; a finished one also keeps what is computed from them."""
    return _KeptRun(run) if run.finished else CachedRun(run)


def reading_of(run: Run, label: str) -> Reading:
    """A run under a label; what was computed for the page before is kept if the run is."""
    if not isinstance(run, _KeptRun):
        return Reading(run, label)
    before = run.reading
    if before is None or before.label != label:
        run.reading = Reading(run, label) if before is None else before.called(label)
    assert run.reading is not None
    return run.reading
