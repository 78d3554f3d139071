"""A killed or interrupted run that is resumed equals an uninterrupted run; damaged files are reported and not overwritten."""

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import fedcohort
from fedcohort.core.errors import UsageError
from fedcohort.core.files.state_files import pack
from fedcohort.record import RoundRow, Run
from fedcohort.runs.play_run import Interrupted
from tests.experiments import UCB, small
from tests.golden.test_same_bits import record
from tests.records import seal_again

SLOW_ROUNDS = 80


def stop_after(rounds: int) -> Any:
    """A progress callback that raises an error after this many rounds, like a crash."""

    def progress(cell: Any, row: RoundRow) -> None:
        if row.round == rounds:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("selection", ["uniform", UCB, "rpowd", "utility_time", "select_by_loss"], ids=str)
@pytest.mark.parametrize("stop", [1, 3])
def test_a_resumed_run_equals_an_uninterrupted_run(selection: Any, stop: int, tmp_path: Path) -> None:
    experiment = small(
        selection=selection, systems={"dropout": 0.2, "availability": {"name": "bernoulli", "probability": 0.7}}
    )
    uninterrupted = fedcohort.run(experiment, runs=tmp_path / "uninterrupted")
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(experiment, runs=tmp_path / "interrupted", progress=stop_after(stop))
    resumed = fedcohort.run(experiment, runs=tmp_path / "interrupted")
    assert resumed.last_round == 6
    assert record(resumed) == record(uninterrupted)


@pytest.mark.parametrize("every", [2, 4])
def test_rounds_after_the_last_checkpoint_are_played_again(every: int, tmp_path: Path) -> None:
    uninterrupted = fedcohort.run(small(selection=UCB), runs=tmp_path / "uninterrupted")
    experiment = small(selection=UCB, measures={"checkpoint_every": every})
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(experiment, runs=tmp_path / "interrupted", progress=stop_after(5))
    assert record(fedcohort.run(experiment, runs=tmp_path / "interrupted")) == record(uninterrupted)


def kill_repeatedly(command: list[str], folder: Path, delays: tuple[float, ...]) -> None:
    """Start the command once per delay, and kill it that many seconds after a new round; at least one process must be alive then."""
    killed = 0
    for delay in delays:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        _wait_for_a_new_round(folder, process)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
    assert killed >= 1


@pytest.mark.slow  # a small part of the campaign kills as well
def test_a_process_killed_several_times_ends_with_the_same_bits(tmp_path: Path) -> None:
    """A real process receives SIGKILL at three arbitrary times; the final process finishes the run."""
    command = [
        sys.executable, "-m", "fedcohort", "run", "--quiet", "--runs", str(tmp_path / "killed"),
        "--set", f"rounds={SLOW_ROUNDS}", "--set", "seeds=1", "--set", "selection.name=ucb", "--set", "model.name=cnn_a",
    ]  # fmt: skip
    kill_repeatedly(command, tmp_path / "killed", (0.05, 0.3, 0.6))
    [run] = [Run(path) for path in (tmp_path / "killed").iterdir()]
    subprocess.run(command, check=True, timeout=120)
    uninterrupted = fedcohort.run(
        fedcohort.Experiment(rounds=SLOW_ROUNDS, seeds=1, selection="ucb", model="cnn_a"),
        runs=tmp_path / "uninterrupted",
    )
    assert record(Run(run.path)) == record(uninterrupted)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [2**30, 0], ids=["in memory", "in a file"])
def test_a_killed_scaffold_run_resumes_with_the_clients_control_variates(limit: int, tmp_path: Path) -> None:
    """The control variates are resumed, whether they were in memory or in a file when the process was killed."""
    settings = [
        "rounds=40", "seeds=1", "algorithm.name=scaffold", "training.momentum=0.0", "systems.dropout=0.2",
        "model.name=cnn_a",
    ]  # fmt: skip
    start = (
        "from fedcohort.training.client_memories import Memories\n"
        f"Memories.__init__.__defaults__ = ({limit}, None)\n"
        "from fedcohort.cli import main\nmain()"
    )
    command = [sys.executable, "-c", start, "run", "--quiet", "--runs", str(tmp_path / "killed")]
    command += [part for setting in settings for part in ("--set", setting)]
    kill_repeatedly(command, tmp_path / "killed", (0.1, 0.5, 0.3))
    subprocess.run(command, check=True, timeout=300)
    [path] = (tmp_path / "killed").iterdir()
    uninterrupted = fedcohort.run(
        fedcohort.Experiment(
            rounds=40, seeds=1, algorithm="scaffold", training={"momentum": 0.0}, systems={"dropout": 0.2}, model="cnn_a"
        ),
        runs=tmp_path / "uninterrupted",
    )  # fmt: skip
    assert record(Run(path)) == record(uninterrupted)
    resumed, expected = Run(path).checkpoint(), uninterrupted.checkpoint()
    assert resumed is not None
    assert expected is not None
    assert len(resumed[1]["engine"]) == 12
    assert pack(resumed[1]) == pack(expected[1])


