"""Name the rows of a race that are equal under all seeds that they have in common."""

from collections.abc import Sequence

from fedcohort.core.words.score_style import ScoreStyle
from fedcohort.racing.row_results import RacedRow
from fedcohort.study.rows.equal_rows import equal_findings
from fedcohort.study.rows.failing_rows import Checked, Finding
from fedcohort.study.run_measures import Measured

__all__ = ["about_equal_rows"]


def about_equal_rows(rows: Sequence[RacedRow], style: ScoreStyle) -> str:
    """Which rows are equal, why, and what to try, in sentences, as a comparison says it; empty if none are.

    A row that is dropped or rests has fewer seeds than the others; it is compared with them over the seeds that it has played.
    """
    sets = [alike for alike in _sets(rows) if len(alike) > 1]
    shorter = [alike for alike in sets if len({row.seeds for row in alike}) > 1]
    found: list[Finding] = []
    for seeds, own in (
        ("every seed", [alike for alike in sets if alike not in shorter]),
        ("every common seed", shorter),
    ):
        found += equal_findings([checked for alike in own for checked in _over_common_seeds(alike)], style, seeds)
    return " ".join(one.sentences for one in found)


def _sets(rows: Sequence[RacedRow]) -> list[list[RacedRow]]:
    """The rows in sets of which all have the scores of the row with the most seeds, as far as they have played."""
    sets: list[list[RacedRow]] = []
    for row in sorted(rows, key=lambda row: -row.seeds):
        own = next((alike for alike in sets if _same_scores(row, alike[0])), None)
        if own is None:
            sets.append([row])
        else:
            own.append(row)
    return sets


def _same_scores(row: RacedRow, longer: RacedRow) -> bool:
    """Whether a row has the scores of another one under all seeds that it has played."""
    return all(own == others[: len(own)] for own, others in zip(row.scores, longer.scores, strict=True))


def _over_common_seeds(alike: Sequence[RacedRow]) -> list[Checked]:
    """Rows with the runs of the seeds that all of them have played, which are the first ones."""
    seeds = min(row.seeds for row in alike)
    return [Checked(row.label, [Measured(run) for run in list(row.runs.values())[:seeds]]) for row in alike]
