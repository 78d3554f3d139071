"""Reading a run directory: its tables as DataFrames."""

import math
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedcohort
from fedcohort.core.errors import UsageError
from fedcohort.record import ClientRow, Run, open_run, writing
from fedcohort.record.own_columns import accuracies_table, with_own_columns
from fedcohort.record.verification import verify_pages
from tests.experiments import small
from tests.records import played, written


def test_the_record_as_dataframes(tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=4, selection={"name": "ucb", "initial_rounds": 1}), runs=tmp_path)
    assert list(run.rounds.index) == [1, 2, 3, 4]
    assert (run.rounds["selected"] == 3).all()
    assert run.rounds["simulated_time"].is_monotonic_increasing
    assert run.clients.groupby("round").size().tolist() == [3, 3, 3, 3]
    assert run.clients.groupby("round")["weight"].sum().tolist() == pytest.approx([1.0] * 4)
    decisions = run.decisions
    assert decisions.groupby("round").size().tolist() == [12] * 4
    assert decisions.groupby("round")["selected"].sum().tolist() == [3] * 4
    assert np.allclose(decisions["score"], decisions["mean_reward"] + decisions["bonus"])
    assert set(run.ledger["kind"]) == {"training"}
    assert isinstance(run.wall, pd.DataFrame)
    chosen = run.clients.groupby("round")["client"].apply(set)
    said = decisions[decisions["selected"]].groupby("round")["client"].apply(set)
    assert chosen.equals(said)


def test_what_no_seed_measured_is_still_a_number(tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=3, measures={"evaluate_every": 3}, data={"validation": 0.0}), runs=tmp_path)
    assert run.rounds["validation_accuracy"].dtype == np.float64
    assert run.rounds["test_accuracy"].notna().tolist() == [False, False, True]
    assert not list(run.path.glob("run.sqlite-*"))  # one file, which can be read in a directory that is not writable


def test_reading_beside_an_emptied_database_keeps_its_log(tmp_path: Path) -> None:
    """SQLite would delete the log, even to read."""
    (tmp_path / "run.sqlite").write_bytes(b"")
    (tmp_path / "run.sqlite-wal").write_bytes(b"frames")
    with pytest.raises(UsageError, match=r"run\.sqlite: .*not a database"):
        open_run(tmp_path)
    assert (tmp_path / "run.sqlite-wal").read_bytes() == b"frames"


def test_a_run_that_was_killed_while_its_log_was_merged_can_be_read(tmp_path: Path) -> None:
    """The journal of the last change is still there; only a connection that may write can undo it. Reading changes no file."""
    run = fedcohort.run(small(rounds=2), runs=tmp_path)
    expected = run.digest()
    database = run.path / "run.sqlite"
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute("PRAGMA cache_size = 1")  # the change spills to the file before its end
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE rounds SET note = hex(zeroblob(100000))")
    killed = tmp_path / "killed"
    shutil.copytree(run.path, killed)
    connection.close()
    assert (killed / "run.sqlite-journal").stat().st_size
    before = {file.name: file.read_bytes() for file in killed.iterdir() if file.is_file()}
    assert open_run(killed).digest() == expected
    assert {file.name: file.read_bytes() for file in killed.iterdir() if file.is_file()} == before


def test_the_digest_covers_the_final_model(tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=1), runs=tmp_path)
    before, model = run.digest(), run.path / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-1] + b"\x7f")
    changed = run.digest()
    model.unlink()
    assert len({before, changed, run.digest()}) == 3


def test_what_sqlite_says_about_a_damaged_database_is_passed_on(tmp_path: Path) -> None:
    connection = sqlite3.connect(":memory:")
    connection.executescript(
        "CREATE TABLE rounds (round); INSERT INTO rounds VALUES (NULL); PRAGMA writable_schema = ON; "
        "UPDATE sqlite_schema SET sql = 'CREATE TABLE rounds (round NOT NULL)'; PRAGMA writable_schema = RESET;"
    )
    with pytest.raises(UsageError, match=r"run\.sqlite: .* damaged.*NULL value in rounds\.round"):
        verify_pages(connection, tmp_path / "run.sqlite")


