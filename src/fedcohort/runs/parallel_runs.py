"""Play several runs at the same time, each in a process of its own.

Each process gets the same number of threads, and together they use no more threads than there are cores. All processes map the decoded
data from files in the cache, so that the data are in memory once. Results do not depend on the number of processes.
"""

import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from fedcohort.core.errors import UsageError
from fedcohort.core.processor import cores
from fedcohort.core.signals import SIGNALS, Signalled, handled, raise_signalled
from fedcohort.experiment import Cell
from fedcohort.experiment.given_objects import Given
from fedcohort.record import BeingWrittenError
from fedcohort.runs.find_run import find_run, on_device
from fedcohort.runs.named_warnings import logged_warnings, named_warnings
from fedcohort.runs.play_run import Interrupted, run_cell
from fedcohort.runs.process_objects import Parcel, packed, unpacked
from fedcohort.runs.run_data import on_data

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

__all__ = ["run_cells"]

log = logging.getLogger("fedcohort")


def run_cells(
    planned: Sequence[tuple[Cell, Given]],
    runs: str | Path,
    jobs: int,
    *,
    trust: bool = False,
    finished: Callable[[Cell], None] | None = None,
) -> None:
    """Play the runs that are not finished, ``jobs`` at a time, except those that another process is writing.

    After an error no run starts; it is raised when the others end.

    Args:
        planned: the runs, each with the objects from Python that it needs; these are sent to the processes.
        runs: folder of run directories.
        jobs: number of processes.
        trust: as for :func:`fedcohort.runs.play_run.run_cell`.
        finished: called in this process with the cell of every run that is finished.

    Raises:
        UsageError: a setting cannot be used, an object cannot be sent, or a process was killed.
        Interrupted: Ctrl-C, SIGTERM or SIGHUP. The processes finish their rounds first; a second signal ends them at once.
    """
    missing = _missing(planned, runs)
    if not missing:
        return
    if any(cell.experiment.engine.name == "ray" for cell, _ in missing):
        raise UsageError(f"jobs = {jobs}: a cluster plays one run after another, each on all hosts; use jobs = 1")
    jobs = min(jobs, len(missing))
    givens = list({id(given): given for _, given in missing}.values())
    number = {id(given): n for n, given in enumerate(givens)}
    parcel = packed(givens, (cell.experiment for cell, _ in missing), jobs)
    threads = max(1, cores() // jobs)
    tasks = [(cell, number[id(given)], runs, threads, trust) for cell, given in missing]
    _play_all(tasks, parcel, jobs, runs, (lambda _: None) if finished is None else finished)


_Task = tuple[Cell, int, str | Path, int, bool]
"""The arguments of :func:`_play`."""


def _play_all(
    tasks: Sequence[_Task], parcel: Parcel, jobs: int, runs: str | Path, finished: Callable[[Cell], None]
) -> None:
    """Play runs in a pool of processes; see :func:`run_cells`."""
    others = set(multiprocessing.active_children())
    if os.name == "posix":
        with (
            _signals_wait()
        ):  # the process that watches over semaphores blocks SIGHUP then, which would end it too early
            resource_tracker.ensure_running()
        Finalize(None, _end_tracker, exitpriority=-100)  # after those of semaphores, which have 0
    context = multiprocessing.get_context("spawn")
    sent = _Process(parcel, context.Value("i", 0), quiet=_is_quiet())
    with (
        handled(raise_signalled),
        ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin_process, initargs=(sent,)) as pool,
    ):
        try:
            with _signals_wait(), _without_main():
                begun = {pool.submit(_play, *task): task[0] for task in tasks}
            for done in as_completed(begun):
                try:
                    done.result()
                except BeingWrittenError:
                    continue
                log.info("%s, seed %d: finished", begun[done].label, begun[done].seed)
                finished(begun[done])
        except BrokenProcessPool:
            for process in set(multiprocessing.active_children()) - others:  # an idle one would wait for work for ever
                process.kill()
            raise UsageError(
                f"jobs = {jobs}: a process was killed, perhaps for lack of memory; finished rounds of all runs are kept, and the same "
                f"command resumes them ({runs}); use fewer jobs if it happens again"
            ) from None
        except (Interrupted, KeyboardInterrupt) as stopped:
            signum = getattr(stopped, "signum", signal.SIGINT)
            while processes := set(multiprocessing.active_children()) - others:  # one may have been starting meanwhile
                _stop(pool, processes, signum, sent.begun)
            raise Interrupted(_STOPPED.format(folder=runs), signum) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _missing(planned: Sequence[tuple[Cell, Given]], runs: str | Path) -> list[tuple[Cell, Given]]:
    """The runs that are not finished, with the settings that their data decide."""
    records = [(cell, given, find_run(cell, given, runs)) for cell, given in ((on_data(c, g), g) for c, g in planned)]
    return [(cell, given) for cell, given, run in records if run is None or not run.finished]


