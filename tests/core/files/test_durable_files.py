"""Files that survive a power loss, on systems and file systems that lack a call."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from fedcohort.core.files import durable_files
from fedcohort.core.files.durable_files import replace_file, reserve, sync_directory


def refuses(number: int) -> Any:
    def call(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    return call


@pytest.mark.parametrize("lacks", ["the call", "its support"])
def test_room_is_taken_where_it_cannot_be_reserved(lacks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if lacks == "the call":
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    else:
        monkeypatch.setattr(os, "posix_fallocate", refuses(errno.EINVAL), raising=False)
    file = tmp_path / "file"
    with file.open("w+b") as opened:
        opened.write(b"head")
        opened.flush()
        reserve(opened.fileno(), 4, 3_000_000)
    assert file.read_bytes() == b"head" + bytes(3_000_000)
    if hasattr(file.stat(), "st_blocks"):
        assert file.stat().st_blocks * 512 >= 3_000_000, "a file with holes has taken no room"


@pytest.mark.parametrize("call", ["posix_fallocate", "write"])
def test_a_full_disk_is_an_error(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if call == "write":
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    monkeypatch.setattr(os, call, refuses(errno.ENOSPC), raising=False)
    with (tmp_path / "file").open("w+b") as opened, pytest.raises(OSError, match="No space left"):
        reserve(opened.fileno(), 0, 100)


def test_directories_that_cannot_be_opened_are_not_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows. Elsewhere, the error is reported."""
    monkeypatch.setattr(os, "open", refuses(errno.EACCES))
    monkeypatch.setattr(os, "O_DIRECTORY", 0, raising=False)
    with pytest.raises(PermissionError):
        sync_directory(tmp_path)
    monkeypatch.delattr(os, "O_DIRECTORY")
    sync_directory(tmp_path)


def test_a_file_is_written_into_a_folder_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "open", refuses(errno.EACCES))
    replace_file(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_file_is_on_the_disk_before_it_replaces_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power loss must leave the old file or the new one: a site's budget and the state of a chooser are kept in such files."""
    file = tmp_path / "file"
    file.write_bytes(b"old")
    synced: list[tuple[int, bytes]] = []
    monkeypatch.setattr(
        durable_files, "_sync", lambda number: synced.append((os.fstat(number).st_ino, file.read_bytes()))
    )
    replace_file(file, b"new")
    assert synced == [(file.stat().st_ino, b"old"), (tmp_path.stat().st_ino, b"new")]
