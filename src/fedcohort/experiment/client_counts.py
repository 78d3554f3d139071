"""The number of clients to select, which can change from round to round."""

from collections.abc import Mapping
from typing import Annotated, TypeAlias

from annotated_types import Ge
from pydantic import AfterValidator, BaseModel, BeforeValidator

from fedcohort.core.errors import UsageError

__all__ = ["KSteps", "is_capped"]


def _as_tuples(steps: object) -> object:
    """Lists, as TOML has them, as tuples."""
    if isinstance(steps, list | tuple):
        return tuple(tuple(step) if isinstance(step, list) else step for step in steps)
    return steps


def _in_order(steps: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Refuse rounds that do not increase."""
    rounds = [t for t, _ in steps]
    if rounds != sorted(set(rounds)):
        raise UsageError(f"selection.k_steps = {[list(step) for step in steps]}: give the rounds in increasing order")
    return steps


KSteps: TypeAlias = Annotated[
    tuple[tuple[Annotated[int, Ge(2)], Annotated[int, Ge(1)]], ...],
    BeforeValidator(_as_tuples),
    AfterValidator(_in_order),
]
"""Pairs of a round and the number of clients from that round on."""


def is_capped(
    k: int, steps: tuple[tuple[int, int], ...], clients: int, given: object, *, is_default: bool = False
) -> bool:
    """Whether k must be lowered because there are fewer clients.

    Args:
        k, steps: the numbers of clients of the section.
        clients: number of clients.
        given: the section as it was given.
        is_default: the number of clients was not given.

    Raises:
        UsageError: a number of clients that was given is too large.
    """
    more = f"more than federation.clients = {clients}; use {f'1 to {clients}' if clients > 1 else 1}"
    more += ", or set federation.clients" if is_default else ""
    for t, later in steps:
        if later > clients:
            raise UsageError(
                f"selection.k_steps = {[list(step) for step in steps]}: selects {later} from round {t} on, {more}"
            )
    section = isinstance(given, BaseModel)
    if k > clients and (section or (isinstance(given, Mapping) and "k" in given)):
        raise UsageError(f"selection.k = {k}: {more}")
    return k > clients
