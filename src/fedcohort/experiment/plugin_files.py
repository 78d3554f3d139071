"""Users' own files in an experiment: where a description names a class in a file, and what the file contains."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from fedcohort.core.files.paths import is_file
from fedcohort.core.plugins import is_file_name, whole_name
from fedcohort.core.user_code.own_imports import content_with_imports, imported_files
from fedcohort.experiment.completion import CHOICES
from fedcohort.experiment.nested_values import replace_at
from fedcohort.federation.data.own_data_names import content_of, is_table, is_text

__all__ = ["PLUGIN_SECTIONS", "anchored", "by_content", "copied", "named_files", "plugin_files", "with_copies"]

PLUGIN_SECTIONS: tuple[tuple[str, ...], ...] = (*CHOICES, ("data", "name"), ("public", "name"), ("measures", "extra"))
"""Paths of the sections that choose a plug-in, and of the names of data sets. A name or a parameter there can be a class or a function
in a file; no other text can."""


def anchored(values: Mapping[str, object], folder: Path) -> dict[str, Any]:
    """A description with the paths of plug-in files, which are relative to ``folder``, made absolute."""
    return _replaced(values, lambda name: whole_name(name, folder))


def by_content(values: Mapping[str, object]) -> dict[str, Any]:
    """A complete description with the paths of plug-in files, tables and texts replaced by hashes of their contents, so that a changed
    file is another run. The content of a plug-in file includes that of the user's modules that it imports."""

    def content(name: str) -> str:
        path, _, attribute = name.rpartition(":")
        if not is_file(Path(path)):
            return name
        return f"{content_with_imports(Path(path))}:{attribute}"

    result = _replaced(values, content)
    for section in ("data", "public"):
        inner = result.get(section)
        if not isinstance(inner, Mapping):
            continue
        name = inner.get("name", "")
        if (is_table(name) or is_text(name)) and is_file(Path(name)):
            result[section] = {**inner, "name": content_of(Path(name))}
    return result


def plugin_files(values: Mapping[str, object]) -> list[Path]:
    """The users' own files that a description names and that exist, sorted."""
    return [Path(name) for name in named_files(values) if is_file(Path(name))]


def copied(files: Iterable[Path]) -> tuple[dict[Path, str], dict[str, bytes]]:
    """Where users' own files are in a run directory, and the contents of all copies there, by their paths.

    Modules in the folder of a file that it imports are copied as well, under their own names, so that the copy can import them.
    """
    names: dict[Path, str] = {}
    contents: dict[str, bytes] = {}
    for file in files:
        content = file.read_bytes()
        names[file] = f"plug-ins/{file.stem}-{hashlib.sha256(content).hexdigest()[:8]}.py"
        contents[names[file]] = content
        for module, imported in sorted(imported_files(file, content).items()):
            if imported.resolve().is_relative_to(file.parent.resolve()):
                ending = "/__init__.py" if imported.name == "__init__.py" else ".py"
                contents.setdefault(f"plug-ins/{module.replace('.', '/')}{ending}", imported.read_bytes())
    return names, contents


def with_copies(values: Mapping[str, object], names: Mapping[Path, str]) -> dict[str, Any]:
    """A description that names copies of users' own files in their place; ``names`` are the paths of the copies."""

    def copy(name: str) -> str:
        path, _, attribute = name.rpartition(":")
        return f"{names.get(Path(path), path)}:{attribute}"

    return _replaced(values, copy)


def named_files(values: Mapping[str, object]) -> list[str]:
    """The paths of users' own files as a description names them, sorted."""
    found: set[str] = set()

    def collect(name: str) -> str:
        found.add(name.rpartition(":")[0])
        return name

    _replaced(values, collect)
    return sorted(found)


def _replaced(values: Mapping[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """A description with ``change`` applied to each name of a class in a file: in the base, in its variants and in its sweep."""
    result = dict(values)
    for path in PLUGIN_SECTIONS:
        replace_at(result, path, lambda value: _everywhere(value, change))
    if isinstance(result.get("variants"), list | tuple):
        result["variants"] = [_replaced(row, change) if isinstance(row, Mapping) else row for row in result["variants"]]
    if isinstance(result.get("sweep"), Mapping):
        result["sweep"] = {key: _replaced_choices(str(key), value, change) for key, value in result["sweep"].items()}
    return result


def _replaced_choices(key: str, choices: object, change: Callable[[str], str]) -> object:
    """The values of an entry of the sweep; its dotted key may lead to a section, into it, or to a table of sections."""
    parts = tuple(key.split("."))
    if any(parts[: len(path)] == path for path in PLUGIN_SECTIONS):
        return _everywhere(choices, change)
    if not isinstance(choices, list | tuple):
        return choices
    inside = [path[len(parts) :] for path in PLUGIN_SECTIONS if path[: len(parts)] == parts]
    tables = [dict(choice) if isinstance(choice, Mapping) else choice for choice in choices]
    for table in tables:
        for path in inside if isinstance(table, dict) else ():
            replace_at(table, path, lambda value: _everywhere(value, change))
    return tables


def _everywhere(value: object, change: Callable[[str], str]) -> object:
    """``value`` with ``change`` applied to each name of a class in a file in it."""
    if isinstance(value, Mapping):
        return {key: _everywhere(inner, change) for key, inner in value.items()}
    if isinstance(value, list):
        return [_everywhere(inner, change) for inner in value]
    return change(value) if isinstance(value, str) and is_file_name(value) else value
