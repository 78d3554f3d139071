"""Files that survive a power loss, on systems and file systems that lack a call."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from fedcohort.core.files import durable_files
from fedcohort.core.files.durable_files import replace_file, replace_files, reserve, sync_directory


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


def test_a_replaced_file_survives_a_power_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes are on the disk before the new file gets the name of the old one, and then the name is."""
    done: list[tuple[str, Any]] = []
    sync, replace = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        sync(descriptor)
        done.append(("sync", os.fstat(descriptor).st_ino))

    def replaced(written: Path, target: Path) -> Path:
        done.append(("replace", written.stat().st_ino))
        return replace(written, target)

    monkeypatch.setattr(durable_files, "_sync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    files = [tmp_path / "a", tmp_path / "b"]
    replace_files(dict.fromkeys(files, b"new"))
    inodes = [path.stat().st_ino for path in files]
    assert done == [
        *(("sync", inode) for inode in inodes), *(("replace", inode) for inode in inodes), ("sync", tmp_path.stat().st_ino),
    ]  # fmt: skip


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_a_replaced_file_keeps_its_permissions(tmp_path: Path) -> None:
    """Others cannot read the new content of a file that was closed to them, also not before it has its name."""
    closed, read_only, link = tmp_path / "closed", tmp_path / "read-only", tmp_path / "link"
    for path, mode in ((closed, 0o600), (read_only, 0o444)):
        path.write_bytes(b"old")
        path.chmod(mode)
    link.symlink_to(closed)
    replace_files({link: b"new", read_only: b"new", tmp_path / "fresh": b"new"})
    assert [path.read_bytes() for path in (closed, read_only)] == [b"new", b"new"]
    assert [path.stat().st_mode & 0o777 for path in (closed, read_only)] == [0o600, 0o444]
    (tmp_path / "plain").touch()
    assert (tmp_path / "fresh").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_file_is_written_into_a_folder_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "open", refuses(errno.EACCES))
    replace_file(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
