"""The quickstart, resumed runs, reports, profiles and several jobs on stand-ins for macOS and Windows, without optional packages."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fedcohort
from tests.golden.test_same_bits import record
from tests.systems.other_systems import PEAK, environment

SETTINGS = ("--set", "rounds=3", "--set", "seeds=2", "--quiet")

COMMANDS = (
    ("compare", *SETTINGS, "--runs", "runs"),
    ("compare", *SETTINGS, "--runs", "jobs", "--jobs", "2"),
    ("report", "runs", "-o", "report.html"),
    ("profile", "--batch-size", "32", "--seconds", "0.1", "--rounds", "0", "--json"),
    ("doctor", "--json"),
)

DRIVER = """
import contextlib, io, json, signal, sys
import fedcohort
from fedcohort.cli.entry import main
from fedcohort.runs.play_run import Interrupted

results = []
for arguments in json.loads(sys.argv[1]):
    sys.argv[:] = ["fedcohort", *arguments]
    out, code = io.StringIO(), 0
    with contextlib.redirect_stdout(out):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    results.append([code, out.getvalue()])

def stop(cell, row):
    if row.round == 2:
        signal.raise_signal(signal.SIGINT)

experiment = fedcohort.Experiment(rounds=5, seeds=1, algorithm="scaffold")
try:
    fedcohort.run(experiment, runs="resumed", progress=stop)
except Interrupted:
    pass
path = fedcohort.run(experiment, runs="resumed").path
files = sorted(file.name for file in (path / "checkpoint").iterdir())
print(json.dumps([results, str(path), files]))
"""


def played(system: str, folder: Path) -> tuple[list[tuple[int, str]], Path, list[str]]:
    """Exit code and output of the commands, the resumed run, and the names of its checkpoints."""
    (folder / "site").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(COMMANDS)],
        capture_output=True,
        encoding="utf-8",
        timeout=280,
        check=False,
        cwd=folder,
        env=environment(system, folder / "site", "datasets", "pyarrow"),
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    results, path, files = json.loads(done.stdout.splitlines()[-1])
    return [(code, out) for code, out in results], folder / path, files


def records(folder: Path) -> dict[str, Any]:
    return {path.name: record(fedcohort.open_run(path)) for path in sorted(folder.iterdir()) if path.is_dir()}


@pytest.mark.skipif(sys.platform != "linux", reason="the other systems are the real ones")
@pytest.mark.slow
@pytest.mark.parametrize("system", ["macOS", "Windows"])
def test_everything_works_on_other_systems(system: str, tmp_path: Path) -> None:
    results, resumed, checkpoints = played(system, tmp_path)
    assert [code for code, _ in results] == [0] * len(COMMANDS), results
    compared, with_jobs, _, profiled, examined = (out for _, out in results)
    assert "select-by-loss" in compared
    assert "select-by-loss" in with_jobs
    assert (tmp_path / "report.html").stat().st_size > 100_000
    made = records(tmp_path / "runs")
    assert len(made) == 6
    assert made == records(tmp_path / "jobs")
    (size,) = json.loads(profiled)["sizes"]
    assert size["where"] == "resident"
    assert size["memory"] == PEAK if system == "Windows" else size["memory"] > 50e6
    found = json.loads(examined)
    assert found["extras"]["hub"]["command"] is None or "fedcohort[hub]" in found["extras"]["hub"]["command"]
    experiment = fedcohort.Experiment(rounds=5, seeds=1, algorithm="scaffold")
    here = fedcohort.run(experiment, runs=tmp_path / "here")
    assert record(fedcohort.open_run(resumed)) == record(here)
    assert "round-000005.safetensors" in checkpoints
    assert len(checkpoints) <= 2, "a file that the process resumed from may be left"


@pytest.mark.skipif(sys.platform != "linux", reason="the stand-in is for Linux")
def test_the_stand_in_for_windows_refuses_what_windows_refuses(tmp_path: Path) -> None:
    """So that the test above can fail."""
    code = """
import mmap, os, pathlib, signal
pathlib.Path("a").write_bytes(bytes(4096)); pathlib.Path("b").write_bytes(b""); pathlib.Path("folder").mkdir()
with open("a", "r+b") as file:
    mapped = mmap.mmap(file.fileno(), 0)
refused = []
for change in (lambda: os.unlink("a"), lambda: pathlib.Path("a").unlink(), lambda: os.replace("b", "a"), lambda: os.rename("a", "c"),
               lambda: os.open("folder", os.O_RDONLY), lambda: pathlib.Path("/proc/self/status").read_text(),
               lambda: __import__("resource"), lambda: __import__("fcntl"), lambda: os.sched_getaffinity(0), lambda: signal.SIGHUP,
               lambda: os.rename("b", "folder")):
    try:
        change()
    except Exception as error:
        refused.append(type(error).__name__)
mapped.close()
os.unlink("a")
print(*refused)
"""
    (tmp_path / "site").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=environment("Windows", tmp_path / "site"),
    )
    assert done.stdout.split() == [
        *["PermissionError"] * 5,
        "FileNotFoundError",
        *["ModuleNotFoundError"] * 2,
        *["AttributeError"] * 2,
        "FileExistsError",
    ]
