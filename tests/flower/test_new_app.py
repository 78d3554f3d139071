"""A new app is complete, or is not there."""

import errno
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fedcohort.core.errors import UsageError
from fedcohort.flower.new_app import new_app


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt()])
@pytest.mark.parametrize("exists", [False, True])
def test_an_app_that_cannot_be_completed_is_removed(
    failure: BaseException, exists: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, write = tmp_path / "outer" / "lab", Path.write_text
    if exists:
        folder.mkdir(parents=True)

    def write_until_full(path: Path, *arguments: Any, **settings: Any) -> int:
        if path.name == "server.py":
            write(path, "half", encoding="utf-8")
            raise failure
        return write(path, *arguments, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", write_until_full)
        with pytest.raises(type(failure)):
            new_app(folder)
    assert [path.name for path in tmp_path.rglob("*")] == (["outer", "lab"] if exists else [])
    assert all(path.is_file() for path in new_app(folder))


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    for name, message in {
        "file": "file': is a file; give another folder",
        "file/inner": "file/inner': cannot be written (Not a directory); give another folder",
        "loop": "cannot be written (",
        "x" * 300: "cannot be written (File name too long)",
        "a\nb": "has characters that cannot be printed",
        "\udcff": "has characters that cannot be printed",
    }.items():
        with pytest.raises(UsageError, match=re.escape(message)):
            new_app(tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "loop"]


@pytest.mark.parametrize("address", ["host:0", "host:65536", "host:99999"])
def test_ports_that_do_not_exist(address: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"^--address = '{address}': should be HOST:PORT"):
        new_app(tmp_path / "lab", address=address)


def test_the_configuration_in_the_readme_holds_any_folder(tmp_path: Path) -> None:
    folder = tmp_path / 'a"b\\c'
    new_app(folder)
    text = (folder / "README.md").read_text()
    [line] = re.findall(r"^root-certificates = .*$", text, re.MULTILINE)
    assert tomllib.loads(line) == {"root-certificates": str(folder / "certificates" / "ca.crt")}


def test_the_readme_starts_the_server_at_the_port_of_the_address(tmp_path: Path) -> None:
    new_app(tmp_path / "lab", address="127.0.0.1:9005")
    assert "$ flower-superlink --port 9005 " in (tmp_path / "lab" / "README.md").read_text()
