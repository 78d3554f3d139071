"""Several strategies on the same federations: run what is missing, then say who did better, by how much, and at what cost."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcohort import measures
from fedcohort.core.arrays import Values
from fedcohort.core.errors import UsageError
from fedcohort.core.plugins import short_name
from fedcohort.experiment import Cell, Experiment
from fedcohort.record import Run, open_run
from fedcohort.runs.given import Given
from fedcohort.runs.play import Progress, run_cell

if TYPE_CHECKING:
    import pandas as pd

    from fedcohort.algorithms import Algorithm
    from fedcohort.selection import Selector

__all__ = ["Comparison", "Result", "Row", "Target", "compare", "read", "result", "side_by_side"]


@dataclass(frozen=True)
class Result:
    """What one run came to. Accuracies are fractions on the test set unless they say otherwise; NaN is unknown.

    Attributes:
        seed: its seed.
        path: its directory.
        rounds: rounds played.
        accuracy: after the last round.
        best_accuracy: the highest of all rounds.
        early_stop_accuracy: in the round with the best validation accuracy.
        local_accuracy: mean over the clients of the last round of their training accuracy.
        simulated_time: of all rounds; the unit is the least time for one sample of a round's work.
        jain: Jain's index of how often each client was selected.
        jain_random: its mean under uniform selection of as many clients.
        bytes: sent and received.
        client_passes: forward passes over a client's training data, summed over clients.
        wall_seconds: of the simulator, all rounds.
        updates: clients selected, summed over rounds.
        diverged: of them, those whose update had NaN or infinite entries and was dropped.
    """

    seed: int
    path: Path
    rounds: int
    accuracy: float
    best_accuracy: float
    early_stop_accuracy: float
    local_accuracy: float
    simulated_time: float
    jain: float
    jain_random: float
    bytes: float
    client_passes: float
    wall_seconds: float
    updates: int
    diverged: int

    def to_json(self) -> dict[str, Any]:
        """Plain values; what is unknown is None."""
        return {key: _plain(value) for key, value in asdict(self).items()}


def result(run: Run) -> Result:
    """Read off a run what it came to.

    Raises:
        UsageError: it has no finished round, or its database is damaged.
    """
    experiment, rounds, ledger = run.described, run.rounds, run.ledger
    if rounds.empty:
        raise UsageError(f"{run.path}: has no finished round yet; start it again with `fedcohort run`")
    tested, validated = _array(rounds["test_accuracy"]), _array(rounds["validation_accuracy"])
    local = _array(rounds["local_accuracy"])
    clients = experiment.federation.clients
    selected = run.clients
    counts = np.bincount(selected["client"].to_numpy(np.int64), minlength=clients)
    per_round = max(1, round(float(rounds["selected"].mean())))
    return Result(
        seed=experiment.seed,
        path=run.path,
        rounds=len(rounds),
        accuracy=measures.final_accuracy(tested),
        best_accuracy=measures.best_accuracy(tested),
        early_stop_accuracy=(
            measures.early_stop(validated, tested, experiment.measures.patience).accuracy
            if np.isfinite(validated).any()
            else math.nan
        ),
        local_accuracy=measures.final_accuracy(local) if np.isfinite(local).any() else math.nan,
        simulated_time=float(rounds["simulated_time"].iloc[-1]),
        jain=measures.jain(counts),
        jain_random=measures.jain_random(clients, per_round, len(rounds)).mean,
        bytes=float(ledger["bytes_down"].sum() + ledger["bytes_up"].sum()),
        client_passes=float(ledger["passes"].sum()),
        wall_seconds=float(run.wall["total"].sum()),
        updates=len(selected),
        diverged=int((selected["status"] == "diverged").sum()),
    )


@dataclass(frozen=True)
class Row:
    """One strategy of a comparison: its label, what it ran, and its runs by seed."""

    label: str
    experiment: Experiment
    runs: Mapping[int, Run]


@dataclass(frozen=True)
class Target:
    """The test accuracy that rounds and time are counted to, and how it came about."""

    accuracy: float
    chosen: str


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Rows of finished runs, side by side. Printing it shows the table; ``.table`` and ``.rounds`` are DataFrames.

    Attributes:
        name: of the experiment.
        rows: one a strategy, in the order of the file; the first is the one that differences are taken to.
    """

    name: str
    rows: tuple[Row, ...]

    @cached_property
    def results(self) -> dict[str, list[Result]]:
        """What every run came to, by label, in the order of the seeds."""
        return {row.label: [result(row.runs[seed]) for seed in sorted(row.runs)] for row in self.rows}

    @cached_property
    def target(self) -> Target:
        """``measures.target_accuracy`` of the first row.

        Without one, the lowest of the rows' mean best test accuracy, rounded down to two decimals: the highest round number that every
        row reaches on average. A row in which an update diverged has no say in it. A run below its row's mean may miss it, which
        ``reached`` tells.
        """
        given = self.rows[0].experiment.measures.target_accuracy
        if given is not None:
            return Target(given, "measures.target_accuracy")
        whole = [runs for runs in self.results.values() if not any(run.diverged for run in runs)]
        lowest = min(float(np.mean([run.best_accuracy for run in runs])) for runs in whole or self.results.values())
        without = " (rows with diverged updates aside)" if 0 < len(whole) < len(self.results) else ""
        return Target(
            math.floor(round(lowest * 100, 6)) / 100,
            f"the lowest of the rows' mean best test accuracy{without}, rounded down",
        )

    @property
    def seeds(self) -> list[int]:
        """All seeds of all rows, ascending."""
        return sorted({seed for row in self.rows for seed in row.runs})

    @property
    def place(self) -> str:
        """Where the runs lie, in words."""
        folders = sorted({str(run.path.parent) for row in self.rows for run in row.runs.values()})
        return f"Runs: {', '.join(folders)}"

    @cached_property
    def table(self) -> "pd.DataFrame":
        """One row a strategy; means are over its seeds, and NaN is unknown.

        ``label``, ``selection``, ``algorithm``, ``seeds`` (how many); ``accuracy``, ``accuracy_sd``, ``best_accuracy``,
        ``early_stop_accuracy``, ``local_accuracy``: as in :class:`Result`; ``difference``, ``difference_low``,
        ``difference_high``: mean of the accuracy minus the first row's over the seeds that both have, with its paired 95 %
        interval; ``target_accuracy``, ``rounds_to_target``, ``time_to_target`` (simulated), ``bytes_to_target``: means over the
        ``reached`` seeds that reached the target; ``jain``, ``jain_random``, ``bytes``, ``client_passes``, ``simulated_time``,
        ``wall_seconds``, ``updates``, ``diverged``: as in :class:`Result`.
        """
        import pandas as pd

        return pd.DataFrame([self._summary(row) for row in self.rows])

    @cached_property
    def rounds(self) -> "pd.DataFrame":
        """One row for each round of each run: ``label``, ``seed``, ``round``, then the columns of :attr:`fedcohort.Run.rounds`."""
        import pandas as pd

        frames = []
        for row in self.rows:
            for seed in sorted(row.runs):
                frame = row.runs[seed].rounds.reset_index()
                frame.insert(0, "label", row.label)
                frame.insert(1, "seed", seed)
                frames.append(frame)
        return pd.concat(frames, ignore_index=True)

    def to_json(self) -> dict[str, Any]:
        """The table, the target and every run's result as plain values; what is unknown is None."""
        summaries = [
            {str(key): _plain(value) for key, value in record.items()} for record in self.table.to_dict("records")
        ]
        for summary, row in zip(summaries, self.rows, strict=True):
            summary["runs"] = [one.to_json() for one in self.results[row.label]]
        return {"name": self.name, "seeds": self.seeds, "target": asdict(self.target), "rows": summaries}

    def _summary(self, row: Row) -> dict[str, Any]:
        results = self.results[row.label]
        accuracy, sd = measures.mean_sd([one.accuracy for one in results])
        values = {name: float(np.mean([getattr(one, name) for one in results])) for name in _AVERAGED}
        return {
            "label": row.label,
            "selection": _named(row, "selector") or short_name(row.experiment.selection.name),
            "algorithm": _named(row, "algorithm") or short_name(row.experiment.algorithm.name),
            "seeds": len(results),
            "accuracy": accuracy,
            "accuracy_sd": sd,
            **{name: values.pop(name) for name in ("best_accuracy", "early_stop_accuracy", "local_accuracy")},
            **self._difference(results),
            **self._to_target(row),
            **values,
        }

    def _difference(self, results: Sequence[Result]) -> dict[str, float]:
        first = {one.seed: one.accuracy for one in self.results[self.rows[0].label]}
        pairs = [(one.accuracy, first[one.seed]) for one in results if one.seed in first]
        if not pairs:
            return dict.fromkeys(("difference", "difference_low", "difference_high"), math.nan)
        own, reference = zip(*pairs, strict=True)
        mean, low, high = measures.paired_interval(own, reference)
        return {"difference": mean, "difference_low": low, "difference_high": high}

    def _to_target(self, row: Row) -> dict[str, float]:
        target, reached = self.target.accuracy, []
        for run in row.runs.values():
            rounds, ledger = run.rounds, run.ledger
            tested = _array(rounds["test_accuracy"])
            cost = (ledger["bytes_down"] + ledger["bytes_up"]).groupby(ledger["round"]).sum()
            spent = cost.reindex(rounds.index, fill_value=0)
            needed = (
                measures.rounds_to(tested, target),
                measures.time_to(tested, _array(rounds["simulated_time"]), target),
                measures.bytes_to(tested, _array(spent), target),
            )
            if math.isfinite(needed[0]):
                reached.append(needed)
        means = np.mean(reached, axis=0).tolist() if reached else [math.nan] * 3
        names = ("rounds_to_target", "time_to_target", "bytes_to_target")
        return {"target_accuracy": target, **dict(zip(names, means, strict=True)), "reached": len(reached)}


