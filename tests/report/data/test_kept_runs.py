"""The live page computes everything about finished runs once, and draws them as a new server does."""

import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fedcohort.record import Run
from fedcohort.report.data.client_rounds import ClientRounds
from fedcohort.report.data.report_data import find_runs
from fedcohort.report.live.live_server import Live
from fedcohort.study.run_measures import Measured
from tests.report.test_browser import cut


def test_what_is_computed_from_finished_runs_is_kept(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 200 runs, each round of the last one took 3.5 seconds of processor time, of which 2 were for the other 199."""
    for run in find_runs([runs]):
        shutil.copytree(run.path, tmp_path / run.path.name)
    going = find_runs([tmp_path])[0].path
    measured: Counter[str] = Counter()
    of, counts = Measured.__init__, ClientRounds.of

    def noted(self: Measured, run: Run) -> None:
        measured[run.path.name] += 1
        of(self, run)

    def noted_counts(*given: Any) -> ClientRounds:
        measured["counts"] += 1
        return counts(*given)

    monkeypatch.setattr(Measured, "__init__", noted)
    monkeypatch.setattr(ClientRounds, "of", noted_counts)
    live = Live(tmp_path)
    cut(going, 3)
    live.page(None)
    once = measured.copy()
    assert all(once[run.path.name] == 1 for run in find_runs([tmp_path]) if run.path != going)
    cut(going, 2)
    again = live.page(None)
    more = measured - once
    assert set(more) == {going.name, "counts"}
    assert more["counts"] == 2, "selected and admitted clients of the run that goes on"
    assert without_time(again) == without_time(Live(tmp_path).page(None))


def without_time(text: str) -> str:
    """A page without the time at which it was made."""
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "", text)
