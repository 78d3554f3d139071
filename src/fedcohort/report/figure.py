"""A figure: one or more views of the same thing, each of one or more panels. The page and the papers take it from here."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Figure", "Panel", "View", "columns", "records", "spec"]


@dataclass(frozen=True)
class Panel:
    """One Altair chart. ``strategy`` is set where the panel belongs to one, so that readers can hide it; ``title`` stands above it."""

    chart: Any
    title: str = ""
    strategy: str | None = None


@dataclass(frozen=True)
class View:
    """What one position of a figure's switch shows."""

    name: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Figure:
    """A figure with its words.

    Attributes:
        key: for files and links: ``accuracy``.
        title: what it shows.
        note: how to read it: seeds, bands, what was summed up.
        views: at least one.
        data: tables by the name that charts know them by.
        wide: whether it wants the whole width of the page.
    """

    key: str
    title: str
    note: str
    views: Sequence[View]
    data: "Mapping[str, pd.DataFrame]" = field(default_factory=dict)
    wide: bool = True


def columns(frame: "pd.DataFrame") -> dict[str, list[Any]]:
    """Columns as plain values, with seven digits; NaN and ±∞ are None."""
    found: dict[str, list[Any]] = {}
    for name in frame.columns:
        values = frame[name].to_numpy()
        if values.dtype.kind == "f":
            once, where = np.unique(values, return_inverse=True)  # most numbers stand in many rows
            written = [_short(v) if math.isfinite(v) else None for v in once.tolist()]
            found[str(name)] = [written[i] for i in where.tolist()]
        else:
            found[str(name)] = values.tolist()
    return found


def _short(value: float) -> float | int:
    """Seven digits, and none after the point where there are none."""
    rounded = float(f"{value:.7g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def records(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    """Rows of the same values."""
    found = columns(frame)
    return [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]


def spec(chart: Any, config: Mapping[str, Any]) -> dict[str, Any]:
    """Vega-Lite of a chart; its data are named, not in it."""
    found: dict[str, Any] = chart.to_dict(validate=False)
    found["config"] = dict(config)
    text = json.dumps(found)
    settings = {"hidden": [], "named": True}
    used = [{"name": name, "value": value} for name, value in settings.items() if SETTINGS[name] in text]
    if used:  # variables belong to the whole chart, wherever they are used
        found["params"] = [*found.get("params", []), *used]
    return found


SETTINGS = {"hidden": "indexof(hidden,", "named": "named ?"}
"""What the page sets of a chart, and how it is used: strategies that are hidden, and whether lines are named at their ends."""
