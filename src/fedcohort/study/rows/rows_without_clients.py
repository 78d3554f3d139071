"""Find the rows in which no client was selected in any round of a run, so that its model is the initial one."""

from collections.abc import Hashable, Sequence

from fedcohort.core.words.formatted_values import counted
from fedcohort.study.run_measures import Measured
from fedcohort.study.step_sizes import value_range

__all__ = ["never_selected", "words_of_never_selected"]

Runs = Sequence[Measured]
"""The runs of a row, one for each seed."""


def never_selected(runs: Runs) -> Hashable | None:
    """The number of runs of a row, and whether clients were available in those that selected none; None if all selected some."""
    without = _without(runs)
    return (len(runs), any(run.rounds["available"].any() for run in without)) if without else None


def words_of_never_selected(rows: Sequence[Runs]) -> tuple[str, str]:
    """What is wrong with such rows, and what to try."""
    seeds, without = len(rows[0]), [_without(runs) for runs in rows]
    rounds = f"in any of its {value_range(runs[0].num_rounds for runs in without)} rounds"
    some = f"{value_range(map(len, without))} of " if min(map(len, without)) < seeds else ""
    where = rounds if seeds == 1 else f"in any round of {some}its {counted(seeds, 'seed')}"
    if any(run.rounds["available"].any() for runs in without for run in runs):
        return f"no client was selected {where}: the model is the initial one", "let the strategy select some clients"
    advice = "let more clients be available (systems.availability), or play more rounds"
    return f"no client was available {where}: the model is the initial one", advice


def _without(runs: Runs) -> list[Measured]:
    """The runs in which no client was selected."""
    return [run for run in runs if not run.rounds["selected"].any()]
