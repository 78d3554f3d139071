"""Kill commands at random moments, repeat them, and compare the finished directories with undisturbed ones.

* ``run`` of a pair of strategy and algorithm: killed one to three times, then repeated until it ends by itself.
* ``compare --jobs 2``: the kill hits the command, one of its two processes, or all of them at once.
* ``report``: the runs that it reads are unchanged, and the repeated command writes the same page.
* The creation of the cache of data: afterwards the same files are in it.
"""

import multiprocessing
import os
import random
import re
import shutil
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.campaign.attack import Attack, Failed, hold
from tests.campaign.directories import contents, difference, files, only_run, same_directory, same_runs
from tests.campaign.federations import PAIRS, written
from tests.campaign.forked import Child, Ended, command, play

__all__ = ["ROWS", "Kills", "fork_jobs"]

ROWS = [
    {"label": "UCB", "selection": {"name": "ucb", "k": 2}},
    {"label": "loss", "selection": {"name": "select_by_loss", "k": 2}},
]


class Kills(Attack):
    """SIGKILL at random moments."""

    name = "kills"
    did = f"`run` of {len(PAIRS)} strategy–algorithm pairs, `compare --jobs 2`, `report` and cache creation killed at random moments"
    unit = "kills"
    full = 1500
    least = 10
    small = (0,)

    def prepare(self) -> None:
        """Describe the runs; each command is played once without disturbance, and measured, before it is killed for the first time."""
        self._seconds: dict[str, float] = {}
        self._expected: dict[str, Any] = {}
        self._whole = self.folder / "undisturbed"
        self._pairs = list(PAIRS)
        self._compared_file = written(self._whole / "compare", rounds=3, variants=ROWS)

    @cached_property
    def _compared(self) -> dict[str, Any]:
        """The undisturbed runs of ``compare``."""
        self._time("compare", "compare", self._compared_file, "--quiet", "--jobs", "2", "--runs", "runs")
        return {path.name: contents(path) for path in (self._whole / "compare" / "runs").iterdir()}

    @cached_property
    def _page(self) -> str:
        """The undisturbed page about these runs."""
        assert self._compared
        self._time("compare", "report", "--runs", "runs", "-o", "page.html", name="report")
        return _undated(self._whole / "compare" / "page.html")

    @cached_property
    def _cache(self) -> dict[str, bytes]:
        """The undisturbed cache of their data."""
        self._time("cache", "data", "describe", self._compared_file, "--json", cache="cache")
        return _cached(self._whole / "cache" / "cache")

    def case(self, number: int, draw: random.Random) -> int:
        """Most cases kill ``run``; every tenth one each of the others."""
        attacks: dict[int, Callable[[random.Random], int]] = {7: self._compare, 8: self._report, 9: self._create_cache}
        attack = attacks.get(number % 10)
        return (
            attack(draw) if attack else self._run(self._pairs[(number - 3 * (number // 10)) % len(self._pairs)], draw)
        )

    def _run(self, pair: str, draw: random.Random) -> int:
        if pair not in self._expected:
            # every second pair writes several rounds together
            together = {"checkpoint_seconds": 0.03 * (self._pairs.index(pair) % 2)}
            file = written(self._whole / pair, measures=together, **PAIRS[pair])
            self._time(pair, "run", file, "--quiet", "--runs", "runs")
            self._expected[pair] = contents(only_run(self._whole / pair / "runs"))
        arguments = ("run", self._whole / pair / "experiment.toml", "--quiet", "--runs", "runs")
        kills = sum(self._killed(pair, draw, *arguments) for _ in range(draw.randint(1, 3)))
        play(self.place, *arguments)
        same_directory(only_run(self.place / "runs"), self._expected[pair])
        return kills

    def _compare(self, draw: random.Random) -> int:
        expected = self._compared
        arguments = ("compare", self._compared_file, "--quiet", "--jobs", "2", "--runs", "runs")
        kills = sum(self._killed("compare", draw, *arguments, jobs=True) for _ in range(draw.randint(1, 2)))
        self._finish(command(self.place, *arguments, before=fork_jobs))
        same_runs(self.place / "runs", expected)
        return kills

    def _report(self, draw: random.Random) -> int:
        runs, page = self.place / "runs", self._page
        shutil.copytree(self._whole / "compare" / "runs", runs)
        before = _without_locks(runs)
        arguments = ("report", "--runs", "runs", "-o", "page.html")
        kills = self._killed("report", draw, *arguments)
        left = difference(_without_locks(runs), before)
        hold(not left, f"report changed the runs: {left}")
        play(self.place, *arguments)
        hold(_undated(self.place / "page.html") == page, "the page after a kill is another one")
        return kills

    def _create_cache(self, draw: random.Random) -> int:
        expected = self._cache
        arguments = ("data", "describe", self._compared_file, "--json")
        kills = sum(self._killed("cache", draw, *arguments, cache="cache") for _ in range(draw.randint(1, 2)))
        self._finish(command(self.place, *arguments, environment=self._cache_in("cache")))
        left = difference(_cached(self.place / "cache"), expected)
        hold(not left, f"the cache: {left}")
        return kills

    def _time(self, place: str, *arguments: str | Path, name: str = "", cache: str = "") -> None:
        """Play a command in its folder of undisturbed runs, and note its time."""
        (self._whole / place).mkdir(parents=True, exist_ok=True)
        start = time.monotonic()
        before = fork_jobs if "--jobs" in arguments else None
        self._finish(command(self._whole / place, *arguments, before=before, environment=self._cache_in(cache)))
        self._seconds[name or place] = time.monotonic() - start

    def _killed(
        self, what: str, draw: random.Random, *arguments: str | Path, jobs: bool = False, cache: str = ""
    ) -> int:
        """Begin a command and kill it at a random moment; 1 if it was alive then, otherwise 0."""
        child = command(self.place, *arguments, before=fork_jobs if jobs else None, environment=self._cache_in(cache))
        delay, victim = draw.random() ** 0.8 * self._seconds[what], draw.choice(("command", "process", "all"))
        time.sleep(delay)
        processes = _processes_of(child.pid) if jobs and victim == "process" else []
        if processes:
            return _kill_a_process(child, draw.choice(processes))
        if jobs and victim == "all":
            child.kill_group()
        child.kill()
        ended = child.wait()
        child.kill_group()
        hold(ended.code in (0, -9), f"ended with {ended.code} before the kill: {ended.err[-1500:]}")
        return int(ended.killed)

    def _finish(self, child: Child) -> Ended:
        """Wait for a command that must succeed."""
        ended = child.wait()
        child.kill_group()
        hold(ended.code == 0, f"the undisturbed command: exit code {ended.code}: {ended.err[-1500:]}")
        return ended

    def _cache_in(self, cache: str) -> dict[str, str | None]:
        return {"FEDCOHORT_CACHE": cache} if cache else {}


def _kill_a_process(child: Child, process: int) -> int:
    """Kill one of the two processes of a command: the command must end by itself, in one line."""
    try:
        os.kill(process, 9)
    except ProcessLookupError:
        child.wait()
        return 0
    try:
        ended = child.wait(60)
    finally:
        child.kill_group()
    if "Traceback" in ended.err or ended.code not in (0, 1, 2):
        raise Failed(f"one of two processes was killed; exit code {ended.code}: {ended.err[-1500:]}")
    return 1


def _processes_of(parent: int) -> list[int]:
    """The processes that a process started; empty where the system does not tell."""
    try:
        return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    except OSError:
        return []


def fork_jobs() -> None:
    """Let ``--jobs`` fork its processes: new interpreters would take seconds each."""
    get = multiprocessing.get_context
    multiprocessing.get_context = lambda method=None: get("fork")  # type: ignore[assignment]


def _without_locks(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in files(folder).items() if not name.endswith(".lock")}


def _undated(page: Path) -> str:
    """The text of a page without the date in its last line."""
    return re.sub(r"Made by FedCohort on [^<]*", "", page.read_text("utf-8"))


def _cached(folder: Path) -> dict[str, bytes]:
    """The files of a cache, without locks and without dates."""
    return {name: data for name, data in _without_locks(folder).items() if not name.startswith("plans")}
