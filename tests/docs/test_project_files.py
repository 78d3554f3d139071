"""The citation file, changelog, issue forms, workflow and commit hooks are valid and consistent with the package."""

import re
import tomllib
from typing import Any

import pytest
import yaml

import fedcohort
from tests.docs.pages import ROOT, read

FORMS = sorted(path for path in ROOT.glob(".github/ISSUE_TEMPLATE/*.yml") if path.name != "config.yml")


def project() -> dict[str, Any]:
    """The project table of pyproject.toml."""
    table = tomllib.loads(read(ROOT / "pyproject.toml"))["project"]
    assert isinstance(table, dict)
    return table


def targets() -> set[str]:
    """The public targets of the Makefile."""
    return set(re.findall(r"^([a-z-]+):", read(ROOT / "Makefile"), re.MULTILINE))


def python_versions() -> list[str]:
    """The Python versions in the classifiers."""
    return re.findall(r"Python :: (3\.\d+)", "\n".join(project()["classifiers"]))


def test_the_citation_file_has_the_required_fields() -> None:
    citation = yaml.safe_load(read(ROOT / "CITATION.cff"))
    assert citation["cff-version"] == "1.2.0"
    assert citation["message"]
    assert citation["title"] == "FedCohort"
    assert citation["type"] == "software"
    assert citation["authors"] == project()["authors"]


def test_the_citation_has_the_version_license_and_keywords_of_the_package() -> None:
    citation = yaml.safe_load(read(ROOT / "CITATION.cff"))
    assert citation["version"] == fedcohort.__version__
    assert citation["license"] == project()["license"]
    assert citation["keywords"] == project()["keywords"]


def test_the_newest_entry_of_the_changelog_is_the_version_of_the_package() -> None:
    newest = re.search(r"^## (\S+), ", read(ROOT / "CHANGELOG.md"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == fedcohort.__version__


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_has_valid_and_labeled_fields(form: Any) -> None:
    content = yaml.safe_load(read(form))
    assert content["name"]
    assert content["description"]
    fields = [field for field in content["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["type"] in ("textarea", "input", "dropdown", "checkboxes") for field in fields)
    assert all(field["attributes"]["label"] for field in fields)


def test_there_are_forms_for_bugs_features_and_wrong_results() -> None:
    assert [path.stem for path in FORMS] == ["bug_report", "feature_request", "wrong_result"]


def test_the_workflow_tests_every_supported_python_version() -> None:
    job = yaml.safe_load(read(ROOT / ".github/workflows/check.yml"))["jobs"]["check"]
    assert job["strategy"]["matrix"]["python"] == python_versions()
    assert project()["requires-python"] == f">={python_versions()[0]}"
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert {command.split()[1] for command in commands} <= targets()


def test_every_hook_calls_a_target_of_the_makefile() -> None:
    repositories = yaml.safe_load(read(ROOT / ".pre-commit-config.yaml"))["repos"]
    assert [repository["repo"] for repository in repositories] == ["local"]
    for hook in repositories[0]["hooks"]:
        program, _, target = hook["entry"].split()
        assert program == "make"
        assert target in targets()
        assert hook["language"] == "system"
