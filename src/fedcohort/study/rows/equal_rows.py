"""Find rows of a comparison that are equal under every seed: the same clients in every round, and the same test accuracies."""

import hashlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import chain

from fedcohort.core.parameters import describe
from fedcohort.core.plugins import short_name
from fedcohort.core.words.formatted_values import first_in_words, in_words
from fedcohort.core.words.score_style import ScoreStyle
from fedcohort.study.rows.failing_rows import SHOWN, Checked, Finding
from fedcohort.study.run_measures import Measured

__all__ = ["equal_findings", "equal_rows"]

FIRST_ROUNDS = "random: first rounds"
"""What strategies note in rounds before they have learned anything, in which they select as uniform selection does."""

OF_FIRST_ROUNDS = "Number of first rounds"
"""How the description of a parameter begins that says how many such rounds there are."""


def equal_rows(rows: Sequence[Sequence[Measured]]) -> list[list[int]]:
    """The positions of rows that are equal, in sets of two or more; ``rows`` are the runs of each row.

    Equal rows have the same seeds. In each round of each seed, they have selected the same clients and have the same test accuracy,
    which is known in at least one round.
    """
    tested = {position: runs for position, runs in enumerate(rows) if all(run.tested for run in runs)}
    alike = [positions for positions in _sets(tested, _accuracies) if len(positions) > 1]
    found = [own for positions in alike for own in _sets({i: tested[i] for i in positions}, _selections)]
    return sorted(positions for positions in found if len(positions) > 1)


def _sets(rows: Mapping[int, Sequence[Measured]], trace: Callable[[Measured], Hashable]) -> list[list[int]]:
    """The positions of rows by the traces of their runs."""
    found: dict[Hashable, list[int]] = {}
    for position, runs in rows.items():
        found.setdefault(frozenset(map(trace, runs)), []).append(position)
    return list(found.values())


def _accuracies(run: Measured) -> Hashable:
    """The seed and the accuracies of a run; only of rows that agree in them, the clients are read."""
    return run.experiment.seed, run.series("test_accuracy").tobytes()


def _selections(run: Measured) -> Hashable:
    """The seed, and a hash of the clients of each round."""
    return run.experiment.seed, hashlib.sha256(run.selected_clients().tobytes()).digest()


def equal_findings(rows: Sequence[Checked], score: ScoreStyle, seeds: str = "every seed") -> Iterator[Finding]:
    """A finding for each set of equal rows, with the reason if the record has one. Sets with the same reason share one finding.

    Args:
        rows: the rows.
        score: how the score is named.
        seeds: the seeds in which the rows are equal, in words.
    """
    sets: dict[tuple[str, str], list[list[str]]] = {}
    for positions in equal_rows([row.runs for row in rows]):
        alike = [rows[i] for i in positions]
        sets.setdefault(_reason(alike), []).append([row.label for row in alike])
    for (reason, advice), labels in sets.items():
        text = (
            f"the same clients were selected in every round, and the test {score.name} is the same in {seeds}{reason}"
        )
        where = f"in each of {len(labels)} sets ({_sets_in_words(labels)}), " if len(labels) > 1 else ""
        yield Finding("equal rows", tuple(chain.from_iterable(labels)), where + text, advice)


def _sets_in_words(sets: Sequence[Sequence[str]]) -> str:
    """The labels of sets of rows: 'a' and 'b'; 'c' and 'd'; at most four sets, and of each at most four rows."""
    words = [first_in_words([repr(label) for label in labels], SHOWN) for labels in sets[:SHOWN]]
    return "; ".join([*words, *([f"and {len(sets) - SHOWN} more"] if sets[SHOWN:] else [])])


def _reason(rows: Sequence[Checked]) -> tuple[str, str]:
    """Why rows are equal, with a colon before it, and what to try; no reason if the record has none."""
    if len({tuple(run.run.path for run in row.runs) for row in rows}) == 1:
        return ": they have the same settings, and share their runs", "read them as one row, or leave all but one out"
    if all(_all_selected(row) for row in rows):
        return ": in every round, all available clients were selected", "lower selection.k, or use more clients"
    waiting = [row for row in rows if _in_first_rounds(row)]
    if not waiting:
        return "", _advice_without_reason(rows)
    settings = list(dict.fromkeys(filter(None, map(_setting_of_first_rounds, waiting))))
    everyone = len(waiting) == len(rows) > SHOWN
    names = "all of them" if everyone else first_in_words([repr(row.label) for row in waiting], SHOWN)
    still = (
        "is still in its first rounds, in which it selects"
        if len(waiting) == 1
        else "are still in their first rounds, and select"
    )
    lower = f", or lower {in_words(settings)}" if settings else ""
    return f": {names} {still} clients at random", f"play more rounds{lower}"


def _advice_without_reason(rows: Sequence[Checked]) -> str:
    """What to do about rows that are equal for no reason in the record; a class of the user may be one."""
    own = list(dict.fromkeys(short_name(name) for row in rows for name in _own_classes(row)))
    has = "has" if len(own) == 1 else "have"
    doubt = f"; if not, see whether {in_words(own)} {has} an effect at all" if own else ""
    return f"read them as one row; with more rounds, or with other settings, they may differ{doubt}"


def _own_classes(row: Checked) -> list[str]:
    """The names of the row's strategy and algorithm that are not built in."""
    experiment, meta = row.runs[0].experiment, row.runs[0].run.meta
    named = [part.name for part in (experiment.selection, experiment.algorithm) if part.name not in part.table.builtin]
    built_in = {*experiment.selection.table.locations_by_class(), *experiment.algorithm.table.locations_by_class()}
    given = [meta[part] for part in ("given selector", "given algorithm") if part in meta]
    return [*named, *(name for name in given if name not in built_in)]


def _all_selected(row: Checked) -> bool:
    return all((run.rounds["selected"] == run.rounds["available"]).all() for run in row.runs)


def _in_first_rounds(row: Checked) -> bool:
    """Whether a row has noted in all of its rounds that they are its first ones."""
    return all(note.startswith(FIRST_ROUNDS) for run in row.runs for note in run.rounds["note"].tolist())


def _setting_of_first_rounds(row: Checked) -> str:
    """The key of the setting for the number of first rounds; empty if the strategy is not built in or has none."""
    selection = row.runs[0].experiment.selection
    if selection.name not in selection.table.builtin:  # reading a record imports no plug-in
        return ""
    parameters = describe(selection.table.find(selection.name, "selection.name"))
    return next((f"selection.{each.name}" for each in parameters if each.doc.startswith(OF_FIRST_ROUNDS)), "")
