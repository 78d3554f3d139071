"""The target accuracy of a comparison: one level for all rows about the same clients and data, which failing rows do not lower."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcohort.core.words import formatted_values
from fedcohort.core.words.score_style import ACCURACY, ScoreStyle
from fedcohort.study.guessing import diverged_seeds, guessing
from fedcohort.study.rows.references import Group
from fedcohort.study.run_measures import Measured, level_below

__all__ = [
    "FAILING",
    "FOR_EACH",
    "NOT_YET",
    "TO_TARGET",
    "Target",
    "about_cost_marks",
    "about_not_reached",
    "about_reached",
    "about_targets",
    "common_target",
    "costs_of_target",
    "failure",
    "group_targets",
    "numbers_reached",
    "of_one_class",
    "one_class",
    "shown_cost",
]

TO_TARGET = ("rounds_to_target", "time_to_target", "bytes_to_target")
"""Columns of costs whose means are over the seeds that reached the target only, in the order of :class:`Cost`."""

DIVERGED = "with diverged updates"
"""Why a row does not count although its model has learned something."""

BEHIND = "with unfinished runs"
"""Why a row does not count yet: its best accuracy may still rise."""

FAILING = 1 / 3
"""Rows with less than this share of the best accuracy do not lower the target."""


PREDICTS = "predicts one class for every sample"
"""What a model does that recognizes one class only, and is right about all samples of it."""


def one_class(run: Measured) -> bool:
    """Whether the last model of a run recognizes one of several classes only; a test set of a single class cannot tell."""
    tested = int(np.isfinite(run.class_accuracy).sum())
    return tested > 1 and int((np.nan_to_num(run.class_accuracy) > 0).sum()) == 1


def of_one_class(runs: Sequence[Measured]) -> str:
    """What the last models of a row that recognize one class only do: a model that is wrong about samples of this class does not
    predict it for every sample."""
    every = all(float(np.nanmax(run.class_accuracy)) > 1 - 1e-9 for run in runs if one_class(run))
    return PREDICTS if every else "is right about samples of one class only"


def failure(runs: Sequence[Measured]) -> str:
    """Why the runs of a row, one for each seed, do not count for the target, in words; empty if they do."""
    if any(run.rounds["selected"].sum() > 0 and not run.rounds["admitted"].any() for run in runs):
        return "in which no update was admitted under a seed"
    if any(map(one_class, runs)):
        return f"that {'predict' if of_one_class(runs) == PREDICTS else 'recognize'} one class"
    if diverged_seeds(runs):
        return "whose last model diverged"
    if guesses := guessing(runs):
        return "at chance" if guesses.classes else "no better than the mean of the labels"
    return DIVERGED if any(run.diverged for run in runs) else ""


def _behind(runs: Sequence[Measured], most: int) -> str:
    """:data:`BEHIND` if any run of a row is unfinished and has fewer than ``most`` rounds; otherwise empty."""
    behind = any(run.num_rounds < min(most, run.experiment.rounds) and not run.run.finished for run in runs)
    return BEHIND if behind else ""


@dataclass(frozen=True)
class Target:
    """The target test accuracy, and how it was chosen, in words."""

    accuracy: float
    chosen: str

    @property
    def from_results(self) -> bool:
        """Whether the target was taken from the results, not set before."""
        return self.chosen.startswith("taken from these results")


FOR_EACH = "taken from these results, a level for each federation"
"""How the targets of several federations were chosen."""


def group_targets(
    labels: Sequence[str],
    rows: Sequence[Sequence[Measured]],
    given: Sequence[float | None],
    groups: Sequence[Group],
    score: str = "accuracy",
) -> list[Target]:
    """The target of each group of rows. Groups with the same clients and data have the same target.

    It is ``measures.target_accuracy`` of the reference of the first of these groups, or of the first row that sets it, or else
    :func:`common_target` of their rows: accuracies in different federations say nothing about each other.

    Args:
        labels: labels of the rows.
        rows: the runs of each row.
        given: ``measures.target_accuracy`` of each row.
        groups: the rows that are compared with each other.
        score: name of the score, for the words.
    """
    found: dict[str, Target] = {}
    for federation in dict.fromkeys(group.federation for group in groups):
        alike = [group for group in groups if group.federation == federation]
        level = _set_before(alike, given)
        found[federation] = _taken_from(labels, rows, alike, score) if level is None else level
    return [found[group.federation] for group in groups]


def _set_before(groups: Sequence[Group], given: Sequence[float | None]) -> Target | None:
    """The target of the reference of the first group, or else of the first row that has one; None if no row has one."""
    rows = itertools.chain([groups[0].reference], *(group.rows for group in groups))
    level = next((given[i] for i in rows if given[i] is not None), None)
    return None if level is None else Target(level, "measures.target_accuracy")


def _taken_from(
    labels: Sequence[str], rows: Sequence[Sequence[Measured]], groups: Sequence[Group], score: str
) -> Target:
    """The target of groups with the same clients and data, from the results of their rows."""
    own = [i for group in groups for i in group.rows]
    most = max(run.num_rounds for i in own for run in rows[i])
    return common_target(
        [float(np.mean([run.best_accuracy for run in rows[i]])) for i in own],
        [labels[i] for i in own],
        [failure(rows[i]) or _behind(rows[i], most) for i in own],
        score,
        several_seeds=any(len(rows[i]) > 1 for i in own),
    )


def about_targets(targets: Sequence[Target], groups: Sequence[Group], score: ScoreStyle = ACCURACY) -> str:
    """The targets of some groups, and how they were chosen, in a sentence; those of different federations one by one."""
    if len(set(targets)) == 1:
        target = targets[0]
        level = "" if math.isnan(target.accuracy) else f" {score.target(target.accuracy)}"
        return f"Target {score.name}{level}: {target.chosen}."
    by_federation = {group.federation: target for group, target in zip(groups, targets, strict=True)}
    rules = [_rule(target.chosen) for target in by_federation.values()]
    chosen = max(rules, key=rules.count)
    each = [
        f"{name}: {target.chosen}"
        if math.isnan(target.accuracy)
        else f"{name}: {score.target(target.accuracy)}{_more_words(target.chosen, chosen)}"
        for name, target in by_federation.items()
    ]
    left = f"; and {len(each) - LISTED} more" if len(each) > LISTED else ""
    return f"Target {score.name} of each federation: {chosen}. {'; '.join(each[:LISTED])}{left}."


def costs_of_target(runs: Sequence[Measured], target: float) -> dict[str, float]:
    """The mean cost of reaching the target, over the runs of a row that reached it, and their number, by the names of columns."""
    costs = [run.cost_of(target) for run in runs]
    reached = [cost for cost in costs if math.isfinite(cost.rounds)]
    means = np.mean(reached, axis=0).tolist() if reached else [math.nan] * 3
    return {"target_accuracy": target, **dict(zip(TO_TARGET, means, strict=True)), "reached": len(reached)}


def _never(row: Mapping[Any, Any]) -> bool:
    """Whether a row of a comparison's table was tested, has no rounds left to play, and did not reach its target under any seed."""
    waiting = row["reached"] or row["unfinished"] or not row["tested"]
    return math.isfinite(row["target_accuracy"]) and not waiting


