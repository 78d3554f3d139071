"""Hooks of Sphinx: short signatures, no private bases, and references to everything that exists.

A reference in a docstring may name any object. It becomes a link if the object is public, and plain text if it is not. A reference to
something that does not exist is an error, without a list of other projects' objects, so the site builds without the internet.
"""

import builtins
import importlib
import pkgutil
import re
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import pydantic
from docutils import nodes
from public_names import modules, public_names
from signatures import plain
from sphinx.directives import ObjectDescription
from sphinx.domains.python import PyAttribute, PyProperty, PyVariable

import fedcohort

__all__ = ["connect"]

ELSEWHERE = (
    "numpy",
    "torch",
    "pandas",
    "pathlib",
    "typing",
    "collections.abc",
    "types",
    "abc",
    "random",
    "click",
    "sklearn.base",
)
"""Modules whose names stand in signatures without the module."""


def connect(app: Any) -> None:
    """Connect all hooks to Sphinx."""
    app.connect("autodoc-process-signature", short_signature)
    app.connect("autodoc-process-bases", public_bases)
    app.connect("autodoc-process-docstring", hide_colon, priority=100)  # before Napoleon
    app.connect("autodoc-process-docstring", show_colon, priority=900)
    app.connect("autodoc-process-docstring", plain_types, priority=900)  # after Napoleon
    app.connect("autodoc-process-docstring", escape_bars)
    app.connect("missing-reference", resolve)
    for name, directive in (("attribute", PyAttribute), ("property", PyProperty), ("data", PyVariable)):
        app.add_directive_to_domain("py", name, with_plain_type(directive), override=True)


def short_signature(
    _app: Any, what: str, _name: str, found: Any, _options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None] | None:
    """A pydantic model takes its fields by keyword; the signature does not repeat them, nor the limits of parameters, which the table
    of parameters has. Types of arrays have the short names of NumPy."""
    if what == "class" and isinstance(found, type) and issubclass(found, pydantic.BaseModel):
        return "(**values)", None
    if signature and what in ("class", "exception") and len(signature) > 400:
        return "(…)", None
    if not signature:
        return None
    return plain(signature), returns and plain(returns)


def with_plain_type(directive: type[ObjectDescription[Any]]) -> type[ObjectDescription[Any]]:
    """The directive of an attribute, with its type as signatures have it."""

    class Plain(directive):  # type: ignore[valid-type, misc]
        def handle_signature(self, sig: str, signode: Any) -> Any:
            if "type" in self.options:
                self.options["type"] = plain(self.options["type"])
            return super().handle_signature(sig, signode)

    return Plain


COLON = "\ue000"
"""Stands for a colon that Napoleon must not read."""


def hide_colon(_app: Any, what: str, _name: str, _found: Any, _options: Any, lines: list[str]) -> None:
    """Napoleon takes the words before the first colon of an attribute's text for its type; here they are only words."""
    if what in ("attribute", "property", "data") and lines:
        lines[0] = lines[0].replace(": ", f"{COLON} ")


def show_colon(_app: Any, _what: str, _name: str, _found: Any, _options: Any, lines: list[str]) -> None:
    """Undo :func:`hide_colon`."""
    lines[:] = [line.replace(COLON, ":") for line in lines]


def plain_types(_app: Any, _what: str, _name: str, _found: Any, _options: Any, lines: list[str]) -> None:
    """Types that Napoleon takes from annotations are as in signatures."""
    lines[:] = [plain(line) if line.lstrip().startswith((":vartype ", ":type ")) else line for line in lines]


def escape_bars(_app: Any, _what: str, _name: str, _found: Any, _options: Any, lines: list[str]) -> None:
    """Bars in formulas, such as ``|w|``, are no substitutions. Code in double backticks stays as it is."""
    for number, line in enumerate(lines):
        parts = line.split("``")
        parts[::2] = [part.replace("|", "\\|") for part in parts[::2]]
        lines[number] = "``".join(parts)


def public_bases(_app: Any, _name: str, _found: type, _options: Any, bases: list[Any]) -> None:
    """Leave out bases that users cannot import."""
    public = set(_paths())
    bases[:] = [base for base in bases if id(base) in public or getattr(base, "__module__", "") == "builtins"] or [
        object
    ]