def _wait_for_a_new_round(folder: Path, process: "subprocess.Popen[bytes]") -> None:
    def rounds() -> int:
        databases = list(folder.glob("*/run.sqlite"))
        return Run(databases[0].parent).last_round if databases else 0

    before = rounds()
    while rounds() == before and process.poll() is None:  # the tests' time limit ends a process that hangs
        time.sleep(0.01)


def test_ctrl_c_finishes_the_round_and_explains_how_to_resume(tmp_path: Path) -> None:
    def progress(cell: Any, row: RoundRow) -> None:
        if row.round == 2:  # round 2 is committed while round 3 is played
            os.kill(os.getpid(), signal.SIGINT)

    experiment = small(selection=UCB)
    with pytest.raises(Interrupted, match=r"stopped after round 3 of 6; the same command resumes it"):
        fedcohort.run(experiment, runs=tmp_path / "a", progress=progress)
    resumed = fedcohort.run(experiment, runs=tmp_path / "a")
    assert record(resumed) == record(fedcohort.run(experiment, runs=tmp_path / "b"))


def test_a_finished_run_is_not_repeated(tmp_path: Path) -> None:
    rounds: list[int] = []
    first = fedcohort.run(small(), runs=tmp_path, progress=lambda cell, row: rounds.append(row.round))
    again = fedcohort.run(small(name="other name"), runs=tmp_path, progress=lambda cell, row: rounds.append(row.round))
    assert rounds == [1, 2, 3, 4, 5, 6]
    assert again.path == first.path


def test_two_processes_cannot_write_one_run(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(small(), runs=tmp_path, progress=stop_after(2))
    [path] = tmp_path.iterdir()
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD_THE_LOCK, str(path)], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    try:
        with pytest.raises(UsageError, match="another process is writing this run"):
            fedcohort.run(small(), runs=tmp_path)
    finally:
        holder.kill()
        holder.wait()
    assert fedcohort.run(small(), runs=tmp_path).finished  # a killed holder leaves no lock behind


_HOLD_THE_LOCK = """
import sys
from fedcohort.record import Run, writing
with writing(Run(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def interrupted_run(tmp_path: Path) -> Path:
    """A run that stopped after round 2."""
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(small(), runs=tmp_path, progress=stop_after(2))
    [path] = tmp_path.iterdir()
    return path


def contents_of(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def test_a_damaged_database_is_reported_and_not_overwritten(tmp_path: Path) -> None:
    path = interrupted_run(tmp_path)
    database = path / "run.sqlite"
    database.write_bytes(b"not a database " * 100)
    before = contents_of(path)
    with pytest.raises(UsageError, match=r"run\.sqlite: the run's database is damaged.*nothing was overwritten"):
        fedcohort.run(small(), runs=tmp_path)
    assert contents_of(path) == before


def test_a_damaged_page_of_the_database_is_reported(tmp_path: Path) -> None:
    path = interrupted_run(tmp_path)
    with sqlite3.connect(path / "run.sqlite") as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray((path / "run.sqlite").read_bytes())
    data[4096 * 2 : 4096 * 3] = b"\xff" * 4096
    (path / "run.sqlite").write_bytes(data)
    with pytest.raises(UsageError, match=r"run\.sqlite: the run's database is damaged"):
        fedcohort.run(small(), runs=tmp_path)


@pytest.mark.parametrize("seed", range(6))
def test_a_single_flipped_bit_in_a_row_of_the_database_is_reported(seed: int, tmp_path: Path) -> None:
    """In the text of any row, which SQLite's own check does not cover."""
    path = interrupted_run(tmp_path)
    with sqlite3.connect(path / "run.sqlite") as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray((path / "run.sqlite").read_bytes())
    places = [i for i in range(len(data)) if data.startswith((b"admitted", b"its update and"), i)]
    data[places[seed * len(places) // 6] + seed] ^= 1
    (path / "run.sqlite").write_bytes(data)
    before = contents_of(path)
    for use in (lambda: fedcohort.run(small(), runs=tmp_path), lambda: fedcohort.open_run(path)):
        with pytest.raises(UsageError, match=r"run\.sqlite: the run's database is damaged"):
            use()
    assert contents_of(path) == before


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE checkpoints SET file = NULL, sha256 = NULL",
        "UPDATE checkpoints SET round = 0, file = NULL, sha256 = NULL",  # what is left of a row in a page whose end was cut off
        "UPDATE checkpoints SET file = '../experiment.toml'",
    ],
)
def test_a_damaged_row_of_a_checkpoint_is_reported(change: str, finished: bool, tmp_path: Path) -> None:
    path = fedcohort.run(small(), runs=tmp_path).path if finished else interrupted_run(tmp_path)
    with sqlite3.connect(path / "run.sqlite") as db:
        db.execute(change)
    for use in (lambda: fedcohort.run(small(), runs=tmp_path), lambda: fedcohort.open_run(path)):
        with pytest.raises(UsageError, match=r"run\.sqlite: the run's database is damaged.*row of the checkpoint"):
            use()


