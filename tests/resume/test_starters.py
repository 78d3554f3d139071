"""Several processes start one run; a directory is only changed by the process that plays it."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import fedcohort
from fedcohort.core.errors import UsageError
from fedcohort.record import Run, locked
from fedcohort.runs import play_run
from fedcohort.runs.begin_run import begin_run
from tests.experiments import UCB, small
from tests.golden.test_same_bits import record
from tests.resume.test_resume import contents_of, interrupted_run


def with_workers(workers: int, **values: Any) -> fedcohort.Experiment:
    return small(**values).with_overrides({"engine": {"workers": workers}})


def snapshot(path: Path) -> dict[str, tuple[bytes, int]]:
    """Bytes and times of everything in a directory, and of the directory itself."""
    places = [path, *sorted(path.rglob("*"))]
    return {str(p): (p.read_bytes() if p.is_file() else b"", p.stat().st_mtime_ns) for p in places}


def start(words: Sequence[str], runs: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "fedcohort", *words, "-q", "--runs", str(runs)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def assert_played_or_said_so(process: "subprocess.Popen[str]") -> bool:
    """Whether the process has ended well; otherwise it says in one line that another process is writing."""
    _, err = process.communicate(timeout=300)
    if process.returncode:
        assert process.returncode == 2, err
        [line] = err.splitlines()
        assert "another process is writing this run; wait for it" in line
    return process.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [3, 10])
def test_starters_with_other_workers_leave_a_whole_run(number: int, tmp_path: Path) -> None:
    words = ["run", "--set", "rounds=30", "--set", "seeds=1", "--set", "selection.name=ucb"]
    starters = [start([*words, "--set", f"engine.workers={i + 1}"], tmp_path / "runs") for i in range(number)]
    played = [assert_played_or_said_so(starter) for starter in starters]
    assert any(played)
    [path] = (tmp_path / "runs").iterdir()
    run = fedcohort.open_run(path)
    assert run.finished
    assert 1 <= run.experiment.engine.workers <= number
    experiment = fedcohort.Experiment(rounds=30, seeds=1, selection="ucb")
    assert fedcohort.run(experiment, runs=tmp_path / "runs").path == path
    assert record(run) == record(fedcohort.run(experiment, runs=tmp_path / "alone"))


@pytest.mark.slow
def test_a_run_beside_a_comparison_in_two_processes(tmp_path: Path) -> None:
    settings = ["--set", "rounds=30", "--set", "seeds=2"]
    both = [
        start(["compare", "experiments/quickstart.toml", *settings, "--jobs", "2"], tmp_path),
        start(["run", "experiments/quickstart.toml", *settings], tmp_path),
    ]
    played = [assert_played_or_said_so(process) for process in both]
    assert any(played)
    assert assert_played_or_said_so(
        start(["compare", "experiments/quickstart.toml", *settings, "--jobs", "2"], tmp_path)
    )
    assert len(list(tmp_path.iterdir())) == 6
    assert all(fedcohort.open_run(path).finished for path in tmp_path.iterdir())


def test_only_the_holder_of_the_lock_writes_the_description(tmp_path: Path) -> None:
    path = interrupted_run(tmp_path)
    shutil.rmtree(path)
    with locked(path), pytest.raises(UsageError, match="another process is writing this run"):
        fedcohort.run(with_workers(2), runs=tmp_path)
    assert [file.name for file in path.iterdir()] == ["run.lock"]
    assert fedcohort.run(with_workers(3), runs=tmp_path).experiment.engine.workers == 3


def test_settings_outside_the_hash_are_not_compared(tmp_path: Path) -> None:
    path = interrupted_run(tmp_path)
    description = (path / "experiment.toml").read_bytes()
    values: dict[str, Any] = {
        "name": "other",
        "measures": {"patience": 7, "checkpoint_every": 2, "durable_seconds": 1.0},
    }
    run = fedcohort.run(with_workers(2, **values), runs=tmp_path)
    assert run.path == path
    assert run.finished
    assert (path / "experiment.toml").read_bytes() == description


def test_a_run_that_another_process_finishes_during_the_preparation_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = record(fedcohort.run(small(), runs=tmp_path / "alone"))
    played: list[int] = []
    begin = begin_run

    def finished_meanwhile(path: Path, *args: Any) -> Run:
        shutil.copytree(tmp_path / "alone" / path.name, path, dirs_exist_ok=True)
        return begin(path, *args)

    monkeypatch.setattr(play_run, "begin_run", finished_meanwhile)
    run = fedcohort.run(small(), runs=tmp_path / "runs", progress=lambda cell, row: played.append(row.round))
    assert not played
    assert record(run) == expected


def killed_run(tmp_path: Path) -> Path:
    """A run whose process was killed, so that the log of its database is left."""
    words = ["run", "--set", "rounds=6", "--set", "seeds=1", "--set", "name=small"]
    stop = (
        "import os, signal\nfrom fedcohort.record import Writer\nwrite = Writer.record\n"
        "def record(self, rows, saved=None):\n    write(self, rows, saved)\n"
        "    rows[-1].round == 3 and os.kill(os.getpid(), signal.SIGKILL)\n"
        "Writer.record = record\nfrom fedcohort.cli import main\nmain()"
    )
    command = [
        sys.executable,
        "-c",
        stop,
        *words,
        "--set",
        "measures.durable_seconds=1000",
        "--set",
        "measures.checkpoint_seconds=0",
        "-q",
        "--runs",
        str(tmp_path),
    ]
    assert subprocess.run(command, check=False, capture_output=True).returncode == -signal.SIGKILL
    [path] = tmp_path.iterdir()
    assert (path / "run.sqlite-wal").stat().st_size > 0
    return path


def break_checkpoints(path: Path) -> None:
    for file in (path / "checkpoint").glob("round-*"):
        file.write_bytes(b"broken")


def break_description(path: Path) -> None:
    (path / "experiment.toml").write_text("broken")


def break_row(path: Path) -> None:
    data = (path / "run.sqlite").read_bytes()
    assert data.count(b"uniform") > 0
    (path / "run.sqlite").write_bytes(data.replace(b"uniform", b"Uniform"))


def break_database(path: Path) -> None:
    (path / "run.sqlite").write_bytes(b"broken" * 1000)


def break_data(path: Path) -> None:
    """Nothing in the directory: the data are others now."""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_a_refused_resume_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither bytes nor times, with and without the log that a killed process leaves."""
    whole = killed_run(tmp_path / "killed")
    damages = [break_checkpoints, break_description, break_row, break_database, break_data]
    for damage in damages:
        for index in (True, False):
            runs = tmp_path / f"{damage.__name__}-{index}"
            path = runs / whole.name
            shutil.copytree(whole, path)
            if not index:
                (path / "run.sqlite-shm").unlink()
            damage(path)
            before = snapshot(path)
            if damage is break_data:
                monkeypatch.setattr(play_run, "check_same_data", refuse)
            with pytest.raises(UsageError):
                fedcohort.run(small(), runs=runs)
            monkeypatch.undo()
            assert snapshot(path) == before, damage.__name__
    undisturbed = record(fedcohort.run(small(), runs=tmp_path / "alone"))
    assert record(fedcohort.run(small(), runs=tmp_path / "killed")) == undisturbed


