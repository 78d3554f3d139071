"""Nested plain values of an experiment: merging, overrides, flattening, and paths of plug-in files."""

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
    """``section.key=value`` settings as nested values; ``option`` and ``example`` are for messages."""
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
    """``value`` with the paths of plug-in files, which an experiment file gives from where it lies, made absolute."""
    if isinstance(value, Mapping):
        return {key: anchored(inner, folder) for key, inner in value.items()}
    if isinstance(value, list):
        return [anchored(inner, folder) for inner in value]
    if isinstance(value, str) and is_file_name(value):
        path, _, attribute = value.rpartition(":")
        return f"{(folder / Path(path).expanduser()).resolve()}:{attribute}"
    return value


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from strings(inner)


def by_content(value: Any) -> Any:
    """``value`` with plug-in files named by what stands in them, so that a changed strategy is another run."""
    if isinstance(value, Mapping):
        return {key: by_content(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [by_content(inner) for inner in value]
    if isinstance(value, str) and is_file_name(value):
        path, _, attribute = value.rpartition(":")
        return f"{hashlib.sha256(Path(path).read_bytes()).hexdigest()}:{attribute}"
    return value


def merge(base: Mapping[str, Any], overrides: Mapping[str, Any], where: str) -> dict[str, Any]:
    """``base`` with ``overrides`` laid over it, tables merged key by key."""
    merged = {key: copy.deepcopy(value) for key, value in base.items()}
    for key, value in overrides.items():
        before = merged.get(key)
        if isinstance(value, str) and isinstance(before, Mapping) and "name" in before:
            value = {"name": value}
        if isinstance(value, Mapping) and isinstance(before, str | Mapping) and before:
            old: Mapping[str, Any] = {"name": before} if isinstance(before, str) else before
            if "name" in value and old.get("name", value["name"]) != value["name"]:
                old = {name: kept for name, kept in old.items() if _stays(key, name, old.get("name"), value["name"])}
            merged[key] = merge(old, value, f"{where}.{key}")
        else:
            merged[key] = copy.deepcopy(value)
    return merged


_KEPT = {"selection": ("k",), "algorithm": ("weights", "server_lr"), "data": ("validation",)}
"""What a section keeps when a row names another plug-in: what does not belong to the one that goes."""


def _stays(section: str, parameter: str, old: Any, new: Any) -> bool:
    """Whether a parameter outlives a change of name. A server learning rate that means something else for the new algorithm (a
    server optimiser's step instead of damping: it has another default) does not."""
    if parameter not in _KEPT.get(section, ()):
        return False
    if section != "algorithm":
        return True
    found = [
        Algorithm.table.find(name, "algorithm.name") for name in (old or Algorithm.model_fields["name"].default, new)
    ]
    fields = [getattr(one, "__pydantic_fields__", {}) for one in found]
    defaults = [declared[parameter].default for declared in fields if parameter in declared]
    return len(defaults) == len(fields) and len(set(defaults)) == 1


def nested(settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in settings.items():
        inner, parts = nested, key.split(".")
        for part in parts[:-1]:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise UsageError(f"{where} {key}: {part} was given a plain value as well")
        inner[parts[-1]] = value
    return nested


def flattened(section: dict[str, Any]) -> dict[str, Any]:
    own = {key: value for key, value in section.items() if key != "parameters"}
    return {**own, **copy.deepcopy(section["parameters"])}


def without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: without_none(inner) for key, inner in value.items() if inner is not None}
    return [without_none(inner) for inner in value] if isinstance(value, list | tuple) else value
