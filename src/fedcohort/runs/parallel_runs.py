"""Play several runs at the same time, each in a process of its own.

Each process gets the same number of threads, and together they use no more threads than there are cores. All processes map the decoded
data from files in the cache, so that the data are in memory once. Results do not depend on the number of processes.
"""

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

from fedcohort.core.cores import cores
from fedcohort.core.errors import UsageError
from fedcohort.core.signals import SIGNALS, Signalled, handled, raise_signalled
from fedcohort.experiment import Cell
from fedcohort.federation.own_data import Stored, shared, stored
from fedcohort.runs.find_run import find_run
from fedcohort.runs.given_objects import Given
from fedcohort.runs.play_run import Interrupted, run_cell
from fedcohort.runs.run_data import on_data

__all__ = ["run_cells"]

log = logging.getLogger("fedcohort")


def run_cells(
    cells: Sequence[Cell], data_dir: str | Path | None, runs: str | Path, jobs: int, *, trust: bool = False
) -> None:
    """Play the runs that are not finished, ``jobs`` at a time. After an error no run starts; it is raised when the others end.

    ``trust`` is as for :func:`fedcohort.runs.play_run.run_cell`.

    Raises:
        UsageError: a setting cannot be used, or a process was killed.
        Interrupted: Ctrl-C, SIGTERM or SIGHUP. The processes finish their rounds first; a second signal ends them at once.
    """
    given = Given(data_dir=data_dir)
    missing = _missing(cells, given, runs)
    if not missing:
        return
    if any(cell.experiment.engine.name == "ray" for cell in missing):
        raise UsageError(f"jobs = {jobs}: a cluster plays one run after another, each on all hosts; use jobs = 1")
    jobs = min(jobs, len(missing))
    loaded = _Loaded({key: stored(dataset) for key, dataset in given.loaded.items()}, given.said)
    threads = max(1, cores() // jobs)
    others = set(multiprocessing.active_children())
    if os.name == "posix":
        with (
            _signals_wait()
        ):  # the process that watches over semaphores blocks SIGHUP then, which would end it too early
            resource_tracker.ensure_running()  # ends with this process, or a moment later if it is still starting
    with (
        handled(raise_signalled),
        ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_begin_process) as pool,
    ):
        try:
            with _signals_wait():
                begun = {pool.submit(_play, cell, data_dir, loaded, runs, threads, trust): cell for cell in missing}
            for done in as_completed(begun):
                done.result()
                log.info("%s, seed %d: finished", begun[done].label, begun[done].seed)
        except BrokenProcessPool:
            for process in set(multiprocessing.active_children()) - others:  # an idle one would wait for work for ever
                process.kill()
            raise UsageError(
                f"jobs = {jobs}: a process was killed, perhaps for lack of memory; finished rounds of all runs are kept, and the same "
                f"command resumes them ({runs}); use fewer jobs if it happens again"
            ) from None
        except (Interrupted, KeyboardInterrupt) as stopped:
            signum = getattr(stopped, "signum", signal.SIGINT)
            _stop(pool, set(multiprocessing.active_children()) - others, signum)
            raise Interrupted(_STOPPED.format(folder=runs), signum) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _missing(cells: Sequence[Cell], given: Given, runs: str | Path) -> list[Cell]:
    """The cells that are not finished, with the settings that their data decide."""
    records = [(cell, find_run(cell, given, runs)) for cell in (on_data(cell, given) for cell in cells)]
    return [cell for cell, run in records if run is None or not run.finished]


_STOPPED = "stopped; finished rounds of all runs are kept, and the same command resumes them ({folder})"


def _stop(pool: ProcessPoolExecutor, processes: set[BaseProcess], signum: int) -> None:
    """Let the processes of a pool finish their rounds, and wait for their end; another signal ends them at once."""
    pool.shutdown(wait=False, cancel_futures=True)
    try:
        for process in processes:
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, signum if os.name != "nt" else signal.SIGTERM)
        _wait_for(processes)  # the pool no longer does, after the call above
    except KeyboardInterrupt:
        for process in processes:
            process.kill()
        _wait_for(processes)


def _wait_for(processes: set[BaseProcess]) -> None:
    """Return when these processes have ended."""
    for process in processes:
        process.join()


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Let signals wait while processes are started; in a new process, they wait until it is ready for them, see _begin_process."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_asked: list[int] = []
"""In a process of the pool: the signals that asked it to end. It plays no further run then."""


def _begin_process() -> None:
    """Prepare a process of the pool: signals are handled, and it ends with the process that started it."""
    for signum in SIGNALS:
        if signal.getsignal(signum) != signal.SIG_IGN:
            signal.signal(signum, lambda signum, _: _asked.append(signum))
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when the process that started it was killed; a round that is being played is not recorded then."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(128 + signal.SIGTERM)


class _Loaded(NamedTuple):
    """What the process that starts others has loaded and reported: data of users in the cache, and choices."""

    data: dict[tuple[str, str], Stored]
    said: set[str]

    def given(self, data_dir: str | Path | None) -> Given:
        """The same data in another process, mapped from the cache; what is no longer there is loaded again."""
        mapped = {key: shared(place) for key, place in self.data.items()}
        return Given(
            data_dir=data_dir,
            loaded={key: dataset for key, dataset in mapped.items() if dataset is not None},
            said=self.said,
        )


def _play(
    cell: Cell, data_dir: str | Path | None, loaded: _Loaded, runs: str | Path, threads: int, trust: bool
) -> None:
    """Play one run, with this number of threads unless the experiment sets one."""
    import torch

    torch.set_num_threads(1)
    if not cell.experiment.engine.workers:
        cell = replace(cell, experiment=cell.experiment.with_engine(workers=threads))
    with _unless_asked_to_end():
        run_cell(cell, loaded.given(data_dir), runs=runs, trust=trust)


@contextmanager
def _unless_asked_to_end() -> Iterator[None]:
    """A block that signals interrupt, and that does not begin after one.

    Raises:
        Interrupted: a signal was received.
    """
    try:
        with handled(raise_signalled):
            if _asked:
                raise Signalled(_asked[0])
            yield
    except (Interrupted, KeyboardInterrupt) as stopped:
        _asked.append(getattr(stopped, "signum", signal.SIGINT))
        raise Interrupted(str(stopped), _asked[0]) from None
