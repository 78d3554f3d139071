"""Several runs at the same time: the same runs, with no more threads than cores."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import fedcohort
from fedcohort.cli.watch_runs import messages
from fedcohort.core.errors import UsageError
from fedcohort.experiment import Cell
from fedcohort.experiment.given_objects import Given
from fedcohort.runs import ending_processes, parallel_runs
from fedcohort.runs.ending_processes import SignalCount
from fedcohort.runs.play_run import Interrupted
from fedcohort.selection import Cohort, Selector
from tests.experiments import small
from tests.golden.test_same_bits import record


class Here:
    """Runs what it is given at once, in this process; in place of a pool of processes."""

    sizes: list[int] = []  # noqa: RUF012 - what the tests look at

    def __init__(self, jobs: int, *, initargs: tuple[Any, ...], **_: Any) -> None:
        Here.sizes.append(jobs)
        parallel_runs._receive(*initargs)

    def __enter__(self) -> "Here":
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def submit(self, work: Any, *values: Any) -> Any:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*values))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, **_: Any) -> None:
        pass


@pytest.mark.parametrize(("jobs", "quiet"), [(1, False), (2, False), (2, True)])
def test_warnings_name_their_run(
    jobs: int, quiet: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of several runs stood below each other without a word of which run they are about, also with --quiet."""
    import torch

    monkeypatch.setattr(parallel_runs, "ProcessPoolExecutor", Here)
    monkeypatch.setattr(parallel_runs, "as_completed", list)
    threads = torch.get_num_threads()
    nobody = small(
        rounds=2,
        seeds=2,
        federation={"clients": 4, "holdout": 0.2, "partition": "iid"},
        selection={"name": "conformal", "alpha_cp": 1e-4, "max_epochs": 1, "on_empty": "keep"},
    )
    with messages(quiet):
        fedcohort.compare(nobody, runs=tmp_path, jobs=jobs)
    torch.set_num_threads(threads)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("fedcohort: conformal, seed ")]
    starts = [f"fedcohort: conformal, seed {seed}: conformal participation: no client was admitted" for seed in (0, 1)]
    printed = [line[: len(starts[0])] for line in lines if "finished" not in line]
    times = 0 if quiet else jobs  # with two jobs, "processes" print here, and so does the command
    assert printed == [start for start in starts for _ in range(times)]


def test_cores_are_shared_and_finished_runs_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    threads = torch.get_num_threads()
    monkeypatch.setattr(parallel_runs, "ProcessPoolExecutor", Here)
    monkeypatch.setattr(parallel_runs, "cores", lambda: 8)
    Here.sizes = []
    experiment = small(rounds=2, seeds=2)
    fedcohort.compare(experiment, runs=tmp_path, jobs=3)
    assert Here.sizes == [2]  # two runs need no third process
    runs = sorted(tmp_path.iterdir())
    assert [fedcohort.Run(path).experiment.engine.workers for path in runs] == [4, 4]
    fedcohort.compare(experiment, runs=tmp_path, jobs=3)
    assert Here.sizes == [2]
    torch.set_num_threads(threads)


class Killed(Here):
    """A pool one of whose processes was killed."""

    def submit(self, *_: Any) -> Any:
        future: Future[None] = Future()
        future.set_exception(BrokenProcessPool("A process in the process pool was terminated abruptly"))
        return future


def test_a_killed_process_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_runs, "ProcessPoolExecutor", Killed)
    with pytest.raises(
        UsageError, match=r"^jobs = 2: a process was killed, perhaps for lack of memory; finished rounds"
    ):
        fedcohort.compare(small(rounds=2, seeds=2), runs=tmp_path, jobs=2)


