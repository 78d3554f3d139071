"""SIGTERM and SIGHUP end a command as Ctrl-C does: in good order, with one line, and without processes that stay behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

import fedcohort
from fedcohort.core.signals import SIGNALS, Signalled, handled, number_of, raise_signalled
from fedcohort.record import Run
from fedcohort.runs.play_run import Interrupted
from tests.experiments import UCB, small
from tests.golden.test_same_bits import record

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")

LONG = ["--set", "rounds=4000", "--set", "seeds=2"]
"""A run that no machine finishes before its signal."""


@pytest.fixture(autouse=True)
def hangups() -> Iterator[None]:
    """Tests that are run under ``nohup`` would ignore SIGHUP, and so would the runs."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_finishes_the_round(signum: int, tmp_path: Path) -> None:
    def progress(cell: Any, row: Any) -> None:
        if row.round == 2:
            os.kill(os.getpid(), signum)

    before = [signal.getsignal(each) for each in SIGNALS]
    with pytest.raises(
        Interrupted, match=r"^stopped after round 3 of 6; the same command resumes it \(.*\)$"
    ) as stopped:
        fedcohort.run(small(selection=UCB), runs=tmp_path / "a", progress=progress)
    assert stopped.value.signum == signum
    assert [signal.getsignal(each) for each in SIGNALS] == before
    assert record(fedcohort.run(small(selection=UCB), runs=tmp_path / "a")) == record(
        fedcohort.run(small(selection=UCB), runs=tmp_path / "b")
    )


def test_ctrl_c_ends_a_loop_that_goes_on_after_errors(tmp_path: Path) -> None:
    def progress(cell: Any, row: Any) -> None:
        if row.round == 2:
            os.kill(os.getpid(), signal.SIGINT)

    begun = []

    def loop() -> None:
        for k in (1, 2):
            begun.append(k)
            with suppress(Exception):
                fedcohort.run(small(selection={"name": "uniform", "k": k}), runs=tmp_path, progress=progress)

    with pytest.raises(KeyboardInterrupt, match="the same command resumes it"):
        loop()
    assert begun == [1]


def test_a_signal_in_the_last_round_finishes_the_run_and_starts_no_other(tmp_path: Path) -> None:
    def progress(cell: Any, row: Any) -> None:
        if row.round == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted, match="stopped after the last round of 3; the run is finished"):
        fedcohort.run_seeds(small(rounds=3, seeds=2), runs=tmp_path, progress=progress)
    [path] = tmp_path.iterdir()
    assert fedcohort.open_run(path).finished


def test_a_second_signal_interrupts_the_round(tmp_path: Path) -> None:
    def progress(cell: Any, row: Any) -> None:
        if row.round == 2:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)

    with handled(raise_signalled), pytest.raises(Signalled) as stopped:
        fedcohort.run(small(), runs=tmp_path, progress=progress)
    assert stopped.value.signum == signal.SIGTERM
    assert fedcohort.run(small(), runs=tmp_path).finished


def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    """As SIGHUP under ``nohup``."""

    def progress(cell: Any, row: Any) -> None:
        os.kill(os.getpid(), signal.SIGHUP)

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert fedcohort.run(small(rounds=2), runs=tmp_path, progress=progress).finished
    finally:
        signal.signal(signal.SIGHUP, before)


def start(*words: str, runs: Path) -> "subprocess.Popen[str]":
    """A command in a process group of its own."""
    command = [sys.executable, "-m", "fedcohort", *words, "-q", "--runs", str(runs)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def wait_until(happened: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    """Wait for something while a process runs; the tests' time limit ends a process that hangs."""
    while process.poll() is None and not happened():
        time.sleep(0.01)
    assert process.poll() is None, process.communicate()


def rounds_of(runs: Path) -> list[int]:
    return [Run(path.parent).last_round for path in sorted(runs.glob("*/run.sqlite"))]


def assert_all_ended(process: "subprocess.Popen[str]") -> None:
    """No process of the group is left, perhaps after a moment."""
    for _ in range(3000):
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    pytest.fail("a process is left")


def left_semaphores() -> set[str]:
    """Semaphores of multiprocessing that no process uses; other tests may run at the same time."""
    found, used = dict[Path, int](), set[int]()
    for path in Path("/dev/shm").glob("sem.mp-*"):
        with suppress(OSError):  # it is not there any more
            found[path] = path.stat().st_ino
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):  # the process has ended, or is another user's
            lines = [line.split() for line in maps.read_text(errors="replace").splitlines() if "/dev/shm/" in line]
            used |= {
                int(inode) for _, _, _, _, inode, *_ in lines
            }  # a semaphore is mapped under the name that it had at first
    return {path.name for path, inode in found.items() if inode not in used and path.exists()}


def assert_no_further_semaphores(before: set[str]) -> None:
    """No other semaphores than before are left, perhaps after a moment: other tests' processes that are killed leave some for one."""
    for _ in range(3000):
        if left_semaphores() <= before:
            return
        time.sleep(0.01)
    pytest.fail(f"semaphores are left: {left_semaphores() - before}")


@pytest.mark.parametrize("signum", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)])
def test_a_command_ends_with_one_line_and_the_number_of_the_signal(signum: int, tmp_path: Path) -> None:
    process = start("run", *LONG, runs=tmp_path)
    wait_until(lambda: any(rounds_of(tmp_path)), process)
    process.send_signal(signum)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 128 + signum
    assert out == ""
    [line] = err.splitlines()
    assert line.startswith("fedcohort: stopped after round ")
    assert "the same command resumes it" in line
    [path] = tmp_path.iterdir()
    fedcohort.open_run(path)


