"""Docstrings name things that exist: objects of this package, and arguments of the function."""

import ast
import dataclasses
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import fedcohort
from fedcohort import api

SOURCE = Path(fedcohort.__file__).parent

REFERENCE = re.compile(r":(?:class|func|meth|attr|data|mod):`~?(fedcohort\.[\w.]+)`")

FILES = sorted(SOURCE.rglob("*.py"))


def exists(name: str) -> bool:
    """Whether a dotted name leads to a module, or to something in one; a field of a class need not have a default."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            value: object = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            fields = {field.name for field in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
            if not hasattr(value, part) and part not in fields:
                return False
            value = getattr(value, part, None)
        return True
    return False


def test_every_object_that_a_docstring_names_exists() -> None:
    named = {name: path for path in FILES for name in REFERENCE.findall(path.read_text(encoding="utf-8"))}
    assert len(named) > 100
    assert not {name: str(path) for name, path in named.items() if not exists(name)}
    assert exists("fedcohort.study.rows.references.Group.point")
    assert not exists("fedcohort.study.rows.references.Group.nothing")
    assert not exists("fedcohort.nothing")


def described(docstring: str) -> list[str]:
    """The names in the section ``Args`` of a docstring."""
    lines = docstring.partition("\nArgs:\n")[2].partition("\n\n")[0].splitlines()
    heads = [line.partition(":")[0] for line in lines if re.match(r"    [*\w]", line)]
    return [name.strip().lstrip("*") for head in heads for name in head.split(",")]


def functions(path: Path) -> Iterator[tuple[str, str, set[str]]]:
    """The functions of a file, and its classes with an ``__init__``: place, docstring, and names of arguments."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and (docstring := ast.get_docstring(node)):
            inits = [
                part
                for part in ([node] if isinstance(node, ast.FunctionDef) else node.body)
                if isinstance(part, ast.FunctionDef) and (part is node or part.name == "__init__")
            ]
            for init in inits:
                given = init.args
                names = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
                yield f"{path.name}:{node.lineno}", docstring, {each.arg for each in names if each is not None}


def test_every_argument_that_a_docstring_describes_exists() -> None:
    found = {place: set(described(text)) - names for path in FILES for place, text, names in functions(path)}
    assert len(found) > 2000
    assert not {place: names for place, names in found.items() if names}


@pytest.mark.parametrize("name", ["run", "compare", "race", "advise"])
def test_the_functions_that_run_experiments_describe_every_argument(name: str) -> None:
    function = getattr(api, name)
    assert set(described(inspect.getdoc(function) or "")) == set(inspect.signature(function).parameters)