@pytest.mark.parametrize(
    ("btree", "old", "new"),
    [
        ("meta", b"algorithmFedAvg", b"algorhthmFedAvg"),
        ("sqlite_autoindex_meta_1", b"algorithm", b"algorhthm"),
        ("portrait", b"samples", b"saiples"),
        ("sqlite_autoindex_portrait_1", b"samples", b"saiples"),
        ("ledger", b"training", b"tbaining"),
        ("sqlite_autoindex_ledger_1", b"training", b"tbaining"),
    ],
)
def test_a_key_that_is_damaged_in_a_table_or_in_its_index_is_found(
    btree: str, old: bytes, new: bytes, tmp_path: Path
) -> None:
    """SQLite reads keys in order from the index, and seals are computed from these: a key that was damaged in the table passed."""
    run = fedcohort.run(small(rounds=2), runs=tmp_path)
    database = run.path / "run.sqlite"
    with closing(sqlite3.connect(database)) as connection:
        [(size,)] = connection.execute("PRAGMA page_size")
        [(root,)] = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (btree,))
    data, begin = database.read_bytes(), (root - 1) * size
    page = data[begin : begin + size]
    assert old in page
    database.write_bytes(data[:begin] + page.replace(old, new, 1) + data[begin + size :])
    with pytest.raises(UsageError, match=r"run\.sqlite: the run's database is damaged"):
        open_run(run.path)


def test_reading_a_killed_run_whose_log_is_missing_creates_none(tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=2), runs=tmp_path)
    connection = sqlite3.connect(run.path / "run.sqlite")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("UPDATE meta SET value = value")
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    killed = tmp_path / "killed"
    shutil.copytree(run.path, killed, ignore=shutil.ignore_patterns("*-wal", "*-shm"))
    connection.close()
    before = sorted(killed.rglob("*"))
    assert open_run(killed).digest() == run.digest()
    assert sorted(killed.rglob("*")) == before


def test_reading_an_untouched_run_leaves_its_log_alone(tmp_path: Path) -> None:
    """The last changes of a killed run are in its log, for which SQLite writes an index."""
    run = fedcohort.run(small(rounds=2), runs=tmp_path)
    connection = sqlite3.connect(run.path / "run.sqlite")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("UPDATE meta SET value = 'in the log' WHERE key = 'label'")
    connection.commit()
    killed = tmp_path / "killed"
    shutil.copytree(run.path, killed, ignore=shutil.ignore_patterns("*-shm"))
    connection.close()
    before = {file: file.stat().st_mtime_ns for file in killed.rglob("*")}
    untouched = Run(killed, untouched=True)
    assert untouched.meta["label"] == "in the log"
    with untouched._reading() as reading:
        seen = [Path(file).parent for _, _, file in reading.execute("PRAGMA database_list")]
    assert killed not in seen
    assert {file: file.stat().st_mtime_ns for file in killed.rglob("*")} == before


def test_a_model_without_its_database_is_no_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(UsageError, match=r"run\.sqlite: is missing, but model\.safetensors of the same run is there"):
        Run(tmp_path)


def test_a_description_is_read_without_its_plug_ins(tmp_path: Path) -> None:
    """Neither the module of the strategy nor the user's files beside the record are imported."""
    run = written(tmp_path / "run", [played(1)])
    assert run.experiment.algorithm.parameters["max_weight"] is None
    assert "max_weight" not in run.described.algorithm.parameters
    description = run.path / "experiment.toml"
    text = description.read_text(encoding="utf-8")
    assert 'name = "uniform"' in text
    description.write_text(text.replace('name = "uniform"', 'name = "not_there:Own"'), encoding="utf-8")
    read = Run(run.path)
    assert read.described.selection.name == "not_there:Own"
    with pytest.raises(UsageError, match="not_there"):
        read.experiment.selection.build()


def test_clients_that_reported_nothing_more_have_no_further_columns() -> None:
    frame = pd.DataFrame({"client": [3, 5], "loss": [0.1, np.nan], "reports": ["{}", "{}"]})
    pd.testing.assert_frame_equal(with_own_columns(frame), frame[["client", "loss"]])
    told = with_own_columns(frame.assign(reports=["{}", '{"loss": 2}']))
    assert list(told) == ["client", "loss", "loss_"]
    assert told["loss_"].tolist() == pytest.approx([np.nan, 2.0], nan_ok=True)
    assert list(with_own_columns(frame[:0].copy())) == ["client", "loss"]


