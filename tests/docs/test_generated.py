"""The parts of the pages that are generated from the code are complete and up to date."""

import re
import runpy
from pathlib import Path

import pytest
from results import result_file
from results.descriptions import DESCRIPTIONS

import fedcohort
from fedcohort.algorithms import ALGORITHMS
from fedcohort.experiment import Experiment, load
from fedcohort.selection import STRATEGIES
from tests.docs.pages import ROOT, blocks, read
from tests.test_rooms import PERMITTED

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def generator() -> dict[str, object]:
    pytest.importorskip("ruff", reason="signatures are formatted by ruff")
    return runpy.run_path(str(DOCS / "generate.py"))


def test_generated_parts_of_pages_are_up_to_date(generator: dict[str, object]) -> None:
    stale = generator["stale"]
    assert callable(stale)
    assert not [path.name for path in stale()], "run: python docs/generate.py"


def test_every_generated_block_is_on_a_page(generator: dict[str, object]) -> None:
    pages = "".join(read(page) for page in DOCS.glob("*.md"))
    known = generator["BLOCKS"]
    assert isinstance(known, dict)
    missing = [name for name in known if f"<!-- begin {name} -->" not in pages and not name.startswith("section ")]
    not_made = {f"result {name}" for name in {*DESCRIPTIONS} - {*result_file.names()}}  # the register says so
    assert [name for name in missing if name not in not_made] == []


def test_the_design_page_lists_all_packages_in_order(generator: dict[str, object]) -> None:
    assert generator["PACKAGES"] == tuple(package for package in PERMITTED if not package.startswith("_"))


def test_every_section_of_the_schema_has_a_heading() -> None:
    page = read(DOCS / "experiment-file.md")
    sections = [name for name, value in Experiment() if not isinstance(value, str | int | tuple | dict)]
    assert [name for name in sections if f"\n## {name}\n" not in page] == []


@pytest.mark.parametrize("name", [*STRATEGIES.builtin, *ALGORITHMS.builtin])
def test_every_strategy_and_algorithm_has_a_heading(name: str) -> None:
    assert f"\n### `{name}`\n" in read(DOCS / "strategies.md")


def test_the_complete_experiment_file_equals_the_defaults(tmp_path) -> None:
    complete = blocks(DOCS / "experiment-file.md")[-1]
    (tmp_path / "complete.toml").write_text(complete.text, encoding="utf-8")
    assert load(tmp_path / "complete.toml") == Experiment()


def test_every_column_of_the_tables_of_a_run_is_explained(tmp_path: Path) -> None:
    run = fedcohort.run(Experiment(rounds=1), seed=0, runs=tmp_path)
    page = read(DOCS / "compare-strategies.md")
    for name in ("rounds", "clients", "ledger"):
        explained = page.partition(f"| `run.{name}` | |")[2].partition("\n\n")[0]
        columns = {*getattr(run, name).columns} - {"round"}  # with the rounds
        missing = [column for column in sorted(columns) if not re.search(rf"`[^`]*\b{column}\b[^`]*`", explained)]
        assert missing == [], name
