"""Output in encodings that lack characters, into pipes that are closed, and onto disks that are full."""

import errno
import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from fedcohort.cli.errors import Wrong, show_anywhere
from fedcohort.cli.output import CLOSED_PIPE, echo
from tests.cli.test_cli import call
from tests.repetitions import slow_after

HOSTILE = "é漢−\U0001f642\u200b"
"""A label with characters that one or the other encoding lacks."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the experiment file ``odd.toml`` and its finished runs in ``runs``."""
    folder = tmp_path_factory.mktemp("output")
    (folder / "odd.toml").write_text(
        f"name = 'odd'\nrounds = 2\nseeds = 2\n[[variants]]\nlabel = '{HOSTILE}'\nselection = 'ucb'\n", encoding="utf-8"
    )
    assert call("compare", folder / "odd.toml", "--runs", folder / "runs", "--quiet").exit_code == 0
    return folder


def test_an_error_is_shown_on_standard_output_if_standard_error_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Full(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(sys, "stderr", Full())
    show_anywhere(Wrong("no room"))
    assert capsys.readouterr().out == "fedcohort: error: no room\n"


def test_messages_beside_an_output_are_not_mixed_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    echo("the output")
    echo("a message", err=True)
    assert capsys.readouterr() == ("the output\n", "a message\n")


def in_encoding(encoding: str, folder: Path, *commands: Sequence[str]) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of each command; all run in one process, because starting Python takes most of the time."""
    code = """
import json, os, sys
from fedcohort.cli.entry import main

commands, results = json.loads(sys.argv[1]), []
kept = os.dup(1)
for arguments in commands:
    sys.argv[:] = ["fedcohort", *arguments]
    for number in (1, 2):
        file = os.open(str(number), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    sys.stdout.flush()
    sys.stderr.flush()
    results.append([code, *(open(str(number), "rb").read().decode(sys.stdout.encoding, "replace") for number in (1, 2))])
os.write(kept, json.dumps(results).encode())
"""
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps([list(command) for command in commands])],
        capture_output=True,
        timeout=120,
        check=False,
        cwd=folder,
        env=os.environ | {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0", "COLUMNS": "130"},
    )
    assert done.returncode == 0, done.stderr.decode()
    return [(code, out, err) for code, out, err in json.loads(done.stdout)]


@pytest.mark.parametrize(
    "encoding", ["ascii", *(pytest.param(e, marks=pytest.mark.slow) for e in ("latin-1", "cp1252"))]
)
def test_no_command_loses_its_output_for_lack_of_characters(encoding: str, runs: Path) -> None:
    one = next(str(path) for path in sorted((runs / "runs").iterdir()) if "uniform" not in path.name)
    commands = [
        ["compare", "odd.toml", "--quiet"],
        ["run", "odd.toml", "--quiet"],
        ["why", one, "--round", "2"],
        ["measures", one],
        ["data", "describe"],
        ["data", "list"],
        ["strategies", "ucb"],
        ["compare", "--help"],
        ["why", one, "--round", "2", "--json"],
        ["compare", "odd.toml", "--quiet", "--json"],
        ["run", "--variant", HOSTILE],
    ]
    results = in_encoding(encoding, runs, *commands)
    for command, (code, out, err) in zip(commands[:-1], results[:-1], strict=True):
        assert (code, err) == (0, ""), command
        assert len(out) > 100, command
    code, out, err = results[-1]
    assert (code, out) == (2, "")
    assert err.startswith("fedcohort: error: --variant '")
    table = results[0][1]
    assert "Runs: runs" in table
    (row,) = [line for line in table.splitlines() if line.startswith(HOSTILE[0] if encoding != "ascii" else "???-")]
    assert "??-" in row, "a wide character takes two places, and the minus sign is replaced by a hyphen"
    assert [row["label"] for row in json.loads(results[9][1])["rows"]] == ["uniform", HOSTILE]
    assert results[9][1].isascii()
    texts = [
        text
        for command, result in zip(commands, results, strict=True)
        if "--help" not in command
        for text in result[1:]
    ]
    assert "\ufffd" not in "".join(texts), "click itself writes the help as UTF-8 into a stream that is ASCII"


def test_progress_lines_have_no_control_characters(tmp_path: Path) -> None:
    """A label could steer the terminal, or hide a line."""
    label = 'label = "a\\u001b[31m\\u0007\\u202eb\\r\\nc"'
    (tmp_path / "odd.toml").write_text(f"rounds = 2\nseeds = 1\n[[variants]]\n{label}\ntraining = {{ lr = 0.1 }}\n")
    command = ["compare", str(tmp_path / "odd.toml"), "--runs", str(tmp_path / "runs")]
    [(code, _, err)] = in_encoding("utf-8", tmp_path, command)
    assert code == 0
    lines = [line for line in err.split("\n") if line.startswith("[2/2] ")]
    assert lines[0].startswith("[2/2] a[31mb c, seed 0: round 1 of 2")


@pytest.mark.slow
def test_the_locale_c_without_utf_8_is_no_obstacle(runs: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "fedcohort", "compare", "odd.toml", "--quiet"],
        capture_output=True,
        timeout=120,
        check=False,
        cwd=runs,
        env=os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    )
    assert (result.returncode, result.stderr) == (0, b"")
    assert b"Runs: runs" in result.stdout.replace(b"\r\n", b"\n")


@pytest.mark.parametrize(
    "command", slow_after(2, [["--help"], ["compare", "odd.toml", "--quiet"], ["strategies", "--json"]])
)
def test_a_closed_pipe_ends_a_command_quietly(command: list[str], runs: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        result = subprocess.run(
            [sys.executable, "-m", "fedcohort", *command], stdout=writing, stderr=subprocess.PIPE, timeout=120, check=False,
            cwd=runs,
        )  # fmt: skip
    finally:
        os.close(writing)
    assert (result.returncode, result.stderr) == (CLOSED_PIPE, b"")


@pytest.mark.slow
def test_a_closed_pipe_for_messages_ends_a_command_quietly(runs: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        result = subprocess.run(
            [sys.executable, "-m", "fedcohort", "run", "--set", "rounds=0"], stdout=subprocess.PIPE, stderr=writing, timeout=120,
            check=False, cwd=runs,
        )  # fmt: skip
    finally:
        os.close(writing)
    assert (result.returncode, result.stdout) == (CLOSED_PIPE, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
@pytest.mark.parametrize("command", slow_after(1, [["data", "list"], ["data", "list", "--json"], ["--version"]]))
def test_output_onto_a_full_disk_is_one_line(command: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run(
            [sys.executable, "-m", "fedcohort", *command], stdout=full, stderr=subprocess.PIPE, timeout=120, check=False
        )
    assert result.returncode == 2
    assert result.stderr.decode() == (
        "fedcohort: error: cannot write: No space left on device; free some space, and start the same command again\n"
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
def test_progress_onto_a_full_disk_is_one_line_of_the_output(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run(
            [sys.executable, "-m", "fedcohort", "run", "--seed", "0", "--set", "rounds=1", "--runs", tmp_path], stdout=subprocess.PIPE,
            stderr=full, timeout=120, check=False,
        )  # fmt: skip
    assert result.returncode == 2
    assert result.stdout.decode() == (
        "fedcohort: error: cannot write: No space left on device; free some space, and start the same command again\n"
    )


@pytest.mark.skipif(sys.platform == "win32", reason="shells differ")
@pytest.mark.slow
def test_a_closed_standard_error_is_no_error(tmp_path: Path) -> None:
    """Without a place for the progress, the runs are made all the same."""
    done = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -m fedcohort run --seed 0 --set rounds=1 --runs "{tmp_path}" <&- 2>&-'],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0
    assert len(list(tmp_path.iterdir())) == 1


def test_a_closed_standard_output_is_no_error(runs: Path) -> None:
    result = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -m fedcohort data list >&-'],
        capture_output=True,
        timeout=120,
        check=False,
        cwd=runs,
    )
    assert (result.returncode, result.stderr) == (0, b"")
