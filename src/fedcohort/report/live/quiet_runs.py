"""Say which runs have had no new round for longer than their rounds take, for the live page."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from fedcohort.core.words.formatted_values import count, first_in_words
from fedcohort.record import Run
from fedcohort.report.data.damaged_runs import changed

__all__ = ["about_quiet"]

LEAST = 30.0
"""Seconds for which a run is never called quiet."""

FIRST = 120.0
"""Seconds before the first round, which waits for data and models, for which a run is never called quiet."""

ROUNDS = 5
"""A run is quiet if its next round takes this many times as long as the longest of its recent ones."""

RECENT = 10
"""Number of rounds from which the longest one is taken."""

NAMED = 3
"""Largest number of runs that the sentence names."""


def about_quiet(runs: Sequence[Run], *, played: bool = False, clock: Callable[[], float] = time.time) -> str:
    """Which unfinished runs have had no new round for too long, and what to do, in sentences; empty if there are none.

    Args:
        runs: the runs of one experiment; damaged ones are left out.
        played: whether the command that plays them is known to go on.
        clock: the time in seconds since 1970.
    """
    quiet = []
    for run in runs:
        with suppress(Exception):  # a damaged or forged record can raise anything
            if run.finished:
                continue
            seconds = clock() - changed(run.path) / 1e9
            if seconds > _patience(run):
                quiet.append((f"{run.meta['label']!r} (seed {run.meta['seed']})", seconds))
    if not quiet:
        return ""
    names = first_in_words([name for name, _ in quiet], NAMED, "more run")
    longer = " or longer" if quiet[1:] else ""
    said = f"No new round of {names} for {_in_words(min(seconds for _, seconds in quiet))}{longer}."
    if played:
        return said
    them = "them" if quiet[1:] else "it"
    return f"{said} If the command that plays {them} was stopped, start it again: it goes on after the last finished round."


def _patience(run: Run) -> float:
    """How long the next round of a run may take, in seconds."""
    recent = run.query(f"SELECT MAX(total) FROM (SELECT total FROM wall ORDER BY round DESC LIMIT {RECENT})")
    longest = recent[0][0]
    return FIRST if longest is None else max(LEAST, ROUNDS * float(longest))


def _in_words(seconds: float) -> str:
    """A time in whole minutes, hours or days, rounded down: half a minute, 5 minutes, an hour, 3 days."""
    for size, one, many in ((86400, "a day", "days"), (3600, "an hour", "hours"), (60, "a minute", "minutes")):
        if (number := int(seconds // size)) > 0:
            return one if number == 1 else f"{count(number)} {many}"
    return "half a minute"
