"""Define what a figure is: views of the same data, each of one or more panels. The page and the papers show the same figures."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

    from fedcohort.report.figures.layers import Layers

__all__ = ["Drawing", "Figure", "Panel", "Spec", "View", "columns", "records", "spec"]

Drawing: TypeAlias = "alt.Chart | Layers"
"""A chart of Altair, or several over each other."""

Spec = dict[str, Any]
"""A Vega-Lite specification, or a part of one."""


AXES = 46
"""About the height of an axis with its title below a chart on the page, in pixels."""


SMALL = 110
"""Width and height of charts below which many stand in a row, in pixels."""


@dataclass(frozen=True)
class Panel:
    """One Altair chart.

    Attributes:
        chart: the chart; its data are named, not contained in it.
        title: printed above the chart; empty for none.
        strategy: the strategy that the panel belongs to, so that readers can hide it; None if it belongs to several.
        seed: the seed of its run; None if it shows several runs.
    """

    chart: Drawing
    title: str = ""
    strategy: str | None = None
    seed: int | None = None

    @property
    def room(self) -> int:
        """About the height of the chart with its axes, in pixels, which the page keeps free until the chart is drawn; 0 if unknown."""
        own = getattr(self.chart, "own", {}).get("height", getattr(self.chart, "height", 0))
        return round(own) + AXES if isinstance(own, int | float) else 0

    @property
    def small(self) -> bool:
        """Whether the chart is so small that many of them stand in a row."""
        sizes = [
            getattr(self.chart, "own", {}).get(name, getattr(self.chart, name, None)) for name in ("width", "height")
        ]
        return all(isinstance(size, int | float) and size < SMALL for size in sizes)


@dataclass(frozen=True)
class View:
    """What a figure shows at one position of its switch.

    Attributes:
        name: what the switch calls it.
        panels: its charts.
        note: what the caption says about this view alone; empty for nothing.
        at_points: further such sentences, one for each point of a sweep, of which the page shows that of the chosen point.
    """

    name: str
    panels: Sequence[Panel]
    note: str = ""
    at_points: tuple[str, ...] = ()


@dataclass(frozen=True)
class Figure:
    """A figure with its title and caption.

    Attributes:
        key: name in files and links, such as ``accuracy``.
        title: what the figure shows.
        note: caption: how to read the figure, which seeds it covers, and what was averaged.
        at_points: sentences before the caption, one for each point of a sweep, of which the page shows that of the chosen point.
        views: at least one, or none for a ``sheet``.
        data: tables by the name that the charts use. Columns that end in ``_text`` are numbers as tooltips show them.
        wide: whether the figure needs the whole width of the page.
        seed: the seed that the figure is about; None if it covers all seeds.
        shown_seeds: the seeds of the runs in it, for a figure of single runs: rows that lack ``seed`` show another one.
        variant: whether the page shows the same figure of another seed first.
        points: numbers of the points of a sweep that the figure is about; empty if it is about all of them.
        federation: number of the federation that the figure is about, if points of a sweep have different ones.
        family: what the figures of all points of a sweep, or of all strategies, have in common in their keys; empty for others.
        sheet: for a figure without views, which is a table of the strategy that the reader chooses: the headings of its columns, by
            their names in the only table of ``data``.
    """

    key: str
    title: str
    note: str
    views: Sequence[View]
    data: "Mapping[str, pd.DataFrame]" = field(default_factory=dict)
    wide: bool = True
    seed: int | None = None
    variant: bool = False
    points: tuple[int, ...] = ()
    federation: int = 0
    family: str = ""
    sheet: Mapping[str, str] = field(default_factory=dict)
    at_points: tuple[str, ...] = ()
    shown_seeds: tuple[int, ...] = ()

    @property
    def names(self) -> set[str]:
        """The names by which a user can choose the figure: its key, and that of its family."""
        return {self.key, self.family or self.key}

    @property
    def place(self) -> str:
        """Name of the figure on the page: its key; with its seed and federation, if the page first shows others."""
        return f"{self.key}{self._others}"

    def table(self, name: str) -> str:
        """Name of a table in the page's data."""
        return f"{name}{self._others}"

    @property
    def _others(self) -> str:
        if self.federation:
            return f"@{self.seed}~{self.federation}"
        return f"@{self.seed}" if self.variant else ""


def columns(frame: "pd.DataFrame") -> dict[str, list[Any]]:
    """The columns of a table as plain values, rounded to seven digits; NaN and ±∞ become None."""
    by_name: dict[str, list[Any]] = {}
    for name in frame.columns:
        values = frame[name].to_numpy()
        if values.dtype.kind == "f":
            distinct, positions = np.unique(values, return_inverse=True)  # most numbers are repeated in many rows
            rounded = [_seven_digits(v) if math.isfinite(v) else None for v in distinct.tolist()]
            by_name[str(name)] = [rounded[i] for i in positions.tolist()]
        else:
            by_name[str(name)] = values.tolist()
    return by_name


def _seven_digits(value: float) -> float | int:
    """The value rounded to seven digits; an int if the rounded value is a whole number."""
    rounded = float(f"{value:.7g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def records(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    """The rows of a table, with the values of :func:`columns`."""
    by_name = columns(frame)
    return [dict(zip(by_name, row, strict=True)) for row in zip(*by_name.values(), strict=True)]


def spec(chart: Drawing, config: Spec) -> Spec:
    """The Vega-Lite specification of a chart; it names its data and does not contain them."""
    specification: Spec = chart.to_dict(validate=False)
    specification["config"] = dict(config)
    text = json.dumps(specification)
    defaults = {"hidden": [], "away": [], "named": True}
    used = [{"name": name, "value": value} for name, value in defaults.items() if SETTINGS[name] in text]
    if used:  # Vega-Lite declares variables for the whole chart, wherever they are used
        specification["params"] = [*specification.get("params", []), *used]
    return specification


SETTINGS = {"hidden": "indexof(hidden,", "away": "indexof(away,", "named": "named ?"}
"""The variables that the page sets in a chart, and the text by which their use is recognized: the hidden strategies, those of them
that are at other points of the sweep, and whether lines have their names at their ends."""
