"""Classes and objects that stand in Python where an experiment file names a plug-in; each gets a name that its content determines.

``Experiment(selection=Mine)`` keeps the name ``python:Mine-3f2a…``. The hash at its end is that of :func:`identity`, so that changed
code is another run, and the same code, in another session, the same run. The record of a run holds the name, never the object.
"""

import copy
import hashlib
import re
from functools import cache
from types import FunctionType
from typing import Any

from fedcohort.core.errors import UsageError
from fedcohort.core.user_code.identity import code_identity, identity

__all__ = ["check_unchanged", "is_python_plugin", "keep", "kept", "name_of_class", "put", "python_plugin"]

_PREFIX = "python:"
_NAME = re.compile(rf"{_PREFIX}(?P<class>\w+)-[0-9a-f]{{12}}")

_kept: dict[str, object] = {}
"""The classes and objects of this process, by the name that :func:`keep` gave them."""

_origins: dict[str, object] = {}
"""What determined each name, unless the name comes from another process."""


def keep(given: object, stored: object) -> str:
    """Keep a class or an object for this process, and return its name. Of an object, a copy is kept.

    Args:
        given: the class or object; it determines the name.
        stored: what is kept: ``given``, or what stands for it.

    Raises:
        UsageError: the object cannot be copied.
    """
    cls = given if isinstance(given, type | FunctionType) else type(given)
    words = re.sub(r"\W", "", cls.__name__) or "function"
    name = f"{_PREFIX}{words}-{_digest(given)}"
    put(name, stored)
    _origins[name] = _kept[name] if stored is given else copy.deepcopy(given)
    return name


def _digest(given: object) -> str:
    """The hash at the end of a name."""
    code = code_identity(given if isinstance(given, type) else type(given))
    return hashlib.sha256(f"{identity(given)}{code}".encode()).hexdigest()[:12]


def check_unchanged(name: str) -> None:
    """Refuse a class or an object whose code, or what its code reads, has changed since it got its name, as in a notebook.

    Raises:
        UsageError: it has changed, so that the name stands for something else.
    """
    origin = _origins.get(name)
    if origin is not None and not name.endswith(_digest(origin)):
        raise UsageError(
            f"{name_of_class(name)}: the class, or a value that it reads, has changed since the experiment was made; make the "
            "experiment again with Experiment(…)"
        )


def put(name: str, given: object) -> None:
    """Keep a class or an object under a name from :func:`keep`, also one of another process.

    Raises:
        UsageError: the object cannot be copied.
    """
    try:
        _kept[name] = given if isinstance(given, type | FunctionType) else copy.deepcopy(given)
    except Exception as error:  # of the user's object
        raise UsageError(
            f"{type(given).__name__}: each run gets a copy of an object, and this one cannot be copied ({error}); give its class, or "
            "an object without open files, locks or threads"
        ) from error
    _class_of_copies.cache_clear()


def is_python_plugin(name: str) -> bool:
    """Whether a name was made by :func:`keep`, in this process or in another one."""
    return name.startswith(_PREFIX) and _NAME.fullmatch(name) is not None


def name_of_class(name: str) -> str:
    """The class or function that a name from :func:`keep` stands for, as tables show it."""
    return name[len(_PREFIX) :].rpartition("-")[0]


def kept(name: str) -> object:
    """The class or object that a name stands for."""
    return _kept[name]


def python_plugin(name: str, where: str) -> Any:
    """The class or function that a name stands for; for an object, a class that gives copies of it.

    Raises:
        UsageError: the object was handed over in another process.
    """
    if name not in _kept:
        raise UsageError(
            f"{where} = {name!r}: {name_of_class(name)} was handed over in another Python session; hand it over again, or write it "
            "to a file and name it 'path/to/file.py:Class'"
        )
    given = _kept[name]
    return given if isinstance(given, type | FunctionType) else _class_of_copies(name)


@cache
def _class_of_copies(name: str) -> type:
    """A class without parameters: calling it gives a copy of the object."""
    given = _kept[name]
    cls = type(given)
    body = {"__new__": lambda _: copy.deepcopy(given), "__pydantic_fields__": {}, "__module__": cls.__module__}
    return type(cls.__name__, (cls,), body)
