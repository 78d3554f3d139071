"""What ``--json`` prints: every document has its format and version, validates against its schema, and has no undocumented key."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from fedcohort.cli import cli
from fedcohort.cli.json_formats import DOCUMENTS, VERSION
from fedcohort.cli.json_schema import json_schema
from tests.report.conftest import runs

__all__ = ["runs"]


def call(*arguments: object) -> str:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def strict(schema: Any) -> Any:
    """The schema without permission for further keys, so that a key that no table names is found."""
    if isinstance(schema, list):
        return [strict(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict(value) for key, value in schema.items()}
    if "properties" in closed and isinstance(closed.get("type"), str):
        closed.setdefault("additionalProperties", False)
    return closed


def check(name: str, text: str) -> Any:
    """The document, after validation."""
    found = json.loads(text)
    schema = json_schema(name)
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(found)
    Draft202012Validator(strict(schema)).validate(found)
    assert (found["format"], found["version"]) == (f"fedcohort.{name}", VERSION)
    return found


def test_documents_about_runs(runs: Path) -> None:
    folders = sorted(path for path in runs.iterdir() if path.is_dir())
    ucb = next(path for path in folders if "ucb" in path.name.lower())
    assert len(check("compare", call("compare", *folders, "--json"))["rows"]) == 3
    (measured,) = check("measures", call("measures", ucb, "--conformal", 0.2, "--json"))["runs"]
    assert measured["selected"]["jain"] > 0
    assert check("why", call("why", ucb, "--round", 5, "--json"))["candidates"][0]["terms"].keys() == {
        "mean_reward",
        "bonus",
    }
    assert check("why", call("why", ucb, "--round", 5, "--client", 0, "--json"))["client"] == 0
    (diagnosed,) = check("diagnose", call("diagnose", ucb, "--json"))["runs"]
    assert (diagnosed["rounds"], diagnosed["label"], diagnosed["seed"]) == (8, measured["label"], measured["seed"])
    assert len(check("diagnose", call("diagnose", runs, "--json"))["runs"]) == 9


def test_documents_about_plug_ins_data_and_the_installation() -> None:
    sections = check("strategies", call("strategies", "--json"))["sections"]
    assert {"strategy", "algorithm", "latency_law", "feature_shift"} <= sections.keys()
    assert all(key.isidentifier() for key in sections), "keys were words for people, with spaces"
    check("strategies", call("strategies", "oort", "--json"))
    described = check("data-describe", call("data", "describe", "--json"))
    assert described["clients"]
    assert all(key.isidentifier() for key in described["quantiles"])
    assert {"samples", "classes_held", "largest_class_share", "wrong_labels"} <= described["quantiles"].keys()
    assert check("data-list", call("data", "list", "--json"))["data"]
    check("data-cache", call("data", "cache", "--json"))
    check("doctor", call("doctor", "--json"))


def test_documents_of_new_runs(tmp_path: Path) -> None:
    small = ["--set", "rounds=1", "--set", "seeds=1", "--runs", tmp_path, "--quiet", "--json"]
    assert check("run", call("run", *small))["runs"][0]["note"] == ""
    failing = [*small, "--set", "training.lr=1e30", "--set", "name=failing"]
    found = check("run", call("run", *failing))["health"]
    alone = json.loads(call("compare", *tmp_path.glob("failing-*"), "--json"))["health"]
    assert [finding for finding in alone if finding["kind"] != "few seeds"] == found != []
    assert "few seeds" in {finding["kind"] for finding in alone}
    (tmp_path / "sweep.toml").write_text('rounds = 1\nseeds = 1\n[sweep]\n"selection.k" = [1, 2]\n')
    swept = check("compare", call("sweep", tmp_path / "sweep.toml", "--runs", tmp_path, "--quiet", "--json"))
    assert [row["label"] for row in swept["rows"]] == ["uniform, k=1", "uniform, k=2"]
    race = [
        "--strategy",
        "uniform",
        "--strategy",
        "ucb",
        "--max-seeds",
        3,
        "--set",
        "rounds=1",
        "--runs",
        tmp_path,
        "--quiet",
        "--json",
    ]
    assert len(check("race", call("race", *race))["rows"]) == 2


@pytest.mark.slow
def test_the_document_of_a_profile() -> None:
    text = call("profile", "--batch-size", 32, "--seconds", 0.1, "--rounds", 1, "--json")
    (size,) = check("profile", text[text.index("{") :])["sizes"]
    assert 0 <= min(size["batch_accuracy"]) <= max(size["batch_accuracy"]) <= 1


def test_every_command_that_prints_json_has_a_document_that_names_it() -> None:
    def printing(group: click.Group, names: tuple[str, ...] = ()) -> Iterator[str]:
        for name, command in group.commands.items():
            if isinstance(command, click.Group):
                yield from printing(command, (*names, name))
            elif any(parameter.name == "as_json" for parameter in command.params):
                yield " ".join((*names, name))

    commands = sorted(printing(cli))
    assert len(commands) == 14
    named = sorted(name for words in DOCUMENTS.values() for name in re.findall(r"`fedcohort ([a-z ]+) --json`", words))
    assert named == commands


def test_a_wrong_document_is_refused() -> None:
    schema = json_schema("data-list")
    wrong = {"format": "fedcohort.data-list", "version": VERSION, "data": [{"name": 1}]}
    assert not Draft202012Validator(schema).is_valid(wrong)
    assert not Draft202012Validator(strict(schema)).is_valid(wrong | {"data": [], "more": 1})
    assert Draft202012Validator(schema).is_valid(wrong | {"data": [], "more": 1}), "readers ignore further keys"


def test_the_command_prints_schemas() -> None:
    for name in DOCUMENTS:
        assert json.loads(call("schema", name)) == json_schema(name)
    assert [line.split()[0] for line in call("schema").splitlines() if not line.startswith(" ")] == list(DOCUMENTS)
    assert json.loads(call("schema", "sweep")) == json_schema("compare"), "a sweep is a comparison"
    result = CliRunner().invoke(cli, ["schema", "compar"])
    assert result.exit_code == 2
    assert "did you mean 'compare'" in result.output
