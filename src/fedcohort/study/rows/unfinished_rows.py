"""Say how far unfinished runs are, and which rows cannot be compared until they are finished."""

from collections.abc import Iterable, Mapping, Sequence

from fedcohort.core.words.formatted_values import first_in_words
from fedcohort.record import Run
from fedcohort.study.rows.failing_rows import seeds_in_words
from fedcohort.study.rows.references import Group
from fedcohort.study.step_sizes import value_range

__all__ = [
    "UNEQUAL",
    "about_counted",
    "about_unfinished",
    "counted_runs",
    "is_untested",
    "rounds_left",
    "uneven_rows",
    "without_difference",
]

UNEQUAL = "have played unequal numbers of rounds, since some runs are not finished"
"""What texts say of the rows of :func:`uneven_rows`."""

LISTED = 6
"""Largest number of rows that a sentence lists."""


def uneven_rows(groups: Iterable[Group], runs: Sequence[Iterable[Run]]) -> frozenset[int]:
    """The positions of rows that are not ranked with the others of their group yet: the runs of the group have not played the same
    number of rounds, and some have rounds left to play.

    Args:
        groups: the rows that are compared with each other.
        runs: the runs of each row.
    """
    uneven = [group for group in groups if _are_uneven([run for i in group.rows for run in runs[i]])]
    return frozenset(i for group in uneven for i in group.rows)


def without_difference(groups: Iterable[Group], runs: Sequence[Mapping[int, Run]]) -> frozenset[int]:
    """The positions of rows that have no difference to their reference yet: under the seeds that both have, they have not played the
    same number of rounds, and some have rounds left to play. A reference is one of them if that is so for all rows of its group.

    Args:
        groups: the rows that are compared with each other.
        runs: the runs of each row by seed.
    """
    found: set[int] = set()
    for group in groups:
        others = [i for i in group.rows if i != group.reference]
        waiting = [i for i in others if _are_uneven(_shared(runs[i], runs[group.reference]))]
        found.update(group.rows if waiting and len(waiting) == len(others) else waiting)
    return frozenset(found)


def _shared(own: Mapping[int, Run], reference: Mapping[int, Run]) -> list[Run]:
    """The runs of two rows under the seeds that both have."""
    return [run for seed in own if seed in reference for run in (own[seed], reference[seed])]


def rounds_left(run: Run) -> int:
    """The number of rounds that a run has left to play; 0 if it is finished, also before its last planned round."""
    return 0 if run.finished else max(0, run.described.rounds - run.last_round)


def is_untested(run: Run) -> bool:
    """Whether a run has rounds left to play, and has been tested, but not after the last round that it has played."""
    if not rounds_left(run):
        return False
    tested = run.rounds["test_accuracy"].notna()
    return bool(tested.any()) and not bool(tested.iloc[-1])


def _are_uneven(runs: Sequence[Run]) -> bool:
    """Whether some runs have rounds left to play, and not all have played the same number."""
    if all(run.finished for run in runs):
        return False
    return len({run.last_round for run in runs}) > 1 and any(map(rounds_left, runs))


def counted_runs(runs: Mapping[int, Run]) -> dict[int, Run]:
    """The runs of a row, by seed, that its means cover.

    These are all runs, unless some have rounds left to play and not all have played the same number: then those that have none left,
    or if all have, those that have played the most rounds.
    """
    if not _are_uneven(list(runs.values())):
        return dict(runs)
    ended = {seed: run for seed, run in runs.items() if not rounds_left(run)}
    most = max(run.last_round for run in runs.values())
    return ended or {seed: run for seed, run in runs.items() if run.last_round == most}


def about_counted(rows: Mapping[str, tuple[Iterable[int], Iterable[int]]]) -> str:
    """A sentence on the runs that are not in the means of their rows yet; empty if all are.

    Args:
        rows: the seeds that the means of each row cover, by its label, and all its seeds.

    >>> print(about_counted({"a": ([0, 1], [0, 1]), "b": ([0], [0, 1, 2])}))
    Runs that are behind the others of their row are not in its numbers yet: 'b' with seeds 1 and 2.
    """
    behind = {label: sorted(set(seeds) - set(counted)) for label, (counted, seeds) in rows.items()}
    listed = [f"{label!r} with {seeds_in_words(seeds)}" for label, seeds in behind.items() if seeds]
    if not listed:
        return ""
    return f"Runs that are behind the others of their row are not in its numbers yet: {first_in_words(listed, LISTED)}."


def about_unfinished(rows: Mapping[str, Sequence[tuple[int, int, bool]]]) -> str:
    """A sentence on which rows have rounds left to play, and after which round they ended; empty if all are finished.

    Args:
        rows: for each run of each row, by its label, the number of rounds that it has played, that of all, and whether it is finished.

    >>> about_unfinished({"a": [(6, 6, True)], "b": [(2, 6, False), (3, 6, False)]})
    "Not final: 'b' has played 2 to 3 of 6 rounds."
    """
    listed = [f"{label!r} has played {_so_far(runs)}" for label, runs in rows.items() if _left(runs)]
    if not listed:
        return ""
    more = len(listed) - LISTED
    others = [f"{more} other row{'s are' if more > 1 else ' is'} not finished either"] if more > 0 else []
    return f"Not final: {', '.join([*listed[:LISTED], *others])}."


def _left(runs: Sequence[tuple[int, int, bool]]) -> list[tuple[int, int]]:
    """The rounds that runs with rounds left to play have played, and all of them."""
    return [(played, planned) for played, planned, finished in runs if not finished and played < planned]


def _so_far(runs: Sequence[tuple[int, int, bool]]) -> str:
    """How far the unfinished runs of a row are: 2 to 3 of 6 rounds, and in how many of its seeds."""
    left = _left(runs)
    planned = [rounds for _, rounds in left]
    some = f" in {len(left)} of its {len(runs)} seeds" if len(left) < len(runs) else ""
    rounds = "round" if set(planned) == {1} else "rounds"
    return f"{value_range(played for played, _ in left)} of {value_range(planned)} {rounds}{some}"
