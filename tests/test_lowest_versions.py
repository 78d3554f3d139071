"""The lowest versions that `make test-lowest` installs are the bounds of pyproject.toml."""

import subprocess
import sys
import tomllib

import pytest

from tests.docs.pages import ROOT, read
from tests.lowest_versions import lowest_versions


def test_bounds_become_versions() -> None:
    assert lowest_versions(["click>=8.2", "flwr>=1.36,<2", "psutil>=6; sys_platform == 'win32'"]) == [
        "click==8.2", "flwr==1.36", "psutil==6; sys_platform == 'win32'",
    ]  # fmt: skip


@pytest.mark.parametrize("requirement", ["numpy", "numpy==2.0", "numpy<3"])
def test_a_requirement_without_a_lower_bound_is_refused(requirement: str) -> None:
    with pytest.raises(ValueError, match="should be NAME>=VERSION"):
        lowest_versions([requirement])


def test_every_dependency_has_a_lower_bound_and_torch_is_installed_before() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "lowest_versions.py"], capture_output=True, encoding="utf-8", check=True
    )
    printed = {line.partition("==")[0] for line in done.stdout.splitlines()}
    project = tomllib.loads(read(ROOT / "pyproject.toml"))["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["hub"]]
    assert printed == {requirement.partition(">=")[0] for requirement in needed} - {"torch"}
    for requirements in project["optional-dependencies"].values():
        assert lowest_versions(requirements)


def test_the_lowest_versions_of_extras_can_be_named() -> None:
    command = [sys.executable, str(ROOT / "tests" / "lowest_versions.py"), "flower", "ray"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
    assert [line.partition("==")[0] for line in done.stdout.splitlines()] == ["flwr", "ray"]


def test_the_tools_include_what_the_extra_hub_needs() -> None:
    table = tomllib.loads(read(ROOT / "pyproject.toml"))
    assert set(table["project"]["optional-dependencies"]["hub"]) <= set(map(str, table["dependency-groups"]["dev"]))
    assert {"include-group": "test"} in table["dependency-groups"]["dev"]