def ends_its_process(cell: Cell, *_: Any) -> None:
    """In place of a run: seed 0 is done at once, and seed 1 ends its process while the other one is idle."""
    if cell.seed == 1:
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
@pytest.mark.timeout(60)
def test_the_other_processes_end_with_a_killed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_runs, "_play", ends_its_process)
    before = set(multiprocessing.active_children())  # of earlier tests
    with pytest.raises(UsageError, match="a process was killed"):
        parallel_runs.run_cells([(cell, Given()) for cell in small(rounds=2, seeds=2).cells()], tmp_path, 2)
    assert set(multiprocessing.active_children()) <= before


def ends_at_once(cell: Cell, *_: Any) -> None:
    """In place of a run: each of the two processes gets one."""
    time.sleep(1)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("victim", [0, 1])
def test_an_idle_process_that_is_killed_when_all_runs_are_finished_is_no_wait(
    victim: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the two idle processes holds the lock of the queue. If it was killed, the other one waited for the lock for ever."""
    monkeypatch.setattr(parallel_runs, "_play", ends_at_once)
    before = set(multiprocessing.active_children())  # of earlier tests
    finished: list[Cell] = []

    def kill_at_the_end(cell: Cell) -> None:
        finished.append(cell)
        if len(finished) == 2:
            time.sleep(1)  # until both are idle
            idle = sorted(set(multiprocessing.active_children()) - before, key=lambda process: process.pid or 0)
            idle[victim].kill()

    planned = [(cell, Given()) for cell in small(rounds=2, seeds=2).cells()]
    parallel_runs.run_cells(planned, tmp_path, 2, finished=kill_at_the_end)
    assert len(finished) == 2
    assert set(multiprocessing.active_children()) <= before


def is_not_interrupted(cell: Cell, number: int, runs: Path, *_: Any) -> None:
    """In place of a run: says that it has begun, and goes on for two seconds after a signal."""
    (runs / f"{cell.seed}").touch()
    end = time.monotonic() + 2
    while time.monotonic() < end:
        time.sleep(0.1)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
@pytest.mark.slow
@pytest.mark.timeout(60)
def test_an_interrupted_comparison_waits_for_its_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that goes on after Interrupted has no processes that still write to the runs."""

    def interrupt() -> None:
        while not list(tmp_path.iterdir()):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(parallel_runs, "_play", is_not_interrupted)
    watch = threading.Thread(target=interrupt, daemon=True)
    watch.start()
    before = set(multiprocessing.active_children())  # of earlier tests
    with pytest.raises(Interrupted, match="stopped; finished rounds of all runs are kept"):
        parallel_runs.run_cells([(cell, Given()) for cell in small(rounds=2, seeds=2).cells()], tmp_path, 2)
    assert set(multiprocessing.active_children()) <= before
    watch.join()


def ends_after_a_signal(cell: Cell, number: int, runs: Path, *_: Any) -> None:
    """In place of a run: says that it has begun, and ends a moment after a signal."""
    (runs / f"{cell.seed}").touch()
    while not parallel_runs._asked:
        time.sleep(0.01)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_second_signal_while_a_process_is_found_to_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of its handler came before Python had noted the end of the process, for which the command then waited for ever."""
    reaped: list[int] = []
    found_here = threading.Event()

    def interrupt() -> None:
        while len(list(tmp_path.iterdir())) < 2:
            time.sleep(0.01)
        monkeypatch.setattr(os, "waitpid", waitpid)
        os.kill(os.getpid(), signal.SIGINT)

    def waitpid(pid: int, options: int, real: Any = os.waitpid) -> tuple[int, int]:
        here = threading.current_thread() is threading.main_thread()
        if not here and not found_here.is_set():  # the thread of the pool could find the end first
            if options & os.WNOHANG:
                return 0, 0  # not ended
            found_here.wait(20)
        found: tuple[int, int] = real(pid, options)
        if found[0] and here:
            reaped.append(found[0])
            found_here.set()
            os.kill(os.getpid(), signal.SIGINT)
        return found

    monkeypatch.setattr(parallel_runs, "_play", ends_after_a_signal)
    threading.Thread(target=interrupt, daemon=True).start()
    before = set(multiprocessing.active_children())  # of earlier tests
    with pytest.raises(Interrupted, match="stopped; finished rounds of all runs are kept"):
        parallel_runs.run_cells([(cell, Given()) for cell in small(rounds=2, seeds=2).cells()], tmp_path, 2)
    assert reaped
    assert set(multiprocessing.active_children()) <= before


class Failing(Selector):
    """A strategy with an error."""

    def select(self, round: Any) -> Cohort:
        raise ValueError("no choice")


def test_no_run_begins_after_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes had been sent further runs, which they played to the end before the error was shown."""
    import torch

    monkeypatch.setattr(parallel_runs, "ProcessPoolExecutor", Here)
    monkeypatch.setattr(parallel_runs, "as_completed", list)
    threads = torch.get_num_threads()
    with pytest.raises(UsageError, match="no choice"):
        fedcohort.compare(small(rounds=2, seeds=3, selection=Failing()), runs=tmp_path, jobs=2)
    torch.set_num_threads(threads)
    assert len(list(tmp_path.iterdir())) == 1


class NoPool:
    """In place of a pool, of which only the processes are looked at."""

    def shutdown(self, **_: Any) -> None:
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.timeout(60)
def test_processes_that_have_not_begun_are_ended_at_once() -> None:
    """They would import everything first, and only then notice the signal, for which they wait; so they are killed."""
    context = multiprocessing.get_context("spawn")
    with parallel_runs._signals_wait():
        starting = context.Process(target=time.sleep, args=(50,))
        starting.start()
    ending_processes.stop(NoPool(), {starting}, signal.SIGTERM, context.Value("i", 0), SignalCount())  # type: ignore[arg-type]
    assert starting.exitcode == -signal.SIGKILL


def processes_of(session: int) -> list[str]:
    """The commands of all processes of a session, without those that have ended."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state = (process / "stat").read_text().rpartition(")")[2].split()
            if int(state[3]) == session and state[0] != "Z":
                found.append((process / "cmdline").read_text().replace("\0", " "))
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads the list of processes of Linux")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("delay", [0.0, 0.3, 1.0])
def test_no_process_outlives_an_interrupted_command(delay: float, tmp_path: Path) -> None:
    """Neither the runs, nor the process that watches over semaphores, which is still starting then."""
    command = [sys.executable, "-m", "fedcohort", "compare", "--jobs", "2", "-q", "--runs", str(tmp_path)]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True) as started:
        while len(processes_of(started.pid)) < 2 and started.poll() is None:
            time.sleep(0.005)
        time.sleep(delay)
        started.send_signal(signal.SIGTERM)
        started.wait()
        left = processes_of(started.pid)
        assert started.stderr is not None
        (line,) = started.stderr.read().splitlines()  # the first words are others if the runs had not begun
        assert line.startswith(("fedcohort: stopped; ", "fedcohort: interrupted; "))
        assert "the same command resumes" in line
    assert started.returncode == 128 + signal.SIGTERM
    assert not left


@pytest.mark.slow
def test_processes_make_the_same_runs(tmp_path: Path) -> None:
    experiment = small(rounds=2, seeds=2)
    one = fedcohort.compare(experiment, runs=tmp_path / "one")
    two = fedcohort.compare(experiment, runs=tmp_path / "two", jobs=2)
    for row, other in zip(one.rows, two.rows, strict=True):
        assert [record(run) for run in row.runs.values()] == [record(run) for run in other.runs.values()]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
def test_a_process_that_ends_before_its_signal_is_no_error() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()

    class Ended:
        pid = ended.pid
        looks = 0

        def is_alive(self) -> bool:
            self.looks += 1
            return self.looks == 1  # as it was a moment ago

    class Pool:
        def shutdown(self, **_: bool) -> None:
            pass

    process: Any = Ended()
    pool: Any = Pool()
    ending_processes.stop(pool, {process}, signal.SIGTERM, multiprocessing.Value("i", 1), SignalCount())
    assert process.looks == 2
