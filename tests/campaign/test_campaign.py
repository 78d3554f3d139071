"""The campaign itself: its command, its rows, and that its comparisons see what they are for."""

import json
import os
import shutil
import sqlite3
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

import fedcohort
from tests.campaign import __main__ as command_line
from tests.campaign import results
from tests.campaign.attack import Failed
from tests.campaign.byte_flips import damage
from tests.campaign.catalogue import ATTACKS
from tests.campaign.directories import contents, difference, same_directory
from tests.campaign.forked import Ended, begin, one_line
from tests.campaign.power_losses import Recorder, cuts
from tests.campaign.worker import Outcome, Worker
from tests.docs.pages import ROOT
from tests.experiments import small

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the attacks need Linux")


class Scripted:
    """In place of a worker process: cases 3 and 5 fail."""

    limits: ClassVar[list[float]] = []

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def play(self, attack: str, seed: int, number: int, limit: float) -> Outcome:
        Scripted.limits.append(limit)
        return Outcome(
            number, 2, 0.1, f"seed {seed} broke it" if number in (3, 5) else None, figures={"shown": f"{seed}"}
        )

    def close(self) -> None:
        pass


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A campaign whose cases are played by :class:`Scripted`, and whose rows go to the returned file."""
    monkeypatch.setattr(command_line, "Worker", Scripted)
    monkeypatch.setattr(command_line, "update_page", lambda: None)
    file = tmp_path / "results" / "campaign.json"
    monkeypatch.setattr(command_line, "read", lambda: results.read(file))
    monkeypatch.setattr(command_line, "write", lambda rows: results.write(rows, file))
    return file


def test_a_failing_case_is_printed_with_the_command_that_repeats_it(scripted: Path, capsys: Any) -> None:
    assert command_line.main(["--only", "starters", "--minutes", "7", "--seed", "9"]) == 1
    shown = capsys.readouterr().out
    assert "starters, case 5: seed 9 broke it" in shown
    assert "repeat it: python -m tests.campaign --only starters --seed 9 --case 3" in shown
    assert "14 crowds" in shown
    assert not scripted.exists()


def test_a_single_case_can_be_played_alone(scripted: Path, capsys: Any) -> None:
    assert command_line.main(["--only", "flips", "--case", "4"]) == 0
    assert "flips: 2 damages, 0 failures" in capsys.readouterr().out


def test_rows_are_merged_one_by_one_with_commit_date_processor_versions_and_seed(scripted: Path) -> None:
    command_line.main(["--only", "starters", "--case", "0", "--write", "--seed", "1"])
    command_line.main(["--only", "kills", "--case", "3", "--write"])
    command_line.main(["--only", "starters", "--case", "3", "--write", "--seed", "2"])
    rows = results.read(scripted)
    assert [(row["attack"], row["count"], row["failures"], row["seed"]) for row in rows] == [
        ("kills", 2, 1, 0),
        ("starters", 2, 1, 2),
    ]
    assert rows[0]["failed"] == [3]
    assert rows[1]["figures"] == {"shown": "2"}
    for row in rows:
        assert {"commit", "date", "processor", "system", "versions", "minutes", "seconds", "did", "unit"} <= row.keys()
        assert row["versions"]["fedcohort"] == fedcohort.__version__


def test_the_number_of_cases_follows_the_minutes() -> None:
    numbers = {minutes: command_line._cases(ATTACKS["kills"], minutes) for minutes in (60, 5, 0.01)}
    assert [len(cases) for cases in numbers.values()] == [
        ATTACKS["kills"].full,
        ATTACKS["kills"].full // 12,
        ATTACKS["kills"].least,
    ]
    assert list(command_line._cases(ATTACKS["soak"], 60)) == [0, 1]
    assert list(command_line._cases(ATTACKS["soak"], 5)) == [4, 5]


def test_every_attack_is_on_the_page_and_has_a_small_part() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text("utf-8")
    for name, attack in ATTACKS.items():
        assert f"\n| `{name}` |" in page.partition("## The attacks")[2]
        assert attack.small
        assert attack.did[0] != " "


def test_an_hour_has_the_promised_counts() -> None:
    from tests.campaign.data_files import BLOCK as FILES
    from tests.campaign.descriptions import BLOCK as DESCRIPTIONS
    from tests.campaign.federations import PAIRS

    assert ATTACKS["descriptions"].full * DESCRIPTIONS >= 20_000
    assert ATTACKS["data-files"].full * FILES >= 2_000
    assert ATTACKS["flips"].full >= 1_000
    assert ATTACKS["starters"].full * 2 // 3 >= 20
    assert len(PAIRS) >= 8


# --- comparisons -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    return fedcohort.run(small(rounds=2), runs=tmp_path_factory.mktemp("runs")).path


def test_equal_runs_have_equal_contents_whatever_their_wall_times(played: Path, tmp_path: Path) -> None:
    again = fedcohort.run(small(rounds=2), runs=tmp_path).path
    assert not fedcohort.Run(again).wall.equals(fedcohort.Run(played).wall)
    assert difference(contents(again), contents(played)) == ""


def test_every_other_difference_is_seen(played: Path, tmp_path: Path) -> None:
    from tests.records import seal_again

    expected = contents(played)
    other = Path(shutil.copytree(played, tmp_path / played.name))
    (other / ".run-1.sqlite").write_bytes(b"")
    with pytest.raises(Failed, match=r"\.run-1\.sqlite is left over"):
        same_directory(other, expected)
    (other / ".run-1.sqlite").unlink()
    same_directory(other, expected)
    with sqlite3.connect(other / "run.sqlite") as database:
        database.execute("UPDATE ledger SET bytes_up = bytes_up + 1 WHERE round = 2")
        seal_again(database)
    database.close()
    with pytest.raises(Failed, match="ledger differs"):
        same_directory(other, expected)


def test_a_changed_model_is_not_the_same_directory(played: Path, tmp_path: Path) -> None:
    expected = contents(played)
    changed = {**expected, "model.safetensors": expected["model.safetensors"][:-1] + b"x"}
    assert difference(changed, expected) == "model.safetensors differs"
    del changed["model.safetensors"]
    assert difference(changed, expected) == "model.safetensors is missing"


@pytest.mark.parametrize(
    ("ended", "complaint"),
    [
        (Ended(1, "", "Traceback (most recent call last):"), "exit code 1"),
        (Ended(2, "", "Traceback\nfedcohort: error: x"), "not one line"),
        (Ended(2, "", "fedcohort: error: " + "x" * 300), "of 318 characters"),
        (Ended(-11, "", ""), "exit code -11"),
    ],
)
def test_only_one_short_line_is_accepted(ended: Ended, complaint: str) -> None:
    one_line(Ended(2, "", "fedcohort: warning: w\nfedcohort: error: x\n"))
    with pytest.raises(Failed, match=complaint):
        one_line(ended)


def test_every_damage_changes_its_file(tmp_path: Path) -> None:
    import random

    file, ways = tmp_path / "file", set()
    for seed in range(60):
        file.write_bytes(bytes(range(1, 201)))
        ways.add(damage(file, random.Random(seed)).split()[0])
        assert not file.exists() or file.read_bytes() != bytes(range(1, 201))
    assert len(ways) == 7


# --- children and workers ----------------------------------------------------------------------------------------------------------


@linux
def test_a_child_ends_with_its_code_and_its_output(tmp_path: Path) -> None:
    def work() -> int:
        print(Path.cwd())
        print("wrong", file=sys.stderr)
        return 7

    assert begin(work, tmp_path).wait() == Ended(7, f"{tmp_path}\n", "wrong\n")
    assert "ZeroDivisionError" in begin(lambda: 1 / 0, tmp_path).wait().err
    child = begin(lambda: sys.stdin.read() or __import__("time").sleep(60), tmp_path)
    child.kill()
    assert child.wait().killed
    assert Path.cwd() != tmp_path


@linux
def test_a_worker_that_dies_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of a process that ends without one is a failure of its case."""
    import subprocess

    start = subprocess.Popen
    program = (
        "import sys; line = sys.stdin.readline(); print('{\"number\": 1, \"count\": 3}') if '1}' in line else None"
    )
    monkeypatch.setattr(subprocess, "Popen", lambda command, **values: start([sys.executable, "-c", program], **values))
    worker = Worker(tmp_path / "worker")
    assert worker.play("kills", 0, 2, 60).failure is not None
    assert worker.play("kills", 0, 1, 60) == Outcome(1, 3)
    worker.close()


