"""Commands in children of a process that has imported everything: a command costs a fork, not a new interpreter.

The parent must not have started threads of torch, because a forked child inherits locks, but not the threads that would release
them. The worker processes of the campaign (:mod:`tests.campaign.worker`) therefore train nothing themselves.
"""

import atexit
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.campaign.attack import Failed, hold

__all__ = ["Child", "Ended", "begin", "command", "import_everything", "one_line", "play"]


def import_everything() -> None:
    """Import what commands import when they run, so that children find it."""
    import importlib

    import fedcohort
    from tests.docs import pages  # noqa: F401 - tests is importable

    for file in sorted(Path(fedcohort.__file__).parent.rglob("*.py")):
        parts = file.relative_to(Path(fedcohort.__file__).parent).with_suffix("").parts
        module = ".".join(("fedcohort", *parts)).removesuffix(".__init__")
        if not {"__main__", "testing", "flower", "batch_size_process"} & set(parts):
            with suppress(ImportError):  # of an optional library
                importlib.import_module(module)
    for name in ("sklearn.datasets", "pandas", "safetensors.torch", "rich.console", "jinja2", "filelock", "torch.func"):
        importlib.import_module(name)


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit code (negative: the signal), and what it printed."""

    code: int
    out: str
    err: str

    @property
    def killed(self) -> bool:
        """Whether SIGKILL ended it."""
        return self.code == -signal.SIGKILL


@dataclass
class Child:
    """A forked process, which leads a process group of its own; ``out`` and ``err`` are the files of its output."""

    pid: int
    out: Path
    err: Path
    code: int | None = None

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code

    def wait(self, seconds: float = 100.0) -> Ended:
        """Wait for its end.

        Raises:
            Failed: it did not end in time; its whole group was killed.
        """
        end = time.monotonic() + seconds
        while self.poll() is None:
            if time.monotonic() > end:
                self.kill_group()
                raise Failed(
                    f"a command did not end within {seconds:g} s; {self.err.read_text('utf-8', 'replace')[-500:]}"
                )
            time.sleep(0.002)
        assert self.code is not None
        return Ended(self.code, *(file.read_text("utf-8", "replace") for file in (self.out, self.err)))

    def kill(self) -> None:
        """Send SIGKILL to this process only."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def kill_group(self) -> None:
        """Send SIGKILL to this process and all that it started, also if it has ended itself."""
        for _ in range(100):
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                break
            self.poll()
            time.sleep(0.005)


def begin(
    work: Callable[[], object],
    place: Path,
    *,
    name: str = "child",
    environment: Mapping[str, str | None] | None = None,
) -> Child:
    """Fork, and call ``work`` in the child, with ``place`` as working directory; a number that it returns is the exit code."""
    child = Child(0, place / f"{name}.out", place / f"{name}.err")
    child.out.write_bytes(b"")
    child.err.write_bytes(b"")
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        child.pid = pid
        return child
    code = 70
    try:
        os.setsid()
        os.chdir(place)
        for number, file in ((0, Path(os.devnull)), (1, child.out), (2, child.err)):
            target = os.open(file, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(target, number)
            os.close(target)
        sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))  # noqa: SIM115
        for key, value in (environment or {}).items():
            os.environ.pop(key, None)
            if value is not None:
                os.environ[key] = value
        code = _called(work)
    finally:
        os._exit(code)


def _called(work: Callable[[], object]) -> int:
    """Call ``work`` and end as an interpreter ends: join threads, call exit functions, write what is buffered."""
    try:
        result = work()
        code = result if isinstance(result, int) else 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def command(
    place: Path, *arguments: str | Path, name: str = "child", environment: Mapping[str, str | None] | None = None,
    before: Callable[[], object] | None = None,
) -> Child:  # fmt: skip
    """Begin ``fedcohort ARGUMENTS…`` in a child with the working directory ``place``; ``before`` is called in it first."""

    def work() -> None:
        from fedcohort.cli import main

        sys.argv = ["fedcohort", *map(str, arguments)]
        if before is not None:
            before()
        main()

    return begin(work, place, name=name, environment=environment)


def play(place: Path, *arguments: str | Path, seconds: float = 100.0) -> Ended:
    """Play a command to its end.

    Raises:
        Failed: it did not succeed.
    """
    ended = command(place, *arguments).wait(seconds)
    hold(ended.code == 0, f"fedcohort {' '.join(map(str, arguments))}: exit code {ended.code}: {ended.err[-1500:]}")
    return ended


def one_line(ended: Ended, *, longest: int = 300) -> None:
    """Hold that a command that failed said so as promised: exit code 2 and one line, without a traceback.

    Args:
        ended: how the command ended.
        longest: the longest permitted line, in characters.
    """
    lines = [line for line in ended.err.splitlines() if not line.startswith("fedcohort: warning:")]
    hold(ended.code == 2, f"exit code {ended.code} instead of 0 or 2: {ended.err[-1500:]}")
    hold(len(lines) == 1 and lines[0].startswith("fedcohort: error: "), f"not one line of error: {ended.err[-1500:]}")
    hold(len(lines[0]) <= longest, f"an error line of {len(lines[0])} characters: {lines[0][:200]}…")
