"""Flip bits of files of a run directory, overwrite, cut, empty and remove them; then read the run, and resume it.

Damage is named in one line with the file or the run, and then nothing in the directory is changed; or it does no harm, and the resumed
run has the bits of the undamaged one. There is never a traceback, and never another result.
"""

import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedcohort.record import Run
from tests.campaign.attack import Attack, hold
from tests.campaign.directories import contents, files, only_run, same_directory
from tests.campaign.federations import written
from tests.campaign.forked import Ended, command, one_line, play

__all__ = ["ByteFlips"]

OWN_STRATEGY = '''"""Clients in turn."""
import numpy as np
from fedcohort.selection import Cohort, Selector


class Turns(Selector):
    """Clients in turn."""

    def select(self, round):
        return Cohort(np.roll(round.available, -round.t)[: round.k])
'''


class ByteFlips(Attack):
    """Damaged files of finished and of interrupted runs."""

    name = "flips"
    did = "flips, overwritten blocks, cuts and removals of files of run directories, then read and resumed"
    unit = "damages"
    full = 3000
    least = 12
    small = (0, 1)

    def prepare(self) -> None:
        """Make the runs: finished, stopped after a round, and killed with a log; the first two with a strategy of the user's own."""
        own = self.folder / "own"
        own.mkdir()
        (own / "turns.py").write_text(OWN_STRATEGY)
        selection = {"selection": {"name": f"{own / 'turns.py'}:Turns"}}
        self._files = {
            "finished": written(self.folder / "finished", **selection),
            "stopped": written(self.folder / "stopped", **selection),
        }
        self._files["killed"] = written(
            self.folder / "killed", rounds=6, selection={"name": "ucb"}, algorithm={"name": "fedadam"}
        )
        self._expected: dict[str, dict[str, Any]] = {}
        self._names: dict[str, str] = {}
        self._measures: dict[str, str] = {}
        for state, file in self._files.items():
            play(file.parent, "run", file, "--quiet", "--runs", "whole")
            path = only_run(file.parent / "whole")
            self._expected[state], self._names[state] = contents(path), path.name
            damaged = file.parent / "runs"
            if state == "finished":
                shutil.copytree(file.parent / "whole", damaged)
            else:
                command(
                    file.parent,
                    "run",
                    file,
                    "--quiet",
                    "--runs",
                    "runs",
                    before=_end_after_two_rounds(state == "killed"),
                ).wait()
        hold(
            not Run(self._files["stopped"].parent / "runs" / self._names["stopped"]).finished, "the run has not stopped"
        )
        hold(
            (self._files["killed"].parent / "runs" / self._names["killed"] / "run.sqlite-wal").exists(),
            "the killed run has no log",
        )

    def case(self, number: int, draw: random.Random) -> int:
        """Damage one file of one run, read the run, and resume it."""
        state = ("finished", "stopped", "killed")[number % 3]
        shutil.copytree(self._files[state].parent / "runs", self.place / "runs")
        path = only_run(self.place / "runs")
        before_damage = files(path)
        damaged = draw.choice([name for name in before_damage if name != "run.lock"])
        what = damage(path / damaged, draw)
        before = files(path)
        try:
            measured = command(self.place, "measures", path.relative_to(self.place), "--json").wait()
            self._accept(measured, damaged)
            if (
                measured.code == 0 and state != "killed"
            ):  # a log that was cut holds fewer rounds, which are played again
                hold(
                    measured.out == self._measured(state),
                    "measures of the damaged run are other ones, without an error",
                )
            self._accept(command(self.place, "report", path, "-o", "page.html").wait(), damaged)
            hold(_same_or_log(files(path), before), "reading changed the directory")
            resumed = command(self.place, "run", self._files[state], "--quiet", "--runs", "runs").wait()
            self._accept(resumed, damaged)
            if resumed.code == 0:
                unused = {damaged} if state == "finished" and damaged.startswith("checkpoint") else set()
                same_directory(only_run(self.place / "runs"), self._expected[state], without=unused)
            else:
                hold(_same_or_log(files(path), before), "a refused resume changed the directory")
        except Exception as error:
            raise type(error)(f"{state} run, {damaged} {what}: {error}") from None
        return 1

    def _measured(self, state: str) -> str:
        """What ``measures`` prints about an undamaged run."""
        if state not in self._measures:
            runs = Path("runs") / self._names[state]
            self._measures[state] = play(self._files[state].parent, "measures", runs, "--json").out
        return self._measures[state]

    def _accept(self, ended: Ended, damaged: str) -> None:
        """Hold that a command succeeded, or named the damage: the file, or the directory that it is in."""
        if ended.code != 0:
            one_line(ended, longest=1000)
            names = (Path(damaged).name, *self._names.values())
            named = any(name.removesuffix("-wal").removesuffix("-shm") in ended.err for name in names)
            hold(named, f"names neither the file nor the run: {ended.err}")


def damage(file: Path, draw: random.Random) -> str:
    """Damage a file in one of seven ways; says which."""
    data = bytearray(file.read_bytes())
    place = draw.randrange(len(data)) if data else 0
    way = draw.choice(("flip", "flip", "flip", "block", "cut", "empty", "remove", "zeros", "append"))
    if way == "flip" and data:
        data[place] ^= 1 << draw.randrange(8)
    elif way == "block":
        data[place : place + 64] = draw.randbytes(len(data[place : place + 64]))
    elif way == "zeros":
        data[place : place + 512] = bytes(len(data[place : place + 512]))
    elif way == "cut":
        data = data[:place]
    elif way == "empty":
        data = bytearray()
    elif way == "append":
        data += draw.randbytes(draw.randint(1, 100))
    if way == "remove":
        file.unlink()
    else:
        file.write_bytes(data)
    return f"({way} at byte {place})"


def _same_or_log(found: dict[str, bytes], before: dict[str, bytes]) -> bool:
    """Whether a directory is unchanged; the index of the log and the lock are no part of what is kept."""
    passing = ("run.sqlite-shm", "run.lock")
    return {n: d for n, d in found.items() if n not in passing} == {n: d for n, d in before.items() if n not in passing}


def _end_after_two_rounds(killed: bool) -> Callable[[], None]:
    """What makes a run end after two rounds: by SIGKILL, which leaves a log, or by Ctrl-C."""

    def before() -> None:
        from fedcohort.record import Writer

        record, count = Writer.record, []

        def counted(self: Writer, *arguments: Any) -> None:
            record(self, *arguments)
            count.append(1)
            if len(count) == 2:
                os.kill(os.getpid(), signal.SIGKILL if killed else signal.SIGINT)

        Writer.record = counted  # type: ignore[method-assign,assignment]

    return before
