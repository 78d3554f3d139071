"""What the headline says about rows in which training failed, so that none of them is named best without a word."""

import math
from collections.abc import Sequence

from fedcohort.core.words.formatted_values import counted
from fedcohort.report.notes.failed_training import finding_kinds, problem, untrained
from fedcohort.report.notes.unranked_rows import with_different_seeds
from fedcohort.study.comparison import Comparison
from fedcohort.study.guessing import hardly_above_chance
from fedcohort.study.rows.references import Group
from fedcohort.study.targets import one_class

__all__ = [
    "doubt_about",
    "doubt_about_reference",
    "doubts",
    "doubts_about_clear_rows",
    "never_trained",
    "none_learned",
    "unranked",
]


NAMED = 3
"""Largest number of rows that :func:`doubts_about_clear_rows` names; it counts the others."""


def none_learned(compared: Comparison, group: Group, names: Sequence[str], best: int) -> str:
    """A sentence if no row of the group learned anything; empty if one did."""
    if not all(_learned_nothing(compared, i) for i in group.rows):
        return ""
    score = compared.score
    where = f"At {group.point}, none" if group.point else "None"
    nothing = f"{where} of the {len(group.rows)} rows learned anything: see Health for what to try."
    if best in with_different_seeds(compared):
        return nothing
    highest = score.with_unit(compared.table["accuracy"][best])
    return f"{nothing} The highest test {score.name}, {highest} of {names[best]}, says nothing about the strategies."


def doubts(compared: Comparison, group: Group, names: Sequence[str], best: int) -> list[str]:
    """Sentences about the best row and the reference, if training failed in them, and the best row without such a problem."""
    sentences = []
    if reason := problem(compared, best):
        sentences.append(
            f"{names[best]} is no sound result: {reason}. See Health.{_best_sound(compared, group, names)}"
        )
    elif "diverged" in finding_kinds(compared, best):
        sentences.append(f"Some updates of {names[best]} had NaN or infinite entries and were dropped. See Health.")
    if best != group.reference:
        sentences += doubt_about_reference(compared, group, names, " either" if sentences else "")
    return sentences


def doubt_about_reference(compared: Comparison, group: Group, names: Sequence[str], either: str = "") -> list[str]:
    """A sentence about the reference, if its training failed; ``either`` follows "no sound result"."""
    reason = problem(compared, group.reference)
    if not reason:
        return []
    return [
        f"The reference, {names[group.reference]}, is no sound result{either}: {reason}. Choose another one with --reference."
    ]


def doubts_about_clear_rows(compared: Comparison, names: Sequence[str], failing: Sequence[int]) -> list[str]:
    """Sentences about the rows ``failing``, in which training failed, and which still differ clearly from the reference."""
    difference = "a clear difference to the reference"
    more = len(failing) - NAMED
    sentences = [
        f"{names[i]} has {difference}, but is no sound result: {problem(compared, i)}. See Health."
        for i in failing[:NAMED]
    ]
    return [*sentences, *([f"The same holds for {counted(more, 'more row')}."] if more > 0 else [])]


def doubt_about(compared: Comparison, group: Group, names: Sequence[str], second: int) -> list[str]:
    """A sentence about the row with the second highest accuracy, which the best one is compared with, if its training failed. Of two
    rows, it is called the other one."""
    reason = "" if untrained(compared, second) else problem(compared, second)
    if not reason:
        return []
    which = f"which has the second highest {compared.score.name}" if len(group.rows) > 2 else "the other row"
    return [f"{names[second]}, {which}, is no sound result: {reason}. See Health."]


def _best_sound(compared: Comparison, group: Group, names: Sequence[str]) -> str:
    """The row with the highest accuracy of those without a problem, in a sentence with a space before it."""
    accuracy, score = compared.table["accuracy"], compared.score
    sound = [i for i in group.rows if not problem(compared, i) and not math.isnan(accuracy[i])]
    if not sound:
        return " Every row has such a problem."
    first = max(sound, key=lambda i: accuracy[i])
    return f" Of the rows without such a problem, {names[first]} has the highest: {score.with_unit(accuracy[first])}."


def unranked(compared: Comparison, group: Group, names: Sequence[str], best: int) -> str:
    """That rows cannot be ranked, since at most one of them has a test score under all of its seeds."""
    accuracy = compared.table["accuracy"]
    known = "No row has" if math.isnan(accuracy[best]) else f"Only {names[best]} has"
    results = [compared.results[compared.rows[i].label] for i in group.rows if math.isnan(accuracy[i])]
    under_some = any(not math.isnan(result.accuracy) for own in results for result in own)
    return f"{known} a test {compared.score.name}{' under every seed' * under_some}, so the rows cannot be ranked."


def _learned_nothing(compared: Comparison, position: int) -> bool:
    """Whether a row never trained, is no better than chance, or predicts one class for every sample under all seeds."""
    runs = compared.measured(position)
    if untrained(compared, position) or (
        "chance" in finding_kinds(compared, position) and not hardly_above_chance(runs)
    ):
        return True
    return all(map(one_class, runs))


def never_trained(name: str) -> str:
    """What is said about such a row."""
    return (
        f"{name} never trained: no update entered its model in any round, so that it is still the initial one. "
        "More seeds would not change that: see Health."
    )
