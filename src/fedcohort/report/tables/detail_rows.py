"""Make the rows of the page's tables of details: accuracy of each class, and the wall time of each part of a round."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedcohort.core.words import formatted_values
from fedcohort.report.charts.cost import OVERLAPPING, WALL
from fedcohort.report.data.report_data import Reading, Story
from fedcohort.report.notes.seed_notes import counted
from fedcohort.report.tables.best_cells import mark_best
from fedcohort.report.tables.table_rows import Cell, strategies, unmarked_rows

__all__ = ["CLASSES", "PARTS", "class_rows", "wall_rows"]

CLASSES = 20
"""Largest number of classes in the table; of more, those with the lowest accuracy."""

PARTS = (*WALL, "total", OVERLAPPING)
"""Columns of the table of wall time. The parts before the total add up to it, except for what lies between them."""


def class_rows(story: Story) -> dict[str, Any]:
    """The test accuracy of each class at the last test, mean over seeds: ``classes`` (their names), ``number`` of all, and ``rows``.

    Empty if no run was tested by class, or if rows have different classes.
    """
    known = [_class_means(readings) for _, readings in counted(story)]
    measured = [values for values in known if values is not None]
    names = _names(story)
    if len(names) != 1:
        return {}
    of_rows = np.array(measured)
    known_in = (~np.isnan(of_rows)).sum(axis=0)  # number of rows; 0 for a class without test samples
    mean = np.where(known_in > 0, np.nansum(of_rows, axis=0) / np.maximum(known_in, 1), 1.0)
    shown = np.sort(np.argsort(mean, kind="stable")[:CLASSES])
    unknown = np.full(len(mean), np.nan)
    rows: list[dict[str, Any]] = []
    columns, unmarked = [f"class_{place}" for place in range(len(shown))], unmarked_rows(story)
    for strategy, values in zip(strategies(story), known, strict=True):
        own = unknown if values is None else values
        cells = [Cell(formatted_values.percent(own[i], 0), float(own[i])) for i in shown]
        by_place = {f"class_{place}": cell for place, cell in enumerate(cells)}
        common = {"label": strategy["label"], "strategy": strategy, "point": strategy["point"], "cells": cells}
        common["partial"] = columns if strategy["label"] in unmarked else ()
        rows.append(common | by_place)
    mark_best(rows, highest=columns)
    return {"classes": [names[0][i] for i in shown], "number": len(mean), "rows": rows}


def _names(story: Story) -> list[tuple[str, ...]]:
    """The different lists of names of the classes of runs that were tested."""
    tested = [reading for _, readings in story.played for reading in readings if _last(reading) is not None]
    return list(dict.fromkeys(tuple(reading.classes) for reading in tested))


def _class_means(readings: Sequence[Reading]) -> np.ndarray | None:
    """The accuracy of each class at the last test, mean over seeds; None if no seed was tested."""
    last = [values for reading in readings if (values := _last(reading)) is not None]
    return np.mean(last, axis=0) if last else None


def _last(reading: Reading) -> np.ndarray | None:
    """The accuracy of each class at the last test; None if there was none."""
    tested = np.flatnonzero(np.isfinite(reading.class_accuracy).any(axis=1))
    return reading.class_accuracy[tested[-1]] if len(tested) else None


def wall_rows(story: Story) -> list[dict[str, Any]]:
    """Seconds of wall time in each part of a round, mean over seeds, and the shares of the total of parts that belong to it."""
    rows = []
    played = counted(story)
    means = [_mean_seconds(readings) for _, readings in played]
    rounds = [float(np.mean([reading.num_rounds for reading in readings])) for _, readings in played]
    columns = {name: _in_column([seconds[name] for seconds in means]) for name in PARTS}
    each = _in_column([1e3 * seconds["total"] / number for seconds, number in zip(means, rounds, strict=True)])
    for i, ((label, _), strategy) in enumerate(zip(played, strategies(story), strict=True)):
        total = means[i]["total"]
        cells = [
            {
                "cell": cells[i],
                "share": formatted_values.part(means[i][name] / total) if name in WALL and total > 0 else "",
            }
            for name, cells in columns.items()
        ]
        rows.append({"label": label, "strategy": strategy, "cells": cells, "each": each[i]})
    return rows


def _in_column(values: Sequence[float]) -> list[Cell]:
    """The cells of a column, all with as many decimals: three digits of the largest number, and one of others down to 0.0001."""
    known = [abs(value) for value in values if math.isfinite(value) and value != 0]
    decimals = 0
    if known:
        decimals = max(0, 2 - _power(max(known)), min(4, -_power(min(known))))
    return [
        Cell(f"{value:,.{decimals}f}" if math.isfinite(value) else formatted_values.number(value), value)
        for value in values
    ]


def _power(value: float) -> int:
    """The power of ten of the first digit."""
    return math.floor(math.log10(value))


def _mean_seconds(readings: Sequence[Reading]) -> dict[str, float]:
    """Mean seconds of a whole run by :data:`PARTS`; NaN for parts that were not recorded."""
    columns = [name for name in PARTS if name in readings[0].wall]
    means = np.mean([reading.wall[columns].sum().to_numpy(np.float64) for reading in readings], axis=0)
    by_name: dict[str, float] = dict(zip(columns, means.tolist(), strict=True))
    by_name.setdefault("total", sum(by_name.get(name, 0.0) for name in WALL))
    return {name: by_name.get(name, float("nan")) for name in PARTS}
