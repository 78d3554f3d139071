"""After a power loss at any moment, a run resumes to the same bits from its last durable checkpoint.

:class:`Disk` follows what is certainly on the disk (the files and directories that were synced, and the log up to the last synced
transaction) and what may be on it. It collects the states in which a power loss may leave the directory at any moment of a run.
"""

import errno
import itertools
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

import fedcohort
from fedcohort.core.errors import UsageError
from fedcohort.core.files import durable_files
from fedcohort.record import Run, checkpoints, writer
from tests.experiments import UCB, small
from tests.golden.test_same_bits import record

LOG = "run.sqlite-wal"
DATABASE = "run.sqlite"
Files = dict[str, bytes]


@dataclass
class Disk:
    """The disk of one run directory.

    Attributes:
        root: the run directory.
        data: bytes of each file that were synced, by path.
        names: synced names with the bytes that a power loss leaves in the files.
        log: the part of SQLite's log that was synced.
        crashes: states that a power loss may leave: a description, and the files.
        reader: another process is reading the database, so that the log cannot be emptied; then only its unsynced part can be lost.
    """

    root: Path
    data: Files = field(default_factory=dict)
    names: dict[str, Files] = field(default_factory=dict)
    log: bytes = b""
    crashes: list[tuple[str, Files]] = field(default_factory=list)
    reader: bool = False
    generator: random.Random = field(default_factory=lambda: random.Random(0))

    def now(self) -> Files:
        """All files as the running system sees them."""
        files = {str(path.relative_to(self.root)): path for path in sorted(self.root.rglob("*")) if path.is_file()}
        return {name: path.read_bytes() for name, path in files.items() if not name.endswith(("-shm", ".lock"))}

    def synced_file(self, path: Path) -> None:
        """The bytes of a file are on the disk, under the name that the directory has on the disk, if any."""
        self.data[os.path.relpath(path, self.root)] = path.read_bytes()
        self._lose_power(f"after syncing {path.name}")

    def synced_directory(self, path: Path) -> None:
        """The names in a directory are on the disk. A file without synced bytes is empty."""
        if not path.is_relative_to(self.root):
            return
        self._lose_power(f"before syncing {path.name}/")
        self.names[str(path)] = {
            os.path.relpath(file, self.root): self._synced_bytes(file) for file in path.iterdir() if file.is_file()
        }
        self._lose_power(f"after syncing {path.name}/")

    def _synced_bytes(self, file: Path) -> bytes:
        name, content = os.path.relpath(file, self.root), file.read_bytes()
        if name == DATABASE and DATABASE in self.names.get(str(self.root), {}):
            return self.names[str(self.root)][DATABASE]  # SQLite syncs it itself
        return content if content in self.data.values() else b""

    def committed(self, *, synced: bool) -> None:
        """A transaction was committed; if ``synced``, the log is on the disk."""
        if synced:
            self.log = self.now().get(LOG, b"")
        self._lose_power(f"after a {'durable ' if synced else ''}commit")

    def merged(self) -> None:
        """SQLite has synced its log, merged it into the database, and synced the database; it keeps the log while it is being read."""
        if self.now().get(LOG):
            return
        content = (self.root / DATABASE).read_bytes()
        for names in self.names.values():
            if DATABASE in names:
                names[DATABASE] = content
        self.log = b""
        self._lose_power("after merging the log")

    def _lose_power(self, moment: str) -> None:
        """Collect the states in which a power loss may leave the directory now."""
        now = self.now()
        kept: Files = {}
        for names in self.names.values():
            kept |= names
        if DATABASE not in kept:
            self.crashes.append((f"{moment}: everything synced", kept))
            if DATABASE in now:
                early = {DATABASE: self._synced_bytes(self.root / DATABASE)}
                self.crashes.append((f"{moment}: only the database renamed", kept | early))
            return
        log = now.pop(LOG, b"")
        now[DATABASE] = kept[DATABASE]
        renamed = {name: content if content in self.data.values() else b"" for name, content in now.items()}
        renamed[DATABASE] = kept[DATABASE]
        zeros = {name: content or bytes(len(now[name])) for name, content in renamed.items()}
        lost = {name: content for name, content in kept.items() if name in now}
        cuts = {len(self.log), len(log), *self.generator.choices(range(len(self.log), len(log) + 1), k=2)}
        for cut in sorted(cuts):
            for what, files in (("synced", kept), ("renamed", renamed), ("zeros", zeros), ("lost", lost)):
                self.crashes.append((f"{moment}: {what}, log {cut} of {len(log)}", files | {LOG: log[:cut]}))
        for cut in [] if self.reader else self.generator.choices(range(len(log) + 1), k=3):
            self.crashes.append((f"{moment}: all files, log {cut} of {len(log)}", now | {LOG: log[:cut]}))


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Follows the run that is written below a folder with the name ``runs``; a second passes with every look at the clock."""
    disk = Disk(tmp_path)
    lookups = iter(range(10**6))
    monkeypatch.setattr(writer, "time", SimpleNamespace(monotonic=lambda: float(next(lookups))))
    monkeypatch.setattr(writer, "SYNC_SHARE", 1.0)

    def locate(path: Path) -> None:
        disk.root = next(folder for folder in path.parents if folder.parent.name == "runs")

    def sync_file(path: Path) -> None:
        locate(path)
        durable_files.sync_file(path)
        disk.synced_file(path)

    def write_file(path: Path, content: bytes) -> None:
        locate(path)
        durable_files.write_file(path, content)
        disk.synced_file(path)

    def sync_directory(path: Path) -> None:
        durable_files.sync_directory(path)
        disk.synced_directory(path)

    class Watched(sqlite3.Connection):
        def __exit__(self, kind: Any, error: Any, traceback: Any) -> Literal[False]:
            super().__exit__(kind, error, traceback)
            if self._of_the_run:
                disk.committed(synced=self.execute("PRAGMA synchronous").fetchone()[0] >= 2)
            return False

        def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
            cursor = super().execute(statement, *values)
            if statement.endswith(("wal_checkpoint(TRUNCATE)", "journal_mode = WAL", "journal_mode = DELETE")):
                disk.merged()
            return cursor

        @property
        def _of_the_run(self) -> bool:
            return super().execute("PRAGMA journal_mode").fetchone()[0] == "wal"

    connect = sqlite3.connect
    for name, stand_in in (("sync_file", sync_file), ("write_file", write_file), ("sync_directory", sync_directory)):
        monkeypatch.setattr(writer, name, stand_in)
    own = SimpleNamespace(
        **{name: getattr(sqlite3, name) for name in ("OperationalError", "DatabaseError", "Connection")}
    )
    own.connect = lambda *args, **options: connect(*args, factory=Watched, **options)
    monkeypatch.setattr(writer, "sqlite3", own)
    return disk


def restore(files: Files, folder: Path) -> None:
    """Make a directory with these files."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def found_after(files: Files, folder: Path) -> int:
    """The round from which a run in this state resumes; 0 means from the beginning."""
    restore(files, folder)
    if DATABASE not in files:
        return 0
    run = Run(folder, untouched=True)
    run.verify()
    run.check_pages()
    if run.finished:
        return run.last_round
    checkpoint = run.checkpoint()
    return checkpoint[0] if checkpoint else 0


