"""Checks of a sweep: its entries, and the number of rows and runs that it gives."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

from fedcohort.core.errors import UsageError, shown
from fedcohort.core.words.formatted_values import by_dotted_key
from fedcohort.experiment.completion import NOT_IN_ROWS

__all__ = ["about_unknown_key", "check_number_of_rows", "check_sweep"]

MAX_ROWS = 5_000
"""Largest number of rows of an experiment: (1 + variants) × points of the sweep."""

MAX_RUNS = 20_000
"""Largest number of runs of an experiment: rows × seeds."""


def check_number_of_rows(variants: int, sweep: Mapping[str, Sequence[object]], seeds: int) -> None:
    """Refuse more than :data:`MAX_ROWS` rows or :data:`MAX_RUNS` runs, before they are built."""
    rows = (1 + variants) * math.prod(len(choices) for choices in sweep.values())
    setting = "sweep" if sweep else "variants"
    if rows > MAX_ROWS:
        raise UsageError(f"{setting}: gives {rows:,} rows; at most {MAX_ROWS:,} are possible, so give fewer values")
    if rows * seeds > MAX_RUNS:
        raise UsageError(
            f"seeds = {seeds}: gives {rows * seeds:,} runs ({rows:,} rows × {seeds} seeds); at most {MAX_RUNS:,} are possible"
        )


def check_sweep(key: str, choices: Sequence[object], where: str = "sweep.") -> None:
    """Refuse an entry of ``[sweep]`` without values, with repeated values, or for a setting that all rows share.

    Messages begin with ``where`` and the key.
    """
    if not choices:
        raise UsageError(f"{where}{key} = []: give at least one value")
    if any(a == b for alike in _alike(choices) for a, b in itertools.combinations(alike, 2)):
        raise UsageError(f"{where}{key} = {shown(choices)}: the same value is given twice; give each value once")
    if key.partition(".")[0] in NOT_IN_ROWS:
        raise UsageError(f"{where}{key}: cannot differ between rows; set it once for the experiment")


def about_unknown_key(message: str, sweep: Mapping[str, Sequence[object]], rows: Iterable[Mapping[str, object]]) -> str:
    """How to sweep a parameter that only some of the ``rows`` have, if ``message`` says that one does not have it; otherwise empty."""
    key = next((key for key in sweep if message.startswith(f"{key}: unknown key for ") and "." in key), "")
    section, _, parameter = key.rpartition(".")
    if not key or not any(key in by_dotted_key(row) for row in rows):
        return ""
    name = message.removeprefix(f"{key}: unknown key for ").partition(";")[0]
    return (
        f"; a sweep changes every row: sweep the whole section, such as {section} = [{{name = {name}}}, "
        f"{{name = '…', {parameter} = {sweep[key][0]!r}}}], or let all rows have it (--set {section}.name=…, --set variants=[])"
    )


def _alike(choices: Sequence[object]) -> list[list[object]]:
    """The values in groups; equal values are in the same group."""
    groups: dict[object, list[object]] = {}
    for choice in choices:
        key = repr(choice) if isinstance(choice, Mapping | list | tuple) else choice
        groups.setdefault(key, []).append(choice)
    return list(groups.values())
