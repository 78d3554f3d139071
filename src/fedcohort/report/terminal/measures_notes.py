"""Notes below the table of all measures: about the target, and which rows cannot be compared with the others."""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fedcohort.core.words.score_style import ScoreStyle
from fedcohort.report.notes.failed_training import about_failed, about_judged
from fedcohort.report.notes.unranked_rows import about_different_seeds, about_planned, with_rounds
from fedcohort.report.notes.worst_clients import ABOUT_ONE, ONE, about_worst, numbers_of_clients
from fedcohort.study.rows.unfinished_rows import UNEQUAL, about_unfinished
from fedcohort.study.targets import NOT_YET, about_reached

if TYPE_CHECKING:
    from fedcohort.study.comparison import Comparison
    from fedcohort.study.summary import OverSeeds, Summary

__all__ = ["UNKNOWN", "about_rows", "about_targets"]

UNKNOWN = "–"
"""What the table shows for an unknown number."""

IN_COMPARE = "They are in the table of `fedcohort compare`."
"""Where differences and verdicts are."""


def about_rows(compared: "Comparison") -> list[str]:
    """Sentences about rows that have played unequal numbers of rounds, are not finished, or were planned with other numbers of rounds,
    about means over different seeds, about rows in which training failed, and about the worst tenth of the clients.

    Args:
        compared: the rows of the table.
    """
    runs = [run for row in compared.rows for run in row.runs.values()]
    unfinished = any(not run.finished and run.last_round < run.described.rounds for run in runs)
    notes = [
        _about_uneven(compared),
        _about_unfinished(compared),
        about_planned(compared),
        _about_seeds(compared),
        about_failed(compared, "No sound result", unfinished=unfinished),
        _about_judged(compared),
        _about_worst(compared),
    ]
    return [note for note in notes if note]


def _about_worst(compared: "Comparison") -> str:
    """How many clients the worst tenth is, in a sentence; empty if it is exactly a tenth, for a single client, and if their accuracy
    was not measured."""
    numbers = numbers_of_clients(compared)
    if compared.table["worst_client_accuracy"].isna().all() or max(numbers) == 1:
        return ""
    return ABOUT_ONE if max(numbers) <= ONE else about_worst(numbers).strip()


def _about_seeds(compared: "Comparison") -> str:
    """A sentence about means over different seeds; empty if all rows have the same seeds, or are runs of one row, side by side."""
    metas = [run.meta for row in compared.rows for run in row.runs.values()]
    several = len({(meta["label"], meta["row"]) for meta in metas}) > 1
    sentence = about_different_seeds(compared) if several else ""
    return sentence and f"{sentence} {IN_COMPARE}"


def _about_judged(compared: "Comparison") -> str:
    """A sentence about differences and verdicts of rows in which training failed, and where they are if no other sentence says it."""
    sentence, told = about_judged(compared), _about_seeds(compared)
    return f"{sentence} {IN_COMPARE}" if sentence and not told else sentence


def _about_uneven(compared: "Comparison") -> str:
    """A sentence about rows that are not equally far, with their numbers of rounds; empty if there are none."""
    rows = [compared.rows[i] for i in sorted(compared.uneven)]
    if not rows:
        return ""
    subject = "Rows" if len(rows) > 1 else "Runs"
    return (
        f"{subject} {UNEQUAL} ({with_rounds(rows)}): what is measured after or over these rounds cannot be compared. "
        "To compare the rounds that all have, use `fedcohort compare RUN… --partial`."
    )


def _about_unfinished(compared: "Comparison") -> str:
    """A sentence about the other rows that have rounds left to play; empty if there are none."""
    return about_unfinished(
        {
            row.label: [(run.last_round, run.described.rounds, run.finished) for run in row.runs.values()]
            for i, row in enumerate(compared.rows)
            if i not in compared.uneven
        }
    )


def about_targets(several: "Sequence[OverSeeds]", score: ScoreStyle) -> Iterator[str]:
    """Notes about the target, and about runs that did not reach it."""
    seeds = sum(own.seeds for own in several)
    known = [own.mean for own in several if not math.isnan(own.mean.target)]
    if any(run.target_chosen == "results" for run in known):
        level = f"{'a level that the mean' if seeds > 1 else 'the'} best {score.name}{' of every row reaches' * (seeds > 1)}"
        level += _rows_left_out(several)
        yield (
            f"Target {score.name}: taken from these results, {level}, rounded down. To choose it, use --target or "
            "measures.target_accuracy."
        )
    numbers = [(own.reached, own.seeds) for own in several if not math.isnan(own.mean.rounds_to_target)]
    none = dict.fromkeys(own.mean.target_chosen for own in several if math.isnan(own.mean.target))
    if none:
        sign = f" {UNKNOWN}" if known else ""
        yield f"Target {score.name}{sign}: {'; '.join(none)}. To choose one, use --target or measures.target_accuracy."
    if marks := about_reached(numbers, f"the target {score.name}"):
        yield marks.strip()
    if any(map(_waits, known)):
        yield NOT_YET


def _waits(run: "Summary") -> bool:
    """Whether a run, of which the target is known, may still reach it."""
    return math.isnan(run.rounds_to_target) and math.isfinite(run.best_accuracy)


def _rows_left_out(several: "Sequence[OverSeeds]") -> str:
    """Which rows do not count for a target from results, in words after a comma; empty if there is one row."""
    if len(several) < 2:
        return ""
    unequal = (
        len({run.rounds for own in several for run in own.runs}) > 1
    )  # unfinished runs count if they are as far as all others
    return f", without rows that fail{', are not finished' * unequal} or are far below the best"