@cache
def _paths() -> dict[int, str]:
    """The documented path of every public object, by the object's identity. The package's own module comes last."""
    found: dict[int, str] = {}
    for module in modules():
        for name, value in public_names(module).items():
            if not isinstance(value, str | int | float | tuple | frozenset):
                found[id(value)] = f"{module}.{name}"
    return found


def resolve(app: Any, env: Any, node: Any, contnode: Any) -> Any:
    """A link to a public object, plain text for another object, and nothing for a name that does not exist."""
    if node.get("refdomain") != "py":
        return None
    if not re.fullmatch(r"[\w.]+", node["reftarget"]) or node["reftarget"].endswith("."):
        return contnode  # words that Napoleon took for a type
    for parts in _readings(node["reftarget"], node):
        link = _linked(app, env, node, contnode, parts)
        if link is not None:
            return link
    return contnode if any(True for _ in _readings(node["reftarget"], node)) else None


def _linked(app: Any, env: Any, node: Any, contnode: Any, objects: list[tuple[str, Any]]) -> Any:
    """A link to the last of the objects on a path that has a place on a page."""
    known = env.get_domain("py").objects
    for length in range(len(objects), 0, -1):
        path = _paths().get(id(objects[length - 1][1]))
        if path is None:
            continue
        full = ".".join([path, *(name for name, _ in objects[length:])])
        entry = known.get(full) or known.get(path)
        if entry is None:
            return None
        target = full if full in known else path
        reference = nodes.reference("", "", internal=True, reftitle=target)
        reference["refuri"] = f"{app.builder.get_relative_uri(node['refdoc'], entry.docname)}#{entry.node_id}"
        reference += contnode
        return reference
    return None


def _readings(target: str, node: Any) -> Iterator[list[tuple[str, Any]]]:
    """What a dotted name can stand for: the objects along its path, once for each place where it can be looked up."""
    for start in _places(node):
        objects, here = [], start
        for name in target.split("."):
            try:
                here = _member(here, name)
            except AttributeError:
                break
            objects.append((name, here))
        else:
            yield objects
    first, dot, rest = target.partition(".")
    first = {"np": "numpy", "pd": "pandas"}.get(first, first)
    if first in sys.modules:
        yield from _absolute(first + dot + rest)


def _places(node: Any) -> Iterator[Any]:
    module, cls = node.get("py:module"), node.get("py:class")
    if module and cls:
        try:
            found: Any = importlib.import_module(module)
            for name in cls.split("."):
                found = getattr(found, name)
        except AttributeError:
            found = None
        if found is not None:
            yield found
            yield sys.modules.get(getattr(found, "__module__", ""))
    if module:
        yield importlib.import_module(module)
    yield builtins
    _import_everything()
    yield from (sys.modules[name] for name in sorted(sys.modules) if name.split(".")[0] == "fedcohort")
    yield from (importlib.import_module(name) for name in ELSEWHERE)


@cache
def _import_everything() -> None:
    """Import all modules of the package, since annotations name classes that are imported for type checkers only."""
    for module in pkgutil.walk_packages(fedcohort.__path__, "fedcohort."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def _member(owner: Any, name: str) -> Any:
    """An attribute, or the annotation of one that only instances have."""
    try:
        with warnings.catch_warnings(action="ignore"):  # numpy warns of names that it no longer has
            return getattr(owner, name)
    except AttributeError:
        for base in getattr(owner, "__mro__", ()):
            if name in vars(base).get("__annotations__", {}):
                return vars(base)["__annotations__"][name]
            if name in (getattr(base, "__doc__", None) or ""):  # an instance's attribute that the class describes
                return name
        raise


def _absolute(target: str) -> Iterator[list[tuple[str, Any]]]:
    names = target.split(".")
    for length in range(len(names), 0, -1):
        try:
            here: Any = importlib.import_module(".".join(names[:length]))
        except ImportError:
            continue
        objects = [(".".join(names[:length]), here)]
        try:
            for name in names[length:]:
                here = _member(here, name)
                objects.append((name, here))
        except AttributeError:
            return
        yield objects
        return
