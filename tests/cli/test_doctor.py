"""``fedcohort doctor``: what it shows, what it calls a problem, and its exit codes."""

import json
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fedcohort.federation.data.load_dataset  # noqa: F401 - before a test replaces torch
from fedcohort.cli import installation
from fedcohort.cli.installation import EXTRAS, Package, examine
from fedcohort.core.version import __version__
from tests.cli.test_cli import call
from tests.docs.pages import ROOT, read

REQUIREMENTS = [
    "click>=8.2",
    "numpy>=2.0",
    "torch>=2.6",
    "datasets>=3.1; extra == 'hub'",
    "psutil>=6; sys_platform == 'other'",
]


@pytest.fixture(autouse=True)
def a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An empty cache, no mirror, and packages whose versions a test can change."""
    versions = {"click": "8.2.1", "numpy": "2.4.0", "torch": "2.13.0+cpu", "flwr": "1.41.0"}

    def version(name: str) -> str:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setenv("FEDCOHORT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDCOHORT_DATA", raising=False)
    installed = SimpleNamespace(
        requires=lambda _: REQUIREMENTS, version=version, PackageNotFoundError=metadata.PackageNotFoundError
    )
    monkeypatch.setattr(installation, "metadata", installed)
    return versions


def test_a_machine_without_problems() -> None:
    result = call("doctor")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert f"  FedCohort  {__version__}" in lines
    assert "  numpy  2.4.0" in lines
    assert any(line.startswith("  cpu  ") and "core" in line for line in lines)
    assert any(line.startswith("  cache   ") and ": 0 data sets, 0 B; " in line for line in lines)
    assert "  flower       flwr 1.41.0" in lines
    (hub,) = [line for line in lines if line.startswith("  hub")]
    assert hub.startswith("  hub          datasets, pyarrow not installed; for image folders")
    assert hub.endswith(": pip install 'fedcohort[hub]'")
    assert lines[-1] == "No problems."
    assert "psutil" not in result.stdout


@pytest.mark.parametrize(
    ("package", "version", "problem", "cure"),
    [
        ("numpy", None, "numpy is not installed", "pip install 'numpy>=2.0'"),
        ("click", "8.1.8", "click 8.1.8 is older than 8.2", "pip install 'click>=8.2'"),
        ("torch", "2.5.1+cpu", "torch 2.5.1+cpu is older than 2.6", installation.CPU_TORCH + "; for an NVIDIA"),
    ],
)  # fmt: skip
def test_missing_and_old_packages_are_problems_with_a_cure(
    package: str, version: str | None, problem: str, cure: str, a_machine: dict[str, str]
) -> None:
    del a_machine[package]
    if version is not None:
        a_machine[package] = version
    result = call("doctor")
    assert result.exit_code == 1
    assert f"Problem: {problem}; {cure}" in result.stdout
    assert "No problems." not in result.stdout
    result = call("doctor", "--json")
    assert result.exit_code == 1
    (found,) = json.loads(result.stdout)["problems"]
    assert found["text"] == problem
    assert found["cure"].startswith(cure)


@pytest.mark.parametrize("width", [40, 60, 80])
def test_lines_are_as_long_as_the_terminal_and_commands_are_whole(
    width: int, a_machine: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    del a_machine["torch"]
    whole = call("doctor").stdout
    assert max(map(len, whole.splitlines())) > 100, "a file and a pipe get whole lines, to be searched"
    monkeypatch.setenv("COLUMNS", str(width))
    result = call("doctor")
    long = [line for line in result.stdout.splitlines() if len(line) > width]
    assert [line for line in long if "pip install" not in line and len(line.split()) > 2] == [], (
        "only commands and single words"
    )
    assert installation.CPU_TORCH in result.stdout
    assert "pip install 'fedcohort[hub]'" in result.stdout
    assert result.stdout.split() == whole.split()
    after = result.stdout.partition("  hub  ")[2].splitlines()[1]
    assert after.startswith(" " * 15), "what follows stands below the text, not below the name"


def test_versions_are_compared_by_their_numbers(a_machine: dict[str, str]) -> None:
    a_machine |= {"click": "8.10", "numpy": "2", "torch": "2.6.0a0+git"}
    assert not examine().problems


def test_torch_that_cannot_be_imported_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    found = examine()
    assert found.torch == ""
    assert [problem.text[:27] for problem in found.problems] == ["torch cannot be imported (i"]


def test_gpus_are_listed_and_a_useless_cuda_build_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    def torch(gpus: int) -> Any:
        cuda = SimpleNamespace(
            device_count=lambda: gpus,
            is_available=lambda: gpus > 0,
            get_device_properties=lambda number: SimpleNamespace(name=f"GPU {number}", total_memory=24 * 2**30),
        )
        backends = SimpleNamespace(mps=SimpleNamespace(is_available=lambda: True))
        return SimpleNamespace(
            __version__="2.13.0+cu130", cuda=cuda, backends=backends, version=SimpleNamespace(cuda="13.0")
        )

    monkeypatch.setitem(sys.modules, "torch", torch(2))
    found = examine()
    assert found.devices[1:] == ["cuda:0: GPU 0, 24 GiB", "cuda:1: GPU 1, 24 GiB", "mps: Apple GPU"]
    assert not found.notes
    monkeypatch.setitem(sys.modules, "torch", torch(0))
    (note,) = examine().notes
    assert note.startswith("this PyTorch is built for CUDA 13.0, but finds no GPU")
    assert call("doctor").exit_code == 0


def test_a_cache_that_cannot_be_used_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FEDCOHORT_CACHE", str(tmp_path / "file"))
    found = examine()
    assert found.cache is None
    assert [problem.cure for problem in found.problems] == ["name another folder with FEDCOHORT_CACHE"]


def test_a_cache_that_cannot_be_written_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    (problem,) = examine().problems
    assert "cannot be written" in problem.text


def test_the_mirror_is_listed(tmp_path: Path) -> None:
    (tmp_path / "ylecun" / "mnist").mkdir(parents=True)
    assert examine(str(tmp_path)).mirrored == ["mnist"]
    result = call("doctor", "--data-dir", tmp_path, "--json")
    assert json.loads(result.stdout)["mirror"] == {"folder": str(tmp_path), "data": ["mnist"]}
    result = call("doctor", "--data-dir", tmp_path / "nothing")
    assert result.exit_code == 1
    assert "no such folder; use the folder of a local mirror" in result.stdout


def test_without_metadata_only_torch_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_metadata(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("fedcohort.cli.installation.metadata.requires", no_metadata)
    assert examine().packages == [Package("torch", "2.13.0+cpu")]


def test_python_that_is_too_old_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "OLDEST_PYTHON", (99, 0))
    (problem,) = examine().problems
    assert problem.cure == "use Python 99.0 or later"


def test_the_command_works_without_any_other_package_but_click() -> None:
    code = """
import sys
for name in ("torch", "numpy", "pandas", "scipy", "pydantic", "rich", "sklearn", "datasets", "filelock", "platformdirs", "pyarrow"):
    sys.modules[name] = None
import fedcohort.__main__
"""
    for options in ([], ["--json"]):
        done = subprocess.run(
            [sys.executable, "-c", code, "doctor", *options],
            capture_output=True,
            encoding="utf-8",
            check=False,
            timeout=60,
        )
        assert done.stderr == ""
        assert done.returncode == 1
        assert "torch cannot be imported" in done.stdout


def test_the_extras_and_bounds_are_those_of_the_project() -> None:
    project = tomllib.loads(read(ROOT / "pyproject.toml"))["project"]
    names = {
        extra: tuple(requirement.partition(">=")[0] for requirement in requirements)
        for extra, requirements in project["optional-dependencies"].items()
    }
    assert names == {extra: described.packages for extra, described in EXTRAS.items()}
    assert project["requires-python"] == ">=" + ".".join(map(str, installation.OLDEST_PYTHON))
