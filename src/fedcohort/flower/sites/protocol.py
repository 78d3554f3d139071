"""What a server and the sites of a deployment say to each other: nested values in one safetensors byte string, never pickle."""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedcohort.algorithms import Tensors
from fedcohort.core.errors import one_line
from fedcohort.core.files.state_files import pack, unpack

__all__ = ["ASK", "HELLO", "LONGEST", "TRAIN", "VERSION", "BadMessage", "Words", "packed", "unpacked"]

VERSION = 1
"""Version of these messages; server and sites must agree."""
HELLO, ASK, TRAIN = "hello", "ask", "train"
"""Kinds of requests."""
LONGEST = 300
"""Largest number of characters of a text that is read from a message."""


class BadMessage(Exception):  # noqa: N818 - the reader records it, and continues
    """A message that cannot be used; the text says why, in one line without control characters: parts of it are what a peer sent."""

    def __init__(self, text: object) -> None:
        super().__init__(one_line(text))


def packed(words: Mapping[str, object]) -> bytes:
    """A message as bytes."""
    return pack({"version": VERSION, **words})


def unpacked(data: bytes, largest: int | None = None) -> "Words":
    """The message in ``data``.

    Args:
        data: what arrived.
        largest: largest number of bytes that is read; None for any number.

    Raises:
        BadMessage: it is too large, cannot be parsed, or has another version.
    """
    if largest is not None and len(data) > largest:
        raise BadMessage(f"oversized: {len(data):,} bytes, at most {largest:,} are read")
    try:
        words = Words(unpack(data), "message")
    except Exception as error:  # damaged bytes can raise any error
        raise BadMessage(f"its bytes cannot be read ({type(error).__name__})") from None
    version = words.values.get("version")
    if type(version) is not int or version != VERSION:  # a tensor may not even be comparable
        raise BadMessage(
            f"it has version {str(version)[:20]} of the messages, not {VERSION}; install the same version of FedCohort on the server "
            "and at all sites"
        )
    return words


class Words:
    """A part of a message, read with checks. Each method raises :class:`BadMessage` if the value is missing or of another type.

    Args:
        values: the part.
        where: its name, for messages.
    """

    def __init__(self, values: object, where: str) -> None:
        if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
            raise BadMessage(f"{where} is not a table of names")
        self.values: Mapping[str, Any] = values
        self.where = where

    def has(self, name: str) -> bool:
        """Whether there is a value that is not None."""
        return self.values.get(name) is not None

    def text(self, name: str, longest: int = LONGEST) -> str:
        """A text, shortened to ``longest`` characters, without line breaks."""
        return " ".join(self._of(name, str, "a text").split())[:longest]

    def count(self, name: str) -> int:
        """An integer from 0."""
        value: int = self._of(name, int, "a number")
        if isinstance(value, bool) or not 0 <= value < 2**53:
            raise BadMessage(f"{self.where}.{name} is no count")
        return value

    def number(self, name: str) -> float:
        """A number from 0 and below 2**53, so that sums of them are finite; not NaN."""
        value = self._of(name, (int, float), "a number")
        number = _as_float(value)
        if number is None or not 0 <= number < 2**53:
            raise BadMessage(f"{self.where}.{name} = {value}: must be at least 0 and below {2**53:,}")
        return number

    def flag(self, name: str) -> bool:
        """True or False."""
        value: bool = self._of(name, bool, "true or false")
        return value

    def part(self, name: str) -> "Words":
        """A nested table."""
        return Words(self.values.get(name), f"{self.where}.{name}")

    def parts(self, name: str) -> "list[Words]":
        """A list of tables."""
        return [Words(value, f"{self.where}.{name}") for value in self._of(name, list, "a list")]

    def names(self, name: str) -> list[str]:
        """A list of texts."""
        values: list[str] = self._of(name, list, "a list")
        if not all(isinstance(value, str) for value in values):
            raise BadMessage(f"{self.where}.{name} is not a list of texts")
        return [value[:LONGEST] for value in values]

    def counts(self, name: str) -> list[int]:
        """A list of integers from 0."""
        return [Words({"": value}, f"{self.where}.{name}").count("") for value in self._of(name, list, "a list")]

    def numbers(self, name: str, finite: bool = True) -> list[float]:
        """A list of numbers; NaN and infinity only without ``finite``."""
        numbers = []
        for value in self._of(name, list, "a list"):
            number = _as_float(value)
            if number is None or (finite and not math.isfinite(number)):
                raise BadMessage(f"{self.where}.{name} holds {str(value)[:40]}, which is no number")
            numbers.append(number)
        return numbers

    def tensors(self, name: str) -> Tensors:
        """Tensors by name."""
        values = self._of(name, Mapping, "a table")
        if not all(isinstance(key, str) and isinstance(value, Tensor) for key, value in values.items()):
            raise BadMessage(f"{self.where}.{name} does not hold tensors by name")
        return dict(values)

    def groups(self, name: str) -> dict[str, Tensors]:
        """Groups of tensors by name."""
        part = self.part(name)
        return {group: part.tensors(group) for group in part.values}

    def _of(self, name: str, kind: Any, words: str) -> Any:
        value = self.values.get(name)
        if not isinstance(value, kind):
            raise BadMessage(f"{self.where}.{name} is not {words}")
        return value


def _as_float(value: object) -> float | None:
    """A number as a float, infinite if it is an integer that is too large for one; None if it is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
