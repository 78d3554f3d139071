"""Say the result of a report in a sentence or two."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcohort import measures
from fedcohort.core import formatted_values
from fedcohort.core.score_style import ScoreStyle
from fedcohort.report.report_data import Story
from fedcohort.study.comparison import Comparison
from fedcohort.study.verdicts import FEWEST, LEVEL

__all__ = ["headline"]


def headline(story: Story) -> list[str]:
    """The result in sentences: the accuracy of a single row, or the best row and its lead over the second."""
    compared = story.comparison
    if compared is None:
        return ["No round has been played yet. This page shows results as soon as a round is finished."]
    if len(compared.rows) == 1:
        rounds = max(reading.num_rounds for reading in story.everything)
        return [_single(compared.table.iloc[0].to_dict(), rounds, compared.score)]
    return _best_two(compared)


def _single(row: Mapping[Any, Any], rounds: int, score: ScoreStyle) -> str:
    seeds = f" (mean over {row['seeds']} seeds)" if row["seeds"] > 1 else ""
    if math.isnan(row["accuracy"]):
        number = formatted_values.count(rounds)
        return f"{row['label']} was not tested in any of its {number} rounds, so there is no test {score.name}."
    return (
        f"{row['label']} reached a test {score.name} of {score.spread(row['accuracy'], row['accuracy_sd'])}{score.unit} in round "
        f"{formatted_values.count(rounds)}{seeds}. Its best round reached {score.value(row['best_accuracy'])}{score.unit}."
    )


def _best_two(compared: Comparison) -> list[str]:
    accuracy = compared.table["accuracy"].to_numpy(np.float64)
    first, second = np.argsort(-accuracy, kind="stable")[:2].tolist()  # NaN comes last
    if np.isnan(accuracy[second]):
        known = "No row has" if np.isnan(accuracy[first]) else f"Only {compared.rows[first].label} has"
        return [f"{known} a test {compared.score.name}, so the rows cannot be ranked."]
    best, next_best = compared.rows[first].label, compared.rows[second].label
    score = compared.score
    highest = (
        f"{best} has the highest test {score.name} after the last round: {score.value(accuracy[first])}{score.unit}."
    )
    return [highest, _lead(compared, best, next_best)]


def _lead(compared: Comparison, best: str, second: str) -> str:
    """By how much the best row leads the second, paired over seeds, and whether that is clear."""
    own, other = ({result.seed: result.accuracy for result in compared.results[label]} for label in (best, second))
    paired = sorted(set(own) & set(other))
    if not paired:
        return f"It shares no seed with the second, {second}. Therefore it is not known whether the difference is due to chance."
    values, others = [own[seed] for seed in paired], [other[seed] for seed in paired]
    mean, low, high = measures.paired_interval(values, others, limits=compared.score.differences)
    lead = compared.score.signed(mean)
    verb, points = ("leads", lead.lstrip("+")) if mean >= 0 or math.isnan(mean) else ("differs from", lead)
    if len(paired) < FEWEST:
        seeds = "one seed" if len(paired) == 1 else f"{len(paired)} seeds"
        return (
            f"It {verb} {second} by {points}{compared.score.points}. They share only {seeds}: it is not known whether the difference "
            f"is due to chance. Run {FEWEST} seeds or more."
        )
    clear = "clear" if _is_clear(compared, best, second, measures.paired_p_value(values, others)) else "not clear"
    return (
        f"It {verb} {second} by {points}{compared.score.points} (95% interval {compared.score.signed(low)} to "
        f"{compared.score.signed(high)}, {len(paired)} paired seeds). The difference is {clear} with these seeds."
    )


def _is_clear(compared: Comparison, best: str, second: str, p_value: float) -> bool:
    """Whether the best row differs from the second; as in the table, if one of them is the first row.

    Otherwise the p-value is multiplied by the number of rows that the best row could have been compared with.
    """
    verdicts = {row.label: verdict.words for row, verdict in zip(compared.rows, compared.verdicts, strict=True)}
    if compared.rows[0].label in (best, second):
        return bool({"better", "worse"} & {verdicts[best], verdicts[second]})
    return p_value * (len(compared.rows) - 1) <= LEVEL
