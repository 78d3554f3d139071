"""Make the rows of the page's table of fairness."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedcohort.core.words import formatted_values
from fedcohort.core.words.score_style import ScoreStyle
from fedcohort.report.data.report_data import Story
from fedcohort.report.notes.admitted_updates import jain_of_admitted
from fedcohort.report.notes.seed_notes import counted
from fedcohort.report.tables.best_cells import mark_best
from fedcohort.report.tables.table_rows import Cell, cells, strategies, unmarked_rows
from fedcohort.study.comparison import Comparison
from fedcohort.study.measure_differences import MEASURES
from fedcohort.study.run_measures import Measured
from fedcohort.study.verdicts import BASELINE

__all__ = ["fairness_rows"]

BEST_OF_CLIENTS = ("worst", "personal", "personal_worst")
"""Columns of the table of fairness in which the highest mean is marked."""

PARTICIPATION = ("jain", "gini", "entropy", "coverage")


def fairness_rows(story: Story) -> list[dict[str, Any]]:
    """The rows of the table of fairness: how evenly each strategy selects, beside uniform selection; means over seeds."""
    compared = story.comparison
    if compared is None:
        return []
    unmarked, differences, table = unmarked_rows(story), _differences(compared), compared.table.to_dict("records")
    rows = [
        {
            "label": label,
            "point": strategy["point"],
            "strategy": strategy,
            "partial": BEST_OF_CLIENTS if label in unmarked else (),
            "declined": any(len(reading.admitted) < len(reading.selected) for reading in readings),
            **_participation(compared.averaged(i)),
            **_admitted(compared.averaged(i)),
            **_of_clients(table[i], compared.score),
            "worst_difference": differences[i],
        }
        for i, ((label, readings), strategy) in enumerate(zip(counted(story), strategies(story), strict=True))
    ]
    mark_best(rows, BEST_OF_CLIENTS)
    return rows


def _differences(compared: Comparison) -> list[Cell]:
    """For each row, the difference of the accuracy of the worst clients to that of its reference, its interval and the verdict."""
    table = compared.differences_of(MEASURES["worst_client_accuracy"]).table
    return [_difference(row, compared.score) for row in table.to_dict("records")]


def _difference(row: Mapping[Any, Any], score: ScoreStyle) -> Cell:
    value = row["difference"]
    if row["verdict"] == BASELINE or not math.isfinite(value):
        return Cell("–", math.nan)
    shown = score.difference(value, row["difference_low"], row["difference_high"])
    return Cell(f"{shown}, {formatted_values.verdict(row['verdict'], row['p_holm'])}", value)


def _participation(runs: Sequence[Measured]) -> dict[str, Cell]:
    values = {name: float(np.mean([getattr(run.selected, name) for run in runs])) for name in PARTICIPATION}
    chance = [run.chance.participation for run in runs]
    values |= {f"{name}_random": float(np.mean([getattr(own, name) for own in chance])) for name in PARTICIPATION}
    return cells(values, dict.fromkeys(values, formatted_values.index))


def _admitted(runs: Sequence[Measured]) -> dict[str, Any]:
    """Jain's index of admitted updates, and the number of seeds that admitted any, beside that of all."""
    mean, *numbers = jain_of_admitted(runs)
    text = formatted_values.of_seeds(formatted_values.index(mean), *numbers)
    return {"jain_model": Cell(text, mean), "with_admitted": numbers}


def _of_clients(row: Mapping[Any, Any], score: ScoreStyle) -> dict[str, Cell]:
    """Accuracies of the clients with the lowest, and of personal models with their gain over the global model."""
    columns = {
        "worst": "worst_client_accuracy",
        "personal": "personal_accuracy",
        "personal_worst": "worst_personal_accuracy",
    }
    found = {name: Cell(score.value(row[column]), row[column]) for name, column in columns.items()}
    return found | {"personal_gain": Cell(score.signed(row["personal_gain"]), row["personal_gain"])}
