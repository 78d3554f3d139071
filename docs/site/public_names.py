"""The public names of the package, the pages of the Python reference, and what they leave undocumented."""

import ast
import dataclasses
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from formulas import typeset
from navigation import DOCS

from fedcohort.algorithms import ALGORITHMS
from fedcohort.core.plugins import Table
from fedcohort.selection import STRATEGIES

__all__ = ["ENTRIES", "Entry", "api_pages", "is_function", "modules", "overview_of", "public_names", "undocumented"]


@dataclasses.dataclass(frozen=True)
class Entry:
    """A strategy or an algorithm, which has a page of its own.

    Attributes:
        name: its name in an experiment file.
        kind: ``strategy`` or ``algorithm``.
        path: the public name of its class.
        cls: the class.
    """

    name: str
    kind: str
    path: str
    cls: Any

    @property
    def page(self) -> str:
        """The name of its page on the site."""
        return f"{self.kind}/{self.name}"


def _entries(table: Table, kind: str, module: str) -> dict[str, Entry]:
    found = {}
    for name in table.builtin:
        cls = table.find(name, name)
        found[name] = Entry(name, kind, f"{module}.{cls.__name__}", cls)
    return found


ENTRIES = _entries(STRATEGIES, "strategy", "fedcohort.selection") | _entries(
    ALGORITHMS, "algorithm", "fedcohort.algorithms"
)
"""All strategies and algorithms, by name."""


def modules() -> list[str]:
    """The public modules, as the page on stability lists them."""
    text = (DOCS / "stability.md").read_text(encoding="utf-8").partition("A module exports")[0]
    return list(dict.fromkeys(re.findall(r"`(fedcohort[\w.]*)`", text)))


def public_names(module: str) -> dict[str, Any]:
    """The exported names of a module, and what they stand for."""
    found = importlib.import_module(module)
    return {name: getattr(found, name) for name in found.__all__}


# --- documentation ---------------------------------------------------------------------------------------------------------------


