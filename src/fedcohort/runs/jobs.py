"""Several runs at the same time, each in a process of its own.

They share the cores: each gets the same number of threads, so that together they are no more than there are cores. Decoded data are
files in the cache that every process maps, and clients are rows of them, so that their pages are in memory once. A run's results
depend on none of this.
"""

import logging
import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

from fedcohort.experiment import Cell
from fedcohort.runs.find import find_run
from fedcohort.runs.given import Given
from fedcohort.runs.play import run_cell

__all__ = ["run_cells"]

log = logging.getLogger("fedcohort")


def run_cells(cells: Sequence[Cell], data_dir: str | Path | None, runs: str | Path, jobs: int) -> None:
    """Finish what is not finished, ``jobs`` at a time; the first error is raised when what runs beside it is done."""
    found = [(cell, find_run(cell, Given(data_dir=data_dir), runs)) for cell in cells]
    missing = [cell for cell, run in found if run is None or not run.finished]
    if not missing:
        return
    jobs = min(jobs, len(missing))
    threads = max(1, len(os.sched_getaffinity(0)) // jobs)
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        begun = {pool.submit(_one, cell, data_dir, runs, threads): cell for cell in missing}
        try:
            for done in as_completed(begun):
                done.result()
                log.info("%s, seed %d: finished", begun[done].label, begun[done].seed)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _one(cell: Cell, data_dir: str | Path | None, runs: str | Path, threads: int) -> None:
    """One run with so many threads, unless the experiment says how many."""
    import torch

    torch.set_num_threads(1)
    if not cell.experiment.engine.workers:
        cell = replace(cell, experiment=cell.experiment.with_overrides({"engine": {"workers": threads}}))
    run_cell(cell, Given(data_dir=data_dir), runs=runs)
