"""Code in the documentation and in experiments uses public modules only; docs/stability.md lists them."""

import ast
import importlib
import re
from collections.abc import Iterator

import pytest

from fedcohort.experiment import load
from tests.docs.pages import PAGES, ROOT, blocks, read

STABILITY = ROOT / "docs" / "stability.md"
PUBLIC = set(re.findall(r"`(fedcohort[\w.]*)`", read(STABILITY).partition("A module exports")[0]))
FOR_CONTRIBUTORS = {"fedcohort.core.deprecation"}
"""Modules that pages show to the developers of FedCohort, not to its users."""


def imports(code: str) -> Iterator[tuple[str, str]]:
    """The module and the name of every import of fedcohort in a piece of code; the name is empty for ``import module``."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from ((name.name, "") for name in node.names if name.name.split(".")[0] == "fedcohort")
        elif isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "fedcohort":
            yield from ((str(node.module), name.name) for name in node.names)


USED = [
    (f"{page.relative_to(ROOT)}:{block.line}", module, name)
    for page in PAGES
    for block in blocks(page)
    if block.language == "python" and not re.match(r"class \w+:\n    # ", block.text)  # a contract, without bodies
    for module, name in imports(block.text)
]


def test_the_stability_page_lists_the_public_modules() -> None:
    assert {"fedcohort"} | {
        f"fedcohort.{name}" for name in ("selection", "algorithms", "federation", "testing", "measures", "flower")
    } == PUBLIC


def test_pages_import_public_names_only() -> None:
    assert len(USED) > 30
    private = [
        f"{where}: {module}.{name}".rstrip(".")
        for where, module, name in USED
        if module not in FOR_CONTRIBUTORS
        and (
            module not in PUBLIC
            or (name and name not in importlib.import_module(module).__all__ and f"{module}.{name}" not in PUBLIC)
        )
    ]
    assert not private


@pytest.mark.parametrize("file", sorted((ROOT / "experiments").glob("*.toml")), ids=lambda file: file.stem)
def test_experiments_name_plug_ins_and_no_files(file: object) -> None:
    assert ".py:" not in load(str(file)).to_toml()
