"""Play several runs at the same time, each in a process of its own.

Each process gets the same number of threads, and together they use no more threads than there are cores. All processes map the decoded
data from files in the cache, so that the data are in memory once. Results do not depend on the number of processes.
"""

import logging
import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

from fedcohort.core.errors import UsageError
from fedcohort.experiment import Cell
from fedcohort.runs.find_run import find_run
from fedcohort.runs.given_objects import Given
from fedcohort.runs.play_run import run_cell

__all__ = ["run_cells"]

log = logging.getLogger("fedcohort")


def run_cells(
    cells: Sequence[Cell], data_dir: str | Path | None, runs: str | Path, jobs: int, *, trust: bool = False
) -> None:
    """Play the runs that are not finished, ``jobs`` at a time. After an error no run starts; it is raised when the others end.

    ``trust`` is as for :func:`fedcohort.runs.play_run.run_cell`.
    """
    records = [(cell, find_run(cell, Given(data_dir=data_dir), runs)) for cell in cells]
    missing = [cell for cell, run in records if run is None or not run.finished]
    if not missing:
        return
    if any(cell.experiment.engine.name == "ray" for cell in missing):
        raise UsageError(f"jobs = {jobs}: a cluster plays one run after another, each on all hosts; use jobs = 1")
    jobs = min(jobs, len(missing))
    threads = max(1, len(os.sched_getaffinity(0)) // jobs)
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        begun = {pool.submit(_play, cell, data_dir, runs, threads, trust): cell for cell in missing}
        try:
            for done in as_completed(begun):
                done.result()
                log.info("%s, seed %d: finished", begun[done].label, begun[done].seed)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _play(cell: Cell, data_dir: str | Path | None, runs: str | Path, threads: int, trust: bool) -> None:
    """Play one run, with this number of threads unless the experiment sets one."""
    import torch

    torch.set_num_threads(1)
    if not cell.experiment.engine.workers:
        cell = replace(cell, experiment=cell.experiment.with_engine(workers=threads))
    run_cell(cell, Given(data_dir=data_dir), runs=runs, trust=trust)
