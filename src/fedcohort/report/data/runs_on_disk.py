"""Find the runs that the paths of a command name: run directories, folders of them, and experiment files."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from fedcohort.core.errors import UsageError
from fedcohort.core.files.paths import kind_of
from fedcohort.core.words.formatted_values import first_in_words
from fedcohort.record import Run, open_run
from fedcohort.record.untouched_copy import check_database_exists
from fedcohort.report.data.missing_runs import Missing

__all__ = ["Found", "begun", "expanded", "find_runs", "found_and_missing", "single_run"]

SHOWN = 3
"""Largest number of runs that a message names."""


class Found(NamedTuple):
    """The runs that paths name, and those of experiment files that have not begun.

    Attributes:
        runs: the runs.
        missing: what is missing of each experiment file; empty if all runs are there.
        shared: which rows of experiment files share the runs of another row, in sentences; empty without any.
        planned: the number of differences to references that all rows of the experiment files have; 0 if no run is missing.
    """

    runs: list[Run]
    missing: tuple[Missing, ...] = ()
    shared: str = ""
    planned: int = 0


def find_runs(paths: Iterable[str | Path], folder: str | Path = "runs", settings: Sequence[str] = ()) -> list[Run]:
    """The runs of :func:`found_and_missing`."""
    return found_and_missing(paths, folder, settings).runs


def found_and_missing(paths: Iterable[str | Path], folder: str | Path = "runs", settings: Sequence[str] = ()) -> Found:
    """Find the runs that paths name; without paths, all runs in ``folder``.

    A path is a run directory, a folder of run directories, or an experiment file. The runs of an experiment file are in ``folder``.

    Raises:
        UsageError: a path is none of these, there is no run, or a run was changed or damaged after it was written.
    """
    given = list(map(Path, paths))
    if not given and not Path(folder).exists():
        raise UsageError(f"--runs {folder}: no such folder; `fedcohort run` creates it, or give another folder")
    of_paths = [_runs_of(path, folder, settings) for path in given or [Path(folder)]]
    runs = list({run.path.resolve(): run for found in of_paths for run in found.runs}.values())
    for run in runs:
        run.verify()
    missing = tuple(missing for found in of_paths for missing in found.missing)
    planned = sum(found.planned for found in of_paths) if missing else 0
    return Found(runs, missing, " ".join(found.shared for found in of_paths if found.shared), planned)


def single_run(path: str | Path, folder: str | Path = "runs", settings: Sequence[str] = ()) -> Run:
    """The run that a path names: a run directory, a folder with one run, or an experiment file with one run in ``folder``.

    Raises:
        UsageError: there is no run, there are several, or the run was changed or damaged after it was written.
    """
    if Path(path).is_file():
        runs = find_runs([path], folder, settings)
        if len(runs) > 1:
            names = first_in_words([str(run.path) for run in runs], SHOWN, "more run")
            raise UsageError(f"{path}: it has {len(runs)} runs in {folder}; give one of them: {names}")
        return runs[0]
    inside = expanded([path])
    if len(inside) > 1:
        raise UsageError(f"{path}: there are {len(inside)} runs in it; give one of them, such as {inside[0]}")
    return open_run(inside[0])


def expanded(paths: Iterable[str | Path]) -> list[Path]:
    """Paths in which each folder of run directories is replaced by these, in the order in which the runs began."""
    return [run for path in map(Path, paths) for run in _inside(path) or [path]]


def _inside(path: Path) -> list[Path]:
    """The run directories in a folder, in the order in which they began; none if the path is a run directory, or no folder."""
    if not path.is_dir() or (path / "run.sqlite").is_file():
        return []
    return sorted(filter(_is_run, path.iterdir()), key=begun)


def _runs_of(path: Path, folder: str | Path, settings: Sequence[str]) -> Found:
    """The runs that one path names."""
    if (path / "run.sqlite").is_file():
        return Found([Run(path)])
    if path.is_file() and path.name == "experiment.toml" and (path.parent / "run.sqlite").is_file():
        if settings:
            raise UsageError(f"{path}: is the description of a run, which is only read; leave out --set {settings[0]}")
        return Found([Run(path.parent)])
    if path.is_file():
        return _of_experiment(path, folder, settings)
    if not path.is_dir():
        problem = f"is {kind}" if (kind := kind_of(path)) else "no such run"
        raise UsageError(
            f"{path}: {problem}; give run directories, a folder of run directories, or an experiment file with runs in --runs"
        )
    inside = _inside(path)
    if not inside:
        raise UsageError(f"{path}: there is no run in it; `fedcohort run --runs {quote(str(path))}` creates one")
    return Found([Run(inner) for inner in inside])


def _is_run(path: Path) -> bool:
    """Whether a path in a folder of runs is a run directory.

    Raises:
        UsageError: it is one whose database is lost: a page without this run would be another result, without a word.
    """
    if (path / "run.sqlite").is_file():
        return True
    if (path / "experiment.toml").is_file():
        check_database_exists(path)
    return False


def begun(path: Path) -> tuple[float, str]:
    """Sort key of run directories: when the run began, then its name. Runs begin in the order of the experiment's rows."""
    file = path / "experiment.toml"
    return (file.stat().st_mtime if file.is_file() else 0.0), path.name


def _of_experiment(path: Path, folder: str | Path, settings: Sequence[str]) -> Found:
    """The runs of an experiment file in a folder."""
    from fedcohort.experiment import load
    from fedcohort.experiment.given_objects import Given
    from fedcohort.runs.find_run import find_run
    from fedcohort.study.rows.references import differences_of_cells

    given, experiment = Given(), load(path, settings)
    cells = experiment.cells()
    found = [find_run(cell, given, folder) for cell in cells]
    runs = [run for run in found if run is not None]
    if not runs:
        raise UsageError(
            f"{path}: none of its runs is in {folder}; create them with `fedcohort compare {quote(str(path))}`, or give "
            "--runs; after a sweep with --over, give the folder of the runs instead of the file"
        )
    lacking: dict[str, list[int]] = {}
    for cell, run in zip(cells, found, strict=True):
        if run is None:
            lacking.setdefault(cell.label, []).append(cell.seed)
    same = _rows_without_own_runs([(cell.label, run.path) for cell, run in zip(cells, found, strict=True) if run])
    shared = [f"{label!r} has the settings of {other!r}" for label, other in same.items()]
    comparisons = differences_of_cells([cell for cell in cells if cell.label not in same])
    missing = Missing(path, len(cells), experiment.all_seeds, lacking, folder, settings, comparisons)
    about = (
        f"Rows that share their runs are one row: in {path.name}, {first_in_words(shared, SHOWN)}." if shared else ""
    )
    return Found(runs, (missing,) if lacking else (), about, comparisons)


def _rows_without_own_runs(runs: Iterable[tuple[str, Path]]) -> dict[str, str]:
    """The rows that share the runs of an earlier row, each with that row; ``runs`` are the labels and the directories of all rows."""
    first: dict[Path, str] = {}
    shared = [(label, first.setdefault(path, label)) for label, path in runs]
    return {label: other for label, other in shared if label != other}
