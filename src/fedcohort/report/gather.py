"""Read runs for charts: what happened, round by round, whatever state they are in: going on, without a round yet, or finished."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.record import Portrait, Run
from fedcohort.report.look import short
from fedcohort.study.comparison import Comparison, Row
from fedcohort.study.side_by_side import side_by_side

if TYPE_CHECKING:
    import pandas as pd

    from fedcohort.experiment import Experiment

__all__ = ["Reading", "Story", "find_runs", "gather"]

PANELS = 12
"""Strategies with a panel of their own at most, in charts that draw each by itself."""

POINTS = 300
"""Points of a line at most; more rounds are averaged over blocks."""


class Once(Run):
    """A run whose tables are read once for everybody who asks."""

    def __init__(self, run: Run) -> None:
        vars(self).update(vars(run))  # its experiment may have been read

    @cached_property
    def rounds(self) -> "pd.DataFrame":
        """As of a run, and so are the others."""
        return super().rounds

    @cached_property
    def clients(self) -> "pd.DataFrame":
        """Who was selected."""
        return super().clients

    @cached_property
    def ledger(self) -> "pd.DataFrame":
        """Cost."""
        return super().ledger

    @cached_property
    def wall(self) -> "pd.DataFrame":
        """Seconds of the simulator."""
        return super().wall


class Reading:
    """One run, every table read once.

    Attributes:
        run: the run.
        label: its row, cut for charts.
    """

    def __init__(self, run: Run, label: str) -> None:
        self.run, self.label = run, label

    @cached_property
    def meta(self) -> dict[str, str]:
        """Label, versions, status."""
        return self.run.meta

    @cached_property
    def experiment(self) -> "Experiment":
        """The resolved description."""
        found: Experiment = self.run.described
        return found

    @cached_property
    def rounds(self) -> "pd.DataFrame":
        """One row a round."""
        return self.run.rounds

    @cached_property
    def clients(self) -> "pd.DataFrame":
        """One row for each selected client of each round."""
        return self._so_far(self.run.clients)

    @cached_property
    def ledger(self) -> "pd.DataFrame":
        """Cost."""
        return self._so_far(self.run.ledger)

    def _so_far(self, frame: "pd.DataFrame") -> "pd.DataFrame":
        """Without rounds that were played after :attr:`rounds` was read."""
        return frame[frame["round"] <= self.num_rounds]

    @cached_property
    def wall(self) -> "pd.DataFrame":
        """Seconds of the simulator."""
        return self.run.wall.loc[: self.num_rounds]

    @cached_property
    def portrait(self) -> Portrait:
        """Who the clients are."""
        return self.run.portrait

    @cached_property
    def client_accuracy(self) -> "pd.DataFrame":
        """Rounds × clients, if it was measured."""
        return self.run.client_accuracy.loc[: self.num_rounds]

    @property
    def num_clients(self) -> int:
        """m."""
        return int(self.experiment.federation.clients)

    @property
    def num_rounds(self) -> int:
        """Rounds played so far."""
        return len(self.rounds)

    @property
    def seed(self) -> int:
        """Of the run."""
        return int(self.meta["seed"])

    @cached_property
    def finished(self) -> bool:
        """Whether all rounds are done."""
        return self.meta["status"] == "finished"

    @cached_property
    def bytes(self) -> Values:
        """Bytes sent and received up to the end of each round [n]."""
        spent = (self.ledger["bytes_down"] + self.ledger["bytes_up"]).groupby(self.ledger["round"]).sum()
        return np.cumsum(spent.reindex(self.rounds.index, fill_value=0).to_numpy(np.float64))

    @cached_property
    def selected(self) -> np.ndarray:
        """Who was selected in which round, booleans [n, m]."""
        chosen = np.zeros((self.num_rounds, self.num_clients), dtype=bool)
        chosen[self.clients["round"].to_numpy(np.int64) - 1, self.clients["client"].to_numpy(np.int64)] = True
        return chosen

    @cached_property
    def admitted(self) -> np.ndarray:
        """Whose update entered the model in which round, booleans [n, m]."""
        used = np.zeros((self.num_rounds, self.num_clients), dtype=bool)
        frame = self.clients[self.clients["status"] == "admitted"]
        used[frame["round"].to_numpy(np.int64) - 1, frame["client"].to_numpy(np.int64)] = True
        return used

    @cached_property
    def per_round(self) -> int:
        """Clients of a round, on average."""
        return max(1, round(float(self.rounds["selected"].mean()))) if self.num_rounds else 1

    @cached_property
    def class_accuracy(self) -> Values:
        """Test accuracy of each class [n, K]; NaN where it was not measured."""
        rows = self.rounds["class_accuracy"].tolist()
        width = max((len(row) for row in rows), default=0)
        return np.array([row if row else [np.nan] * width for row in rows], dtype=np.float64).reshape(len(rows), width)

    @cached_property
    def classes(self) -> list[str]:
        """Names of the classes, cut for charts and numbered where the run does not know them."""
        number = self.class_accuracy.shape[1] or len(self.portrait.classes)
        names = self.portrait.classes or tuple(map(str, range(number)))
        return short(names, 16)

    def decisions(self, *, everybody: bool = False) -> "pd.DataFrame":
        """Round, client, selected, score and the terms of the selected, or of ``everybody`` who was considered."""
        import pandas as pd

        query = "SELECT round, client, selected, score, terms FROM decisions"
        rows = self.run.query(query + ("" if everybody else " WHERE selected = 1") + " ORDER BY round, position")
        frame = pd.DataFrame(rows, columns=["round", "client", "selected", "score", "terms"])
        terms = pd.DataFrame([json.loads(text) for text in frame.pop("terms")], index=frame.index, dtype=float)
        return self._so_far(pd.concat([frame.astype({"score": float, "selected": bool}), terms], axis=1))

    @property
    def considered(self) -> int:
        """Candidates on record, over all rounds."""
        return int(self.run.query("SELECT COUNT(*) FROM decisions")[0][0])


@dataclass(frozen=True, eq=False)
class Story:
    """Everything that a report tells of.

    Attributes:
        name: of the experiment, or of the folder.
        rows: strategies with their runs by seed, in order.
        labels: of the rows, cut for charts and distinct.
        readings: of each row, in the order of the seeds.
    """

    name: str
    rows: tuple[Row, ...]
    labels: list[str]
    readings: list[list[Reading]]

    @property
    def everything(self) -> list[Reading]:
        """All runs."""
        return [one for row in self.readings for one in row]

    @cached_property
    def comparison(self) -> Comparison | None:
        """The rows that have a round, side by side; None if there is none."""
        rows = []
        for row, readings in zip(self.rows, self.readings, strict=True):
            played = {one.seed: one.run for one in readings if one.num_rounds}
            if played:
                rows.append(Row(row.label, row.experiment, played))
        return Comparison(self.name, tuple(rows)) if rows else None

    @cached_property
    def first(self) -> list[Reading]:
        """Of each row with a round the run of its first seed: what is drawn client by client."""
        played = [[one for one in row if one.num_rounds] for row in self.readings]
        return [row[0] for row in played if row]

    @cached_property
    def played(self) -> list[tuple[str, list[Reading]]]:
        """Rows with a round: label, and those of their runs that have one."""
        found = [
            (label, [one for one in row if one.num_rounds])
            for label, row in zip(self.labels, self.readings, strict=True)
        ]
        return [(label, row) for label, row in found if row]

    @property
    def panels(self) -> list[tuple[str, Reading]]:
        """Label and first run of the rows that are drawn each by itself."""
        return [(label, one) for (label, _), one in zip(self.played, self.first, strict=True)][:PANELS]

    @property
    def unfinished(self) -> list[Reading]:
        """Runs that have rounds left to play."""
        return [one for one in self.everything if not one.finished]


def gather(runs: Sequence[Run], name: str | None = None) -> Story:
    """Read runs, finished or not; those that differ in nothing but the seed are one row."""
    name = name or ", ".join(dict.fromkeys(run.meta["name"] for run in runs)) or "runs"
    rows = side_by_side(map(Once, runs))
    labels = short([row.label for row in rows], 28 if len(rows) <= 8 else 40)
    readings = [
        [Reading(row.runs[seed], label) for seed in sorted(row.runs)] for label, row in zip(labels, rows, strict=True)
    ]
    return Story(name, rows, labels, readings)


# --- where the runs are -----------------------------------------------------------------------------------------------------


def find_runs(paths: Iterable[str | Path], folder: str | Path = "runs", settings: Sequence[str] = ()) -> list[Run]:
    """The runs that paths stand for; without paths, all runs of ``folder``.

    A path is a run directory, a folder of them, or an experiment file, whose runs are looked for in ``folder``.

    Raises:
        UsageError: a path is none of these, there is no run, or something in one was changed or damaged since it was written.
    """
    found: list[Run] = []
    for path in list(map(Path, paths)) or [Path(folder)]:
        if (path / "run.sqlite").is_file():
            found.append(Run(path))
        elif path.is_dir():
            inside = [inner for inner in path.iterdir() if (inner / "run.sqlite").is_file()]
            if not inside:
                raise UsageError(f"{path}: there is no run in it; `fedcohort run --runs {path}` makes one")
            found += map(Run, sorted(inside, key=_begun))
        elif path.is_file():
            found += _of_experiment(path, folder, settings)
        else:
            raise UsageError(
                f"{path}: no such run; give run directories, a folder of them, or an experiment "
                "file whose runs are in --runs"
            )
    found = list({run.path.resolve(): run for run in found}.values())
    for run in found:
        run.verify()
    return found


def _begun(path: Path) -> tuple[float, str]:
    """When a run was begun: rows are run in the order of the experiment."""
    file = path / "experiment.toml"
    return (file.stat().st_mtime if file.is_file() else 0.0), path.name


def _of_experiment(path: Path, folder: str | Path, settings: Sequence[str]) -> list[Run]:
    from fedcohort.experiment import load
    from fedcohort.runs.find import find_run
    from fedcohort.runs.given import Given

    cells: list[Any] = load(path, settings).cells()
    runs = [find_run(cell, Given(), folder) for cell in cells]
    found = [run for run in runs if run is not None]
    if not found:
        raise UsageError(
            f"{path}: none of its runs is in {folder}; make them with `fedcohort compare {path}`, or give --runs"
        )
    return found


def blocks(length: int, most: int) -> Indices:
    """The block of each of ``length`` things, so that there are ``most`` blocks at most, int64 [length]."""
    size = max(1, -(-length // most))
    return np.arange(length) // size