@pytest.mark.parametrize(
    ("seconds", "share"),
    [(3.0, 0.25), *(pytest.param(seconds, 1.0, marks=pytest.mark.slow) for seconds in (0.0, 3.0, 1000.0))],
)
def test_any_power_loss_leaves_a_run_that_resumes_to_the_same_bits(
    seconds: float, share: float, disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ``share`` of all states in which a power loss may leave the directory is checked, and one for each round is resumed."""
    experiment = small(rounds=7, selection=UCB, measures={"durable_seconds": seconds})
    undisturbed = record(fedcohort.run(experiment, runs=tmp_path / "runs"))
    crashes, name = disk.crashes, disk.root.name
    assert len(crashes) > 100
    monkeypatch.undo()  # resumed runs are not followed
    resumed_from: dict[int, list[Files]] = {}
    generator = random.Random(1)
    for moment, files in generator.sample(crashes, round(share * len(crashes))):
        try:
            resumed_from.setdefault(found_after(files, tmp_path / "again" / name), []).append(files)
        except fedcohort.UsageError as error:
            pytest.fail(f"{moment}: {error}")
    assert len(resumed_from) >= {0.0: 7, 3.0: 5, 1000.0: 3}[seconds]
    for states in resumed_from.values():
        restore(generator.choice(states), tmp_path / "again" / name)
        assert record(fedcohort.run(experiment, runs=tmp_path / "again")) == undisturbed


@pytest.mark.parametrize("seconds", [pytest.param(seconds, marks=pytest.mark.slow) for seconds in (0.0, 3.0)])
def test_any_power_loss_leaves_the_memories_of_clients(
    seconds: float, disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, with memories in files of their own: what a checkpoint refers to is on the disk before it counts."""
    monkeypatch.setattr(checkpoints, "SEPARATE", 0)
    experiment = small(
        rounds=6, algorithm="scaffold", training={"momentum": 0.0}, measures={"durable_seconds": seconds}
    )
    undisturbed = record(fedcohort.run(experiment, runs=tmp_path / "runs"))
    crashes, name = disk.crashes, disk.root.name
    assert any("memories-" in file for _, files in crashes for file in files)
    monkeypatch.undo()
    monkeypatch.setattr(checkpoints, "SEPARATE", 0)
    generator, resumed_from = random.Random(1), dict[int, list[Files]]()
    for _, files in generator.sample(crashes, len(crashes) // 2):
        resumed_from.setdefault(found_after(files, tmp_path / "again" / name), []).append(files)
    assert len(resumed_from) >= {0.0: 6, 3.0: 4}[seconds]
    for states in resumed_from.values():
        restore(generator.choice(states), tmp_path / "again" / name)
        assert record(fedcohort.run(experiment, runs=tmp_path / "again")) == undisturbed


def test_a_reader_does_not_weaken_durable_checkpoints(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the database is being read, its log cannot be merged; then the log itself is synced."""
    disk.reader = True
    readers: list[sqlite3.Connection] = []

    def progress(*_: Any) -> None:
        if not readers:
            readers.append(sqlite3.connect(disk.root / DATABASE, isolation_level=None))
            readers[0].execute("BEGIN")
            readers[0].execute("SELECT * FROM rounds").fetchall()

    experiment = small(rounds=4, measures={"durable_seconds": 0.0})
    undisturbed = record(fedcohort.run(experiment, runs=tmp_path / "runs", progress=progress))
    readers[0].close()
    monkeypatch.undo()
    states = {found_after(files, tmp_path / "again" / disk.root.name): files for _, files in disk.crashes}
    assert states.keys() == {0, 1, 2, 3, 4}
    for files in states.values():
        restore(files, tmp_path / "again" / disk.root.name)
        assert record(fedcohort.run(experiment, runs=tmp_path / "again")) == undisturbed


def test_a_setting_chooses_how_many_rounds_a_power_loss_can_cost(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With everything lost that was not synced, the worst loss is one round if every checkpoint is durable, and more otherwise."""
    worst = {seconds: _worst_loss(disk, seconds, tmp_path) for seconds in (0.0, 4.0)}
    assert worst[0.0] == 0
    assert 1 <= worst[4.0] <= 4


def _worst_loss(disk: Disk, seconds: float, folder: Path) -> int:
    """The largest number of recorded rounds that a power loss just after a round costs, if everything is lost that was not synced."""
    disk.crashes, disk.names, disk.log = [], {}, b""
    crashes: list[int] = []
    experiment = small(rounds=9, measures={"durable_seconds": seconds})
    fedcohort.run(
        experiment, runs=folder / str(seconds) / "runs", progress=lambda *_: crashes.append(len(disk.crashes))
    )
    losses = []
    for t, number in enumerate(crashes, 1):
        state = next(files for what, files in reversed(disk.crashes[:number]) if ": synced" in what)
        losses.append(t - found_after(state, folder / "again"))
    return max(losses)


def test_syncing_takes_at_most_its_share_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a disk that needs 3 seconds for a durable checkpoint, the next one follows no sooner than 150 seconds later."""
    now, durable_at = [0.0], list[float]()

    def slow(path: Path) -> None:
        now[0] += 3.0
        durable_at.append(now[0])

    monkeypatch.setattr(writer, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def progress(*_: Any) -> None:
        monkeypatch.setattr(writer, "sync_file", slow)
        now[0] += 10.0

    experiment = small(rounds=40, model="logistic", measures={"durable_seconds": 5.0})
    fedcohort.run(experiment, runs=tmp_path, progress=progress)
    steps = [later - sooner for sooner, later in itertools.pairwise(durable_at)]
    assert len(durable_at) >= 3
    assert all(step >= 150 for step in steps[:-2])  # the last ones belong to the end of the run


def test_the_last_checkpoint_is_durable_after_an_orderly_end(tmp_path: Path) -> None:
    def progress(cell: Any, row: Any) -> None:
        if row.round == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(small(measures={"durable_seconds": 1000.0}), runs=tmp_path, progress=progress)
    [path] = tmp_path.iterdir()
    assert [file.name for file in (path / "checkpoint").iterdir()] == ["round-000004.safetensors"]
    assert Run(path).query("SELECT round FROM checkpoints") == [(4,)]


def test_a_run_that_was_killed_before_its_end_keeps_no_older_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rounds are recorded, but the run is not finished: the next process only finishes it."""
    experiment = small(rounds=4, measures={"durable_seconds": 1000.0})

    def killed(*_: object) -> None:
        raise ArithmeticError

    with monkeypatch.context() as patch:
        patch.setattr(writer.Writer, "finish", killed)
        patch.setattr(writer.Writer, "make_durable", lambda _: None)
        with pytest.raises(UsageError, match="killed raised ArithmeticError"):
            fedcohort.run(experiment, runs=tmp_path)
    [path] = tmp_path.glob("small-*")
    assert len(Run(path).query("SELECT file FROM checkpoints")) == 2
    run = fedcohort.run(experiment, runs=tmp_path)
    assert run.query("SELECT round FROM checkpoints") == [(4,)]
    assert [file.name for file in (path / "checkpoint").iterdir()] == ["round-000004.safetensors"]


def test_the_setting_does_not_change_the_run(tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=1), runs=tmp_path)
    assert fedcohort.run(small(rounds=1, measures={"durable_seconds": 0.0}), runs=tmp_path).path == run.path


def test_a_directory_on_a_file_system_that_cannot_sync_directories_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_supported(descriptor: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(durable_files, "_sync", not_supported)
    durable_files.sync_directory(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Invalid argument"):
        durable_files.sync_file(tmp_path / "file")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace shows the calls of a process to the system")
def test_the_system_is_asked_to_sync_in_the_right_order(tmp_path: Path) -> None:
    """A checkpoint and its name are synced, then the log that names it, and only then the previous checkpoint is deleted."""
    calls = "trace=fsync,fdatasync,rename,unlink,unlinkat"
    command = [
        "strace",
        "-f",
        "-y",
        "-o",
        str(tmp_path / "calls"),
        "-e",
        calls,
        sys.executable,
        "-m",
        "fedcohort",
        "run",
        "-q",
    ]
    settings = ["rounds=4", "seeds=1", "measures.checkpoint_seconds=0", "measures.durable_seconds=0"]
    command += ["--runs", str(tmp_path / "runs"), *(word for setting in settings for word in ("--set", setting))]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    lines = [line for line in (tmp_path / "calls").read_text().splitlines() if str(tmp_path) in line]

    def place(*words: str, after: int = 0) -> int:
        return next(i for i, line in enumerate(lines) if i >= after and all(word in line for word in words))

    created = place("rename", "/run.sqlite")
    assert place("fsync", "/.run.sqlite") < created
    assert place("fsync", "/experiment.toml") < created
    for t in (2, 3, 4):
        file = place("sync", f"round-00000{t}.safetensors>")
        directory = place("sync", "/checkpoint>", after=file)
        log = place("sync", "run.sqlite-wal>", after=directory)
        assert log < place("unlink", f"round-00000{t - 1}.safetensors", after=directory)
    model = place("sync", ".model.safetensors>")
    assert model < place("rename", ".model.safetensors") < place("sync", "run.sqlite-wal>", after=model)
