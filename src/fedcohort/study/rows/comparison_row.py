"""One row of a comparison: the runs of one strategy under several seeds."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedcohort.experiment import Experiment
from fedcohort.experiment.time_unit import least_time
from fedcohort.record import Run

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Row", "about_times", "rounds_of"]


@dataclass(frozen=True)
class Row:
    """One row of a comparison: its label, its experiment, and its runs by seed: ``row.runs[5]`` is the run under seed 5."""

    label: str
    experiment: Experiment
    runs: Mapping[int, Run]

    @property
    def run(self) -> Run:
        """The run under the first of the row's seeds, whichever it is."""
        return self.runs[min(self.runs)]

    @property
    def on_wall_clock(self) -> bool:
        """Whether the times of the row are seconds of wall time, because its runs were played on real machines."""
        return all(run.clock == "wall" for run in self.runs.values())

    @property
    def clock(self) -> str:
        """The clock of the row's times: ``wall`` or ``simulated``, see :attr:`on_wall_clock`."""
        return "wall" if self.on_wall_clock else "simulated"

    def given(self, part: str) -> str:
        """The class of a ``selector`` or an ``algorithm`` that was given in Python; empty if the experiment names it."""
        return next(iter(self.runs.values())).meta.get(f"given {part}", "")


def rounds_of(rows: Iterable[Row]) -> "pd.DataFrame":
    """One row for each round of each run: ``label``, ``seed``, ``round``, then the columns of :attr:`fedcohort.Run.rounds`."""
    import pandas as pd

    frames = []
    for row in rows:
        for seed in sorted(row.runs):
            frame = row.runs[seed].rounds.reset_index()
            frame.insert(0, "label", row.label)
            frame.insert(1, "seed", seed)
            frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def about_times(rows: Sequence[Row]) -> str:
    """What the times of these rows mean, in words: simulated time, or seconds of wall time for runs on real machines."""
    wall = [row.label for row in rows if row.on_wall_clock]
    least = {least_time(row.experiment.systems) for row in rows if not row.on_wall_clock}
    unit = least.pop() if len(least) == 1 else ""
    fastest = f"the fastest possible client needs {unit.replace('per sample', 'per sample and round')}"
    simulated = f"Simulated time: {fastest if unit else 'in the unit of systems.latency'}."
    if not wall:
        return simulated
    if len(wall) == len(rows):
        return "Time: wall time of the rounds, in seconds, as the server measured it."
    return f"{simulated} Time of {' and '.join(map(repr, wall))}: wall time, in seconds."
