"""Find the runs of the folder that a live page shows, and tell when they have changed."""

import hashlib
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from fedcohort.core.words.formatted_values import counted
from fedcohort.record import Run
from fedcohort.record.verification import Signature, signature
from fedcohort.report.data.damaged_runs import Damaged, reason, written
from fedcohort.report.data.report_data import begun

__all__ = ["FinishedRuns", "Scan", "scan", "seeds_of", "version"]

AnyRun = TypeVar("AnyRun", bound=Run)


class Scan(NamedTuple):
    """What a folder of runs has.

    Attributes:
        groups: runs by the name of their experiment; the experiment that changed last comes first.
        counts: for each experiment, in the order in which they began, how many runs it has, in words.
        damaged: the runs that cannot be opened.
        signatures: the files of each run directory when it was opened, see :func:`~fedcohort.record.verification.signature`.
    """

    groups: dict[str, list[Run]]
    counts: dict[str, str]
    damaged: list[Damaged]
    signatures: dict[Path, Signature]


class FinishedRuns(Generic[AnyRun]):
    """The finished runs of a folder, which are opened again only if their files have changed: a page asks for news every two seconds,
    and a folder can have thousands of runs."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[Signature, AnyRun]] = {}

    def opened(self, path: Path, files: Signature, open_run: Callable[[], AnyRun]) -> AnyRun:
        """The run in a directory that has these ``files``; ``open_run`` opens it if it is not known."""
        known = self._known.get(path)
        if known is not None and known[0] == files:
            return known[1]
        self._known.pop(path, None)  # its tables can be large
        run = open_run()
        if run.meta.get("status") == "finished":
            self._known[path] = (files, run)
        return run

    def keep(self, paths: Collection[Path]) -> None:
        """Forget the runs of all other directories."""
        self._known = {path: known for path, known in self._known.copy().items() if path in paths}


def scan(folder: Path, known: FinishedRuns[Run] | None = None) -> Scan:
    """The runs of a folder, which need not exist yet; ``known`` are those of earlier scans."""
    known = known or FinishedRuns[Run]()
    runs: dict[str, list[Run]] = {}
    newest: dict[str, int] = {}
    going: dict[str, int] = {}
    damaged = []
    signatures: dict[Path, Signature] = {}
    for path in sorted(folder.iterdir(), key=begun) if folder.is_dir() else []:
        if not (path / "run.sqlite").exists():  # not a run, or a run that is being created
            continue
        try:
            files = signature(path)
            run = known.opened(path, files, partial(Run, path))
            meta = run.meta
            name = meta["name"]
        except Exception as error:  # a damaged or forged record can raise anything
            if (path / "run.sqlite").exists():  # it has not been deleted meanwhile
                damaged.append(Damaged(path.name, reason(error, path)))
            continue
        runs.setdefault(name, []).append(run)
        signatures[path] = files
        newest[name] = max(newest.get(name, 0), written(files))
        going[name] = going.get(name, 0) + (meta.get("status") != "finished")
    known.keep(signatures)
    groups = {name: runs[name] for name in sorted(runs, key=lambda name: -newest[name])}
    return Scan(groups, {name: _count(len(runs[name]), going[name]) for name in runs}, damaged, signatures)


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
    facts = [_facts(run, found.signatures[run.path]) for run in found.groups.get(name, [])]
    return hashlib.sha256(repr([facts, found.counts, found.damaged]).encode()).hexdigest()[:16]


def _facts(run: Run, files: Signature) -> tuple[object, ...]:
    """What a page compares of a run: its last round, and, once it is finished or damaged, its ``files``."""
    try:
        status, last = run.meta["status"], run.last_round
    except Exception as error:  # a damaged or forged record can raise anything
        status, last = type(error).__name__, 0
    return run.path.name, last, status, files if status != "running" else ()
