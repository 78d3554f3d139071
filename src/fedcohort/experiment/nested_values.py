"""Operations on an experiment as nested tables and lists: merging, overrides and flattening."""

import copy
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fedcohort.core.errors import UsageError, shown
from fedcohort.experiment.plain_values import check_values, parsed
from fedcohort.experiment.sections import Algorithm
from fedcohort.federation.data.own_data_names import has_columns

__all__ = ["flattened", "merge", "nested", "parse_overrides", "replace_at", "without_none"]


def parse_overrides(overrides: Iterable[str], option: str = "--set", example: str = "selection.k=5") -> dict[str, Any]:
    """``section.key=value`` settings as nested values.

    Args:
        overrides: settings; a value is TOML, or plain words.
        option: the command-line option that they come from, for messages.
        example: a valid setting, for messages.

    Raises:
        UsageError: a setting has no ``=``, a key is both a value and a table, or a value is too long or too deeply nested.
    """
    settings: dict[str, Any] = {}
    if isinstance(overrides, str | Mapping) or not all(isinstance(text, str) for text in overrides):
        raise UsageError(
            f"overrides = {shown(overrides)}: should be a list of settings as texts, such as ['{example}']"
        )
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{option} {shown(text)}: write section.key=value, such as {example}")
        settings[key.strip()] = _parsed_value(value, f"{option} {shown(key.strip())}")
    return nested(settings, option)


def _parsed_value(text: str, where: str) -> object:
    """A value of a setting: TOML, or plain words."""
    try:
        values = parsed(f"value = {text}", where)
    except tomllib.TOMLDecodeError:
        return text.strip()
    return values["value"] if len(values) == 1 else text.strip()  # the text of several lines has other keys


def merge(base: Mapping[str, object], overrides: Mapping[str, object], where: str) -> dict[str, Any]:
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


_KEPT = {
    "selection": ("k", "k_steps"),
    "algorithm": ("weights", "max_weight", "server_lr"),
    "data": ("share", "classes", "validation", "standardise"),
}
"""Settings that a section keeps when it changes to another plug-in, because all plug-ins of the section share them."""

_OF_TABLES = ("label_column", "client_column", "feature_columns", "numeric")
"""Settings that ``data`` keeps when it changes from a table to another, which may be the same table in another format."""


def _kept_parameters(
    section: str, before: Mapping[str, object], overrides: Mapping[str, object]
) -> Mapping[str, object]:
    """The settings of a section that stay when ``overrides`` are applied: all of them, unless the plug-in changes."""
    old, new = before.get("name"), overrides.get("name")
    if "name" not in overrides or "name" not in before or old == new:
        return before
    return {name: value for name, value in before.items() if _stays(section, name, old, new)}


def _stays(section: str, parameter: str, old: Any, new: Any) -> bool:
    """Whether a parameter keeps its value when the plug-in changes from ``old`` to ``new``.

    A server learning rate keeps its value only if the old and the new algorithm have the same default for it. Otherwise it has another
    meaning for the new algorithm: the step of a server optimizer instead of damping. The largest weight stays with the weights.
    """
    if section == "data" and parameter in _OF_TABLES:
        return all(isinstance(name, str) and has_columns(name) for name in (old, new))
    if parameter not in _KEPT.get(section, ()):
        return False
    if section != "algorithm":
        return True
    parameter = "weights" if parameter == "max_weight" else parameter
    names = (old or Algorithm.model_fields["name"].default, new)
    if not all(isinstance(name, str) for name in names):
        return False  # the schema reports it
    classes = [Algorithm.table.find(name, "algorithm.name") for name in names]
    fields = [getattr(algorithm, "__pydantic_fields__", {}) for algorithm in classes]
    defaults = [declared[parameter].default for declared in fields if parameter in declared]
    return len(defaults) == len(fields) and len(set(defaults)) == 1


MAX_PARTS = 32
"""Number of parts of a dotted key."""


def nested(settings: Mapping[str, object], where: str) -> dict[str, Any]:
    """Values by dotted key as nested tables: ``{"selection.k": 5}`` as ``{"selection": {"k": 5}}``.

    Raises:
        UsageError: a key has more than :data:`MAX_PARTS` parts, or is both a value and a table.
    """
    nested: dict[str, Any] = {}
    for key, value in settings.items():
        inner, parts = nested, _parts(key)
        if len(parts) > MAX_PARTS:
            raise UsageError(f"{where} {shown(key)}: the key has more than {MAX_PARTS} parts")
        for part in parts[:-1]:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise UsageError(f"{where} {shown(key)}: {part} is also set to a plain value; set only one of the two")
        if isinstance(inner.get(parts[-1]), dict) and not isinstance(value, dict):
            raise UsageError(f"{where} {shown(key)}: settings below this key are set as well; set only one of the two")
        inner[parts[-1]] = value
    check_values(nested, where)
    return nested


def _parts(key: str) -> list[str]:
    """The parts of a dotted key. As in TOML, a part in quotes may have dots."""
    if '"' not in key:
        return key.split(".")
    return [quoted or plain for quoted, plain in re.findall(r'"([^"]*)"|([^."]+)', key)] or [key]


def replace_at(values: dict[str, Any], path: tuple[str, ...], change: Callable[[Any], object]) -> None:
    """Change the value at ``path``, if there is one; the tables on the way to it are copied."""
    *outer, last = path
    for part in outer:
        if not isinstance(values.get(part), Mapping):
            return
        values[part] = values = dict(values[part])
    if last in values:
        values[last] = change(values[last])


def flattened(section: dict[str, Any]) -> dict[str, Any]:
    """A plug-in's section with the parameters beside the name, as in TOML."""
    own = {key: value for key, value in section.items() if key != "parameters"}
    return {**own, **copy.deepcopy(section["parameters"])}


def without_none(value: object) -> Any:
    """``value`` without the keys that are None, which TOML cannot express."""
    if isinstance(value, Mapping):
        return {key: without_none(inner) for key, inner in value.items() if inner is not None}
    return [without_none(inner) for inner in value] if isinstance(value, list | tuple) else value