SIGNAL_AT_THE_END = """
import os, signal, sys
from fedcohort.cli import entry

real, calls = entry.handle, []

def handle(handler):
    calls.append(handler)
    if len(calls) == 2:
        os.kill(os.getpid(), signal.SIGTERM)
    return real(handler)

entry.handle = handle
sys.argv = ["fedcohort", "strategies", "nothing"]
entry.main()
"""


def test_an_interrupt_of_compiled_code_has_the_number_of_its_signal() -> None:
    """Ray raises its own KeyboardInterrupt in place of the error that the handler of the signal raised."""
    with pytest.raises(Signalled):
        raise_signalled(signal.SIGTERM)
    assert number_of(KeyboardInterrupt()) == signal.SIGTERM
    assert number_of(Signalled(signal.SIGINT)) == signal.SIGINT


def test_a_signal_while_a_command_ends_is_no_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", SIGNAL_AT_THE_END], capture_output=True, text=True, timeout=100)
    assert done.returncode == 128 + signal.SIGTERM
    [line] = done.stderr.splitlines()
    assert line.startswith("fedcohort: error: ")


SIGNAL_AT_AN_IMPORT = """
import os, sys
from fedcohort.cli import entry

signum, moment, ignored, *words = sys.argv[1:]

class Removed:
    def __del__(self):
        os.kill(os.getpid(), int(signum))

class Finder:
    def find_spec(self, name, *_):
        if name == moment:
            sys.meta_path.remove(self)
            Removed() if ignored == "ignored" else os.kill(os.getpid(), int(signum))

sys.meta_path.insert(0, Finder())
sys.argv = ["fedcohort", *words]
entry.main()
"""


SIGNAL_BEFORE_THE_SUBCOMMAND = """
import os, signal, sys
import click
from fedcohort.cli import entry

real = click.Group.make_context

def make_context(*arguments, **settings):
    os.kill(os.getpid(), signal.SIGTERM)
    return real(*arguments, **settings)

click.Group.make_context = make_context
sys.argv = ["fedcohort", "run"]
entry.main()
"""


def test_a_signal_while_the_arguments_are_read_is_named() -> None:
    """It ended with the exit code 1 and "Aborted!"."""
    done = subprocess.run([sys.executable, "-c", SIGNAL_BEFORE_THE_SUBCOMMAND], capture_output=True, text=True)
    assert done.returncode == 128 + signal.SIGTERM
    assert done.stderr == "fedcohort: interrupted\n"


