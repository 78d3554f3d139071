"""A run that was killed or interrupted and goes on equals one that was not; whatever is damaged is named and left alone."""

import os
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
from fedcohort.core.states import pack
from fedcohort.record import RoundRow, Run
from fedcohort.runs.play import Interrupted
from tests.experiments import UCB, small
from tests.golden.test_same_bits import record
from tests.records import seal_again

SLOW_ROUNDS = 80


def stop_after(rounds: int) -> Any:
    """A progress callback that fails like a crash would."""

    def progress(cell: Any, row: RoundRow) -> None:
        if row.round == rounds:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("selection", ["uniform", UCB, "rpowd", "utility_time", "select_by_loss"], ids=str)
@pytest.mark.parametrize("stop", [1, 3])
def test_resumed_equals_straight(selection: Any, stop: int, tmp_path: Path) -> None:
    experiment = small(
        selection=selection, systems={"dropout": 0.2, "availability": {"name": "bernoulli", "probability": 0.7}}
    )
    straight = fedcohort.run(experiment, runs=tmp_path / "straight")
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(experiment, runs=tmp_path / "broken", progress=stop_after(stop))
    resumed = fedcohort.run(experiment, runs=tmp_path / "broken")
    assert resumed.last_round == 6
    assert record(resumed) == record(straight)


@pytest.mark.parametrize("every", [2, 4])
def test_rounds_after_the_last_checkpoint_are_played_again(every: int, tmp_path: Path) -> None:
    straight = fedcohort.run(small(selection=UCB), runs=tmp_path / "straight")
    experiment = small(selection=UCB, measures={"checkpoint_every": every})
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(experiment, runs=tmp_path / "broken", progress=stop_after(5))
    assert record(fedcohort.run(experiment, runs=tmp_path / "broken")) == record(straight)


def kill_thrice(command: list[str], folder: Path, delays: tuple[float, ...]) -> None:
    """Start the command again and again, and kill it each time, a while after a new round; it must have been alive at least once."""
    killed = 0
    for delay in delays:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        _wait_for_a_new_round(folder, process)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
    assert killed >= 1


def test_kill_9_at_any_moment(tmp_path: Path) -> None:
    """A real process, really killed, several times, at moments nobody chose; the last one ends with the same bits."""
    command = [
        sys.executable, "-m", "fedcohort", "run", "--quiet", "--runs", str(tmp_path / "killed"),
        "--set", f"rounds={SLOW_ROUNDS}", "--set", "seeds=1", "--set", "selection.name=ucb", "--set", "model.name=cnn_a",
    ]  # fmt: skip
    kill_thrice(command, tmp_path / "killed", (0.05, 0.3, 0.6))
    [run] = [Run(path) for path in (tmp_path / "killed").iterdir()]
    subprocess.run(command, check=True, timeout=120)
    straight = fedcohort.run(
        fedcohort.Experiment(rounds=SLOW_ROUNDS, seeds=1, selection="ucb", model="cnn_a"), runs=tmp_path / "straight"
    )
    assert record(Run(run.path)) == record(straight)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [2**30, 0], ids=["in memory", "in a file"])
def test_kill_9_with_what_clients_remember(limit: int, tmp_path: Path) -> None:
    """SCAFFOLD: the clients' control variates go on with the run, wherever they lay when it was killed."""
    settings = [
        "rounds=40", "seeds=1", "algorithm.name=scaffold", "training.momentum=0.0", "systems.dropout=0.2",
        "model.name=cnn_a",
    ]  # fmt: skip
    start = (
        "from fedcohort.training.memories import Memories\n"
        f"Memories.__init__.__defaults__ = ({limit}, None)\n"
        "from fedcohort.cli import main\nmain()"
    )
    command = [sys.executable, "-c", start, "run", "--quiet", "--runs", str(tmp_path / "killed")]
    command += [part for setting in settings for part in ("--set", setting)]
    kill_thrice(command, tmp_path / "killed", (0.1, 0.5, 0.3))
    subprocess.run(command, check=True, timeout=300)
    [path] = (tmp_path / "killed").iterdir()
    straight = fedcohort.run(
        fedcohort.Experiment(
            rounds=40, seeds=1, algorithm="scaffold", training={"momentum": 0.0}, systems={"dropout": 0.2}, model="cnn_a"
        ),
        runs=tmp_path / "straight",
    )  # fmt: skip
    assert record(Run(path)) == record(straight)
    found, expected = Run(path).checkpoint(), straight.checkpoint()
    assert found is not None
    assert expected is not None
    assert len(found[1]["engine"]) == 12
    assert pack(found[1]) == pack(expected[1])


