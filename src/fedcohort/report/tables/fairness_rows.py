"""Make the rows of the page's table of fairness."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedcohort import measures
from fedcohort.core.arrays import Values
from fedcohort.core.words import formatted_values
from fedcohort.core.words.score_style import ScoreStyle, score_style
from fedcohort.report.data.report_data import Reading, Story
from fedcohort.report.notes.admitted_updates import jain_of_admitted
from fedcohort.report.notes.seed_notes import counted
from fedcohort.report.tables.best_cells import mark_best
from fedcohort.report.tables.table_rows import Cell, cells, strategies, unmarked_rows
from fedcohort.study.measure_differences import MEASURES
from fedcohort.study.run_measures import evenness
from fedcohort.study.verdicts import BASELINE

__all__ = ["fairness_rows"]

BEST_OF_CLIENTS = ("worst", "personal", "personal_worst")
"""Columns of the table of fairness in which the highest mean is marked."""

PARTICIPATION = ("jain", "gini", "entropy", "coverage")


def fairness_rows(story: Story) -> list[dict[str, Any]]:
    """The rows of the table of fairness: how evenly each strategy selects, beside uniform selection; means over seeds."""
    unmarked, differences = unmarked_rows(story), _differences(story)
    rows = [
        {
            "label": label,
            "point": strategy["point"],
            "strategy": strategy,
            "partial": BEST_OF_CLIENTS if label in unmarked else (),
            "declined": any(len(reading.admitted) < len(reading.selected) for reading in readings),
            **_participation(readings),
            **_admitted(readings),
            "worst_difference": difference,
        }
        for (label, readings), strategy, difference in zip(counted(story), strategies(story), differences, strict=True)
    ]
    mark_best(rows, BEST_OF_CLIENTS)
    return rows


def _differences(story: Story) -> list[Cell]:
    """For each row, the difference of the accuracy of the worst clients to that of its reference, its interval and the verdict."""
    compared = story.comparison
    if compared is None:
        return []
    table = compared.differences_of(MEASURES["worst_client_accuracy"]).table
    return [_difference(row, compared.score) for row in table.to_dict("records")]


def _difference(row: Mapping[Any, Any], score: ScoreStyle) -> Cell:
    value = row["difference"]
    if row["verdict"] == BASELINE or not math.isfinite(value):
        return Cell("–", math.nan)
    shown = score.difference(value, row["difference_low"], row["difference_high"])
    return Cell(f"{shown}, {formatted_values.verdict(row['verdict'], row['p_holm'])}", value)


def _participation(readings: Sequence[Reading]) -> dict[str, Cell]:
    selected = [evenness(run.selected.times) for run in readings]
    chance = [run.chance.participation for run in readings]
    values = {name: float(np.mean([getattr(p, name) for p in selected])) for name in PARTICIPATION}
    values |= {f"{name}_random": float(np.mean([getattr(p, name) for p in chance])) for name in PARTICIPATION}
    worst = float(np.mean([_worst_clients(run) for run in readings]))
    score = score_style(run.run.labels for run in readings)
    return cells(values, dict.fromkeys(values, formatted_values.index)) | {
        "worst": Cell(score.value(worst), worst),
        **_personal(readings, score),
    }


def _admitted(readings: Sequence[Reading]) -> dict[str, Any]:
    """Jain's index of admitted updates, and the number of seeds that admitted any, beside that of all."""
    mean, *numbers = jain_of_admitted(readings)
    text = formatted_values.of_seeds(formatted_values.index(mean), *numbers)
    return {"jain_model": Cell(text, mean), "with_admitted": numbers}


def _personal(readings: Sequence[Reading], score: ScoreStyle) -> dict[str, Cell]:
    """Accuracy of personal models: mean over clients, of the worst tenth, and gain over the global model."""
    accuracy, worst, gain = np.mean([reading.personal for reading in readings], axis=0).tolist()
    return {
        "personal": Cell(score.value(accuracy), accuracy),
        "personal_worst": Cell(score.value(worst), worst),
        "personal_gain": Cell(score.signed(gain), gain),
    }


def _worst_clients(reading: Reading) -> float:
    """Mean of the lowest tenth of the clients' accuracies at the last measurement; NaN if they were never measured."""
    measured = reading.client_accuracy
    last: Values = measured.iloc[-1].to_numpy(np.float64) if len(measured) else np.full(1, np.nan)
    return measures.worst_accuracy(last) if np.isfinite(last).any() else math.nan
