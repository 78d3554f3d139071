"""Compare run directories that exist already."""

from collections.abc import Iterable
from pathlib import Path

from fedcohort.core.errors import UsageError
from fedcohort.record import Run, open_run
from fedcohort.study.comparison import Comparison, Row

__all__ = ["read", "side_by_side"]


def read(paths: Iterable[str | Path]) -> Comparison:
    """Compare finished run directories. Runs that differ only in the seed are one row. Nothing is run.

    Raises:
        UsageError: a directory is not a run or not finished, or two directories are the same run.
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
                f"{run.path}: stopped after round {run.last_round} of {run.described.rounds}; finish it first, {how}"
            )
        runs.append(run)
    return Comparison("runs", side_by_side(runs))


def side_by_side(runs: Iterable[Run]) -> tuple[Row, ...]:
    """Group runs into rows, in their order: runs that differ only in the seed are one row.

    Raises:
        UsageError: two of them are the same run, or there are no runs.
    """
    by_row: dict[tuple[str, str], dict[int, Run]] = {}
    for run in runs:
        meta, seed = run.meta, run.described.seed
        before = by_row.setdefault((meta["label"], meta["row"]), {}).setdefault(seed, run)
        if before is not run:
            raise UsageError(
                f"{run.path}: the same run as {before.path}, {meta['label']!r} under seed {seed}; give only one of them"
            )
    if not by_row:
        raise UsageError("no run directories to compare; give at least one")
    return _distinct([Row(label, next(iter(own.values())).described, own) for (label, _), own in by_row.items()])


def _distinct(rows: list[Row]) -> tuple[Row, ...]:
    """Make labels distinct: equal labels get the name of the experiment, and then a number."""
    labels = [row.label for row in rows]
    named = [f"{row.experiment.name}: {row.label}" if labels.count(row.label) > 1 else row.label for row in rows]
    numbered = [
        f"{label} ({named[: i + 1].count(label)})" if named.count(label) > 1 else label for i, label in enumerate(named)
    ]
    return tuple(Row(label, row.experiment, row.runs) for label, row in zip(numbered, rows, strict=True))
