"""Read TOML, and refuse texts and values that no experiment needs and that would take for ever or end in a traceback.

The limits are far above those of any experiment: nested tables, integers that no TOML file can contain, and invalid Unicode.
"""

import re
import tomllib
from collections.abc import Mapping
from typing import Any

from fedcohort.core.errors import UsageError, shown

__all__ = ["MAX_CHARACTERS", "check_values", "parsed"]

MAX_CHARACTERS = 100_000_000
"""Length of the longest TOML text that is read: lists with three numbers for each of a million clients have 60 million characters."""

MAX_DEPTH = 32
"""Number of levels of tables and lists."""

MAX_KEY_PARTS = 200
"""Number of parts of a dotted key; the time that tomllib needs grows with its square."""

MAX_DIGITS = 100_000
"""Length of the longest row of digits; the memory that tomllib needs for a number is a hundred times its text."""

_PART = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')"""
_LONG_KEY = re.compile(rf"{_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{MAX_KEY_PARTS}}}")
_LONG_NUMBER = re.compile(rf"(?<![0-9_])[0-9_]{{{MAX_DIGITS + 1}}}")


def parsed(text: str, where: str) -> dict[str, Any]:
    """TOML as nested values.

    Args:
        text: the TOML text.
        where: the file or the option that it comes from, for messages.

    Raises:
        tomllib.TOMLDecodeError: the text is not TOML.
        UsageError: the text is too long or too deeply nested, or has a number that is too long.
    """
    if len(text) > MAX_CHARACTERS:
        raise UsageError(f"{where}: is longer than {MAX_CHARACTERS:,} characters; shorten it")
    if text.count(".") >= MAX_KEY_PARTS and _LONG_KEY.search(text):
        raise UsageError(f"{where}: has a key of more than {MAX_KEY_PARTS} parts; no setting is nested that deeply")
    if _LONG_NUMBER.search(text):
        raise UsageError(f"{where}: has a number of more than {MAX_DIGITS:,} digits; no setting is that large")
    try:
        values = tomllib.loads(text)
    except RecursionError:
        raise UsageError(f"{where}: has tables or lists in more than {MAX_DEPTH} levels") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError as error:  # an integer with thousands of digits, or a date that does not exist
        raise tomllib.TOMLDecodeError(str(error).partition(":")[0]) from None
    return values


def check_values(values: object, where: str = "") -> None:
    """Refuse nested values that no experiment needs.

    Args:
        values: nested tables, lists and plain values.
        where: the file or the option that they come from, for messages.

    Raises:
        UsageError: tables and lists in more than :data:`MAX_DEPTH` levels, text that is not valid Unicode, or an integer of more than
            64 bits; the message names the key.
    """
    try:
        _check_nested(values)
    except UsageError as error:
        raise UsageError(f"{where}: {error}" if where else str(error)) from None


def _check_nested(values: object) -> None:
    waiting: list[tuple[str, int, object]] = [("", 0, values)]
    while waiting:
        key, depth, value = waiting.pop()
        if isinstance(value, str):
            if not value.isascii():
                _check_text(value, key)
        elif isinstance(value, int):
            if value.bit_length() > 64:
                raise UsageError(f"{key} = {shown(value)}: an integer may have at most 64 bits; use a smaller number")
        elif isinstance(value, Mapping | list | tuple):
            if depth >= MAX_DEPTH:
                raise UsageError(f"{key}: has tables or lists in more than {MAX_DEPTH} levels")
            waiting += _entries(value, key, depth + 1)


def _entries(value: Any, key: str, depth: int) -> list[tuple[str, int, object]]:
    """The entries of a table or a list, with their keys."""
    if not isinstance(value, Mapping):
        return [(key, depth, inner) for inner in value]
    for name in value:
        if isinstance(name, str) and not name.isascii():
            _check_text(name, f"a key in {key}" if key else "a key")
    return [(f"{key}.{name}" if key else str(name), depth, inner) for name, inner in value.items()]


def _check_text(text: str, key: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{key} = {shown(text)}: is not valid Unicode; write it in UTF-8") from None