@pytest.mark.parametrize(
    "change", ["DELETE FROM checkpoints", "UPDATE checkpoints SET sha256 = replace(sha256, '1', '2')"]
)
def test_the_rows_of_checkpoints_of_a_finished_run_are_sealed(change: str, tmp_path: Path) -> None:
    path = fedcohort.run(small(), runs=tmp_path).path
    with sqlite3.connect(path / "run.sqlite") as db:
        db.execute(change)
    with pytest.raises(UsageError, match=r"run\.sqlite: the run's database is damaged.*the rows of its checkpoints"):
        fedcohort.open_run(path)


def test_finished_runs_of_versions_that_did_not_seal_checkpoints_are_read(tmp_path: Path) -> None:
    path = fedcohort.run(small(), runs=tmp_path).path
    with sqlite3.connect(path / "run.sqlite") as db:
        db.execute("DELETE FROM meta WHERE key = 'checkpoints'")
    assert fedcohort.open_run(path).finished


@pytest.mark.parametrize("mark", [b"validation_accuracy REAL", b"status TEXT", b"CREATE TABLE rounds"])
@pytest.mark.parametrize("bit", [1, 32, 128])
def test_a_flipped_bit_in_the_schema_of_the_database_is_reported(mark: bytes, bit: int, tmp_path: Path) -> None:
    path = interrupted_run(tmp_path)
    with sqlite3.connect(path / "run.sqlite") as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray((path / "run.sqlite").read_bytes())
    data[data.index(mark) + len(mark) // 2] ^= bit
    (path / "run.sqlite").write_bytes(data)
    for use in (lambda: fedcohort.run(small(), runs=tmp_path), lambda: fedcohort.open_run(path)):
        with pytest.raises(UsageError, match=r"run\.sqlite: the run's database is damaged|written in format"):
            use()


@pytest.mark.parametrize("damage", ["flip", "gone"])
def test_a_damaged_or_missing_model_of_a_finished_run_is_reported(damage: str, tmp_path: Path) -> None:
    path = fedcohort.run(small(rounds=1), runs=tmp_path).path
    file = path / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-9] ^= 4
    file.write_bytes(data)
    if damage == "gone":
        file.unlink()
    for use in (lambda: fedcohort.run(small(rounds=1), runs=tmp_path), lambda: fedcohort.open_run(path)):
        with pytest.raises(UsageError, match=r"model\.safetensors: is missing, or differs from what was recorded"):
            use()


@pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")
def test_all_files_of_a_finished_run_can_be_read_by_the_same_users(tmp_path: Path) -> None:
    """Colleagues who share a folder of runs can read the model, too; without it, no run can be read."""
    before = os.umask(0o027)
    try:
        path = fedcohort.run(small(rounds=1), runs=tmp_path).path
    finally:
        os.umask(before)
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.rglob("*") if file.is_file()}
    assert modes["model.safetensors"] == modes["experiment.toml"] == 0o640, modes


