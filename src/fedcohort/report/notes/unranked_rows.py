"""Say which rows are not ranked by their means: rows after unequal numbers of rounds, and rows with different seeds."""

from collections.abc import Sequence

from fedcohort.core.words.formatted_values import first_in_words
from fedcohort.study.comparison import Comparison, Row
from fedcohort.study.rows.unfinished_rows import UNEQUAL
from fedcohort.study.step_sizes import value_range

__all__ = [
    "BY_SEEDS",
    "DIFFERENT",
    "about_different_seeds",
    "about_planned",
    "about_unmarked",
    "in_own_seeds",
    "unranked",
    "why_unranked",
    "with_different_seeds",
    "with_rounds",
]

DIFFERENT = "have different seeds"
"""What texts say of the rows of :func:`with_different_seeds`."""


BY_SEEDS = "Means over different seeds can differ by their seeds alone: compare rows by differences over the seeds that both have."
"""Why such rows are not ranked, and what to do instead."""


def with_different_seeds(compared: Comparison) -> frozenset[int]:
    """The positions of the rows that are compared with rows of other seeds.

    Their means are not ranked. Their differences can be judged, because each is over the seeds that two rows share.
    """
    seeds = [frozenset(row.runs) for row in compared.rows]
    groups = [group for group in compared.groups if len({seeds[i] for i in group.rows}) > 1]
    return frozenset(i for group in groups for i in group.rows)


def unranked(compared: Comparison) -> frozenset[int]:
    """The positions of all rows whose means are not ranked."""
    return compared.uneven | with_different_seeds(compared)


def why_unranked(compared: Comparison) -> str:
    """Why rows are not ranked, in words that follow "rows that"; empty if all are."""
    reasons = [UNEQUAL] if compared.uneven else []
    reasons += [DIFFERENT] if with_different_seeds(compared) else []
    return ", or ".join(reasons)


def about_unmarked(compared: Comparison) -> str:
    """A sentence about the rows of which none is marked as the best in a table; empty if there are none, or only one row."""
    why = why_unranked(compared) if compared.rows[1:] else ""
    return f"No best mean is marked among rows that {why}." if why else ""


def in_own_seeds(score: str, compared: Comparison | None) -> str:
    """The score of the rows that charts name or color because theirs is the highest, which says that seeds of rows differ."""
    return f"{score} over their own seeds" if compared is not None and with_different_seeds(compared) else score


def about_different_seeds(compared: Comparison) -> str:
    """A sentence about means over different seeds; empty if all rows have the same seeds."""
    return BY_SEEDS if len({frozenset(row.runs) for row in compared.rows}) > 1 else ""


SHOWN = 6
"""Largest number of rows that a sentence names."""


def about_planned(compared: Comparison) -> str:
    """A sentence about rows of the same clients and data that were planned with different numbers of rounds, and have played them;
    empty if there are none."""
    rows = [compared.rows[i] for group in compared.groups if _lengths_differ(compared, group.rows) for i in group.rows]
    if not rows:
        return ""
    return (
        f"Rows were planned with different numbers of rounds ({with_rounds(rows)}): differences in what is measured after or over "
        "these rounds are not due to the strategies alone."
    )


def _lengths_differ(compared: Comparison, positions: Sequence[int]) -> bool:
    """Whether some rows were planned with different numbers of rounds, and do not wait for the rounds of unfinished runs."""
    rows = [compared.rows[i] for i in positions]
    if len({row.experiment.rounds for row in rows}) == 1:
        return False
    played = {run.last_round for row in rows for run in row.runs.values()}
    return len(played) > 1 and compared.uneven.isdisjoint(positions)


def with_rounds(rows: Sequence[Row]) -> str:
    """The first rows, each with the numbers of rounds that its runs have played."""
    named = [f"'{row.label}' {value_range(run.last_round for run in row.runs.values())}" for row in rows]
    return first_in_words(named, SHOWN)