@linux
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_library_refuses_what_is_more_than_the_disk(tmp_path: Path) -> None:
    import subprocess

    from tests.campaign.full_disk import library

    (tmp_path / "disk").mkdir()
    limits = {"LD_PRELOAD": str(library(tmp_path)), "FULL_BELOW": str(tmp_path / "disk"), "FULL_BYTES": "5000"}
    program = "import sys; open(sys.argv[1], 'wb', buffering=0).write(bytes(int(sys.argv[2])))"

    def write(name: str, count: int) -> str:
        command = [sys.executable, "-c", program, str(tmp_path / name), str(count)]
        return subprocess.run(command, env=os.environ | limits, capture_output=True, text=True).stderr

    assert write("disk/small", 5000) == ""
    assert "No space left on device" in write("disk/large", 5001)
    assert write("elsewhere", 5001) == ""


# --- power losses --------------------------------------------------------------------------------------------------------------------


def test_the_log_is_cut_between_and_inside_the_frames_that_are_not_synced() -> None:
    whole = bytes(8) + (512).to_bytes(4, "big") + bytes(20) + b"".join(bytes([i]) * (24 + 512) for i in (1, 2, 3))
    frames = [32 + i * 536 for i in range(4)]
    assert set(frames) <= set(cuts(b"", whole))
    assert any(frames[1] < cut < frames[2] for cut in cuts(b"", whole))
    assert min(cuts(whole[: frames[2]], whole)) == frames[2]
    assert cuts(whole, whole) == [len(whole)]