_AVERAGED = tuple(field.name for field in fields(Result) if field.name not in ("seed", "path", "rounds", "accuracy"))


def compare(
    experiment: Experiment,
    given: Given,
    *,
    selector: "Selector | Mapping[str, Selector] | None" = None,
    algorithm: "Algorithm | Mapping[str, Algorithm] | None" = None,
    runs: str | Path = "runs",
    progress: Progress | None = None,
    jobs: int = 1,
) -> Comparison:
    """Run every row of an experiment under every seed, as far as that was not done before; see :func:`fedcohort.compare`."""
    rows = _given_rows(experiment, given, selector, algorithm)
    if jobs > 1:
        from fedcohort.runs.jobs import run_cells

        if any(row.given.names() for row in rows):
            raise UsageError(
                f"jobs = {jobs}: objects from Python stay in their process; use 1, or names in the experiment"
            )
        run_cells(experiment.cells(), given.data_dir, runs, jobs)
    compared = []
    for row in rows:
        _check_pairing(row)
    for row in rows:
        cells = [Cell(row.label, seed, row.experiment.single(seed)) for seed in experiment.all_seeds]
        played = {cell.seed: run_cell(cell, row.given, runs=runs, progress=progress) for cell in cells}
        compared.append(Row(row.label, row.experiment, played))
    return Comparison(experiment.name, tuple(compared))


