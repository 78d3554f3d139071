"""Cut the power at every moment of a run, with every cut of the database's log: the directory resumes to the same bits.

The states are those that :mod:`tests.campaign.power_losses` sees: the log cut between and inside all frames that are not synced, with
and without the files and names that are not synced.
"""

import pickle
import random
from pathlib import Path

from tests.campaign.attack import Attack, Failed, Unavailable, hold
from tests.campaign.directories import contents, only_run, same_directory
from tests.campaign.federations import PAIRS, written
from tests.campaign.forked import begin, command, play
from tests.campaign.power_losses import State, record_states

__all__ = ["LogCuts"]

CASES = 40
DURABILITY = {"UCB, FedAvg": 5.0, "utility per time, SCAFFOLD": 0.0}
"""Seconds between durable checkpoints of the two runs."""


class LogCuts(Attack):
    """Power losses, state by state."""

    name = "cuts"
    did = "power lost at every moment of two runs: every cut of the log, with and without unsynced files; then resumed"
    unit = "states"
    full = CASES
    least = 1
    small = (1000,)
    limit = 600.0

    def prepare(self) -> None:
        """Play the runs, once without disturbance and once watched.

        Raises:
            Unavailable: the system does not tell which file a descriptor belongs to.
        """
        if not Path("/proc/self/fd").exists():
            raise Unavailable("power losses are seen through /proc/self, which only Linux has")
        self._expected, self._states = {}, {}
        for pair, seconds in DURABILITY.items():
            measures = {"durable_seconds": seconds} if _has_durability() else {}
            file = written(self.folder / pair, rounds=4, measures=measures, **PAIRS[pair])
            play(file.parent, "run", file, "--quiet", "--runs", "runs")
            self._expected[pair] = contents(only_run(file.parent / "runs"))
            self._states[pair] = self._watched(file)
        total = sum(map(len, self._states.values()))
        self.figures |= {"states of two runs": f"{total:,}"}

    def _watched(self, file: Path) -> list[State]:
        """The states of a run."""
        place, kept = file.parent, file.parent / "states"
        (place / "watched").mkdir()
        arguments = ["run", str(file), "--quiet", "--runs", "watched"]
        ended = begin(lambda: record_states(place / "watched", arguments, kept), place).wait()
        hold(ended.code == 0, f"the watched run: {ended.err[-1500:]}")
        states: list[State] = pickle.loads(kept.read_bytes())
        return states

    def case(self, number: int, draw: random.Random) -> int:
        """Every 40th state of each run; beyond the campaign, eight drawn states."""
        if number >= CASES:
            for pair, states in self._states.items():
                for index in draw.sample(range(len(states)), 4):
                    self._resume(pair, index, states[index])
            return 8
        done = 0
        for pair, states in self._states.items():
            for index in range(number % CASES, len(states), CASES):
                self._resume(pair, index, states[index])
                done += 1
        return done

    def _resume(self, pair: str, index: int, state: State) -> None:
        """Put a state in place, and resume it."""
        folder = self.place / f"{pair}-{index}"
        for name, data in state.items():
            (folder / "runs" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "runs" / name).write_bytes(data)
        folder.mkdir(exist_ok=True)
        try:
            ended = command(folder, "run", self.folder / pair / "experiment.toml", "--quiet", "--runs", "runs").wait()
            hold(ended.code == 0, f"exit code {ended.code}: {ended.err[-1500:]}")
            path = only_run(folder / "runs")
            # of a finished run, the removal of its last but one checkpoint may be lost; nothing refers to that file any more
            old = {f"checkpoint/{file.name}" for file in (path / "checkpoint").glob("round-*")} - self._expected[
                pair
            ].keys()
            same_directory(path, self._expected[pair], without=old)
        except Failed as failure:
            sizes = {Path(name).name: len(data) for name, data in state.items()}
            raise Failed(f"{pair}, state {index} of {len(self._states[pair])}, files {sizes}: {failure}") from None


def _has_durability() -> bool:
    from fedcohort.experiment.sections import Measures

    return "durable_seconds" in Measures.model_fields