@pytest.mark.parametrize("name", ["model.safetensors", "experiment.toml"])
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermissionError(13, "Permission denied"), r"permission denied\); its owner can let you read it"),
        (OSError(5, "Input/output error"), r"Input/output error\)"),
    ],
)
def test_a_file_that_cannot_be_read_is_not_said_to_be_changed(
    name: str, error: OSError, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fedcohort.run(small(rounds=1), runs=tmp_path).path
    usual = Path.open

    def refused(file: Path, *args: Any, **kwargs: Any) -> Any:
        if file.name == name:
            raise error
        return usual(file, *args, **kwargs)

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(UsageError, match=rf"{name}: cannot be read \({words}"):
        fedcohort.open_run(path)


@pytest.mark.parametrize("damage", ["changed", "emptied", "gone"])
@pytest.mark.parametrize("finished", [False, True])
def test_a_changed_or_missing_experiment_file_is_reported(damage: str, finished: bool, tmp_path: Path) -> None:
    path = fedcohort.run(small(), runs=tmp_path).path if finished else interrupted_run(tmp_path)
    resolved = path / "experiment.toml"
    if damage == "gone":
        resolved.unlink()
    else:
        resolved.write_text("" if damage == "emptied" else resolved.read_text().replace("rounds = 6", "rounds = 7"))
    for use in (lambda: fedcohort.run(small(), runs=tmp_path), lambda: fedcohort.open_run(path)):
        with pytest.raises(UsageError, match=r"experiment\.toml: is missing, or differs from what was recorded"):
            use()


@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_a_damaged_or_missing_checkpoint_is_reported_and_keeps_the_record(damage: str, tmp_path: Path) -> None:
    path = interrupted_run(tmp_path)
    [file] = (path / "checkpoint").glob("round-*.safetensors")
    data = bytearray(file.read_bytes())
    if damage == "flip":
        data[-3] ^= 1
    file.write_bytes(bytes(data[:-100] if damage == "cut" else data))
    if damage == "gone":
        file.unlink()
    with pytest.raises(
        UsageError, match=r"round-000002\.safetensors: the checkpoint of round 2 is damaged.*nothing was"
    ):
        fedcohort.run(small(), runs=tmp_path)
    assert Run(path).last_round == 2


def test_a_run_in_another_format_is_rejected(tmp_path: Path) -> None:
    path = interrupted_run(tmp_path)
    with sqlite3.connect(path / "run.sqlite") as db:
        db.execute("UPDATE meta SET value = '99' WHERE key = 'format'")
    with pytest.raises(UsageError, match=r"written in format 99, but this version of FedCohort reads format 2"):
        fedcohort.open_run(path)
    with pytest.raises(UsageError, match="written in format 99"):
        fedcohort.run(small(), runs=tmp_path)


def rename_data(db: sqlite3.Connection) -> None:
    """Change the data's recorded identity, with valid hashes, as if the run had used other data."""
    db.execute("UPDATE meta SET value = 'abc' WHERE key = 'data'")
    seal_again(db)


def test_a_run_is_not_resumed_with_other_data(tmp_path: Path) -> None:
    path = interrupted_run(tmp_path)
    with sqlite3.connect(path / "run.sqlite") as db:
        rename_data(db)
    with pytest.raises(UsageError, match=r"began on data with fingerprint .*, but data.name = 'digits' now has"):
        fedcohort.run(small(), runs=tmp_path)


def test_a_runs_directory_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="is not a directory"):
        fedcohort.run(small(), runs=tmp_path / "file")
    with pytest.raises(UsageError, match="cannot be written"):
        fedcohort.run(small(), runs=tmp_path / "file" / "below")


def test_opening_a_folder_without_a_run_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"not a run directory \(there is no run\.sqlite\); `fedcohort run` creates one$"
    ):
        fedcohort.open_run(tmp_path)
    run = fedcohort.run(small(rounds=1), runs=tmp_path)
    for file in ("run.sqlite", "experiment.toml"):
        with pytest.raises(
            UsageError, match=rf"{file}: not a run directory; give its directory, {re.escape(str(run.path))}$"
        ):
            fedcohort.open_run(run.path / file)


def test_a_run_directory_that_is_removed_while_its_run_is_played(tmp_path: Path) -> None:
    """The error said that finished rounds were kept."""

    def remove(cell: Any, row: Any) -> None:
        if row.round == 2:
            shutil.rmtree(next(tmp_path.iterdir()))

    with pytest.raises(UsageError, match=r"was removed or renamed while the run was played; put it back, or start"):
        fedcohort.run(small(rounds=4, measures={"checkpoint_every": 1}), runs=tmp_path, progress=remove)
    assert fedcohort.run(small(rounds=4), runs=tmp_path).finished
