"""Classes and objects in an experiment from Python: each becomes a plug-in's name and its parameters.

A built-in class becomes its own name, so that ``UCB(c=0.1)`` and ``{"name": "ucb", "c": 0.1}`` are the same run. Any other class or
object gets a name from :mod:`fedcohort.core.user_code.python_plugins`.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from fedcohort.core.errors import UsageError, shown
from fedcohort.core.user_code.python_plugins import is_python_plugin, keep, name_of_class
from fedcohort.core.words.formatted_values import large
from fedcohort.experiment.completion import CHOICES, plug_in_sections
from fedcohort.experiment.nested_values import replace_at
from fedcohort.experiment.sections import Choice, Variant

__all__ = ["in_label", "names_in", "with_names"]


def with_names(values: Mapping[str, object]) -> dict[str, Any]:
    """A description with the name and the parameters of each class or object in the place of a plug-in.

    In the base, in variants, and in the sweep.

    Args:
        values: the description, or settings that override one, as nested values.

    Raises:
        UsageError: the values are no mapping, or an object is no plug-in of its section or cannot be copied.
    """
    if not isinstance(values, Mapping):
        raise UsageError(f"overrides = {shown(values)}: should be a dictionary, such as {{'seeds': 5}}")
    result = _with_names(values)
    if isinstance(result.get("variants"), list | tuple):
        result["variants"] = [_variant(row) for row in result["variants"]]
    if isinstance(result.get("sweep"), Mapping):
        result["sweep"] = {key: _swept(str(key), points) for key, points in result["sweep"].items()}
    return result


def _with_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """What :func:`with_names` does, in the base only."""
    result = dict(values)
    for path, choice in CHOICES.items():
        replace_at(result, path, partial(_section, choice, ".".join(path)))
    return result


def _section(choice: type[Choice], where: str, given: object) -> object:
    """A plug-in's section: a table for a class or an object, also for one as the ``name`` in a table; otherwise ``given`` itself."""
    if isinstance(given, Mapping):
        plugin = given.get("name")
        if not _is_plugin(choice, plugin, f"{where}.name"):
            return given
        named = _named(choice, plugin)
        return {**named, **given, "name": named["name"]}
    return _named(choice, given) if _is_plugin(choice, given, where) else given


def _is_plugin(choice: type[Choice], given: object, where: str) -> bool:
    """Whether a value is a class or an object. Plain values are none; they are checked later, and no plug-in is imported for them.

    Raises:
        UsageError: it is one, but no plug-in of this section.
    """
    if given is None or isinstance(given, str | int | float | bytes | list | tuple | Mapping | Choice):
        return False
    if not choice.table.accepts(given):
        raise UsageError(
            f"{where} = {shown(given)}: should be a name, or a table with a name and its parameters, such as "
            f"{choice.model_fields['name'].default!r}; or a class or an object that {choice.table.contract}"
        )
    return True


def _named(choice: type[Choice], given: object) -> dict[str, object]:
    """The name of a class or an object, and the parameters of an object."""
    return {"name": _name(choice, given), **(_parameters(choice, given) or {})}


def _name(choice: type[Choice], given: object) -> str:
    """The name of the class, if it and plain parameters describe the object; otherwise a name for this object."""
    by_class = isinstance(given, type) or _parameters(choice, given) is not None
    cls = given if isinstance(given, type) else type(given)
    if by_class and choice.table.builtin_name(cls):
        return choice.table.builtin_name(cls)
    kept = cls if by_class else given
    return keep(kept, choice.table.stored(kept))


def _parameters(choice: type[Choice], given: object) -> dict[str, object] | None:
    """The parameters with which a class makes this object; None if they are not plain values, or not all that the object holds."""
    if isinstance(given, type):
        return {}
    cls = type(given)
    values = {name: getattr(given, name) for name in getattr(cls, "__pydantic_fields__", {})}
    more = set(getattr(given, "__dict__", {})) - set(values)
    if not choice.table.is_class_of_kind(cls) or not _is_plain(values):
        return None
    return values if not more or choice.table.builtin_name(cls) else None


def _is_plain(value: object) -> bool:
    """Whether an experiment file can hold a value."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(inner) for key, inner in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


def _variant(row: object) -> object:
    """A row of the variants."""
    if isinstance(row, Variant):
        return Variant(label=row.label, overrides=_row({"label": row.label, **row.overrides})[1])
    if not isinstance(row, Mapping):
        return row
    label, overrides = _row(row)
    return {**label, **overrides}


def _row(row: Mapping[str, object]) -> tuple[dict[str, object], dict[str, object]]:
    """The label of a row as a table, and its overrides with names."""
    label = {"label": row["label"]} if "label" in row else {}
    try:
        return label, _with_names({key: value for key, value in row.items() if key != "label"})
    except UsageError as error:
        raise UsageError(f"variants.{row.get('label', '')}: {error}") from None


def _swept(key: str, points: object) -> object:
    """The values of an entry of the sweep; its dotted key may lead to a section, to its name, or to a table of sections."""
    if not isinstance(points, list | tuple) or all(isinstance(point, str | int | float | None) for point in points):
        return points
    parts = tuple(key.split("."))
    choice = CHOICES.get(parts[:-1])
    if parts[-1] == "name" and choice is not None:
        return [_only_name(choice, point) if _is_plugin(choice, point, f"sweep.{key}") else point for point in points]
    return [_below(parts, point) for point in points]


def _only_name(choice: type[Choice], given: object) -> str:
    """A name that stands for an object with its parameters."""
    if _parameters(choice, given):
        return keep(given, choice.table.stored(given))
    return _name(choice, given)


def _below(parts: tuple[str, ...], point: Any) -> Any:
    """One value of the sweep, under the parts of its dotted key."""
    whole = point
    for part in reversed(parts):
        whole = {part: whole}
    whole = _with_names(whole)
    for part in parts:
        whole = whole[part]
    return whole


def names_in(experiment: Any) -> list[str]:
    """The names of classes and objects from Python in the base of an :class:`~fedcohort.experiment.Experiment`."""
    names = [section.name for section in plug_in_sections(experiment).values()]
    return [name for name in [*names, str(experiment.training.loss.get("name"))] if is_python_plugin(name)]


def in_label(value: object) -> object:
    """A value of the sweep as labels show it: a class or an object from Python as its class with its parameters, 1000000.0 as 1e6."""
    if isinstance(value, str) and is_python_plugin(value):
        return name_of_class(value)
    if isinstance(value, Mapping) and isinstance(value.get("name"), str) and is_python_plugin(value["name"]):
        given = ", ".join(f"{key}={inner}" for key, inner in value.items() if key != "name")
        return f"{name_of_class(value['name'])}({given})" if given else name_of_class(value["name"])
    return (large(value) or value) if isinstance(value, float) else value
