"""Hashes of the source and the compiled code of functions and classes, and of the plain values in them."""

import dis
import hashlib
import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from types import CodeType, FunctionType

from fedcohort.core.user_code.own_code import is_of_user

__all__ = [
    "VALUES",
    "attribute_names",
    "digest_of_code",
    "digest_of_values",
    "global_names",
    "is_plain",
    "methods_of",
    "source_of",
    "written_by_user",
]

VALUES = (bool, int, float, complex, str, bytes)
"""Types of variables that count. Other objects change while they are used, or have no text that tells them apart."""


def is_plain(value: object) -> bool:
    """Whether the text of a value says all about it, and is the same in all processes: sets of texts have no fixed order."""
    if isinstance(value, Mapping):
        return all(map(is_plain, [*value, *value.values()]))
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    if isinstance(value, set | frozenset):
        return all(isinstance(inner, int | float | complex) for inner in value)
    return value is None or isinstance(value, VALUES)


def source_of(written: type | FunctionType) -> str:
    """A hash of the source of a class or function; also of its compiled code if there is no source, as in a console, if several
    lambdas share the same lines, or if the source that Python finds may be that of another class of the same name.
    """
    if not written_by_user(written):
        return _source_of_package(written)
    return _source_as_it_is(written)


@cache
def _source_of_package(written: type | FunctionType) -> str:
    """:func:`source_of` of a class or function of an installed package, found once: finding it parses the whole file."""
    return _source_as_it_is(written)


def _source_as_it_is(written: type | FunctionType) -> str:
    """What :func:`source_of` returns."""
    functions = list(methods_of(written)) if isinstance(written, type) else [written]
    try:
        lines, first = inspect.getsourcelines(written)
    except (OSError, TypeError):
        return f"{getattr(written, '__qualname__', written)}{digest_of_code(functions)}{digest_of_values(written)}"
    source = "".join(lines)
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    several = written.__name__ == "<lambda>" and source.count("lambda") > 1
    of_others = isinstance(written, type) and _begins_outside(functions, first, len(lines))
    return f"{digest}{digest_of_code(functions)}{digest_of_values(written)}" if several or of_others else digest


def _begins_outside(functions: list[FunctionType], first: int, number: int) -> bool:
    """Whether a function of a user begins outside of some lines: then they can be those of another class of the same name."""
    begins = [function.__code__.co_firstlineno for function in functions if written_by_user(function)]
    return any(not max(first, 1) <= begin < max(first, 1) + number for begin in begins)


def digest_of_code(functions: list[FunctionType]) -> str:
    """A hash of the compiled code of functions, after a colon; empty without functions."""
    parts = [_parts(function.__code__) for function in functions]
    return f":{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}" if parts else ""


def digest_of_values(written: type | FunctionType) -> str:
    """A hash of the plain values in the body of a class, after a colon; empty without any, and for functions."""
    if not isinstance(written, type):
        return ""
    own = {name: value for name, value in vars(written).items() if not name.startswith("__")}
    values = {
        name: value
        for name, value in own.items()
        if is_plain([*value] if isinstance(value, set | frozenset) else value)
    }
    text = repr([(name, sorted(map(repr, v)) if isinstance(v, set | frozenset) else v) for name, v in values.items()])
    return f":{hashlib.sha256(text.encode()).hexdigest()[:16]}" if values else ""


def _parts(code: CodeType) -> tuple[object, ...]:
    """What determines what code does, without its file and lines."""
    constants = [_parts(value) if isinstance(value, CodeType) else _text(value) for value in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants


def _text(value: object) -> str:
    """The text of a constant; sets are sorted, because their order differs between processes."""
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)


def global_names(code: CodeType) -> Iterator[str]:
    """The global variables that code reads, with those of functions inside it, in order."""
    return _names_read(code, ("LOAD_GLOBAL", "LOAD_NAME"))


def attribute_names(code: CodeType) -> Iterator[str]:
    """The attributes that code reads of any object, with those of functions inside it, in order."""
    return _names_read(code, ("LOAD_ATTR", "LOAD_METHOD"))


def _names_read(code: CodeType, instructions: tuple[str, ...]) -> Iterator[str]:
    """The names that these instructions read, also in functions inside the code, in order."""
    for step in dis.get_instructions(code):
        if step.opname in instructions:
            yield str(step.argval)
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _names_read(value, instructions)


def methods_of(cls: type) -> Iterator[FunctionType]:
    """The functions in the body of a class."""
    for value in vars(cls).values():
        function = getattr(value, "__func__", getattr(value, "fget", value))
        if isinstance(function, FunctionType):
            yield function


def written_by_user(written: object) -> bool:
    """Whether a class or function is neither part of FedCohort nor of Python nor of an installed package."""
    functions = methods_of(written) if isinstance(written, type) else iter([written])
    return any(isinstance(each, FunctionType) and is_of_user(each.__code__.co_filename) for each in functions)
