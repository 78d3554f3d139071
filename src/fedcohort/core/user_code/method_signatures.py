"""Check that a user's class has the methods that are called, and that they take the arguments of the call."""

import inspect
from collections.abc import Callable
from types import FunctionType

from fedcohort.core.errors import UsageError

__all__ = ["check_methods", "not_defined"]


def check_methods(cls: type, base: type) -> None:
    """Refuse a class with a method that cannot be called as that of its base class is, where the class is defined.

    Args:
        cls: the class; only methods that it defines itself are checked.
        base: the class whose methods FedCohort calls.

    Raises:
        UsageError: the message names the method, its arguments, and those that it must take.
    """
    for name, own in vars(cls).items():
        called = inspect.getattr_static(base, name, None)
        if name.startswith("_") or not isinstance(own, FunctionType) or not isinstance(called, FunctionType):
            continue
        given = inspect.signature(called).parameters.values()
        positional = [each.name for each in given if each.kind is each.POSITIONAL_OR_KEYWORD]
        named = dict.fromkeys(each.name for each in given if each.kind is each.KEYWORD_ONLY)
        try:
            inspect.signature(own).bind(*positional, **named)
        except TypeError:
            takes = ", ".join(inspect.signature(own).parameters)
            raise UsageError(
                f"{cls.__name__}.{name}({takes}): must take the arguments ({', '.join([*positional, *named])})"
            ) from None


def not_defined(given: object, method: Callable[..., object], kind: str) -> UsageError:
    """The error about an object whose class does not define a method that it must have.

    Args:
        given: the object.
        method: the method of the base class, which names the arguments.
        kind: what such an object is, with its article.

    >>> print(not_defined(3, str.join, "a text"))
    int: defines no join; a text is a class with join(self, iterable)
    """
    takes = ", ".join(inspect.signature(method).parameters)
    name = method.__name__
    return UsageError(f"{type(given).__name__}: defines no {name}; {kind} is a class with {name}({takes})")
