"""Say in which rows training failed, and why: tables mark none of them as the best, and charts draw none of them on a front."""

from dataclasses import replace

from fedcohort.report.headline_doubts import FAILED, problem
from fedcohort.study.comparison import Comparison

__all__ = ["about_failed", "failed"]


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
