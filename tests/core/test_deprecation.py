"""Deprecation: the warning, the docstring, and the line in the changelog."""

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedcohort
from fedcohort.core.deprecation import deprecated
from fedcohort.core.parameters import parameters

SOURCE = Path(fedcohort.__file__).parent
CHANGELOG = Path(__file__).parents[2] / "CHANGELOG.md"


@deprecated(since="0.2", removed_in="0.3", instead="double")
def twice(number: int, *, plus: int = 0) -> int:
    """Two times a number.

    More about it.
    """
    return 2 * number + plus


@deprecated(since="0.2", removed_in="0.3", instead="Circle")
class Ring:
    """A ring."""

    def __init__(self, radius: float) -> None:
        self.radius = radius


@deprecated(since="0.2", removed_in="0.3", instead="Area")
@parameters
class Square:
    """A square."""

    side: float = 1.0


def test_a_call_warns_once_and_works_as_before() -> None:
    with pytest.warns(DeprecationWarning, match="double") as caught:
        assert twice(3, plus=1) == 7
    (warning,) = caught
    assert str(warning.message) == "twice is deprecated since version 0.2 and will be removed in 0.3; use double"
    assert warning.filename == __file__
    assert twice.__name__ == "twice"


def test_the_docstring_keeps_its_first_sentence_and_gets_a_note() -> None:
    lines = (twice.__doc__ or "").splitlines()
    assert lines[0] == "Two times a number."
    assert lines[-1] == "Deprecated since version 0.2: use double. It will be removed in version 0.3."


def test_a_class_warns_when_an_instance_is_created() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert issubclass(Ring, object)
    with pytest.warns(DeprecationWarning, match="^Ring is deprecated .*; use Circle$"):
        assert Ring(2.0).radius == 2.0
    with pytest.warns(DeprecationWarning, match="^Square is deprecated .*; use Area$"):
        assert Square(side=2.0).side == 2.0
    assert (Ring.__doc__ or "").startswith("A ring.")
    assert "use Circle" in (Ring.__doc__ or "")


# --- the changelog ---------------------------------------------------------------------------------------------------------


def deprecated_names(tree: ast.AST) -> Iterator[str]:
    """Names of the functions and classes of a module that the decorator marks."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for decorator in node.decorator_list:
            function = decorator.func if isinstance(decorator, ast.Call) else decorator
            if ast.unparse(function).rpartition(".")[2] == "deprecated":
                yield node.name


def missing_from(changelog: str, folder: Path) -> list[str]:
    """Deprecated functions and classes below a folder that no line of the changelog names together with the word "deprecated"."""
    lines = [line for line in changelog.splitlines() if "deprecated" in line.lower()]
    return [
        f"{path.relative_to(folder)}: {name}"
        for path in sorted(folder.rglob("*.py"))
        for name in deprecated_names(ast.parse(path.read_text(encoding="utf-8")))
        if not any(f"`{name}" in line or f".{name}" in line for line in lines)
    ]


def test_the_changelog_names_whatever_is_deprecated() -> None:
    assert missing_from(CHANGELOG.read_text(encoding="utf-8"), SOURCE) == []


def test_a_planted_deprecation_without_a_line_is_reported(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text(
        "from fedcohort.core import deprecation\nfrom fedcohort.core.deprecation import deprecated\n\n\n"
        '@deprecated(since="0.2", removed_in="0.3", instead="new")\ndef old() -> None:\n    pass\n\n\n'
        'class Kept:\n    @deprecation.deprecated(since="0.2", removed_in="0.3", instead="new")\n'
        "    def method(self) -> None:\n        pass\n"
    )
    assert missing_from("* `old` is gone", tmp_path) == ["old.py: old", "old.py: method"]
    named = "* Deprecated: `old`, use `new`.\n* Deprecated: `Kept.method`, use `new`."
    assert missing_from(named, tmp_path) == []