@pytest.mark.slow
@pytest.mark.parametrize("ignored", ["raised", "ignored"])
@pytest.mark.parametrize(
    "moment",
    ["fedcohort.experiment", "torch", "fedcohort.runs.play_run", "fedcohort.rounds", "fedcohort.engines.local_engine"],
)
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_starting_ends_with_one_line(signum: int, moment: str, ignored: str, tmp_path: Path) -> None:
    """At several imports before the first round; also where Python ignores the error that a signal raises, as in destructors.

    Such a signal was lost: the command went on.
    """
    words = [str(int(signum)), moment, ignored, "run", "-q", *LONG, "--runs", str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", SIGNAL_AT_AN_IMPORT, *words], capture_output=True, text=True)
    assert done.returncode == 128 + signum, done.stderr
    [line] = done.stderr.splitlines()
    assert line == "fedcohort: interrupted; finished rounds are kept, and the same command resumes the run"


IGNORED_BEFORE_A_WAIT = """
import os, signal, sys, threading
from fedcohort.core.signals import handle, raise_again, raise_signalled

class Lost:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        sum(range(1000))

sys.unraisablehook = raise_again
handle(raise_signalled)
forever = threading.Event()
lost = Lost()
del lost
try:
    forever.wait(60)
except KeyboardInterrupt as stopped:
    sys.exit(stopped.signum)
"""


def test_a_signal_that_python_ignored_ends_a_wait_for_other_threads() -> None:
    """As that for the end of parallel runs: the signal that was sent again was first noticed when a run ended."""
    done = subprocess.run([sys.executable, "-c", IGNORED_BEFORE_A_WAIT], timeout=50)
    assert done.returncode == signal.SIGTERM


def test_other_errors_that_python_ignores_are_shown() -> None:
    script = SIGNAL_AT_AN_IMPORT.replace("os.kill(os.getpid(), int(signum))", "raise ValueError('lost')", 1)
    words = ["0", "fedcohort.experiment", "ignored", "run", "--set", "seeds=none"]
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert "Exception ignored in" in done.stderr
    assert "ValueError: lost" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signum", "group"),
    [
        (signal.SIGTERM, False),
        (signal.SIGHUP, True),
        (signal.SIGINT, True),
        (signal.SIGINT, False),
        (signal.SIGTERM, True),
    ],
)
def test_jobs_end_with_the_command(signum: int, group: bool, tmp_path: Path) -> None:
    """Whether the signal is sent to the command alone, or as a terminal does to all its processes."""
    before = left_semaphores()
    process = start("compare", "experiments/quickstart.toml", *LONG, "--jobs", "2", runs=tmp_path)
    wait_until(lambda: len(rounds_of(tmp_path)) == 2 and all(rounds_of(tmp_path)), process)
    os.killpg(process.pid, signum) if group else process.send_signal(signum)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 128 + signum, err
    [line] = err.splitlines()
    assert line.startswith("fedcohort: stopped; ")
    assert "the same command resumes them" in line
    assert_all_ended(process)
    assert_no_further_semaphores(before)
    assert len(list(tmp_path.iterdir())) == 2  # no further run was begun
    for path in tmp_path.iterdir():
        assert not fedcohort.open_run(path).finished


@pytest.mark.slow
def test_jobs_end_after_a_second_signal_at_once(tmp_path: Path) -> None:
    process = start("compare", "experiments/quickstart.toml", *LONG, "--jobs", "2", runs=tmp_path)
    wait_until(lambda: len(rounds_of(tmp_path)) == 2, process)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in err
    assert_all_ended(process)
    for path in tmp_path.iterdir():
        fedcohort.open_run(path)


@pytest.mark.slow
@pytest.mark.parametrize("started", [1, 2, 3])
def test_jobs_that_are_starting_end_with_the_command(started: int, tmp_path: Path) -> None:
    """Each process at its start: the one that watches over semaphores, and the two that play runs."""
    before = left_semaphores()
    process = start("compare", "experiments/quickstart.toml", *LONG, "--jobs", "2", runs=tmp_path)
    command = psutil.Process(process.pid)
    wait_until(lambda: len(command.children()) >= started, process)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert_all_ended(process)
    assert_no_further_semaphores(before)
    assert process.returncode == 128 + signal.SIGINT
    assert len(err.splitlines()) == 1, err


SIGNAL_TO_ANOTHER_THREAD = """
import multiprocessing.util, signal, sys, threading
from fedcohort.cli import entry

real, started = multiprocessing.util.spawnv_passfds, []

def send():
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    signal.raise_signal(signal.SIGINT)

def spawnv_passfds(*arguments):
    process = real(*arguments)
    started.append(process)
    if len(started) == 2:  # the first one watches over semaphores
        thread = threading.Thread(target=send)
        thread.start()
        thread.join()
    return process

multiprocessing.util.spawnv_passfds = spawnv_passfds
sys.argv = ["fedcohort", *sys.argv[1:]]
entry.main()
"""


def test_a_signal_that_another_thread_receives_while_a_job_is_started_ends_the_command(tmp_path: Path) -> None:
    """The process had not yet been told what to do, and waited for it for ever, and the command for the process."""
    words = ["compare", "experiments/quickstart.toml", *LONG, "--jobs", "2", "-q", "--runs", str(tmp_path)]
    command = [sys.executable, "-c", SIGNAL_TO_ANOTHER_THREAD, *words]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        _, err = process.communicate(timeout=120)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 128 + signal.SIGINT, err
    assert len(err.splitlines()) == 1, err


@pytest.mark.slow
def test_jobs_end_when_the_command_is_killed(tmp_path: Path) -> None:
    process = start("compare", "experiments/quickstart.toml", *LONG, "--jobs", "2", runs=tmp_path)
    wait_until(lambda: any(rounds_of(tmp_path)), process)
    process.kill()
    process.communicate(timeout=120)
    assert_all_ended(process)
