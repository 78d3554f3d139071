"""A new app is complete, or is not there; its server plays its experiment, and says what went wrong."""

import errno
import os
import re
import runpy
import signal
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, RecordDict

from fedcohort.core.errors import UsageError
from fedcohort.experiment import load
from fedcohort.experiment.given_objects import Given
from fedcohort.flower.new_app import new_app
from fedcohort.flower.sites.site_file import installed_plugins
from fedcohort.runs.play_run import Interrupted
from fedcohort.runs.prepare_run import federate
from tests.flower.deployed.sites import grid_of, sites_of


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


CONFIG = {"runs": "runs", "time": "simulated", "patience": 5.0, "min-clients": 0, "authenticated": True}


def served(folder: Path, more: str = "", **config: Any) -> None:
    """Play the app's experiment with the function of its ServerApp, with sites in this process."""
    [package] = [path for path in folder.iterdir() if path.name.endswith("_app")]
    described = package / "experiment.toml"
    described.write_text(
        described.read_text().replace("rounds = 5", "rounds = 1").replace("epochs = 1", f"epochs = 1{more}")
    )
    clients = federate(load(described), Given()).federation
    where = grid_of(sites_of(clients, 3, installed_plugins))
    settings = {**CONFIG, "runs": str(folder / "runs"), **config}
    app = runpy.run_path(str(package / "server.py"))["app"]
    app(where, Context(1, 1, {}, RecordDict(), settings))


def test_the_server_of_a_new_app_names_why_updates_were_not_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """With a step size that makes every model infinite, all updates diverge, and the model stays as it was."""
    new_app(tmp_path / "lab")
    served(tmp_path / "lab", "\nlr = 1e38")
    said = capsys.readouterr().out
    assert "round 1: 0 of 3 clients trained" in said
    assert said.count("diverged: its update has NaN or infinite entries and was dropped") == 3
    assert any(line.startswith("no update was admitted in any round: the model is still") for line in caplog.messages)


def test_the_server_of_a_new_app_plays_its_experiment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    new_app(tmp_path / "lab")
    served(tmp_path / "lab")
    said = capsys.readouterr().out
    assert "round 1: 3 of 3 clients trained" in said
    assert "finished: " in said
    assert not any("no update was admitted" in line for line in caplog.messages)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"patience": "abc"}, "patience = 'abc': must be a number of seconds above 0"),
        ({"min-clients": 13}, "min_clients = 13: must be at most federation.clients = 12"),
        ({"min-clients": 2.5}, "min_clients = 2.5: should be a whole number of at least 1"),
        ({"authenticated": "no"}, "authenticated = 'no': valid are True and False"),
        ({"time": 3}, "time = 3: valid are 'wall' and 'simulated'"),
        ({"runs": "/proc/x"}, "runs = '/proc/x': cannot be written .*; give another folder"),
    ],
)
def test_settings_of_a_new_app_that_cannot_be_used_are_refused_in_one_line(
    config: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.tracebacklimit", None, raising=False)  # the server changes it
    new_app(tmp_path / "lab")
    with pytest.raises(UsageError, match=message):
        served(tmp_path / "lab", **config)


def test_the_server_of_a_new_app_that_is_told_to_end_says_so_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.tracebacklimit", None, raising=False)  # the server changes it
    new_app(tmp_path / "lab")
    # the server prints every round
    monkeypatch.setattr("builtins.print", lambda *_, **__: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(Interrupted, match="stopped after the last round of 1; the run is finished"):
        served(tmp_path / "lab")
    assert sys.tracebacklimit == 0


def test_the_configuration_in_the_readme_holds_any_folder(tmp_path: Path) -> None:
    folder = tmp_path / 'a"b\\c'
    new_app(folder)
    text = (folder / "README.md").read_text()
    [line] = re.findall(r"^root-certificates = .*$", text, re.MULTILINE)
    assert tomllib.loads(line) == {"root-certificates": str(folder / "certificates" / "ca.crt")}


@pytest.mark.parametrize("folder", ["hospital-network-of-northern-denmark", "2" * 40, "a" * 31 + "-b"])
def test_flower_takes_the_app_of_a_folder_with_a_long_name(folder: str, tmp_path: Path) -> None:
    from flwr.cli.build import build_fab_from_disk

    new_app(tmp_path / folder)
    assert build_fab_from_disk(tmp_path / folder)


def test_the_readme_starts_the_server_at_the_port_of_the_address(tmp_path: Path) -> None:
    new_app(tmp_path / "lab", address="127.0.0.1:9005")
    assert "$ flower-superlink --port 9005 " in (tmp_path / "lab" / "README.md").read_text()
