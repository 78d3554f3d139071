"""Checks of the entries of a sweep."""

import itertools
from collections.abc import Mapping, Sequence

from fedcohort.core.errors import UsageError, shown
from fedcohort.experiment.completion import NOT_IN_ROWS

__all__ = ["check_sweep"]


def check_sweep(key: str, choices: Sequence[object]) -> None:
    """Refuse an entry of ``[sweep]`` without values, with repeated values, or for a setting that all rows share."""
    if not choices:
        raise UsageError(f"sweep.{key} = []: give at least one value")
    if any(a == b for alike in _alike(choices) for a, b in itertools.combinations(alike, 2)):
        raise UsageError(f"sweep.{key} = {shown(choices)}: the same value is given twice; give each value once")
    if key.partition(".")[0] in NOT_IN_ROWS:
        raise UsageError(f"sweep.{key}: cannot differ between rows; set it once for the experiment")


def _alike(choices: Sequence[object]) -> list[list[object]]:
    """The values in groups; equal values are in the same group."""
    groups: dict[object, list[object]] = {}
    for choice in choices:
        key = repr(choice) if isinstance(choice, Mapping | list | tuple) else choice
        groups.setdefault(key, []).append(choice)
    return list(groups.values())
