"""A database that passed the check is not checked again, unless a bit of it has changed."""

import os
import sqlite3
from pathlib import Path

import pytest

import fedcohort
from fedcohort.core.errors import UsageError
from fedcohort.record import passed_checks, verification
from fedcohort.record.run import Run
from tests.experiments import small


@pytest.fixture
def checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The databases whose rounds are compared, with a cache of the test's own, in which small ones are remembered, too."""
    compared: list[Path] = []
    original = verification.verify_rounds

    def verify_rounds(connection: sqlite3.Connection, database: Path) -> None:
        compared.append(database)
        original(connection, database)

    monkeypatch.setenv("FEDCOHORT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(passed_checks, "LEAST", 0)
    monkeypatch.setattr("fedcohort.record.run.verify_rounds", verify_rounds)
    return compared


def played(tmp_path: Path) -> Path:
    return fedcohort.run(small(rounds=3), runs=tmp_path / "runs").path


def test_a_database_is_checked_once(tmp_path: Path, checks: list[Path]) -> None:
    path = played(tmp_path)
    for _ in range(3):
        Run(path).verify()
    assert checks == [path / "run.sqlite"]
    path.rename(tmp_path / "moved")
    Run(tmp_path / "moved").verify()
    assert len(checks) == 1


def test_every_changed_byte_is_found(tmp_path: Path, checks: list[Path]) -> None:
    path = played(tmp_path)
    Run(path).verify()
    database = path / "run.sqlite"
    whole, facts = database.read_bytes(), database.stat()
    seen = 0
    for place in range(100, len(whole), len(whole) // 40):
        database.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        checks.clear()
        try:
            Run(path).verify()
        except UsageError:
            seen += 1
        else:
            assert checks  # the byte is not a part of the record, such as free space in a page
    assert seen
    database.write_bytes(whole)
    checks.clear()
    Run(path).verify()
    assert not checks
    assert database.stat().st_mtime_ns != facts.st_mtime_ns


def test_damage_is_not_remembered(tmp_path: Path, checks: list[Path]) -> None:
    path = played(tmp_path)
    with sqlite3.connect(path / "run.sqlite") as connection:
        connection.execute("UPDATE rounds SET test_accuracy = 0.99")
    connection.close()
    for _ in range(2):
        with pytest.raises(UsageError, match="differs from what was recorded"):
            Run(path).verify()
    assert len(checks) == 2


def test_a_database_with_a_log_is_always_checked(tmp_path: Path, checks: list[Path]) -> None:
    """The file itself stays as it was: what has changed is in the log."""
    path = played(tmp_path)
    connection = sqlite3.connect(path / "run.sqlite")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    whole = (path / "run.sqlite").read_bytes()
    Run(path).verify()
    connection = sqlite3.connect(path / "run.sqlite")
    connection.execute("UPDATE rounds SET test_accuracy = 0.99")
    connection.commit()
    assert (path / "run.sqlite-wal").stat().st_size
    assert (path / "run.sqlite").read_bytes() == whole
    for _ in range(2):
        with pytest.raises(UsageError, match="differs from what was recorded"):
            Run(path).verify()
    connection.close()
    assert len(checks) == 3


def test_a_database_that_changes_during_the_check_is_not_remembered(
    tmp_path: Path, checks: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = played(tmp_path)
    whole = (path / "run.sqlite").read_bytes()

    def changing(*_: object) -> None:
        checks.append(path)
        (path / "run.sqlite").write_bytes(whole + bytes(4096))

    monkeypatch.setattr("fedcohort.record.run.verify_rounds", changing)
    Run(path).verify()
    (path / "run.sqlite").write_bytes(whole)
    Run(path).verify()
    assert len(checks) == 2


def test_a_cache_that_cannot_be_made_is_no_error(
    tmp_path: Path, checks: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = played(tmp_path)
    (tmp_path / "file").touch()
    monkeypatch.setenv("FEDCOHORT_CACHE", str(tmp_path / "file" / "cache"))
    for _ in range(2):
        Run(path).verify()
    assert len(checks) == 2


@pytest.mark.parametrize(("name", "other"), [("CHECKS", passed_checks.CHECKS + 1), ("__version__", "0.0.0")])
def test_other_checks_are_made_again(
    tmp_path: Path, checks: list[Path], monkeypatch: pytest.MonkeyPatch, name: str, other: object
) -> None:
    path = played(tmp_path)
    Run(path).verify()
    monkeypatch.setattr(passed_checks, name, other)
    Run(path).verify()
    assert len(checks) == 2


def test_small_databases_are_not_remembered(
    tmp_path: Path, checks: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = played(tmp_path)
    monkeypatch.setattr(passed_checks, "LEAST", (path / "run.sqlite").stat().st_size + 1)
    for _ in range(2):
        Run(path).verify()
    assert len(checks) == 2
    assert not (tmp_path / "cache" / "checked-runs").exists()


def test_the_older_half_of_many_databases_is_forgotten(
    tmp_path: Path, checks: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder grew with every run that was ever read."""
    monkeypatch.setattr(passed_checks, "MOST", 4)
    folder = tmp_path / "cache" / "checked-runs"
    folder.mkdir(parents=True)
    for age in range(4):
        (folder / f"old {age}").touch()
        os.utime(folder / f"old {age}", (1000 - age, 1000 - age))
    path = played(tmp_path)
    Run(path).verify()
    assert sorted(mark.name for mark in folder.iterdir() if mark.name.startswith("old")) == ["old 0", "old 1"]
    assert len(list(folder.iterdir())) == 3
    Run(path).verify()
    assert len(checks) == 1