_STOPPED = "stopped; finished rounds of all runs are kept, and the same command resumes them ({folder})"


def _end_tracker() -> None:
    """When this program ends: wait for the end of the process that watches over semaphores; it would end a moment later by itself."""
    end = getattr(resource_tracker._resource_tracker, "_stop", None)
    if end is not None:
        with suppress(Exception):  # a part of Python that may change
            end()


def _stop(pool: ProcessPoolExecutor, processes: set[BaseProcess], signum: int, begun: "Synchronized[int]") -> None:
    """Let the processes of a pool finish their rounds, and wait for their end; another signal ends them at once.

    If none of them has ``begun`` to work, they are ended at once, too: they would go on with their imports before they end.
    """
    pool.shutdown(wait=False, cancel_futures=True)
    try:
        with begun.get_lock():  # no process begins meanwhile
            for process in processes if not begun.value else ():
                process.kill()
        for process in processes:
            if process.pid is not None and process.is_alive():
                with suppress(ProcessLookupError):  # it has ended meanwhile
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


@contextmanager
def _without_main() -> Iterator[None]:
    """Let new processes not run the script of the user again: what they need of it is sent to them.

    Otherwise, a script that compares outside of ``if __name__ == "__main__":`` would start processes that start processes.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


_asked: list[int] = []
"""In a process of the pool: the signals that asked it to end. It plays no further run then."""


class _Process:
    """What a process of the pool knows about its task.

    Args:
        parcel: the objects that its runs need.
        begun: the number of processes that have begun.
        quiet: whether warnings are not printed.
    """

    def __init__(self, parcel: Parcel, begun: "Synchronized[int]", *, quiet: bool = False) -> None:
        self.parcel, self.begun, self.quiet, self.number = parcel, begun, quiet, 0
        self._givens: list[Given] | None = None

    def take_number(self) -> None:
        """Number this process, from 0."""
        with self.begun.get_lock():
            self.number, self.begun.value = self.begun.value, self.begun.value + 1

    def given(self, number: int) -> Given:
        """The objects of a run.

        Raises:
            UsageError: an object cannot be read in this process.
        """
        if self._givens is None:
            self._givens = unpacked(self.parcel)
        return self._givens[number]


_process: list[_Process] = []
"""In a process of the pool: itself."""


def _receive(process: _Process) -> None:
    """Begin with what the process that started this one has sent."""
    process.take_number()
    _process[:] = [process]


def _begin_process(process: _Process) -> None:
    """Prepare a process of the pool: signals are handled, and it ends with the process that started it."""
    _receive(process)
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


def _play(cell: Cell, number: int, runs: str | Path, threads: int, trust: bool) -> None:
    """Play one run.

    Args:
        cell: the run.
        number: place of its objects among those that were sent.
        runs: folder of run directories.
        threads: number of threads, unless the experiment sets one.
        trust: see :func:`run_cells`.
    """
    import torch

    from fedcohort.engines.device import of_process

    torch.set_num_threads(1)
    process = _process[0]
    given = process.given(number)
    cell = on_device(cell)
    device = cell.experiment.engine.device
    if of_process(device, process.number) != device:
        cell = replace(cell, experiment=cell.experiment.with_engine(device=of_process(device, process.number)))
    if not cell.experiment.engine.workers:
        cell = replace(cell, experiment=cell.experiment.with_engine(workers=threads))
    with _unless_asked_to_end(), _warnings_of(cell, quiet=process.quiet):
        run_cell(cell, given, runs=runs, trust=trust)


def _is_quiet() -> bool:
    """Whether messages of the package are dropped, as with ``--quiet``."""
    return bool(log.handlers) and all(isinstance(handler, logging.NullHandler) for handler in log.handlers)


@contextmanager
def _warnings_of(cell: Cell, *, quiet: bool) -> Iterator[None]:
    """Warnings of the block begin with the name of the run, since several runs write to the same terminal; ``quiet`` drops them."""
    handler = logging.NullHandler() if quiet else logging.StreamHandler()
    handler.setFormatter(logging.Formatter("fedcohort: %(message)s"))
    log.addHandler(handler)
    try:
        with named_warnings(cell), logged_warnings():
            yield
    finally:
        log.removeHandler(handler)


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