@dataclass(frozen=True)
class _GivenRow:
    """A row of an experiment, and the objects from Python that take part in it."""

    label: str
    experiment: Experiment
    given: Given


def _check_pairing(row: _GivenRow) -> None:
    """Refuse a strategy and an algorithm that do not go together, before anything is run."""
    from fedcohort.experiment.pairings import check

    selector, algorithm = row.given.selector, row.given.algorithm
    try:
        check(
            row.experiment.selection.build() if selector is None else selector,
            row.experiment.algorithm.build() if algorithm is None else algorithm,
        )
    except UsageError as error:
        raise UsageError(f"row {row.label!r}: {error}") from None


def _given_rows(
    experiment: Experiment,
    given: Given,
    selector: "Selector | Mapping[str, Selector] | None",
    algorithm: "Algorithm | Mapping[str, Algorithm] | None",
) -> list[_GivenRow]:
    """The rows of an experiment with the objects that each plays with, then the rows that dictionaries of objects add."""
    one_selector = None if isinstance(selector, Mapping) else selector
    one_algorithm = None if isinstance(algorithm, Mapping) else algorithm
    points = math.prod(len(choices) for choices in experiment.sweep.values())
    rows = []
    for i, (label, row) in enumerate(experiment.rows()):
        own = experiment.variants[i // points - 1].overrides if i >= points else {}  # the base comes first
        taken = replace(
            given,
            selector=None if "selection" in own else one_selector,
            algorithm=None if "algorithm" in own else one_algorithm,
        )
        name = type(one_selector).__name__ if taken.selector is not None and i < points else ""
        rows.append(_GivenRow(label.replace(experiment.label, name, 1) if name else label, row, taken))
    base = experiment.base
    if isinstance(selector, Mapping):
        added = replace(given, algorithm=one_algorithm)
        rows += [_GivenRow(label, base, replace(added, selector=one)) for label, one in selector.items()]
    if isinstance(algorithm, Mapping):
        added = replace(given, selector=one_selector)
        rows += [_GivenRow(label, base, replace(added, algorithm=one)) for label, one in algorithm.items()]
    labels = [row.label for row in rows]
    for label in labels:
        if labels.count(label) > 1:
            raise UsageError(f"label {label!r}: two rows have it; give every row of the comparison a label of its own")
    return rows


def read(paths: Iterable[str | Path]) -> Comparison:
    """Set finished run directories side by side; runs that differ in nothing but the seed are one row. Nothing is run.

    Raises:
        UsageError: a directory is not a run or not finished, or two are the same run.
    """
    runs = []
    for path in paths:
        run = open_run(path)
        if not run.finished:
            how = (
                f"from Python, with the same {run.meta['given']}"
                if run.meta["given"]
                else f"with `fedcohort run {run.path / 'experiment.toml'} --runs {run.path.parent}`"
            )
            raise UsageError(
                f"{run.path}: stopped after round {run.last_round} of {run.experiment.rounds}; finish it first, {how}"
            )
        runs.append(run)
    return Comparison("runs", side_by_side(runs))


def side_by_side(runs: Iterable[Run]) -> tuple[Row, ...]:
    """Rows of runs, in order of appearance: those that differ in nothing but the seed are one row.

    Raises:
        UsageError: two are the same run, or there is none.
    """
    by_row: dict[tuple[str, str], dict[int, Run]] = {}
    for run in runs:
        meta, seed = run.meta, run.described.seed
        before = by_row.setdefault((meta["label"], meta["row"]), {}).setdefault(seed, run)
        if before is not run:
            raise UsageError(
                f"{run.path}: the same run as {before.path}, {meta['label']!r} under seed {seed}; give one"
            )
    if not by_row:
        raise UsageError("no run directories to compare; give at least one")
    return _distinct([Row(label, next(iter(own.values())).described, own) for (label, _), own in by_row.items()])


def _distinct(rows: list[Row]) -> tuple[Row, ...]:
    """Rows with distinct labels: where two are alike, the experiment's name goes before, then a number."""
    labels = [row.label for row in rows]
    named = [f"{row.experiment.name}: {row.label}" if labels.count(row.label) > 1 else row.label for row in rows]
    numbered = [
        f"{label} ({named[: i + 1].count(label)})" if named.count(label) > 1 else label for i, label in enumerate(named)
    ]
    return tuple(Row(label, row.experiment, row.runs) for label, row in zip(numbered, rows, strict=True))


def _named(row: Row, part: str) -> str:
    """The class of a strategy or algorithm that Python handed over; empty if the experiment names it."""
    return next(iter(row.runs.values())).meta.get(f"given {part}", "")


def _array(column: "pd.Series[Any]") -> Values:
    return column.to_numpy(np.float64)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
