"""Files and folders to be written are refused before anything is played, and never half written."""

import errno
import os
import socket
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fedcohort.cli import cli
from fedcohort.core.errors import UsageError
from fedcohort.core.files import durable_files
from fedcohort.core.files.durable_files import replace_files
from fedcohort.core.files.paths import check_writable, kind_of
from fedcohort.flower.new_app import new_app
from tests.experiments import small

TARGETS = [
    "a folder",
    "a link to a full device",
    "a pipe",
    "a socket",
    "below a file",
    "a folder of the system",
    "too long",
]


def target(kind: str, folder: Path, name: str) -> Path:
    """A path in ``folder`` that cannot be written."""
    path = folder / name
    if kind == "a folder":
        path.mkdir()
    elif kind == "a link to a full device":
        path.symlink_to("/dev/full")
    elif kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(os.path.relpath(path))
    elif kind == "below a file":
        (folder / "file").write_text("mine")
        path = folder / "file" / "deeper" / name
    elif kind == "a folder of the system":
        path = Path("/proc/self/fd") / name
    else:
        path = folder / f"{'x' * 300}{name}"
    return path


def call(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments)], prog_name="fedcohort")


@pytest.mark.skipif(os.name != "posix", reason="pipes, sockets and devices of POSIX")
@pytest.mark.parametrize("kind", TARGETS)
def test_targets_are_refused_before_anything_is_played(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.toml").write_text(small(rounds=1).to_toml())
    commands: list[tuple[tuple[str, ...], str, str]] = [
        (("compare", "x.toml", "-q"), "--csv", "a.csv"),
        (("sweep", "x.toml", "--over", "selection.k=[1]", "-q"), "--latex", "a.tex"),
        (("report", "runs"), "-o", "a.html"),
        (("profile", "x.toml"), "-o", "b.html"),
        (("data", "describe", "x.toml"), "-o", "c.html"),
        (("figures", "runs"), "-o", "d"),
        (("run", "x.toml", "--track", "tensorboard:t"), "", "t"),
        (("deploy", "new"), "", "app"),
    ]
    for command, option, name in commands:
        if kind == "a folder" and not name.startswith(("a.", "b.", "c.")):
            continue
        if find_spec({"run": "tensorboard", "deploy": "flwr"}.get(command[0], "click")) is None:
            continue
        (tmp_path / name[:1]).mkdir()
        path = target(kind, tmp_path / name[:1], name)
        if command[0] == "run":
            command = (*command[:-1], f"tensorboard:{path}")
        refused = call(*command, *([option, path] if option else [path] if command[0] == "deploy" else []))
        assert refused.exit_code == 2, (command, refused.output)
        assert len(refused.stderr.splitlines()) == 1
        assert f"{path}"[:20] in refused.stderr, refused.stderr
        assert refused.stdout == ""
        for left_over in (tmp_path / name[:1]).iterdir():
            left_over.rmdir() if left_over.is_dir() and not left_over.is_symlink() else left_over.unlink()
        (tmp_path / name[:1]).rmdir()
    assert sorted(tmp_path.iterdir()) == [tmp_path / "x.toml"], "nothing was played, and nothing is left behind"


def test_files_and_folders_that_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("mine")
    check_writable(tmp_path / "old", "--csv")
    check_writable(tmp_path / "new", "--csv")
    check_writable(tmp_path / "a" / "b" / "new", "--csv")
    check_writable(tmp_path / "a" / "b", "--out", folder=True)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old").read_text() == "mine"
    assert (kind_of(tmp_path / "old"), kind_of(tmp_path), kind_of(tmp_path / "none")) == ("a file", "a folder", "")


def test_a_file_without_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process with all permissions does not notice a read-only file, so the system's answer is replaced."""
    (tmp_path / "a.csv").write_text("mine")
    (tmp_path / "a.csv").chmod(0o444)
    opened = os.open

    def refuse(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_WRONLY and not Path(path).stat().st_mode & 0o200:
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(
        UsageError, match=r"--csv .*a\.csv': cannot be written \(Permission denied\); give another file"
    ):
        check_writable(tmp_path / "a.csv", "--csv")


def full_after(count: int) -> Callable[..., None]:
    """``write_file`` on a disk that is full after ``count`` files."""
    written = iter(range(100))
    write = durable_files.write_file

    def write_file(path: Path, content: bytes, like: Path | None = None) -> None:
        if next(written) < count:
            write(path, content, like)
            return
        write(path, content[: len(content) // 2], like)
        raise OSError(errno.ENOSPC, "No space left on device")

    return write_file


def test_either_all_files_are_replaced_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"old")
    contents = {tmp_path / name: b"fresh" for name in "abc"}
    with monkeypatch.context() as patched:
        patched.setattr(durable_files, "write_file", full_after(1))
        with pytest.raises(OSError, match="No space"):
            replace_files(contents)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a", b"old")]
    replace_files(contents)
    assert sorted((path.name, path.read_bytes()) for path in tmp_path.iterdir()) == [(name, b"fresh") for name in "abc"]


def test_files_with_names_that_begin_alike_keep_their_own_contents(tmp_path: Path) -> None:
    """Figures of rows with long names differ in their last letters; they were written to one file in between."""
    contents = {tmp_path / f"{'a' * 60}-{view}.png": view.encode() for view in ("loss", "score", "rank")}
    replace_files(contents)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == contents


def test_the_table_is_shown_although_its_files_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.toml").write_text(small(rounds=1, seeds=1).to_toml())
    (tmp_path / "a.csv").write_text("old")
    assert call("compare", "x.toml", "-q").exit_code == 0
    monkeypatch.setattr(durable_files, "write_file", full_after(0))
    result = call("compare", "x.toml", "-q", "--csv", "a.csv", "--latex", "new/a.tex")
    assert result.exit_code == 2
    assert "uniform" in result.stdout
    assert result.stderr == (
        "fedcohort: error: new/a.tex: cannot be written (No space left on device); give another file\n"
    )
    assert (tmp_path / "a.csv").read_text() == "old"
    assert not any((tmp_path / "new").iterdir())


def test_an_app_is_written_completely_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Path.write_text

    def write_text(path: Path, *arguments: Any, **named: Any) -> int:
        if path.name == "server.py":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, *arguments, **named)

    pytest.importorskip("flwr")
    monkeypatch.setattr(Path, "write_text", write_text)
    with pytest.raises(OSError, match="No space left on device"):  # the command says it in one line, as every command
        new_app(tmp_path / "app")
    assert not any(tmp_path.iterdir())
