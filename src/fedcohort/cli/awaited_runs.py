"""Say what the live page waits for if it has nothing to show."""

from pathlib import Path

from fedcohort.core.errors import shown

__all__ = ["awaited"]

LISTED = 5
"""Largest number of experiments that the message names."""


def awaited(runs: str, name: str | None) -> str:
    """What a live page of the runs in a folder waits for, in a sentence; empty if there are runs to show.

    Args:
        runs: the folder.
        name: the experiment that the page shows first; None for any.
    """
    from fedcohort.core.words.formatted_values import first_in_words
    from fedcohort.report.live.live_folder import scan

    names = sorted(scan(Path(runs)).counts)
    if name in names or (name is None and names):
        return ""
    what = "the first run" if name is None else f"runs of the experiment {shown(name)} (--name)"
    if not Path(runs).is_dir():
        there = "there is no such folder yet"
    elif names:
        there = f"it has runs of {first_in_words([shown(each) for each in names], LISTED, 'more experiment')}"
    else:
        there = "it has none now"
    return f"Waiting for {what} in the folder {runs}: {there}."
