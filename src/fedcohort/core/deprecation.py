"""Mark public functions and classes as deprecated; docs/stability.md says when they are removed."""

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

__all__ = ["deprecated"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=Callable[..., object])


def deprecated(*, since: str, removed_in: str, instead: str) -> Callable[[T], T]:
    """Mark a function, a method or a class as deprecated.

    A call, or the creation of an instance, emits a :class:`DeprecationWarning` that names the replacement. The docstring gets a note.
    CHANGELOG.md must list the deprecation.

    Args:
        since: the version that deprecates it, such as ``"0.2"``.
        removed_in: the version that removes it.
        instead: the replacement, such as ``"fedcohort.run_seeds"``.

    >>> @deprecated(since="0.2", removed_in="0.3", instead="new_name")
    ... def old_name() -> int:
    ...     return 1
    >>> print(old_name.__doc__)
    Deprecated since version 0.2: use new_name. It will be removed in version 0.3.
    """

    def decorate(target: T) -> T:
        note = f"Deprecated since version {since}: use {instead}. It will be removed in version {removed_in}."
        message = f"{target.__qualname__} is deprecated since version {since} and will be removed in {removed_in}; use {instead}"
        marked = _class(target, message) if isinstance(target, type) else _function(target, message)
        marked.__doc__ = "\n\n".join(
            part for part in (inspect.getdoc(target) if target.__doc__ else None, note) if part
        )
        return cast(T, marked)

    return decorate


def _function(function: Callable[P, R], message: str) -> Callable[P, R]:
    """The function, extended by the warning."""

    @functools.wraps(function)
    def warned(*args: P.args, **values: P.kwargs) -> R:
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return function(*args, **values)

    return warned


def _class(cls: type, message: str) -> type:
    """The class itself, with a warning when an instance is created."""
    cls.__init__ = _function(cls.__init__, message)  # type: ignore[misc]
    return cls
