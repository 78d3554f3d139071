"""Find the directory of a run, or choose one for a new run."""

import hashlib
import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedcohort.core.errors import UsageError
from fedcohort.core.files.paths import as_path
from fedcohort.engines.device import pick_device
from fedcohort.experiment import Cell, Experiment
from fedcohort.experiment.given_objects import Given
from fedcohort.experiment.plugin_files import copied
from fedcohort.experiment.setting_checks import check_engine
from fedcohort.record import BeingWrittenError, Run, check_database_exists, check_own_checkpoints, is_being_written
from fedcohort.runs.run_data import key_of, on_data

__all__ = ["check_intact", "check_same_data", "check_same_files", "find_run", "on_device", "run_path", "with_plan"]

log = logging.getLogger("fedcohort")


def on_device(cell: Cell) -> Cell:
    """The cell; if its device is "auto", with the device that this machine has.

    Raises:
        UsageError: the engine has settings that do not fit the device.
    """
    device = cell.experiment.engine.device
    if cell.experiment.engine.name == "ray" and device not in ("cpu", "cuda"):
        raise UsageError(
            f"engine.device = {device!r}: not with engine.name = 'ray', whose hosts may differ; use 'cpu' or 'cuda'"
        )
    if device != "auto":
        return cell
    experiment = cell.experiment.with_engine(device=pick_device("auto"))
    check_engine(experiment.engine)
    return replace(cell, experiment=experiment)


def with_plan(cell: Cell, plan: str) -> Cell:
    """The cell; if its plan is "auto", with ``plan``."""
    if cell.experiment.engine.plan != "auto" or plan == "auto":
        return cell
    return replace(cell, experiment=cell.experiment.with_engine(plan=plan))


def find_run(cell: Cell, given: Given, runs: str | Path) -> Run | None:
    """The run directory of a cell, under any name; None if there is none yet.

    If the plan of the cell is "auto", a run under any plan belongs to it. If there are several, a finished run is preferred, and
    damaged ones are left alone. Finding a run changes nothing in its directory.

    Raises:
        UsageError: ``runs`` is not a directory, or all directories of the run are damaged.
    """
    folder = as_path(runs, "runs")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"runs = {folder}: is not a directory; give a directory that can be written")
    cell = on_data(on_device(cell), given)
    plans = ("threads", "stacked") if cell.experiment.engine.plan == "auto" else (cell.experiment.engine.plan,)
    keys = [key_of(with_plan(cell, plan).experiment, given) for plan in plans]
    paths = [path for key in keys for path in sorted(folder.glob(f"*-{key}"))]
    with_database = [path for path in paths if (path / "run.sqlite").exists()]
    if len(with_database) > 1:
        return _best(with_database)
    for path in paths:
        check_database_exists(path)
    return _opened(with_database[0]) if with_database else None


def _opened(path: Path) -> Run:
    """The run in a directory.

    Raises:
        UsageError: its database is damaged, or another process is changing it.
    """
    try:
        return Run(path, untouched=True)
    except UsageError:
        if is_being_written(path):
            raise BeingWrittenError(path) from None
        raise


def _best(paths: Sequence[Path]) -> Run:
    """The finished run of several directories of the same run, or else the first that is not damaged.

    Raises:
        UsageError: all of them are damaged.
    """
    good, problems = [], []
    for path in paths:
        try:
            run = _opened(path)
            check_intact(run)
            good.append(run)
        except UsageError as error:
            problems.append(error)
    if not good:
        raise problems[0]
    best = next((run for run in good if run.finished), good[0])
    for problem in problems:
        log.warning("%s; %s is the same run, and is used instead", problem, best.path)
    return best


def check_intact(run: Run) -> None:
    """Check a run before it is opened or resumed; nothing in its directory is changed.

    Raises:
        UsageError: something in it is damaged, or another process is changing it.
    """
    try:
        run.verify()
        if not run.finished:
            check_own_checkpoints(run.path)
            run.check_pages()
            run.checkpoint(quiet=True)  # another process may be replacing it; resuming warns, when it holds the lock
    except UsageError:
        if is_being_written(run.path):
            raise BeingWrittenError(run.path) from None
        raise


def run_path(cell: Cell, given: Given, runs: str | Path) -> Path:
    """The directory for a new run of this cell: ``<runs>/<name>-<label>-seed<seed>-<hash>``."""
    words = f"{cell.experiment.name}-{cell.label}-seed{cell.seed}"
    slug = re.sub(r"[^a-z0-9.]+", "-", words.lower()).strip("-")[:80]
    return Path(runs) / f"{slug}-{key_of(cell.experiment, given)}"


def check_same_data(record: Run, fingerprint: str, experiment: Experiment) -> None:
    """Refuse to resume or open a run if its data have changed since it began.

    Raises:
        UsageError: the fingerprint of the data differs from the one in the record.
    """
    begun = record.meta["data"]
    if begun != fingerprint:
        raise UsageError(
            f"{record.path}: began on data with fingerprint {begun[:12]}, but data.name = {experiment.data.name!r} now has "
            f"fingerprint {fingerprint[:12]}; restore the data, delete the directory to start again, or use another directory "
            "(in commands: --runs)"
        )


def check_same_files(record: Run, experiment: Experiment) -> None:
    """Refuse to resume a run if its copies of plug-in files are not the files of the experiment.

    Raises:
        UsageError: the run directory has copies of other files.
    """
    own = {hashlib.sha256(content).hexdigest() for content in copied(experiment.own_files())[1].values()}
    other = [
        name for name, digest in record.plug_in_files.items() if not any(content.startswith(digest) for content in own)
    ]
    if other:
        raise UsageError(
            f"{record.path}: was begun with plug-in files that are not those of the experiment: {', '.join(other)}; if you have read "
            "and trust them, add --trust-plugins (in Python: trust=True), or use another directory (in commands: --runs)"
        )
