"""A full disk ends a command with one line and exit code 2. The record stays valid, and with space again the results are the same."""

import errno
import io
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import fedcohort
from fedcohort.cli import cli
from fedcohort.core.errors import UsageError
from fedcohort.core.files import durable_files, state_files
from fedcohort.record import Run, writer
from tests.experiments import UCB, small
from tests.golden.test_same_bits import record
from tests.repetitions import slow_after


class SmallDisk:
    """A file system of its own in memory, at ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def resize(self, kib: int) -> None:
        """Give it this size; it keeps its files."""
        subprocess.run(["mount", "-o", f"remount,size={kib}k", str(self.path)], check=True)

    def fill(self, left: int = 0) -> None:
        """Fill it, except for this many bytes."""
        free = shutil.disk_usage(self.path).free
        (self.path / "filled").write_bytes(bytes(max(free - left, 0)))

    def empty(self) -> None:
        """Delete what :meth:`fill` wrote."""
        (self.path / "filled").unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(path)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only an administrator of Linux can make a file system")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fedcohort_command(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


def assert_one_line(result: Result, *words: str) -> None:
    """The command ended with one line that says what is full, and exit code 2."""
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    lines = result.stderr.strip().splitlines()
    errors = [line for line in lines if line.startswith("fedcohort: error: ")]
    assert errors == lines[-1:], result.output
    for word in words:
        assert word in lines[-1]


RUN = [
    "run",
    "-q",
    "--set",
    "rounds=8",
    "--set",
    "seeds=1",
    "--set",
    "selection.name=ucb",
    "--set",
    "measures.durable_seconds=1000",
    "--set",
    "measures.checkpoint_seconds=0",
]


@pytest.mark.parametrize(
    "sizes",
    [range(80, 480, 55), pytest.param(range(24, 480, 4), marks=pytest.mark.slow)],
    ids=["some sizes", "many sizes"],
)
def test_a_disk_of_any_size_keeps_a_valid_record(sizes: range, disk: SmallDisk, tmp_path: Path) -> None:
    assert fedcohort_command(*RUN, "--runs", str(tmp_path / "runs")).exit_code == 0
    [path] = (tmp_path / "runs").iterdir()
    undisturbed = record(Run(path))
    reached = set()
    for size in sizes:
        runs = disk.path / f"runs-{size}"
        disk.resize(size)
        result = fedcohort_command(*RUN, "--runs", str(runs))
        if result.exit_code:
            assert_one_line(result, "cannot be written", "free some space")
        again = runs / path.name
        if (again / "run.sqlite").exists():
            reached.add(fedcohort.open_run(again).last_round)
        disk.resize(65536)
        assert fedcohort_command(*RUN, "--runs", str(runs)).exit_code == 0
        assert record(Run(again)) == undisturbed
        shutil.rmtree(runs)
    assert len(reached) >= 4  # the disk was full in different rounds


@pytest.mark.parametrize("nth", [1, 2, 3, 5, 8, 13, 21, 34])
def test_any_write_may_find_the_disk_full(nth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On every system: the nth write, sync or transaction of a run raises what a full disk does."""
    experiment = small(selection=UCB, measures={"durable_seconds": 0.0})
    undisturbed = record(fedcohort.run(experiment, runs=tmp_path / "undisturbed"))
    count = iter(range(1, 10**6))

    def full(work: Any) -> Any:
        def instead(*args: Any, **values: Any) -> Any:
            if next(count) == nth:
                raise OSError(errno.ENOSPC, "No space left on device")
            return work(*args, **values)

        return instead

    with monkeypatch.context() as patch:
        for place, name in (
            (writer, "sync_file"), (writer, "sync_directory"), (writer, "write_file"), (state_files, "_pieces"),
            (writer.Writer, "_seal"), (writer.Writer, "_transaction"), (writer.Writer, "_clear"),
        ):  # fmt: skip
            patch.setattr(place, name, full(getattr(place, name)))
        with pytest.raises(UsageError, match=r"cannot be written .*No space left on device") as error:
            fedcohort.run(experiment, runs=tmp_path / "full")
    assert "\n" not in str(error.value)
    for path in (tmp_path / "full").iterdir():
        if (path / "run.sqlite").exists():
            fedcohort.open_run(path)
        left_over = [*(path / "checkpoint").glob(".round*"), *path.glob(".run*")]
        assert not left_over  # an incomplete file does not keep its space
    assert record(fedcohort.run(experiment, runs=tmp_path / "full")) == undisturbed


@pytest.mark.parametrize("jobs", slow_after(1, ["1", "2"]))
def test_a_full_disk_ends_a_comparison_in_one_line(jobs: str, disk: SmallDisk) -> None:
    words = ["sweep", "-q", "--set", "rounds=8", "--set", "seeds=1", "--over", "selection.k=[2, 3]", "--jobs", jobs]
    words += ["--set", "measures.checkpoint_seconds=0"]
    disk.resize(400)
    assert_one_line(
        fedcohort_command(*words, "--runs", str(disk.path / "runs")), "cannot be written", "free some space"
    )