def test_accuracies_of_very_many_clients_are_read_at_once() -> None:
    """They were read column by column: with 900,000 clients, a report took minutes."""
    measured = [np.random.default_rng(t).random(m) for t, m in ((3, 300_000), (6, 299_999))]
    begin = time.thread_time()
    table = accuracies_table([(3, measured[0].tobytes()), (6, measured[1].tobytes())])
    assert time.thread_time() - begin < 1.0
    assert (table.index.tolist(), table.index.name, table.columns.name) == ([3, 6], "round", "client")
    assert table.columns.equals(pd.RangeIndex(300_000))
    assert np.array_equal(table.loc[3], measured[0])
    assert np.array_equal(table.loc[6], [*measured[1], np.nan], equal_nan=True)
    assert accuracies_table([]).empty


def test_rewards_and_selections_by_round(tmp_path: Path) -> None:
    """Only updates that arrived give rewards; a round without clients has none."""
    first = [ClientRow(2, "admitted", loss=0.5), ClientRow(0, "late", "no reply", loss=0.75)]
    rows = [played(1, first), played(2), played(3, [ClientRow(1, "declined", loss=0.25)])]
    run = written(tmp_path / "run", rows, federation={"clients": 3})
    nothing = [math.nan] * 3
    wanted = [[math.nan, math.nan, 0.5], nothing, [math.nan, 0.25, math.nan]]
    np.testing.assert_array_equal(run.rewards("loss"), wanted)
    assert [clients.tolist() for clients in run.selections] == [[2, 0], [], [1]]
    assert [client.dtype for client in run.selections] == [np.int64] * 3
    for column in ("round", "client", "status", "losses"):
        with pytest.raises(
            UsageError, match=f"^column = '{column}': the table of clients has no such column of numbers"
        ):
            run.rewards(column)


def test_a_run_in_one_line(tmp_path: Path) -> None:
    rows = [played(1, test_accuracy=0.25), played(2, test_accuracy=0.5), played(3, test_accuracy=math.nan)]
    run = written(tmp_path / "run", rows, rounds=4, label="mine")
    assert repr(run) == f"<Run {run.path}: mine, seed 0, 3 of 4 rounds, test accuracy 50.0%>"
    assert not run.finished
    untested = written(tmp_path / "untested", [played(1, test_accuracy=math.nan)])
    assert repr(untested) == f"<Run {untested.path}: uniform, seed 0, 1 of 1 rounds>"
    (run.path / "experiment.toml").unlink()
    assert repr(fedcohort.Run(run.path)) == f"<Run {run.path}>"


def test_what_to_give_in_place_of_a_path_that_is_no_run(tmp_path: Path) -> None:
    for name in ("b", "a"):
        written(tmp_path / "runs" / name, [played(1)])
    (tmp_path / "empty").mkdir()
    for path, advice in (
        (tmp_path / "runs", f"(there is no run.sqlite); give one of the runs in it, such as {tmp_path / 'runs' / 'a'}"),
        (tmp_path / "empty", "(there is no run.sqlite); `fedcohort run` creates one"),
        (tmp_path / "runs" / "a" / "run.sqlite", f"not a run directory; give its directory, {tmp_path / 'runs' / 'a'}"),
    ):
        with pytest.raises(UsageError) as refused:
            fedcohort.Run(path)
        assert str(refused.value).endswith(advice)


def test_the_last_round_of_a_run_that_goes_on_is_read_again(tmp_path: Path) -> None:
    run = written(tmp_path / "run", [played(1)], rounds=3)
    assert (run.last_round, run.finished) == (1, False)
    with writing(run) as writer:
        writer.record([played(2)])
    assert run.last_round == 2
    with writing(run) as writer:
        writer.record([played(3)])
        writer.finish({})
    assert (run.last_round, run.finished, run.last_round) == (3, True, 3)


def test_the_facts_of_a_finished_run_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = fedcohort.run(small(rounds=2), runs=tmp_path)
    read = fedcohort.Run(run.path)
    asked: list[str] = []

    def counted(statement: str) -> list[tuple[Any, ...]]:
        asked.append(statement)
        return run.query(statement)

    monkeypatch.setattr(read, "query", counted)
    assert [(read.last_round, read.finished) for _ in range(3)] == [(2, True)] * 3
    assert asked == ["SELECT COALESCE(MAX(round), 0) FROM rounds"]
    read.meta["label"] = "changed"
    assert read.meta["label"] == run.meta["label"]
