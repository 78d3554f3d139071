"""What a setting should be, in words: the message of an error, from pydantic's description of it and the setting's definition."""

import math
from collections.abc import Iterable, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic_core import ErrorDetails

from fedcohort.core.errors import shown

__all__ = ["Place", "expected", "place_in"]

LIMITS = {
    "greater_than": ("above", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("below", "lt"),
    "less_than_equal": ("at most", "le"),
}
"""Pydantic's types of errors for numbers outside the limits: the words, and where the error has the limit."""

ONE: Mapping[object, str] = {int: "a whole number", float: "a number", str: "text in quotes", bool: "true or false"}
"""What a value is called, by its type."""

SEVERAL: Mapping[object, str] = {int: "whole numbers", float: "numbers", str: "texts", Any: "values"}
"""What the entries of a list are called, by their type."""


class Place(NamedTuple):
    """Where in a section a value stands.

    Attributes:
        keys: the keys and positions from the section to the value.
        type: the declared type of the value; None if it is not known.
        default: its default value; None without one.
        in_table: whether it stands in a table that can have any keys.
    """

    keys: tuple[str, ...] = ()
    type: object = None
    default: object = None
    in_table: bool = False


def place_in(model: type | None, path: Iterable[int | str]) -> Place:
    """The place of a value in a section, from pydantic's ``path``, which also names the types that were tried."""
    place = Place(type=model)
    for part in path:
        place = _inside(place, part)
    return place


def _inside(place: Place, part: int | str) -> Place:
    """The place of one part of what stands at a place."""
    types = _alternatives(place.type)
    if len(types) > 1:  # the part is one of the types
        return place
    keys, outer = (*place.keys, str(part)), types[0] if types else None
    field = getattr(outer, "__pydantic_fields__", {}).get(part)
    if field is not None:
        return Place(keys, field.annotation, field.default)
    arguments = get_args(outer)
    if get_origin(outer) in (list, tuple) and isinstance(part, int):
        return Place(keys, arguments[part] if part < len(arguments) and Ellipsis not in arguments else arguments[0])
    if get_origin(outer) is dict:
        return Place(keys, arguments[1], in_table=True)
    return Place(keys)


def _alternatives(declared: object) -> list[object]:
    """The types that a declared type allows, without None and limits."""
    if get_origin(declared) is Annotated:
        return _alternatives(get_args(declared)[0])
    if get_origin(declared) in (Union, UnionType):
        return [inner for part in get_args(declared) if part is not NoneType for inner in _alternatives(part)]
    return [] if declared is None else [declared]


def expected(detail: ErrorDetails, place: Place) -> str:
    """What the value at a place should be, as the end of a sentence that begins with the value; empty if only pydantic knows.

    Args:
        detail: pydantic's description of the error.
        place: the place.
    """
    kind, value = detail["type"], detail["input"]
    types = _alternatives(place.type)
    if kind in LIMITS:
        words, key = LIMITS[kind]
        return f"should be {words} {_number(detail['ctx'][key])}"
    if len(types) > 1:
        return f"should be {_any_of(types)}"
    match kind:
        case "int_type" | "int_from_float" | "int_parsing":
            return _whole_number(value, place)
        case "float_type" | "float_parsing":
            return _with_example("should be a number", value, place)
        case "finite_number":
            return "should be a finite number"
        case "bool_type" | "bool_parsing":
            return "should be true or false"
        case "string_type":
            return _text(value, place)
        case "list_type" | "tuple_type":
            return _list(value, place, types)
        case "dict_type":
            return "should be a table"
    return ""


def _any_of(types: Iterable[object]) -> str:
    """Several types as a choice."""
    words = list(dict.fromkeys(word for each in types for word in _names(each)))
    return f"{', '.join(words[:-1])} or {words[-1]}" if words[1:] else "".join(words)


def _names(each: object) -> list[str]:
    """What values of a type are called; those of a choice are listed."""
    if get_origin(each) is Literal:
        return [*map(repr, get_args(each))]
    return ["a list" if get_origin(each) in (list, tuple) else ONE.get(each, "a table")]


def _number(limit: object) -> str:
    """A limit without needless digits, as it is written in a file."""
    return f"{limit:g}" if isinstance(limit, float) and abs(limit) < 1e6 else str(limit)


def _whole_number(value: object, place: Place) -> str:
    if isinstance(value, float) and value.is_integer():
        return f"should be a whole number: {value:.0f}"
    return _with_example("should be a whole number", value, place)


def _with_example(words: str, value: object, place: Place) -> str:
    """Words for a number, with the number itself if the value is one in quotes, or the default as an example."""
    if isinstance(value, str) and _is_number(value, whole="whole" in words):
        return f"{words}, without quotes: {value.strip()}"
    if isinstance(value, list) or isinstance(place.default, bool) or not isinstance(place.default, int | float):
        return words
    return f"{words}, such as {_number(place.default)}" if math.isfinite(place.default) else words


def _is_number(text: str, *, whole: bool) -> bool:
    """Whether a text is a finite number, and a whole one if it has to be ``whole``."""
    try:
        return math.isfinite(int(text) if whole else float(text))
    except (ValueError, OverflowError):
        return False


def _text(value: object, place: Place) -> str:
    if isinstance(value, list | dict):
        return "should be text in quotes"
    example = place.default if isinstance(place.default, str) and place.default else str(value)
    return f"should be text in quotes, such as {shown(example)}"


def _list(value: object, place: Place, types: list[object]) -> str:
    """A list, and how it is written; if a table was given in a table of any keys, how keys with dots are written."""
    inner = next(iter(_alternatives(next(iter(get_args(types[0])), None))), None) if types else None
    tables = hasattr(inner, "__pydantic_fields__")
    entries = "tables" if tables else "lists" if get_origin(inner) in (list, tuple) else SEVERAL.get(inner, "")
    words = f"should be a list of {entries}" if entries else "should be a list"
    if tables:
        return f"{words}, each under [[{'.'.join(place.keys)}]]"
    if place.in_table and isinstance(value, Mapping) and value:
        return f'{words}; a key with dots is written in quotes, "{place.keys[-1]}.{next(iter(value))}" = […]'
    return f"{words}, such as {shown(_entries(value))}" if place.in_table else words


def _entries(value: object) -> list[object]:
    """The list that was probably meant: the values of a range, a set or an array, or else the value alone."""
    if isinstance(value, range | set) and len(value) <= 100:
        return list(value)
    to_list = getattr(value, "tolist", None)
    found = to_list() if callable(to_list) else value
    return found if isinstance(found, list) else [value]