@linux
def test_what_is_not_synced_can_be_lost_and_what_is_synced_cannot(tmp_path: Path) -> None:
    def work() -> None:
        runs = tmp_path / "runs"
        runs.mkdir()
        recorder = Recorder(runs)
        recorder.install()
        (runs / ".new").write_bytes(b"lost")
        (runs / ".new").rename(runs / "new")
        recorder.look()
        with (runs / "kept").open("wb") as file:
            file.write(b"kept")
            file.flush()
            os.fsync(file.fileno())
        folder = os.open(runs, os.O_RDONLY)
        os.fsync(folder)
        recorder.states.clear()
        recorder.look()
        states = [{name: data.decode() for name, data in state.items()} for state in recorder.states.values()]
        (tmp_path / "states.json").write_text(json.dumps(states))

    assert begin(work, tmp_path).wait().code == 0
    states = json.loads((tmp_path / "states.json").read_text())
    assert {"new": "lost", "kept": "kept"} in states
    assert {"new": "", "kept": "kept"} in states
    assert all(state["kept"] == "kept" and "new" in state for state in states)


@linux
def test_a_synced_commit_is_never_cut(tmp_path: Path) -> None:
    def rows(mode: str) -> set[int]:
        """The numbers of rows that a power loss can leave of two commits."""

        def work() -> None:
            runs = tmp_path / mode
            recorder = Recorder(runs)
            recorder.install()
            connection = sqlite3.connect(runs / "run.sqlite")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("CREATE TABLE t (x)")
            connection.execute(f"PRAGMA synchronous = {mode}")
            for i in range(2):
                with connection:
                    connection.execute("INSERT INTO t VALUES (?)", (i,))
            connection.execute("SELECT 1")
            recorder.states.clear()
            recorder.look()
            for i, state in enumerate(recorder.states.values()):
                folder = tmp_path / f"{mode}-{i}"
                folder.mkdir()
                for name, data in state.items():
                    (folder / name).write_bytes(data)

        (tmp_path / mode).mkdir()
        assert begin(work, tmp_path).wait().err == ""
        found = set()
        for folder in tmp_path.glob(f"{mode}-*"):
            if (folder / "run.sqlite").exists():
                with sqlite3.connect(folder / "run.sqlite") as database:
                    tables = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
                    found.add(database.execute("SELECT count(*) FROM t").fetchone()[0] if tables else -1)
                database.close()
        return found

    assert rows("FULL") == {2}
    assert {0, 1, 2} <= rows("NORMAL")
