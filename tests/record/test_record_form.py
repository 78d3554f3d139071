"""Records that others made: the hashes are right, and the database is not one that FedCohort writes."""

import os
import shutil
import sqlite3
from pathlib import Path

import pytest

import fedcohort
from fedcohort.core.errors import UsageError
from fedcohort.record import open_run
from tests.experiments import small
from tests.records import seal_again
from tests.resume.test_resume import interrupted_run

DAMAGED = r"run\.sqlite: the run's database is damaged"


def change(path: Path, statements: str) -> None:
    """Change the database of a run, and compute its hashes again."""
    with sqlite3.connect(path / "run.sqlite") as db:
        db.executescript(statements)
        seal_again(db)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fedcohort.run(small(), runs=tmp_path_factory.mktemp("runs")).path


@pytest.fixture
def path(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / whole.name))


def test_the_same_database_with_new_hashes_is_read(path: Path) -> None:
    change(path, "SELECT 1")
    assert open_run(path).finished


@pytest.mark.parametrize(
    "statements",
    [
        "UPDATE rounds SET round_time = 'long'",
        "UPDATE rounds SET class_accuracy = NULL WHERE round = 1",
        "UPDATE rounds SET selected = x'00ff'",
        "UPDATE rounds SET round = -9223372036854775808 WHERE round = 1",
        "UPDATE rounds SET round = 99 WHERE round = 1",
        "UPDATE clients SET weight = '<b>'",
        "UPDATE clients SET num_samples = 4611686018427387904",
        "UPDATE clients SET client = -1 WHERE position = 0",
        "UPDATE ledger SET round = 'one' WHERE round = 1",
        "UPDATE ledger SET round = NULL WHERE round = 1",
        "UPDATE wall SET total = x'00'",
        "UPDATE equal_decisions SET clients = 'text'",
        "UPDATE portrait SET data = 'text'",
        "UPDATE meta SET value = x'00' WHERE key = 'label'",
        "ALTER TABLE rounds ADD COLUMN more TEXT DEFAULT '<b>'",
        "ALTER TABLE wall RENAME COLUMN total TO entire",
        "CREATE TABLE more (x TEXT)",
    ],
)
def test_what_no_version_of_fedcohort_writes_is_damage(statements: str, path: Path) -> None:
    change(path, statements)
    with pytest.raises(UsageError, match=f"{DAMAGED}.*FedCohort|{DAMAGED}.*rounds"):
        open_run(path)


@pytest.mark.parametrize(
    ("statements", "table"),
    [
        ("UPDATE rounds SET class_accuracy = '[[1]]'", "rounds"),
        ("UPDATE rounds SET class_accuracy = '" + "[" * 9999 + "'", "rounds"),
        ("UPDATE clients SET reports = '\"a\"'", "clients"),
        ("UPDATE clients SET reports = '0'", "clients"),
        ("UPDATE clients SET reports = '{\"a\": [1]}'", "clients"),
        ("UPDATE equal_decisions SET clients = x'00ff'", "decisions"),
        ("UPDATE portrait SET type = '[]'", "portrait"),
        ("UPDATE portrait SET shape = '\"a\"'", "portrait"),
        ("UPDATE portrait SET data = x'00ff'", "portrait"),
    ],
)
def test_a_value_that_cannot_be_read_is_damage(statements: str, table: str, path: Path) -> None:
    change(path, statements)
    run = open_run(path)
    with pytest.raises(UsageError, match=DAMAGED):
        getattr(run, table)


def test_a_run_whose_checkpoints_are_elsewhere_is_not_resumed(tmp_path: Path) -> None:
    path = interrupted_run(tmp_path / "runs")
    elsewhere = path.rename(tmp_path / "elsewhere")
    shutil.copytree(elsewhere, path)
    shutil.rmtree(path / "checkpoint")
    (path / "checkpoint").symlink_to(elsewhere / "checkpoint")
    (elsewhere / "checkpoint" / "round-000001.safetensors").write_bytes(b"a file of somebody")
    with pytest.raises(UsageError, match=r"checkpoint: is a link, .* nothing was overwritten"):
        fedcohort.run(small(), runs=tmp_path / "runs")
    assert (elsewhere / "checkpoint" / "round-000001.safetensors").exists()


@pytest.mark.parametrize(
    "statements",
    [
        "CREATE TRIGGER more AFTER INSERT ON rounds BEGIN DELETE FROM clients; END",
        "CREATE UNIQUE INDEX more ON rounds (round)",
        "CREATE VIEW more AS WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT * FROM c",
    ],
)
def test_a_run_whose_record_has_code_is_not_resumed(statements: str, tmp_path: Path) -> None:
    path = interrupted_run(tmp_path)
    change(path, statements)
    with pytest.raises(UsageError, match=f"{DAMAGED}.*which FedCohort does not make"):
        fedcohort.run(small(), runs=tmp_path)


def test_a_table_that_is_a_view_without_an_end_is_not_read(path: Path) -> None:
    endless = "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
    with sqlite3.connect(path / "run.sqlite") as db:
        db.executescript(f"DROP TABLE meta; CREATE VIEW meta AS {endless} SELECT x AS key, x AS value FROM c")
    with pytest.raises(UsageError, match=f"{DAMAGED}.*view 'meta'"):
        open_run(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("what", ["pipe", "device"])
def test_a_log_that_is_no_file_is_not_waited_for(what: str, path: Path) -> None:
    log = path / "run.sqlite-wal"
    if what == "pipe":
        os.mkfifo(log)
    else:
        log.symlink_to("/dev/zero")
    with pytest.raises(UsageError, match=f"{DAMAGED}.*its log run.sqlite-wal is"):
        open_run(path)
