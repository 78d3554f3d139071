"""Signatures as readers want them: types without the limits of their parameters, and NumPy's names for its types."""

import re

__all__ = ["plain", "with_short_arrays", "without_limits"]

FACTORY = re.compile(r"\s*=\s*<factory>")
WRAPPER = re.compile(r"~?(typing\.)?Annotated\[")

DOTS = r"(?:~?[\w.]+\.)?"
LIKE = re.compile(
    rf"{DOTS}_Buffer \| {DOTS}_SupportsArray\[{DOTS}dtype\[{DOTS}Any\]\] \| "
    rf"{DOTS}_NestedSequence\[{DOTS}_SupportsArray\[{DOTS}dtype\[{DOTS}Any\]\]\] \| complex \| bytes \| str \| "
    rf"{DOTS}_NestedSequence\[complex \| bytes \| str\]"
)
ARRAY = re.compile(rf"{DOTS}ndarray\[{DOTS}tuple\[{DOTS}Any, \.\.\.\], {DOTS}dtype\[([\w.~]+)\]\]")


def plain(signature: str) -> str:
    """A signature, or the type of an attribute, without limits and with short names of arrays.

    A default that a function makes is ``...``: Sphinx cannot read ``<factory>``, and would show the whole signature as it is.
    """
    return with_short_arrays(without_limits(FACTORY.sub(" = ...", signature)))


def with_short_arrays(signature: str) -> str:
    """A signature with ``ArrayLike`` and ``NDArray[float64]``, as the code has them, in place of the types that they stand for."""
    return ARRAY.sub(r"~numpy.typing.NDArray[\1]", LIKE.sub("~numpy.typing.ArrayLike", signature))


def without_limits(signature: str) -> str:
    """A signature with ``float`` in place of ``Annotated[float, Ge(ge=0)]``."""
    while found := WRAPPER.search(signature):
        first = found.end()
        comma, end = _first_argument(signature, first)
        signature = signature[: found.start()] + signature[first:comma] + signature[end + 1 :]
    return signature


def _first_argument(signature: str, first: int) -> tuple[int, int]:
    """Where the first argument of a bracket ends, and where the bracket does, from the position after the bracket on."""
    depth, comma = 1, 0
    for position, letter in enumerate(signature[first:], first):
        depth += {"[": 1, "(": 1, "]": -1, ")": -1}.get(letter, 0)
        if depth == 0:
            return comma or position, position
        if letter == "," and depth == 1 and not comma:
            comma = position
    return len(signature), len(signature)
