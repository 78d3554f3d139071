"""Start one run ten times at the same moment with different ``engine.workers``, and ``run`` beside ``compare --jobs 2``.

Every command ends with 0, or says in one line that another process is writing the run; afterwards the run is there and whole.
"""

import random
from typing import Any

from tests.campaign.attack import Attack, hold
from tests.campaign.directories import contents, only_run, same_directory, same_runs
from tests.campaign.federations import written
from tests.campaign.forked import Child, command, one_line, play
from tests.campaign.kills import ROWS, fork_jobs

__all__ = ["Starters"]

STARTERS = 10


class Starters(Attack):
    """Several commands for one run at the same time."""

    name = "starters"
    did = "ten starters of one run with other `engine.workers`; `run` beside `compare --jobs 2`"
    unit = "crowds"
    full = 60
    least = 3
    small = (0, 2)
    alone = True

    def prepare(self) -> None:
        """Play the runs once without disturbance."""
        undisturbed = self.folder / "undisturbed"
        self._file = written(undisturbed, rounds=4, variants=ROWS)
        play(undisturbed, "run", self._file, "--quiet", "--runs", "one")
        self._one: dict[str, Any] = contents(only_run(undisturbed / "one"))
        play(undisturbed, "compare", self._file, "--quiet", "--runs", "all")
        self._all = {path.name: contents(path) for path in (undisturbed / "all").iterdir()}

    def case(self, number: int, draw: random.Random) -> int:
        """Two of three cases start ten commands; the others start ``run`` and ``compare``."""
        if number % 3 < 2:
            workers = draw.sample(range(1, 17), STARTERS)
            self._settle(
                [self._run(f"starter-{i}", "--set", f"engine.workers={count}") for i, count in enumerate(workers)]
            )
            play(self.place, "run", self._file, "--quiet", "--runs", "runs")
            same_directory(only_run(self.place / "runs"), self._one)
        else:
            compare = ("compare", self._file, "--quiet", "--runs", "runs", "--jobs", "2")
            both = [command(self.place, *compare, name="compare", before=fork_jobs), self._run("run")]
            self._settle(both if draw.random() < 0.5 else both[::-1])
            play(self.place, "compare", self._file, "--quiet", "--runs", "runs")
            same_runs(self.place / "runs", self._all)
        return 1

    def _run(self, name: str, *settings: str) -> Child:
        return command(self.place, "run", self._file, "--quiet", "--runs", "runs", *settings, name=name)

    def _settle(self, children: list[Child]) -> None:
        """Wait for all: each succeeds, or says in one line what another process does; at least one succeeds."""
        succeeded = 0
        try:
            for child in children:
                ended = child.wait()
                succeeded += ended.code == 0
                if ended.code != 0:
                    one_line(ended)
                    hold("another process" in ended.err, f"says nothing of another process: {ended.err}")
        finally:
            for child in children:
                child.kill_group()
        hold(succeeded, "none of the commands succeeded")
