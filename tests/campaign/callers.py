"""Call the package in unusual ways: each time, the run has the same bits.

The callers are threads, asyncio, forks and pools of processes; interpreters under ``-O``, ``-I`` and ``-W error``; environments
without a home directory, and with read-only site-packages.
"""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.campaign.attack import Attack, Unavailable, hold
from tests.campaign.directories import contents, only_run, same_directory
from tests.campaign.federations import description, written
from tests.campaign.forked import play
from tests.campaign.worker import ROOT

__all__ = ["Callers"]

PRELUDE = """
import json, os, sys
from pathlib import Path
import fedcohort

EXPERIMENT = fedcohort.Experiment(**json.loads(os.environ["CASE_EXPERIMENT"]))

def play(name):
    return fedcohort.run(EXPERIMENT, runs=Path("callers") / name).digest()
"""

PROGRAMS = {
    "threads": """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool:
    print(len(set(pool.map(play, "abcd"))))
""",
    "one run from four threads": """
from concurrent.futures import ThreadPoolExecutor
def tried(_):
    try:
        return play("a")
    except fedcohort.UsageError as error:
        assert "is writing this run" in str(error) or "another" in str(error), error
with ThreadPoolExecutor(4) as pool:
    assert set(pool.map(tried, range(4))) - {None}
play("a")
""",
    "asyncio": """
import asyncio
async def main():
    inside = asyncio.to_thread(play, "a")
    waited = asyncio.create_task(asyncio.sleep(0))
    await asyncio.gather(inside, asyncio.to_thread(play, "b"), waited)
    play("c")
asyncio.run(main())
""",
    "a fork after a run": """
play("a")
pid = os.fork()
if not pid:
    play("b")
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
play("c")
""",
    "a pool of forked processes": """
import multiprocessing
if __name__ == "__main__":
    play("a")
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(play, "bcd")
""",
    "a pool of new processes": """
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(play, "ab")
""",
    "a daemon thread at the end": """
import threading
play("a")
thread = threading.Thread(target=play, args=("b",), daemon=True)
thread.start()
thread.join()
""",
    "inside torch's no_grad and inference_mode": """
import torch
with torch.no_grad():
    play("a")
with torch.inference_mode():
    play("b")
""",
    "inside torch's autocast": """
import torch
with torch.autocast("cpu", dtype=torch.bfloat16):
    play("a")
""",
    "float64 as torch's default": """
import torch
torch.set_default_dtype(torch.float64)
play("a")
""",
    "other global seeds and printing": """
import numpy, random, torch
numpy.random.seed(3); random.seed(3); torch.manual_seed(3)
numpy.set_printoptions(precision=2); torch.set_printoptions(precision=2)
play("a")
""",
}

COMMANDS: dict[str, dict[str, Any]] = {
    "-O": {"flags": ["-O"]},
    "-OO": {"flags": ["-OO"]},
    "-I": {"flags": ["-I"]},
    "-W error": {"flags": ["-W", "error"]},
    "-X dev": {"flags": ["-X", "dev"]},
    "-B -s -E": {"flags": ["-B", "-s", "-E"]},
    "no HOME": {"unset": ["HOME", "XDG_CACHE_HOME", "USER", "LOGNAME", "FEDCOHORT_CACHE"]},
    "HOME that cannot be written": {
        "unset": ["XDG_CACHE_HOME", "FEDCOHORT_CACHE"],
        "given": {"HOME": "/proc/1/nowhere"},
    },
    "empty PATH": {"given": {"PATH": ""}},
    "read-only site-packages": {"read_only": True},
}


class Callers(Attack):
    """Everything that calls the package, and how its interpreter was started."""

    name = "callers"
    did = "calls from threads, asyncio, forks and pools; `-O`, `-I`, `-W error`, no HOME, read-only site-packages"
    unit = "callers"
    full = 2 * (len(PROGRAMS) + len(COMMANDS))
    least = 2
    small = (0,)
    limit = 300.0

    def prepare(self) -> None:
        """Play the run once."""
        self._file = written(self.folder / "undisturbed", rounds=3, selection={"name": "ucb"})
        play(self._file.parent, "run", self._file, "--quiet", "--runs", "runs")
        path = only_run(self._file.parent / "runs")
        self._expected = contents(path)

    def case(self, number: int, draw: random.Random) -> int:
        """One caller; the second time round with two threads for every library."""
        callers = [*PROGRAMS, *COMMANDS]
        caller = callers[(number * 11) % len(callers)]
        threads = str(1 + number // len(callers) % 2)
        environment = os.environ | {"OMP_NUM_THREADS": threads, "FEDCOHORT_CACHE": str(self.place / "cache")}
        try:
            if caller in PROGRAMS:
                self._program(PROGRAMS[caller], environment)
            else:
                self._command(environment, **COMMANDS[caller])
            for folder in sorted((self.place / "callers").iterdir()):
                same_directory(only_run(folder), self._expected)
        except Exception as error:
            raise type(error)(f"{caller}: {error}") from None
        return 1

    def _program(self, text: str, environment: dict[str, str]) -> None:
        """Play a program of a user."""
        import json

        file = self.place / "program.py"
        file.write_text(PRELUDE + text)
        self._ended(
            [sys.executable, str(file)],
            environment | {"CASE_EXPERIMENT": json.dumps(description(rounds=3, selection={"name": "ucb"}))},
        )

    def _command(
        self, environment: dict[str, str], *, flags: list[str] | None = None, unset: list[str] | None = None,
        given: dict[str, str] | None = None, read_only: bool = False,
    ) -> None:  # fmt: skip
        """Play ``fedcohort run`` in an interpreter with these flags and settings."""
        environment |= given or {}
        for name in unset or []:
            environment.pop(name, None)
        source = ROOT / "src"
        if read_only:
            source = self._read_only()
            environment |= {"PYTHONPATH": str(source)}
        start = f"import sys; sys.path.insert(0, {str(source)!r}); from fedcohort.cli import main; main()"
        arguments = ["run", str(self._file), "--quiet", "--runs", "callers/command"]
        try:
            self._ended([sys.executable, *(flags or []), "-c", start, *arguments], environment)
            hold(
                not read_only or not list(source.rglob("__pycache__")), "files were written into the read-only packages"
            )
        finally:
            if read_only:
                self._writable(source)

    def _read_only(self) -> Path:
        """A copy of the package that nothing can be written to; for root, this takes a mount of its own."""
        source = self.place / "site-packages"
        shutil.copytree(ROOT / "src" / "fedcohort", source / "fedcohort", ignore=shutil.ignore_patterns("__pycache__"))
        if os.geteuid() == 0:
            try:
                subprocess.run(["mount", "--bind", str(source), str(source)], check=True, capture_output=True)
                subprocess.run(["mount", "-o", "remount,ro,bind", str(source)], check=True, capture_output=True)
            except (OSError, subprocess.CalledProcessError):
                raise Unavailable("root may write to everything, and may not mount here") from None
        for path in (source, *source.rglob("*")) if os.geteuid() else ():
            path.chmod(0o555 if path.is_dir() else 0o444)
        return source

    def _writable(self, source: Path) -> None:
        if os.geteuid() == 0:
            subprocess.run(["umount", "-l", str(source)], check=True)
        for path in (source, *source.rglob("*")):
            path.chmod(0o755)

    def _ended(self, command: list[str], environment: dict[str, str]) -> None:
        done = subprocess.run(command, cwd=self.place, env=environment, capture_output=True, text=True, timeout=240)
        hold(done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-2000:]}")