@cache
def _written_beside(module: str) -> dict[tuple[str, str], str]:
    """The texts that stand below the constants and attributes of a module, by class (or "") and name."""
    tree = ast.parse(Path(str(sys.modules[module].__file__)).read_text(encoding="utf-8"))
    bodies = [("", tree.body), *((node.name, node.body) for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]
    return {
        (owner, name): inspect.cleandoc(text)
        for owner, body in bodies
        for statement, below in pairwise(body)
        for name in _assigned(statement)
        if isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(text := below.value.value, str)
    }


def _assigned(statement: ast.stmt) -> list[str]:
    """The names that a statement assigns to."""
    if isinstance(statement, ast.AnnAssign):
        return [ast.unparse(statement.target)]
    return [ast.unparse(target) for target in statement.targets] if isinstance(statement, ast.Assign) else []


def text_of_constant(module: str, name: str, value: Any) -> str:
    """The documentation of a constant, where it is defined; empty if there is none."""
    candidates = [module, *(other for other in sorted(sys.modules) if other.startswith("fedcohort."))]
    for other in candidates:
        if getattr(sys.modules.get(other), name, None) is value and (text := _written_beside(other).get(("", name))):
            return text
    return ""


def undocumented() -> list[str]:
    """The public names, methods and attributes without documentation, as dotted paths."""
    missing = []
    for module in modules():
        for name, value in public_names(module).items():
            path = f"{module}.{name}"
            if inspect.isclass(value):
                missing += [f"{path}{rest}" for rest in _missing_in_class(value)]
            elif is_function(value):
                missing += [] if inspect.getdoc(value) else [path]
            elif not text_of_constant(module, name, value):
                missing.append(path)
    return missing


def _missing_in_class(cls: type) -> Iterator[str]:
    if not cls.__doc__ or not inspect.cleandoc(cls.__doc__).strip():
        yield ""
    own = [base for base in cls.__mro__ if base.__module__.startswith("fedcohort")]
    for base in own:
        for name, value in vars(base).items():
            if (
                name.startswith("_")
                or getattr(value, "__name__", "") == "<lambda>"
                or not isinstance(value, (property, classmethod, staticmethod, type(_entries)))
            ):
                continue
            if not inspect.getdoc(getattr(cls, name)):
                yield f".{name}"
    described = "\n".join(inspect.cleandoc(base.__doc__ or "").partition("Attributes:")[2] for base in own)
    beside = {name for base in own for name in _names_written_beside(base)}
    for name in dict.fromkeys(name for base in own for name in vars(base).get("__annotations__", {})):
        if (
            not name.startswith("_")
            and name not in beside
            and not re.search(rf"^ +.*\b{name}\b.*:", described, re.MULTILINE)
        ):
            yield f".{name}"


def _names_written_beside(cls: type) -> set[str]:
    return {name for owner, name in _written_beside(cls.__module__) if owner == cls.__name__}


def is_function(value: Any) -> bool:
    """Whether a value is a function, also behind a cache."""
    return inspect.isfunction(inspect.unwrap(value)) if callable(value) else False


# --- pages -----------------------------------------------------------------------------------------------------------------------

MODULES = {
    "fedcohort": "Run and compare experiments.",
    "fedcohort.selection": "The strategies, and what you need to write one.",
    "fedcohort.algorithms": "The algorithms, and what you need to write one or a loss.",
    "fedcohort.federation": "Data of clients, partitions, speeds, availability, networks.",
    "fedcohort.measures": "Functions that turn results into numbers for tables.",
    "fedcohort.testing": "Checks for your own strategies, algorithms, models, partitions and engines.",
    "fedcohort.flower": "Strategies in a Flower app, and deployments. Needs the extra `flower`.",
}


def api_pages() -> dict[str, str]:
    """The pages of the Python reference, by their names on the site."""
    pages = {f"api/{module.replace('.', '-')}": _api_page(module) for module in modules()}
    lines = [
        "# Python reference", "",
        "These modules are public: what they export keeps working between versions, as [Stability](../stability.md) says. The texts",
        "on these pages are the docstrings of the code.", "",
        *(f"- [`{module}`]({module.replace('.', '-')}.md): {MODULES[module]}" for module in modules()),
        "", "```{toctree}", ":hidden:", *(module.replace(".", "-") for module in modules()), "```",
    ]  # fmt: skip
    return {"api/index": "\n".join(lines), **pages}


def _api_page(module: str) -> str:
    on_own_page = {entry.path: entry for entry in ENTRIES.values()}
    names = public_names(module)
    listed = [entry for name in names if (entry := on_own_page.get(f"{module}.{name}"))]
    rest = {name: value for name, value in names.items() if f"{module}.{name}" not in on_own_page}
    earlier = {id(value) for other in modules()[: modules().index(module)] for value in public_names(other).values()}
    groups: dict[str, list[str]] = {"Functions": [], "Classes": [], "Constants and types": []}
    for name, value in sorted(rest.items(), key=lambda pair: pair[0].lower()):
        if inspect.isclass(value):
            options = ["no-index"] if id(value) in earlier else ["members", "show-inheritance"]
            groups["Classes"].append(_directive("autoclass", f"{module}.{name}", options))
        elif is_function(value):
            groups["Functions"].append(
                _directive("autofunction", f"{module}.{name}", ["no-index"] if id(value) in earlier else [])
            )
        else:
            groups["Constants and types"].append(_constant(module, name, value))
    parts = [f"# `{module}`", MODULES[module]]
    if listed:
        parts += [
            f"## Built-in {'strategies' if listed[0].kind == 'strategy' else 'algorithms'}",
            overview_of(listed, "../"),
        ]
    for title, directives in groups.items():
        if directives:
            parts += [f"## {title}", *directives]
    return "\n\n".join(parts)


def overview_of(entries: list[Entry], up: str) -> str:
    """A table of strategies or algorithms with links to their pages."""
    lines = ["| class and name | what it does |", "|---|---|"]
    for entry in entries:
        sentence = re.sub(
            r":\w+:`~?(.+?)`", r"`\1`", (entry.cls.__doc__ or "").strip().split("\n\n")[0].replace("``", "`")
        )
        sentence = typeset(" ".join(sentence.split())).replace("|", "\\|")
        lines.append(f"| [`{entry.cls.__name__}`]({up}{entry.page}.md), `{entry.name}` | {sentence} |")
    return "\n".join(lines)


def _directive(kind: str, path: str, options: list[str]) -> str:
    lines = ["```{eval-rst}", f".. {kind}:: {path}", *(f"   :{option}:" for option in options), "```"]
    return "\n".join(lines)


def _constant(module: str, name: str, value: Any) -> str:
    short: Callable[[Any], str] = repr
    shown = f"\n   :value: {short(value)}" if isinstance(value, str | int | float) else ""
    text = text_of_constant(module, name, value)
    body = "\n".join(f"   {line}".rstrip() for line in text.splitlines())
    return f"```{{eval-rst}}\n.. py:data:: {module}.{name}{shown}\n\n{body}\n```"
