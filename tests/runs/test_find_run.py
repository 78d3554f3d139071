"""Finding the directory of a run: what makes another run, and what is refused."""

import os
import sys
from pathlib import Path

import pytest

import fedcohort
from fedcohort.core.errors import UsageError
from tests.experiments import small
from tests.resume.test_resume import rename_data

STRATEGY = """
from fedcohort.selection import Cohort, Selector, parameters

@parameters
class Mine(Selector):
    '''A slice of the available clients.'''
    def select(self, round):
        return Cohort(round.available[{start} : {start} + round.k])
"""


def test_an_edited_strategy_file_is_another_run(tmp_path: Path) -> None:
    """In one process too: the file is read again when it has changed."""
    file = tmp_path / "mine.py"
    picks = []
    for start in (0, 4):
        file.write_text(STRATEGY.format(start=start))
        run = fedcohort.run(small(rounds=1, selection=f"{file}:Mine"), runs=tmp_path / "runs")
        picks.append(run.clients["client"].tolist())
    assert picks == [[0, 1, 2], [4, 5, 6]]


def test_an_edited_strategy_file_of_the_same_size_and_time_is_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python takes bytecode that it cached for that of a file with the same size that was changed in the same second."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "mine.py"
    picks = []
    for start in (0, 4):
        file.write_text(STRATEGY.format(start=start))
        os.utime(file, (1_000_000_000, 1_000_000_000))
        run = fedcohort.run(small(rounds=1, selection=f"{file}:Mine"), runs=tmp_path / "runs")
        picks.append(run.clients["client"].tolist())
    assert picks == [[0, 1, 2], [4, 5, 6]]


def test_a_strategy_file_is_found_from_where_the_experiment_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "mine.py").write_text(STRATEGY.format(start=2))
    (tmp_path / "here" / "e.toml").write_text('rounds = 1\nselection = "mine.py:Mine"\n')
    monkeypatch.chdir(tmp_path)
    run = fedcohort.run(fedcohort.load_experiment("here/e.toml"), runs=tmp_path / "runs")
    monkeypatch.chdir("/")
    copy = fedcohort.load_experiment(run.path / "experiment.toml", trust=True).selection.name
    assert copy.startswith(str(run.path / "plug-ins" / "mine-"))  # a copy travels with the run
    assert fedcohort.open_run(run.path).described.selection.name == f"plug-ins/{Path(copy).name}"


def test_a_finished_run_is_not_opened_for_other_data(tmp_path: Path) -> None:
    import sqlite3

    run = fedcohort.run(small(rounds=1), runs=tmp_path)
    with sqlite3.connect(run.path / "run.sqlite") as db:
        rename_data(db)
    with pytest.raises(UsageError, match="began on data with fingerprint"):
        fedcohort.run(small(rounds=1), runs=tmp_path)
