"""Packages export exactly the names that they list, from the places that type checkers see."""

import ast
import importlib
from pathlib import Path

import pytest

import fedcohort
from fedcohort.core.lazy import lazy_names

SOURCE = Path(fedcohort.__file__).parent
FACES = sorted(
    path for path in SOURCE.rglob("__init__.py") if "lazy_names(" in path.read_text(encoding="utf-8")
)  # the packages that import their names at first use


def package_of(file: Path) -> str:
    return ".".join(["fedcohort", *file.parent.relative_to(SOURCE).parts])


def test_four_packages_import_lazily() -> None:
    assert {package_of(file) for file in FACES} >= {
        "fedcohort",
        "fedcohort.algorithms",
        "fedcohort.federation",
        "fedcohort.selection",
    }


@pytest.mark.parametrize("file", FACES, ids=package_of)
def test_every_listed_name_is_the_one_that_type_checkers_see(file: Path) -> None:
    if package_of(file) in ("fedcohort.flower", "fedcohort.testing"):  # names of testing that need Flower
        pytest.importorskip("flwr", reason="the extra flower is not installed")
    package = importlib.import_module(package_of(file))
    (guarded,) = (
        node
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    seen = set()
    for line in guarded.body:
        assert isinstance(line, ast.ImportFrom)
        for name in line.names:
            exported = name.asname or name.name
            seen.add(exported)
            assert getattr(package, exported) is getattr(importlib.import_module(str(line.module)), name.name)
    assert seen
    assert seen <= set(package.__all__) <= {*seen, *vars(package)}
    assert seen <= set(dir(package))
    assert all(hasattr(package, name) for name in package.__all__)


@pytest.mark.parametrize("name", ["measures", "testing"])
def test_every_listed_name_of_the_other_public_packages_exists(name: str) -> None:
    if name == "testing":
        pytest.importorskip("flwr", reason="the extra flower is not installed")
    package = importlib.import_module(f"fedcohort.{name}")
    assert all(hasattr(package, listed) for listed in package.__all__)


@pytest.mark.parametrize("name", ["selection", "algorithms"])
def test_the_built_in_classes_are_public(name: str) -> None:
    package = importlib.import_module(f"fedcohort.{name}")
    table = package.STRATEGIES if name == "selection" else package.ALGORITHMS
    for plugin in table.builtin:
        cls = table.find(plugin, "name")
        assert cls.__name__ in package.__all__
        assert getattr(package, cls.__name__) is cls


def test_a_name_that_is_not_listed_is_an_attribute_error() -> None:
    get, names = lazy_names("fedcohort", {"Run": "api:Run"})
    assert get("Run") is fedcohort.Run
    assert "Run" in names()
    with pytest.raises(AttributeError, match=r"^module 'fedcohort' has no attribute 'Walk'$"):
        get("Walk")
