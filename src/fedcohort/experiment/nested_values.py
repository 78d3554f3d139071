"""Operations on an experiment as nested tables and lists: merging, overrides, flattening, and paths of plug-in files."""

import copy
import hashlib
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fedcohort.core.errors import UsageError
from fedcohort.core.plugins import is_file_name
from fedcohort.experiment.sections import Algorithm

__all__ = [
    "anchored",
    "by_content",
    "flattened",
    "merge",
    "nested",
    "parse_overrides",
    "strings",
    "without_none",
]


def parse_overrides(overrides: Iterable[str], option: str = "--set", example: str = "selection.k=5") -> dict[str, Any]:
    """``section.key=value`` settings as nested values.

    Args:
        overrides: settings; a value is TOML, or plain words.
        option: the command-line option that they come from, for messages.
        example: a valid setting, for messages.

    Raises:
        UsageError: a setting has no ``=``, or a key is both a value and a table.
    """
    settings: dict[str, Any] = {}
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{option} {text!r}: write section.key=value, such as {example}")
        try:
            settings[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            settings[key.strip()] = value.strip()
    return nested(settings, option)


def anchored(value: Any, folder: Path) -> Any:
    """``value`` with the paths of plug-in files, which are relative to ``folder``, made absolute."""
    if isinstance(value, Mapping):
        return {key: anchored(inner, folder) for key, inner in value.items()}
    if isinstance(value, list):
        return [anchored(inner, folder) for inner in value]
    if isinstance(value, str) and is_file_name(value):
        path, _, attribute = value.rpartition(":")
        return f"{(folder / Path(path).expanduser()).resolve()}:{attribute}"
    return value


def strings(value: object) -> Iterator[str]:
    """All strings in nested plain values."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from strings(inner)


def by_content(value: Any) -> Any:
    """``value`` with the paths of plug-in files replaced by hashes of their contents, so that a changed file is another run."""
    if isinstance(value, Mapping):
        return {key: by_content(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [by_content(inner) for inner in value]
    if isinstance(value, str) and is_file_name(value):
        path, _, attribute = value.rpartition(":")
        return f"{hashlib.sha256(Path(path).read_bytes()).hexdigest()}:{attribute}"
    return value


def merge(base: Mapping[str, Any], overrides: Mapping[str, Any], where: str) -> dict[str, Any]:
    """``base`` with the values of ``overrides``, tables merged key by key.

    If a section changes to another plug-in, the parameters of the old plug-in are dropped.
    """
    merged = {key: copy.deepcopy(value) for key, value in base.items()}
    for key, value in overrides.items():
        before = merged.get(key)
        if isinstance(value, str) and isinstance(before, Mapping) and "name" in before:
            value = {"name": value}
        if isinstance(value, Mapping) and isinstance(before, str | Mapping) and before:
            kept = _kept_parameters(key, {"name": before} if isinstance(before, str) else before, value)
            merged[key] = merge(kept, value, f"{where}.{key}")
        else:
            merged[key] = copy.deepcopy(value)
    return merged


_KEPT = {"selection": ("k",), "algorithm": ("weights", "server_lr"), "data": ("validation",)}
"""Settings that a section keeps when it changes to another plug-in, because all plug-ins of the section share them."""


def _kept_parameters(section: str, before: Mapping[str, Any], overrides: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of a section that stay when ``overrides`` are applied: all of them, unless the plug-in changes."""
    old, new = before.get("name"), overrides.get("name")
    if "name" not in overrides or "name" not in before or old == new:
        return before
    return {name: value for name, value in before.items() if _stays(section, name, old, new)}


def _stays(section: str, parameter: str, old: Any, new: Any) -> bool:
    """Whether a parameter keeps its value when the plug-in changes from ``old`` to ``new``.

    A server learning rate keeps its value only if the old and the new algorithm have the same default for it. Otherwise it has another
    meaning for the new algorithm: the step of a server optimizer instead of damping.
    """
    if parameter not in _KEPT.get(section, ()):
        return False
    if section != "algorithm":
        return True
    names = (old or Algorithm.model_fields["name"].default, new)
    classes = [Algorithm.table.find(name, "algorithm.name") for name in names]
    fields = [getattr(algorithm, "__pydantic_fields__", {}) for algorithm in classes]
    defaults = [declared[parameter].default for declared in fields if parameter in declared]
    return len(defaults) == len(fields) and len(set(defaults)) == 1


def nested(settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Values by dotted key as nested tables: ``{"selection.k": 5}`` as ``{"selection": {"k": 5}}``."""
    nested: dict[str, Any] = {}
    for key, value in settings.items():
        inner, parts = nested, key.split(".")
        for part in parts[:-1]:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise UsageError(f"{where} {key}: {part} is also set to a plain value; set only one of the two")
        inner[parts[-1]] = value
    return nested


def flattened(section: dict[str, Any]) -> dict[str, Any]:
    """A plug-in's section with the parameters beside the name, as in TOML."""
    own = {key: value for key, value in section.items() if key != "parameters"}
    return {**own, **copy.deepcopy(section["parameters"])}


def without_none(value: Any) -> Any:
    """``value`` without the keys that are None, which TOML cannot express."""
    if isinstance(value, Mapping):
        return {key: without_none(inner) for key, inner in value.items() if inner is not None}
    return [without_none(inner) for inner in value] if isinstance(value, list | tuple) else value