def shown_cost(row: Mapping[Any, Any], cost: str) -> float:
    """A cost of the target as tables show it: infinite if no seed reached the target, which the table of a comparison has as NaN. It
    is not known yet while the row has rounds left to play.

    Args:
        row: a row of the table, and whether it was tested.
        cost: the column, one of :data:`TO_TARGET`.
    """
    return math.inf if _never(row) else float(row[cost])


NOT_YET = "–: not reached yet, since runs are not finished."
"""What "–" means beside costs of the target."""


def about_not_reached(rows: Iterable[Mapping[Any, Any]]) -> str:
    """What "–" means in the costs of rows that have not reached their target yet, in a sentence after a space; empty without any."""
    waiting = any(
        row["reached"] == 0 and row.get("unfinished") and math.isfinite(row["target_accuracy"]) for row in rows
    )
    return f" {NOT_YET}" if waiting else ""


def about_cost_marks(rows: Sequence[Mapping[Any, Any]]) -> str:
    """What marks such as (2/3), ∞ and – mean in the costs of the target in a comparison's table, in sentences after a space; empty
    without any."""
    return about_reached(numbers_reached(rows)) + about_not_reached(rows)


def numbers_reached(rows: Iterable[Mapping[Any, Any]]) -> list[tuple[int, int]]:
    """For each row of a comparison's table with a known cost of the target, the number of seeds that reached it, and of all."""
    return [(row["reached"], row["seeds"]) for row in rows if row["reached"] or _never(row)]