def _wait_for_a_new_round(folder: Path, process: "subprocess.Popen[bytes]") -> None:
    def rounds() -> int:
        databases = list(folder.glob("*/run.sqlite"))
        return Run(databases[0].parent).last_round if databases else 0

    before = rounds()
    while rounds() == before and process.poll() is None:  # a process that hangs meets the time limit of every test
        time.sleep(0.01)


def test_ctrl_c_finishes_the_round_and_says_how_to_go_on(tmp_path: Path) -> None:
    def progress(cell: Any, row: RoundRow) -> None:
        if row.round == 2:  # it is committed while round 3 is played
            os.kill(os.getpid(), signal.SIGINT)

    experiment = small(selection=UCB)
    with pytest.raises(Interrupted, match=r"stopped after round 3 of 6; the same command resumes it"):
        fedcohort.run(experiment, runs=tmp_path / "a", progress=progress)
    resumed = fedcohort.run(experiment, runs=tmp_path / "a")
    assert record(resumed) == record(fedcohort.run(experiment, runs=tmp_path / "b"))


def test_a_finished_run_is_not_run_twice(tmp_path: Path) -> None:
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
        [sys.executable, "-c", _HOLD, str(path)], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
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


_HOLD = """
import sys
from fedcohort.record import Run, writing
with writing(Run(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def broken_run(tmp_path: Path) -> Path:
    """A run that stopped after round 2."""
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(small(), runs=tmp_path, progress=stop_after(2))
    [path] = tmp_path.iterdir()
    return path


def everything_in(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def test_a_damaged_database_is_named_and_left_alone(tmp_path: Path) -> None:
    path = broken_run(tmp_path)
    database = path / "run.sqlite"
    database.write_bytes(b"not a database " * 100)
    before = everything_in(path)
    with pytest.raises(UsageError, match=r"run\.sqlite: the run's database is damaged.*nothing was overwritten"):
        fedcohort.run(small(), runs=tmp_path)
    assert everything_in(path) == before


def test_a_damaged_page_of_the_database_is_found(tmp_path: Path) -> None:
    path = broken_run(tmp_path)
    with sqlite3.connect(path / "run.sqlite") as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray((path / "run.sqlite").read_bytes())
    data[4096 * 2 : 4096 * 3] = b"\xff" * 4096
    (path / "run.sqlite").write_bytes(data)
    with pytest.raises(UsageError, match=r"run\.sqlite: the run's database is damaged"):
        fedcohort.run(small(), runs=tmp_path)


@pytest.mark.parametrize("seed", range(6))
def test_a_single_flipped_bit_of_the_database_is_found(seed: int, tmp_path: Path) -> None:
    """In the text of any row; SQLite's own check sees none of these."""
    path = broken_run(tmp_path)
    with sqlite3.connect(path / "run.sqlite") as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray((path / "run.sqlite").read_bytes())
    places = [i for i in range(len(data)) if data.startswith((b"admitted", b"its update and"), i)]
    data[places[seed * len(places) // 6] + seed] ^= 1
    (path / "run.sqlite").write_bytes(data)
    before = everything_in(path)
    for use in (lambda: fedcohort.run(small(), runs=tmp_path), lambda: fedcohort.open_run(path)):
        with pytest.raises(UsageError, match=r"run\.sqlite: the run's database is damaged"):
            use()
    assert everything_in(path) == before


@pytest.mark.parametrize("mark", [b"validation_accuracy REAL", b"status TEXT", b"CREATE TABLE rounds"])
@pytest.mark.parametrize("bit", [1, 32, 128])
def test_a_flipped_bit_in_the_layout_or_the_description_is_found(mark: bytes, bit: int, tmp_path: Path) -> None:
    path = broken_run(tmp_path)
    with sqlite3.connect(path / "run.sqlite") as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray((path / "run.sqlite").read_bytes())
    data[data.index(mark) + len(mark) // 2] ^= bit
    (path / "run.sqlite").write_bytes(data)
    for use in (lambda: fedcohort.run(small(), runs=tmp_path), lambda: fedcohort.open_run(path)):
        with pytest.raises(UsageError, match=r"run\.sqlite: the run's database is damaged|written in format"):
            use()


@pytest.mark.parametrize("damage", ["flip", "gone"])
def test_a_damaged_model_of_a_finished_run_is_found(damage: str, tmp_path: Path) -> None:
    path = fedcohort.run(small(rounds=1), runs=tmp_path).path
    file = path / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-9] ^= 4
    file.write_bytes(data)
    if damage == "gone":
        file.unlink()
    for use in (lambda: fedcohort.run(small(rounds=1), runs=tmp_path), lambda: fedcohort.open_run(path)):
        with pytest.raises(UsageError, match=r"model\.safetensors: is missing or not what was recorded"):
            use()


@pytest.mark.parametrize("damage", ["changed", "emptied", "gone"])
@pytest.mark.parametrize("finished", [False, True])
def test_a_description_that_is_not_what_was_recorded(damage: str, finished: bool, tmp_path: Path) -> None:
    path = fedcohort.run(small(), runs=tmp_path).path if finished else broken_run(tmp_path)
    resolved = path / "experiment.toml"
    if damage == "gone":
        resolved.unlink()
    else:
        resolved.write_text("" if damage == "emptied" else resolved.read_text().replace("rounds = 6", "rounds = 7"))
    for use in (lambda: fedcohort.run(small(), runs=tmp_path), lambda: fedcohort.open_run(path)):
        with pytest.raises(UsageError, match=r"experiment\.toml: is missing or not what was recorded"):
            use()


@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_a_damaged_checkpoint_is_named_and_left_alone(damage: str, tmp_path: Path) -> None:
    path = broken_run(tmp_path)
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


def test_a_directory_of_another_version_is_refused(tmp_path: Path) -> None:
    path = broken_run(tmp_path)
    with sqlite3.connect(path / "run.sqlite") as db:
        db.execute("UPDATE meta SET value = '99' WHERE key = 'format'")
    with pytest.raises(UsageError, match=r"written in format 99, this version of FedCohort reads format 2"):
        fedcohort.open_run(path)
    with pytest.raises(UsageError, match="written in format 99"):
        fedcohort.run(small(), runs=tmp_path)


def rename_data(db: sqlite3.Connection) -> None:
    """As if the run had been made with other data: what is fixed of it changes, and the hashes with it."""
    db.execute("UPDATE meta SET value = 'abc' WHERE key = 'data'")
    seal_again(db)


def test_other_data_under_the_same_name_is_refused(tmp_path: Path) -> None:
    path = broken_run(tmp_path)
    with sqlite3.connect(path / "run.sqlite") as db:
        rename_data(db)
    with pytest.raises(UsageError, match="was begun on other data than 'digits'"):
        fedcohort.run(small(), runs=tmp_path)


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="is not a directory"):
        fedcohort.run(small(), runs=tmp_path / "file")
    with pytest.raises(UsageError, match="cannot be written"):
        fedcohort.run(small(), runs=tmp_path / "file" / "below")


def test_no_run_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a run directory"):
        fedcohort.open_run(tmp_path)
