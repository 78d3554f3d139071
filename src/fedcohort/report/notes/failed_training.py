"""Say in which rows training failed, and why, and how they are judged: by the accuracies that their models have.

These are results of the row's settings, so that its differences and verdicts hold. But tables do not mark such a row as the best,
charts do not draw it on a front, and the headline says what is wrong with it.
"""

import math
from dataclasses import replace

from fedcohort.core.words.formatted_values import first_in_words
from fedcohort.study.comparison import Comparison
from fedcohort.study.guessing import guessed_score, hardly_above_chance
from fedcohort.study.rows.failing_rows import one_class_seeds, seeds_in_words
from fedcohort.study.targets import of_one_class

__all__ = ["FAILED", "about_failed", "about_judged", "failed", "finding_kinds", "problem", "untrained"]

SHOWN = 3
"""Largest number of rows that a sentence about differences names."""

FAILED = ("no update", "one class", "chance", "large loss")
"""Kinds of findings about rows in which training failed, the most serious first."""


def problem(compared: Comparison, position: int) -> str:
    """Why training of a row failed, in words that fit after a colon; empty if it did not."""
    if untrained(compared, position):
        return "no update entered its model in any round"
    score = compared.score
    runs = compared.measured(position)
    guessed = f"{guessed_score(runs)} is {'hardly' if hardly_above_chance(runs) else 'no'} better than chance"
    reasons = {
        "no update": "no update entered its model in many of its rounds",
        "one class": f"{_in_seeds(compared, position)}its last model {of_one_class(runs)}",
        "chance": f"its {f'test {score.name} is not above 0' if score.numeric else guessed}",
        "large loss": "its steps were so large that training did not settle",
    }
    own = finding_kinds(compared, position)
    return next((reasons[kind] for kind in FAILED if kind in own), "")


def _in_seeds(compared: Comparison, position: int) -> str:
    """Under which seeds the last model of a row recognizes one class only, with a comma; empty if under all."""
    runs = compared.measured(position)
    seeds = one_class_seeds(runs)
    return f"under {seeds_in_words(seeds)} of {len(runs)}, " if 0 < len(seeds) < len(runs) else ""


def finding_kinds(compared: Comparison, position: int) -> set[str]:
    """The kinds of findings that name a row."""
    label = compared.rows[position].label
    return {finding.kind for finding in compared.health if label in finding.rows}


def untrained(compared: Comparison, position: int) -> bool:
    """Whether no update entered the model of a row in any round of any seed, so that more seeds would tell nothing."""
    return all((run.rounds["admitted"] == 0).all() for run in compared.measured(position))


def failed(compared: Comparison) -> list[bool]:
    """Whether training failed in each row."""
    return [bool(problem(compared, i)) for i in range(len(compared.rows))]


def about_failed(compared: Comparison | None, without: str, *, unfinished: bool) -> str:
    """A sentence about the rows in which training failed, with the reasons that Health gives; empty if it failed in none.

    Args:
        compared: the comparison.
        without: what these rows do not get, such as "Not marked".
        unfinished: whether runs have rounds left to play.
    """
    if compared is None:
        return ""
    told: set[str] = set()
    reasons = []
    for finding in compared.health:
        rows = tuple(label for label in finding.rows if label not in told) if finding.kind in FAILED else ()
        told.update(rows)
        reasons += [f"{replace(finding, rows=rows).about}{finding.text}"] if rows else []
    if not reasons:
        return ""
    enough = " (one such seed is enough)" if any(len(row.runs) > 1 for row in compared.rows) else ""
    return f"{without}, since training failed{' so far' if unfinished else ''}{enough}: {'; '.join(reasons)}."


def about_judged(compared: Comparison | None) -> str:
    """A sentence about differences and verdicts of rows in which training failed; empty if there are none."""
    if compared is None:
        return ""
    waiting = compared.without_difference
    table = compared.table
    known = [
        (i, reference)
        for i, reference in enumerate(compared.references)
        if i != reference and i not in waiting and math.isfinite(table["difference"][i])
    ]
    judged = {row for pair in known for row in pair}
    names = [
        repr(compared.rows[i].label)
        for i in sorted(judged)
        if math.isfinite(table["accuracy"][i]) and problem(compared, i)
    ]
    if not names:
        return ""
    what = "Differences and verdicts" if any(math.isfinite(own.p_holm) for own in compared.verdicts) else "Differences"
    accuracy = f"test {compared.score.name}"
    return f"{what} include rows in which training failed, with the {accuracy} that they reached: {first_in_words(names, SHOWN)}."
