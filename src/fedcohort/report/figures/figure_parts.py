"""Split figures for papers that are longer than a page: panels by rows, and charts with a bar for each strategy by strategies."""

import copy
import math
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from fedcohort.report.figures.figure import Spec

__all__ = ["TALLEST", "aligned", "contents", "parts"]

TALLEST = 620
"""Largest height of a figure in points: that of a column in IEEE and ACM styles, without the room of a caption."""


def parts(specification: Spec, height: float) -> list[Spec]:
    """The parts of a figure that is ``height`` points high, each no higher than :data:`TALLEST` if it can be split; they have the same
    axes and legends."""
    number = math.ceil(height / TALLEST)
    if number <= 1:
        return [specification]
    if "concat" in specification:
        return _by_panels(specification, height)
    strategies = _strategies(specification)
    if len(strategies) < 2:
        return [specification]
    per_part = math.ceil(len(strategies) / number)
    chunks = [strategies[i : i + per_part] for i in range(0, len(strategies), per_part)]
    return [_of_strategies(specification, chunk, len(strategies)) for chunk in chunks]


def contents(split: Sequence[Spec]) -> list[str]:
    """What each part of a figure has, with a comma before it, such as ", panels 1 to 6 of 8" or ", rows 1 to 32 of 64"; empty for a
    whole figure."""
    if len(split) < 2:
        return [""] * len(split)
    panels = "concat" in split[0]
    counts = [len(part["concat"]) if panels else len(_strategies(part)) for part in split]
    ends = list(accumulate(counts))
    kind = "panel" if panels else "row"
    return [
        f", {kind}s {end - count + 1} to {end} of {ends[-1]}" if count > 1 else f", {kind} {end} of {ends[-1]}"
        for count, end in zip(counts, ends, strict=True)
    ]


def _by_panels(specification: Spec, height: float) -> list[Spec]:
    """The panels in parts of whole rows, as equal as possible."""
    charts, columns = specification["concat"], specification["columns"]
    rows = math.ceil(len(charts) / columns)
    most = max(1, int(rows * TALLEST / height))
    step = math.ceil(rows / math.ceil(rows / most)) * columns
    shell = {key: value for key, value in specification.items() if key != "concat"}
    return [{**shell, "concat": charts[i : i + step]} for i in range(0, len(charts), step)]


def _strategies(specification: Spec) -> list[str]:
    """The strategies that have a bar each, in order; empty for other charts."""
    axes = [y for y in _axes(specification) if y.get("field") == "strategy" and isinstance(y.get("sort"), list)]
    drawn = {row.get("strategy") for rows in specification.get("datasets", {}).values() for row in rows}
    return [label for label in axes[0]["sort"] if label in drawn] if axes else []


def _of_strategies(specification: Spec, strategies: list[str], number: int) -> Spec:
    """The chart of some of ``number`` strategies."""
    own, chosen = copy.deepcopy(specification), set(strategies)
    own["height"] = specification["height"] * len(strategies) / number
    for y in _axes(own):
        if y.get("field") == "strategy":
            y["sort"] = strategies
    for name, rows in own["datasets"].items():
        own["datasets"][name] = [row for row in rows if row.get("strategy", strategies[0]) in chosen]
    return own


def aligned(split: Sequence[Spec], room: float) -> None:
    """Give the names of rows the same ``room`` in points in each part, so that equal values stand at the same place in all of them."""
    for part in split:
        for y in _axes(part):
            if y.get("field") == "strategy" and y.get("axis"):
                y["axis"]["minExtent"] = room


def _axes(part: Any) -> Iterator[Spec]:
    """The encodings of the y axis in a specification."""
    if isinstance(part, list):
        for inner in part:
            yield from _axes(inner)
    elif isinstance(part, dict):
        if isinstance(part.get("encoding"), dict) and "y" in part["encoding"]:
            yield part["encoding"]["y"]
        yield from _axes(part.get("layer", []))
