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
from ctypes import c_bool
from dataclasses import replace
from multiprocessing import resource_tracker
from multiprocessing.context import BaseContext
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
from fedcohort.runs.ending_processes import SignalCount, end_together, stop
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
    others, playing = set(multiprocessing.active_children()), set[BaseProcess]()
    if os.name == "posix":
        with (
            _signals_wait()
        ):  # the process that watches over semaphores blocks SIGHUP then, which would end it too early
            resource_tracker.ensure_running()
        Finalize(None, _end_tracker, exitpriority=-100)  # after those of semaphores, which have 0
    context = multiprocessing.get_context("spawn")
    sent, signals = _Process(parcel, context, quiet=_is_quiet()), SignalCount()
    with (
        handled(signals),
        ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin_process, initargs=(sent,)) as pool,
    ):
        try:
            with _signals_wait(), _without_main():
                begun = {pool.submit(_play, *task): task[0] for task in tasks}
            playing = set(multiprocessing.active_children()) - others
            for done in as_completed(begun):
                try:
                    done.result()
                except (BeingWrittenError, _NotBegunError):
                    continue
                log.info("%s, seed %d: finished", begun[done].label, begun[done].seed)
                finished(begun[done])
        except BrokenProcessPool:
            signals.held = True
            for process in set(multiprocessing.active_children()) - others:  # an idle one would wait for work for ever
                process.kill()
            raise UsageError(
                f"jobs = {jobs}: a process was killed, perhaps for lack of memory; finished rounds of all runs are kept, and the same "
                f"command resumes them ({runs}); use fewer jobs if it happens again"
            ) from None
        except KeyboardInterrupt as stopped:
            signals.held = True
            signum = getattr(stopped, "signum", signal.SIGINT)
            while processes := set(multiprocessing.active_children()) - others:  # one may have been starting meanwhile
                stop(pool, processes, signum, sent.begun, signals)
            raise Interrupted(_STOPPED.format(folder=runs), signum) from None
        finally:
            sent.over.value = True
            end_together(playing)
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


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Let signals wait while processes are started; in a new process, they wait until it is ready for them, see _begin_process.

    Another thread, such as one of a library, can receive a signal that this thread blocks. Python would then handle it here, between
    the start of a process and the message that it waits for.
    """
    received: list[int] = []
    with handled(lambda signum, _: received.append(signum)), _blocked_signals():
        yield
    if received:
        signal.raise_signal(received[0])


@contextmanager
def _blocked_signals() -> Iterator[None]:
    """Block signals in this thread and in the processes that it starts."""
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
        context: how processes are started.
        quiet: whether warnings are not printed.

    Attributes:
        begun: the number of processes that have begun.
        over: whether no further run begins; the pool has sent some to its processes already, and cannot cancel them.
    """

    def __init__(self, parcel: Parcel, context: BaseContext, *, quiet: bool = False) -> None:
        self.parcel, self.quiet, self.number = parcel, quiet, 0
        self.begun: Synchronized[int] = context.Value("i", 0)
        self.over = context.RawValue(c_bool, False)
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
    engine = cell.experiment.engine
    if not engine.workers:
        workers = max(1, threads // engine.threads_per_client)
        cell = replace(cell, experiment=cell.experiment.with_engine(workers=workers))
    with _unless_asked_to_end(), _last_after_an_error(process), _warnings_of(cell, quiet=process.quiet):
        run_cell(cell, given, runs=runs, trust=trust)


class _NotBegunError(Exception):
    """A run did not begin, because another one ended with an error."""


@contextmanager
def _last_after_an_error(process: _Process) -> Iterator[None]:
    """A block after whose errors no process begins another run.

    Raises:
        _NotBegunError: there was such an error in any process.
    """
    if process.over.value:
        raise _NotBegunError
    try:
        yield
    except BeingWrittenError:
        raise
    except BaseException:
        process.over.value = True
        raise


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
    except KeyboardInterrupt as stopped:
        _asked.append(getattr(stopped, "signum", signal.SIGINT))
        raise Interrupted(str(stopped), _asked[0]) from None
