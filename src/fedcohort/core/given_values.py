"""Check values that a user gives as arguments: what cannot be used is refused in one line, before anything is waited for."""

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from fedcohort.core.errors import UsageError, shown

__all__ = ["as_float", "flag", "plain_numbers", "seconds", "whole_number"]


def as_float(value: Any) -> float | None:
    """A number as a float; None if it is none, as a text is none."""
    if isinstance(value, str | bytes):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # too large, or a tensor with several entries
        return None


def flag(name: str, value: object) -> bool:
    """True or False.

    Raises:
        UsageError: it is neither.
    """
    if not isinstance(value, bool):
        raise UsageError(f"{name} = {shown(value)}: valid are True and False")
    return value


def whole_number(name: str, value: object, at_least: int) -> int:
    """A whole number.

    Raises:
        UsageError: it is none, or it is too small.
    """
    if not isinstance(value, Integral) or isinstance(value, bool) or value < at_least:
        raise UsageError(f"{name} = {shown(value)}: should be a whole number of at least {at_least}")
    return int(value)


def seconds(name: str, value: object) -> float:
    """A number of seconds.

    Raises:
        UsageError: it is no number, or not above 0.
    """
    if not isinstance(value, Real) or isinstance(value, bool) or not float(value) > 0:
        raise UsageError(f"{name} = {shown(value)}: must be a number of seconds above 0")
    return float(value)


def plain_numbers(value: Any) -> Any:
    """Nested tables and lists with the numbers of numpy as those of Python, which a schema accepts; all else stays as it is.

    >>> import numpy as np
    >>> plain_numbers({"k": np.int64(3), "lr": [np.float32(0.5)]})
    {'k': 3, 'lr': [0.5]}
    """
    if isinstance(value, Mapping):
        return {key: plain_numbers(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(plain_numbers(each) for each in value)
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        return value.item()
    return value