def about_reached(rows: Iterable[tuple[int, int]], target: str = "it") -> str:
    """What marks such as (2/3) and ∞ beside costs of the target mean, in sentences with a space before them; empty without marks.

    Args:
        rows: for each row with a known cost of the target, the number of seeds that reached it, and of all.
        target: what is said for the target.
    """
    rows = list(rows)
    marks = formatted_values.about_of_seeds(rows, f"reached {target}")
    several = any(seeds > 1 for _, seeds in rows)
    never = f"∞: {'no seed reached' if several else 'the run did not reach'} {target}."
    return "".join(
        f" {sentence}" for sentence in (marks, never if any(own == 0 for own, _ in rows) else "") if sentence
    )


LISTED = 12
"""Largest number of targets that a sentence lists; the tables have all of them."""


def _rule(chosen: str) -> str:
    """How a target was chosen, without the rows that were left out, which stand in parentheses."""
    return chosen.partition(" (")[0]


def _more_words(chosen: str, usual: str) -> str:
    """What is said about the choice of a target beside the usual rule, with a space or a comma before it."""
    return chosen.removeprefix(usual) if _rule(chosen) == usual else f", {chosen}"


def common_target(
    accuracies: Sequence[float],
    names: Sequence[str],
    failing: Sequence[str],
    score: str = "accuracy",
    *,
    several_seeds: bool = True,
) -> Target:
    """The lowest accuracy of the rows that work, rounded down to two decimals.

    A row with less than :data:`FAILING` of the best accuracy does not count.

    Args:
        accuracies: the best test accuracy of each row; NaN is unknown.
        names: labels of the rows, for the words.
        failing: why each row fails, as :func:`failure` says it, or an empty text. Rows with diverged updates, which have learned
            something, count if there are no others. If training failed in all rows, there is no target: what their models have at
            the beginning would be reached at once. There is none yet if the others have unfinished runs.
        score: name of the score, for the words.
        several_seeds: whether accuracies are means over seeds, for the words about a single row.
    """
    known = [i for i, accuracy in enumerate(accuracies) if not math.isnan(accuracy)]
    whole = _whole(known, failing)
    if not whole:
        return Target(math.nan, f"none{_why_none(score, [failing[i] for i in known], len(accuracies))}")
    highest = max(accuracies[i] for i in whole)
    working = [i for i in whole if accuracies[i] >= min(highest, FAILING * highest)]
    low = [i for i in whole if i not in working]
    # rows that fail are named whether or not their score is known
    left_out = {i: reason for i, reason in enumerate(failing) if reason and i not in whole}
    left_out |= dict.fromkeys(low, "far below the best")
    without = _without(left_out, names) or (" (all rows fail)" if all(failing[i] for i in known) else "")
    level = level_below(min(accuracies[i] for i in working))
    of_rows = f"{'mean ' * (several_seeds or len(accuracies) > 1)}best {score}{' of every row' * (len(accuracies) > 1)}"
    return Target(level, f"taken from these results, a level that the {of_rows} reaches{without}")


def _whole(rows: Sequence[int], failing: Sequence[str]) -> list[int]:
    """The rows that do not fail; without any, those with diverged updates, unless others can still turn out well."""
    sound = [i for i in rows if not failing[i]]
    if sound or any(failing[i] == BEHIND for i in rows):
        return sound
    return [i for i in rows if failing[i] == DIVERGED]


def _why_none(score: str, failing: Sequence[str], rows: int) -> str:
    """Why there is no target, in words that follow "none"; ``failing`` is that of the rows with a known score."""
    if not failing:
        return f", because no row has a test {score}"
    if BEHIND in failing:
        return " yet, because runs are not finished"
    return f", because training failed{' in every row' * (rows > 1)}"


def _without(reasons: Mapping[int, str], names: Sequence[str]) -> str:
    """The rows that are left out, by their reasons, in parentheses; empty without any."""
    by_reason: dict[str, list[str]] = {}
    for i, reason in reasons.items():
        by_reason.setdefault(reason, []).append(names[i])
    words = "; ".join(f"rows {reason}: {_listed(labels)}" for reason, labels in by_reason.items())
    return f" (without {words})" if words else ""


def _listed(labels: Sequence[str]) -> str:
    """At most three labels."""
    return ", ".join(map(repr, labels[:3])) + (" and others" if labels[3:] else "")