def refuse(*_: Any) -> None:
    raise UsageError("the data have changed")


def test_damage_seen_while_another_process_writes_is_not_reported_as_damage(tmp_path: Path) -> None:
    """A copy of a database that is being written may be torn."""
    path = interrupted_run(tmp_path)
    break_database(path)
    before = contents_of(path)
    with locked(path), pytest.raises(UsageError, match="another process is writing this run"):
        fedcohort.run(small(), runs=tmp_path)
    with pytest.raises(UsageError, match="damaged"):
        fedcohort.run(small(), runs=tmp_path)
    assert contents_of(path) == before


@pytest.mark.parametrize("left", ["model.safetensors", "checkpoint/round-000002.safetensors"])
def test_a_missing_database_beside_a_model_or_a_checkpoint_is_damage(left: str, tmp_path: Path) -> None:
    path = interrupted_run(tmp_path)
    (path / "run.sqlite").unlink()
    if left == "model.safetensors":
        (path / "checkpoint" / "round-000002.safetensors").rename(path / left)
    before = contents_of(path)
    for use in (lambda: fedcohort.run(small(), runs=tmp_path), lambda: fedcohort.open_run(path)):
        with pytest.raises(
            UsageError, match=rf"run\.sqlite: is missing, but {left} of the same run is there; nothing was"
        ):
            use()
    assert contents_of(path) == before


def test_a_creation_that_was_interrupted_is_begun_again(tmp_path: Path) -> None:
    """A directory with a description but without a database, model or checkpoint is a new run; leftovers of databases are deleted."""
    path = interrupted_run(tmp_path)
    (path / "run.sqlite").rename(path / ".run.sqlite")
    for file in (path / "checkpoint").iterdir():
        file.unlink()
    (path / ".run-12345.sqlite").write_bytes(b"of a dead process")
    (path / ".run-12345.sqlite-journal").write_bytes(b"of a dead process")
    run = fedcohort.run(small(), runs=tmp_path)
    assert record(run) == record(fedcohort.run(small(), runs=tmp_path / "alone"))
    assert not list(path.glob(".*"))


def test_leftovers_of_killed_processes_are_deleted_when_a_run_is_resumed(tmp_path: Path) -> None:
    path = interrupted_run(tmp_path)
    left_over = [path / ".run-1.sqlite", path / ".model.safetensors", path / "checkpoint" / ".round-000003.safetensors"]
    for file in left_over:
        file.write_bytes(b"incomplete")
    fedcohort.run(small(), runs=tmp_path)
    assert not any(file.exists() for file in left_over)


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_a_damaged_twin_does_not_block_a_good_run(
    first: bool, finished: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = fedcohort.run(small(selection=UCB), runs=tmp_path).path if finished else interrupted_run(tmp_path)
    experiment = small(selection=UCB) if finished else small()
    twin = tmp_path / f"{'a' if first else 'z'}-{good.name}"
    shutil.copytree(good, twin)
    (twin / "run.sqlite").write_bytes(b"broken" * 100)
    before = contents_of(twin)
    run = fedcohort.run(experiment, runs=tmp_path)
    assert run.path == good
    assert run.finished
    assert contents_of(twin) == before
    assert f"{good} is the same run, and is used instead" in caplog.text
    (good / "run.sqlite").write_bytes(b"broken" * 100)
    with pytest.raises(UsageError, match="damaged"):
        fedcohort.run(experiment, runs=tmp_path)


def test_a_damaged_last_checkpoint_of_a_killed_run_costs_only_its_rounds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = killed_run(tmp_path / "killed")
    assert {file.name[6:12] for file in (path / "checkpoint").iterdir()} == {"000001", "000003"}
    (path / "checkpoint" / "round-000003.safetensors").write_bytes(b"")
    run = fedcohort.run(small(), runs=tmp_path / "killed")
    assert caplog.text.count("the run resumes after round 1") == 1, "only the process that holds the lock says so"
    assert record(run) == record(fedcohort.run(small(), runs=tmp_path / "alone"))
