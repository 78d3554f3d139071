"""Values that forward passes only read: numbers and texts, and lists, dictionaries and records of them."""

import argparse
from collections.abc import Hashable, Sequence
from dataclasses import fields, is_dataclass
from types import SimpleNamespace

import torch

__all__ = ["OF_DATACLASSES", "PLAIN", "frozen", "may_change"]

PLAIN = (type(None), bool, int, float, str, bytes, torch.dtype, torch.device, torch.memory_format)
"""Types of values that cannot change."""

DEEPEST, MOST = 6, 400
"""Maximum depth of a nested value, and maximum number of values in each of its parts; keys of dictionaries count, too."""

_NAMESPACES = (SimpleNamespace, argparse.Namespace)

_OF_CLASSES = frozenset(vars(type("Plain", (), {})))
"""Names that the dictionary of every class has."""

OF_DATACLASSES = frozenset(
    (
        "__init__", "__post_init__", "__repr__", "__eq__", "__hash__", "__match_args__", "__lt__", "__le__", "__gt__", "__ge__",
        "__setattr__", "__delattr__", "__replace__", "__annotations__", "__dataclass_fields__", "__dataclass_params__",
        "__slotnames__", "__static_attributes__", "__firstlineno__", "__annotate_func__", "__annotations_cache__",
    )
)  # fmt: skip
"""Names that the dictionary of a dataclass may have besides its fields; reading a field calls none of them."""


def frozen(value: object, depth: int = 0) -> Hashable | None:
    """All that can be read of a value, to be compared with ``==`` later; None if it may be more than numbers and texts.

    >>> frozen({"width": [8, 16]}) == frozen({"width": [8, 16]})
    True
    >>> frozen([torch.nn.ReLU()]) is None
    True
    """
    if isinstance(value, PLAIN):
        return type(value), value
    if depth == DEEPEST:
        return None
    if type(value) is list or isinstance(value, tuple):
        return _frozen_parts(value, value, depth)
    if type(value) is dict:
        items = value
    elif type(value) in _NAMESPACES or _is_plain_record(value):
        items = vars(value)
    else:
        return None
    if not all(isinstance(key, PLAIN) for key in items):
        return None
    return _frozen_parts(value, [part for item in items.items() for part in item], depth)


def _frozen_parts(value: object, parts: Sequence[object], depth: int) -> Hashable | None:
    if len(parts) > MOST:
        return None
    found = tuple(frozen(part, depth + 1) for part in parts)
    return None if None in found else (type(value), found)


def may_change(value: object) -> bool:
    """Whether a value that can be :func:`frozen` may have other contents later."""
    return any(map(may_change, value)) if isinstance(value, tuple) else not isinstance(value, PLAIN)


def _is_plain_record(value: object) -> bool:
    """Whether this is an instance of a dataclass that has nothing but fields."""
    if not is_dataclass(value) or isinstance(value, type) or not hasattr(value, "__dict__"):
        return False
    known = _OF_CLASSES | OF_DATACLASSES | {field.name for field in fields(value)}
    return all(vars(base).keys() <= known for base in type(value).__mro__[:-1])
