"""Types of the values of options: numbers within limits."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

__all__ = ["COUNT", "POSITIVE", "WHOLE", "Number"]

if TYPE_CHECKING:
    _FloatType = click.ParamType[float]
else:
    _FloatType = click.ParamType  # not generic in earlier versions


class Number(_FloatType):
    """A number within limits; errors state the value and the limits.

    Args:
        convert_to: ``int`` or ``float``.
        limits: what is valid, in words.
        valid: whether a number is within the limits.
    """

    name = "number"

    def __init__(self, convert_to: type[int] | type[float], limits: str, valid: Callable[[float], bool]) -> None:
        self.convert_to, self.limits, self.valid = convert_to, limits, valid

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = self.convert_to(value)
        except ValueError:
            number = None
        if number is None or not self.valid(number):
            self.fail(f"{value}: give {self.limits}", param, ctx)
        return number


WHOLE = Number(int, "a whole number", lambda _: True)
COUNT = Number(int, "a whole number of at least 0", lambda number: number >= 0)
POSITIVE = Number(int, "a whole number of at least 1", lambda number: number >= 1)
