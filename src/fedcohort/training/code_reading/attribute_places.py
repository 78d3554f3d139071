"""Where Python finds the attributes of an object: in itself, or in one of its classes."""

from collections.abc import Mapping

from fedcohort.training.code_reading.forward_code import Names

__all__ = ["attribute_places"]


def attribute_places(value: object, names: set[str]) -> list[tuple[Names, set[str]]]:
    """The places that may have attributes of these names, in each of which one may be set later.

    An attribute of ``value`` hides that of its class, and one of a class hides that of the class it inherits from.
    """
    return [(_Own(vars(place)), names) for place in (value, *type(value).__mro__[:-1])]


class _Own:
    """The attributes that an object or a class has itself."""

    def __init__(self, known: Mapping[str, object]) -> None:
        self._known = known

    def get(self, name: str, /) -> object:
        """The value of an attribute; one that no attribute has if there is none, since an attribute may be None."""
        return self._known.get(name, _MISSING)


_MISSING = object()
