"""The health of a comparison: runs in which training failed, and results that say little, each with what to try."""

import math
from collections.abc import Iterator, Sequence

from fedcohort.core.words.formatted_values import counted, p_value
from fedcohort.core.words.score_style import ScoreStyle
from fedcohort.study.rows.equal_rows import equal_findings
from fedcohort.study.rows.failing_rows import AT_CHANCE, CHECKS, LARGE_LOSS, NOT_BETTER, Checked, Finding, failing_rows
from fedcohort.study.rows.unfinished_rows import rounds_left
from fedcohort.study.targets import Target
from fedcohort.study.verdicts import (
    BASELINE,
    FEWEST,
    NO_RESULT,
    TOO_FEW,
    UNEVEN,
    Verdict,
    comparisons,
    lowest_p_value,
    needed_for,
)

__all__ = ["Checked", "Finding", "findings", "training_findings"]


def findings(
    rows: Sequence[Checked], score: ScoreStyle, verdicts: Sequence[Verdict] = (), planned: int = 0
) -> list[Finding]:
    """What is wrong with the rows, the most serious first.

    Args:
        rows: the rows.
        score: how the score is named and written.
        verdicts: those of the rows, in their order.
        planned: see :func:`~fedcohort.study.verdicts.verdicts`.
    """
    failed = training_findings(rows, score)
    failing = {label for finding in failed if finding.kind != "diverged" for label in finding.rows}
    sound = [row for row in rows if row.label not in failing]
    return [
        *_other_rounds(rows),
        *failed,
        *_targets_missed(rows, failing, score),
        *equal_findings(sound, score),
        *_few_seeds(rows, verdicts, planned),
        *_no_clear_difference(rows, verdicts, planned),
        *_other_seeds(rows),
    ]


def training_findings(rows: Sequence[Checked], score: ScoreStyle) -> list[Finding]:
    """The rows in which training failed; a row with several reasons is named by the most serious one, and if updates diverged."""
    found = [finding for check in CHECKS for finding in failing_rows(check, rows)]
    for check in (NOT_BETTER if score.numeric else AT_CHANCE, LARGE_LOSS):
        told = {label for finding in found if finding.kind != "diverged" for label in finding.rows}
        found += failing_rows(check, [row for row in rows if row.label not in told])
    return found


def _targets_missed(rows: Sequence[Checked], failing: set[str], score: ScoreStyle) -> Iterator[Finding]:
    """The rows that did not reach their target, target by target; runs that are not finished can still reach it."""
    ended = [row for row in rows if not any(rounds_left(run.run) for run in row.runs)]
    for target in dict.fromkeys(row.target for row in ended):
        missed = [row.label for row in ended if not row.reached and row.target == target]
        yield from _target_missed(missed, failing, target, score)


def _target_missed(labels: Sequence[str], failing: set[str], target: Target, score: ScoreStyle) -> Iterator[Finding]:
    """Rows that did not reach the target under any seed; those that fail for another reason get other advice."""
    if math.isnan(target.accuracy):
        return
    text = f"no seed reached the target {score.name}, {score.target(target.accuracy)}"
    lower = "choose a lower target with" if target.from_results else "lower"
    told = [one for one in labels if one in failing]
    advice = {
        f"play more rounds, or {lower} measures.target_accuracy": [one for one in labels if one not in failing],
        f"first follow the advice about {'this row' if len(told) == 1 else 'these rows'} above": told,
    }
    yield from (Finding("target", tuple(missed), text, what) for what, missed in advice.items() if missed)


def _few_seeds(rows: Sequence[Checked], verdicts: Sequence[Verdict], planned: int) -> Iterator[Finding]:
    """Rows with fewer seeds than a verdict needs; the advice is the number from which a difference can be clear."""
    cannot = "cannot tell a difference from chance" if len(rows) > 1 else "cannot tell how much the result varies"
    enough = (needed_for(verdicts, planned) if comparisons(verdicts) else 0) or FEWEST
    for few in range(1, FEWEST):
        labels = tuple(row.label for row in rows if len(row.runs) == few)
        about = labels if len(labels) < len(rows) else ()
        if labels:
            yield Finding("few seeds", about, f"{counted(few, 'seed')} {cannot}", _more_seeds(rows, enough))


def _no_clear_difference(rows: Sequence[Checked], verdicts: Sequence[Verdict], planned: int) -> Iterator[Finding]:
    """Rows with the same seeds, too few for any difference to be clear, however large it is."""
    tested = [verdict for verdict in verdicts if verdict.words not in (BASELINE, TOO_FEW, NO_RESULT, UNEVEN)]
    same = len({frozenset(run.experiment.seed for run in row.runs) for row in rows}) == 1
    if not tested or not same:
        return
    seeds, needed = tested[0].seeds, needed_for(verdicts, planned)
    number = max(planned, len(tested) + sum(verdict.words == NO_RESULT for verdict in verdicts))
    if seeds < needed or not needed:
        lowest = lowest_p_value(seeds, number)
        limit = "is always 1" if lowest >= 1 else f"is at least {p_value(lowest)}"
        text = (
            f"{counted(seeds, 'seed')} cannot show any difference, however large it is: with {counted(number, 'comparison')}, "
            f"p {limit}; {needed or 'no number of'} seeds can"
        )
        yield Finding("few seeds", (), text, _more_seeds(rows, needed) if needed else "compare fewer rows at a time")


def _more_seeds(rows: Sequence[Checked], number: int) -> str:
    """How to get more seeds; a server outside simulations has no experiment with a number of them."""
    on_servers = all(run.run.clock == "wall" for row in rows for run in row.runs)
    return f"repeat the runs with {number} or more seeds" if on_servers else f"set seeds = {number} or more"


def _other_rounds(rows: Sequence[Checked]) -> Iterator[Finding]:
    """Unfinished runs that are not equally far, so that their accuracies cannot be compared."""
    runs = [run for row in rows for run in row.runs]
    played = {run.num_rounds for run in runs}
    unfinished = sum(run.num_rounds < run.experiment.rounds and not run.run.finished for run in runs)
    if len(played) < 2 or not unfinished:
        return
    text = (
        f"{unfinished} of {counted(len(runs), 'run')} {'is' if unfinished == 1 else 'are'} not finished, and the runs have played "
        f"{min(played)} to {max(played)} rounds: accuracies after different numbers of rounds cannot be compared"
    )
    yield Finding(
        "unfinished",
        (),
        text,
        "wait for the other runs, or compare the rounds that all have, with `fedcohort compare RUN… --partial`",
    )


def _other_seeds(rows: Sequence[Checked]) -> Iterator[Finding]:
    """Rows that were not played with the same seeds, so that their means are about different runs."""
    seeds = [{run.experiment.seed for run in row.runs} for row in rows]
    if all(own == seeds[0] for own in seeds):
        return
    least, most = min(map(len, seeds)), max(map(len, seeds))
    has = f"have {least} to {most} seeds" if least < most else "have different seeds"
    text = f"The rows {has}: a mean is over the seeds of its row, a difference over those that both rows have"
    advice = (
        "play all rows with the same seeds; if results decided which rows got more seeds, as in `fedcohort race`, p-values are too "
        "low, and the result of the race holds instead"
    )
    yield Finding("other seeds", (), text, advice)
