"""The outputs on the pages about races and advice are those of the commands beside them."""

import itertools
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from fedcohort.cli import cli
from tests.docs.pages import ROOT, blocks

WALL_TIME = re.compile(r"\d+(:\d+)*(\.\d+)? (s|min|h) of wall time|\d+\.\d times the wall time")


def words(text: str) -> list[str]:
    """The words of an output, without wall times and rules."""
    return [word for word in WALL_TIME.sub("", " ".join(text.split())).split() if not word.startswith("─")]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["race", "advise"])
def test_the_outputs_on_the_page_are_those_of_its_commands(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    page = blocks(ROOT / "docs" / f"{name}.md")
    for block in page:
        if block.file == "race.toml":
            Path(block.file).write_text(block.text, encoding="utf-8")
        elif block.file == "make_clients.py":
            exec(block.text, {})
    shown = [(command, output) for command, output in itertools.pairwise(page) if output.language == "text"]
    assert len(shown) == 2
    for command, output in shown:
        arguments = shlex.split(command.text.removeprefix("$ "))[1:]
        result = CliRunner().invoke(cli, [*arguments, "--quiet"])
        assert result.exit_code == 0, result.output
        assert words(result.output) == words(output.text)
