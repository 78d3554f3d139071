"""Find the runs of the folder that a live page shows, and tell when they have changed."""

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fedcohort.core.formatted_values import counted
from fedcohort.record import Run
from fedcohort.record.verification import signature
from fedcohort.report.damaged_runs import Damaged, changed, reason
from fedcohort.report.report_data import begun

__all__ = ["Scan", "scan", "seeds_of", "version"]


class Scan(NamedTuple):
    """What a folder of runs has.

    Attributes:
        groups: runs by the name of their experiment; the experiment that changed last comes first.
        counts: for each experiment, in the order in which they began, how many runs it has, in words.
        damaged: the runs that cannot be opened.
    """

    groups: dict[str, list[Run]]
    counts: dict[str, str]
    damaged: list[Damaged]


def scan(folder: Path) -> Scan:
    """The runs of a folder, which need not exist yet."""
    runs: dict[str, list[Run]] = {}
    newest: dict[str, int] = {}
    going: dict[str, int] = {}
    damaged = []
    for path in sorted(folder.iterdir(), key=begun) if folder.is_dir() else []:
        if not (path / "run.sqlite").exists():  # not a run, or a run that is being created
            continue
        try:
            run = Run(path)
            meta = run.meta
            name = meta["name"]
        except Exception as error:  # a damaged or forged record can raise anything
            if (path / "run.sqlite").exists():  # it has not been deleted meanwhile
                damaged.append(Damaged(path.name, reason(error, path)))
            continue
        runs.setdefault(name, []).append(run)
        newest[name] = max(newest.get(name, 0), changed(path))
        going[name] = going.get(name, 0) + (meta.get("status") != "finished")
    groups = {name: runs[name] for name in sorted(runs, key=lambda name: -newest[name])}
    return Scan(groups, {name: _count(len(runs[name]), going[name]) for name in runs}, damaged)


def _count(runs: int, going: int) -> str:
    """How many runs an experiment has, in words."""
    return counted(runs, "run") + (f", {going} not finished" if going else "")


def seeds_of(runs: list[Run]) -> set[int]:
    """The seeds of these runs; runs with unreadable records are left out."""
    seeds = set()
    for run in runs:
        with suppress(Exception):  # a damaged or forged record can raise anything
            seeds.add(int(run.meta["seed"]))
    return seeds


def version(found: Scan, name: str) -> str:
    """A text that changes whenever the page of an experiment does."""
    facts = [_facts(run) for run in found.groups.get(name, [])]
    return hashlib.sha256(repr([facts, found.counts, found.damaged]).encode()).hexdigest()[:16]


def _facts(run: Run) -> tuple[object, ...]:
    """What a page compares of a run: its last round, and, once it is finished or damaged, its files."""
    try:
        status, last = run.meta["status"], run.last_round
    except Exception as error:  # a damaged or forged record can raise anything
        status, last = type(error).__name__, 0
    return run.path.name, last, status, signature(run.path) if status != "running" else ()
