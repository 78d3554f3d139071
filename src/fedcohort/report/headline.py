"""Say the result of a report in a sentence or two."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcohort import measures
from fedcohort.core import words
from fedcohort.report.read_runs import Story
from fedcohort.study.comparison import Comparison

__all__ = ["headline"]


def headline(story: Story) -> list[str]:
    """The result in sentences: the accuracy of a single row, or the best row and its lead over the second."""
    compared = story.comparison
    if compared is None:
        return ["No round has been played yet. This page shows results as soon as a round is finished."]
    if len(compared.rows) == 1:
        rounds = max(reading.num_rounds for reading in story.everything)
        return [_single(compared.table.iloc[0].to_dict(), rounds)]
    return _best_two(compared)


def _single(row: Mapping[Any, Any], rounds: int) -> str:
    seeds = f" (mean over {row['seeds']} seeds)" if row["seeds"] > 1 else ""
    return (
        f"{row['label']} reached a test accuracy of {words.spread(row['accuracy'], row['accuracy_sd'])}% in round "
        f"{words.count(rounds)}{seeds}. Its best round reached {words.percent(row['best_accuracy'])}%."
    )


def _best_two(compared: Comparison) -> list[str]:
    accuracy = compared.table["accuracy"].to_numpy(np.float64)
    first, second = np.argsort(-accuracy, kind="stable")[:2].tolist()  # NaN comes last
    best, next_best = compared.rows[first].label, compared.rows[second].label
    highest = f"{best} has the highest test accuracy after the last round: {words.percent(accuracy[first])}%."
    return [highest, _lead(compared, best, next_best)]


def _lead(compared: Comparison, best: str, second: str) -> str:
    """By how much the best row leads the second, paired over seeds, and whether that is clear."""
    own, other = ({result.seed: result.accuracy for result in compared.results[label]} for label in (best, second))
    paired = sorted(set(own) & set(other))
    if len(paired) < 2:
        return (
            f"It shares fewer than two seeds with the second, {second}. Therefore it is not known whether the difference is "
            "due to chance. Run more seeds."
        )
    mean, low, high = measures.paired_interval([own[seed] for seed in paired], [other[seed] for seed in paired])
    lead = words.signed(mean)
    clear = "clear" if low > 0 else "not clear"
    verb, points = ("leads", lead.lstrip("+")) if mean >= 0 or math.isnan(mean) else ("differs from", lead)
    return (
        f"It {verb} {second} by {points} percentage points (95% interval {words.signed(low)} to {words.signed(high)}, {len(paired)} "
        f"paired seeds). The difference is {clear} with these seeds."
    )
