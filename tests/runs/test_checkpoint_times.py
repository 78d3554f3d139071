"""When rounds and checkpoints are written: short rounds together, and nothing changes by it."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

import fedcohort
from fedcohort.experiment.sections import Measures
from fedcohort.record import RoundRow, Saved, Writer
from fedcohort.runs.checkpoint_times import CHECKPOINT_SHARE, CheckpointTimes
from fedcohort.runs.play_run import Interrupted
from tests.experiments import UCB, small
from tests.golden.test_same_bits import record

TOGETHER = {"checkpoint_seconds": 1000.0}
"""All rounds after the first are written together."""


class Written:
    """The rounds of each transaction, and the round of its checkpoint."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.transactions: list[tuple[list[int], bool]] = []
        write = Writer.record

        def noted(writer: Writer, rows: list[RoundRow], saved: Saved | None = None) -> None:
            write(writer, rows, saved)
            self.transactions.append(([row.round for row in rows], saved is not None))

        monkeypatch.setattr(Writer, "record", noted)


def test_short_rounds_are_written_together(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    expected = fedcohort.run(small(selection=UCB), runs=tmp_path / "each")
    written = Written(monkeypatch)
    run = fedcohort.run(small(selection=UCB, measures=TOGETHER), runs=tmp_path / "together")
    assert written.transactions == [([1], True), ([2, 3, 4, 5, 6], True)]
    assert record(run) == record(expected)
    assert [file.name for file in (run.path / "checkpoint").iterdir()] == ["round-000006.safetensors"]


@pytest.mark.parametrize(
    ("measures", "rounds"), [({"checkpoint_every": 2, **TOGETHER}, [2, 4, 6]), ({}, [1, 2, 3, 4, 5, 6])]
)
def test_with_a_number_of_rounds_each_round_is_written(
    measures: dict[str, Any], rounds: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    written = Written(monkeypatch)
    fedcohort.run(small(measures=measures), runs=tmp_path)
    assert [rows for rows, _ in written.transactions] == [[1], [2], [3], [4], [5], [6]]
    assert [rows[-1] for rows, saved in written.transactions if saved] == rounds


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold"])
def test_a_killed_process_loses_only_rounds_that_are_played_again(algorithm: str, tmp_path: Path) -> None:
    """What a kill leaves is a copy of the directory at that moment; an error in the callback ends the run in order."""
    experiment = small(selection=UCB, algorithm=algorithm, training={"momentum": 0.0}, measures=TOGETHER)
    expected = record(fedcohort.run(experiment, runs=tmp_path / "whole"))

    def progress(cell: Any, row: RoundRow) -> None:
        if row.round == 4:
            shutil.copytree(tmp_path / "stopped", tmp_path / "killed")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(experiment, runs=tmp_path / "stopped", progress=progress)
    for place, rounds in (("killed", 1), ("stopped", 4)):
        [path] = (tmp_path / place).iterdir()
        run = fedcohort.open_run(path)
        assert run.last_round == rounds
        saved = run.checkpoint()
        assert saved is not None
        assert saved[0] == 1
        assert record(fedcohort.run(experiment, runs=tmp_path / place)) == expected


def test_a_signal_writes_all_finished_rounds_with_a_checkpoint(tmp_path: Path) -> None:
    def progress(cell: Any, row: RoundRow) -> None:
        if row.round == 3:
            os.kill(os.getpid(), signal.SIGINT)

    experiment = small(measures=TOGETHER)
    with pytest.raises(Interrupted, match="stopped after round 4 of 6"):
        fedcohort.run(experiment, runs=tmp_path, progress=progress)
    [path] = tmp_path.iterdir()
    saved = fedcohort.open_run(path).checkpoint()
    assert saved is not None
    assert saved[0] == fedcohort.open_run(path).last_round == 4


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_time_between_checkpoints() -> None:
    clock = Clock()
    times = CheckpointTimes(Measures(checkpoint_seconds=2.0), clock=clock)
    assert times.checkpoint_due(1)
    assert times.record_due()
    times.checkpoint_took(0.5)
    times.recorded()
    clock.now += 2.0
    assert times.record_due()
    assert not times.checkpoint_due(2)  # checkpoints would take more than their share
    clock.now += 0.5 / CHECKPOINT_SHARE - 2.0
    assert times.checkpoint_due(3)
    times.checkpoint_took(0.001)
    clock.now += 1.9
    assert not times.checkpoint_due(4)


@pytest.mark.parametrize("every", [0, 3])
def test_runs_on_other_machines_write_every_round(every: int) -> None:
    times = CheckpointTimes(Measures(checkpoint_every=every), every_round=True, clock=Clock())
    times.checkpoint_took(1.0)
    times.recorded()
    assert times.record_due()
    assert [t for t in range(1, 7) if times.checkpoint_due(t)] == ([3, 6] if every else [1, 2, 3, 4, 5, 6])