@pytest.mark.parametrize("left", range(0, 48_000, 16_000))
def test_a_disk_that_is_full_before_the_first_round_is_named(left: int, disk: SmallDisk) -> None:
    disk.fill(left=left)
    assert_one_line(fedcohort_command(*RUN, "--runs", str(disk.path / "runs")), "cannot be written", "free some space")


def test_a_page_that_does_not_fit_leaves_the_old_one(disk: SmallDisk, tmp_path: Path) -> None:
    assert fedcohort_command(*RUN, "--runs", str(tmp_path / "runs")).exit_code == 0
    page, folder = disk.path / "page.html", disk.path / "figures"
    page.write_text("the old page")
    folder.mkdir()
    disk.fill(left=8192)
    for words in (["report", "-o", str(page)], ["figures", "--out", str(folder)]):
        result = fedcohort_command(*words, "--runs", str(tmp_path / "runs"))
        assert_one_line(result, "cannot be written (No space left on device)")
    assert page.read_text() == "the old page"
    assert {path.name for path in disk.path.iterdir()} == {"page.html", "figures", "filled"}
    disk.empty()
    assert fedcohort_command("report", "-o", str(page), "--runs", str(tmp_path / "runs")).exit_code == 0
    assert "</html>" in page.read_text()


@pytest.mark.filterwarnings("error")  # the thread that writes prints no traceback
def test_a_tracker_without_space_is_one_line_and_the_run_goes_on_later(disk: SmallDisk, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    track = ["--track", f"tensorboard:{disk.path / 'logs'}", "--runs", str(tmp_path / "runs")]
    disk.fill()
    assert_one_line(fedcohort_command(*RUN, *track), "--track tensorboard: '", "No space left on device")
    disk.empty()
    assert fedcohort_command(*RUN, *track).exit_code == 0


def write_pictures(folder: Path) -> None:
    """An image folder of 60 images in two classes."""
    from PIL import Image

    generator = np.random.default_rng(0)
    for i in range(60):
        inner = folder / "train" / str(i % 2)
        inner.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 256, (64, 64, 3), np.uint8)).save(inner / f"{i}.png")


def write_parquet(folder: Path) -> None:
    """The images of :func:`write_pictures` in one Parquet file, which is copied into the cache before it is decoded."""
    from datasets import ClassLabel, Dataset, Features, Image

    write_pictures(folder)
    files = sorted((folder / "train").rglob("*.png"))
    images = [{"bytes": file.read_bytes(), "path": None} for file in files]
    columns = {"image": images, "label": [int(file.parent.name) for file in files]}
    features = Features({"image": Image(), "label": ClassLabel(names=["0", "1"])})
    shutil.rmtree(folder / "train")
    Dataset.from_dict(columns, features).to_parquet(folder / "train.parquet")


@pytest.mark.parametrize("left", [0, 100_000, 400_000])
@pytest.mark.parametrize("write", [write_pictures, write_parquet])
def test_a_cache_without_space_is_one_line(
    write: Any, left: int, disk: SmallDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "pictures")
    monkeypatch.setenv("FEDCOHORT_CACHE", str(disk.path))
    settings = [
        f"data.name={str(tmp_path / 'pictures')!r}",
        "federation.clients=4",
        "federation.partition.name='iid'",
        "rounds=1",
    ]
    words = [*RUN, *(word for setting in settings for word in ("--set", setting)), "--runs", str(tmp_path / "runs")]
    disk.fill(left=left)
    result = fedcohort_command(*words)
    assert_one_line(result)
    assert any(words in result.stderr for words in ("FEDCOHORT_CACHE", "Not enough disk space"))
    disk.empty()
    result = fedcohort_command(*words)
    assert result.exit_code == 0, result.output


def test_decoded_images_have_their_space_before_they_are_mapped(disk: SmallDisk) -> None:
    """Without it, the first use of a page of the map would be a bus error."""
    from datasets import Dataset, Features, Image
    from PIL import Image as Pictures

    from fedcohort.federation.data.images import _decode_images

    buffer = io.BytesIO()
    Pictures.fromarray(np.zeros((64, 64, 3), np.uint8)).save(buffer, "png")
    cells = [{"bytes": buffer.getvalue(), "path": None}] * 40
    rows = Dataset.from_dict({"image": cells}, Features({"image": Image(decode=False)}))
    disk.fill(left=200_000)
    with pytest.raises((OSError, UsageError), match=r"No space left on device|are free in the cache"):
        _decode_images(rows, disk.path / "features.npy", Pictures.open(buffer), "test")


@pytest.mark.parametrize(
    "words", ["database or disk is full", "Not enough disk space. Needed: 5 GB", "100 requested and 0 written"]
)
def test_libraries_say_in_words_that_the_disk_is_full(words: str) -> None:
    assert durable_files.is_disk_full(OSError(words))
    assert not durable_files.is_disk_full(OSError("no such file"))
    assert not durable_files.is_disk_full(PermissionError(errno.EACCES, "Permission denied"))


def test_any_command_reports_a_full_disk_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device", "/tmp/somewhere")

    monkeypatch.setattr("fedcohort.runs.find_run.find_run", full)
    monkeypatch.setattr("fedcohort.runs.play_run.find_run", full)
    result = fedcohort_command(*RUN, "--runs", str(tmp_path))
    assert_one_line(result, "No space left on device", "/tmp/somewhere", "free some space")
