"""Results that are comparisons of an experiment file: its rows over its seeds, in one or several settings."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import fedcohort
from results.result_file import ROOT

__all__ = ["ComparisonResult", "compared"]

KEPT = (
    "label", "accuracy", "accuracy_sd", "best_accuracy", "local_accuracy", "difference", "difference_low", "difference_high", "p_holm",
    "verdict", "target_accuracy", "rounds_to_target", "time_to_target", "reached", "seeds", "simulated_time", "jain", "jain_random",
    "bytes", "client_passes",
)  # fmt: skip
"""Values of a row that are kept. Wall times are kept only as a detail: they differ from run to run."""


@dataclass(frozen=True)
class ComparisonResult:
    """How a comparison is made.

    Attributes:
        experiment: path of the experiment file, from the root of the repository.
        settings: name of each setting → the settings that it replaces.
        quick: whether the tests make it anew.
        columns: headings of the table on the page → how a cell is written, see :mod:`results.tables`.
        findings: whether sentences about the fastest and the clearly different rows follow the table.
        minutes: about how long it takes on one core.
        details: whether the mean accuracy of each class after the last round, and the mean wall time of each part of a run, are kept.
    """

    experiment: str
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"": {}})
    quick: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)
    findings: bool = False
    minutes: float = 0.1
    details: bool = False

    @property
    def experiments(self) -> list[str]:
        """The experiment files."""
        return [self.experiment]

    def make(self, runs: Path) -> dict[str, Any]:
        """Play the runs in the folder ``runs``, and return the rows of every setting."""
        return {
            name: compared(self.experiment, values, runs, details=self.details)
            for name, values in self.settings.items()
        }


def compared(experiment: str, values: Mapping[str, Any], runs: Path, *, details: bool = False) -> list[dict[str, Any]]:
    """The rows of an experiment file with some settings replaced; ``details`` as in :class:`ComparisonResult`."""
    described = fedcohort.load_experiment(ROOT / experiment)
    if values:
        described = described.with_overrides(values)
    comparison = fedcohort.compare(described, runs=runs)
    rows = []
    for row, found in zip(comparison.to_json()["rows"], comparison.rows, strict=True):
        kept = {name: row[name] for name in KEPT}
        kept["accuracies"] = [run["accuracy"] for run in row["runs"]]
        kept["bests"] = [run["best_accuracy"] for run in row["runs"]]
        kept["admitted"] = [float(run.rounds["admitted"].mean()) for run in found.runs.values()]
        kept["quantiles"] = _quantiles(next(iter(found.runs.values())))
        kept["admitted_by_round"] = _admitted_by_round(list(found.runs.values()))
        if details:
            kept |= _details(list(found.runs.values()))
        rows.append(kept)
    return rows


def _details(runs: Sequence[fedcohort.Run]) -> dict[str, Any]:
    """Means over runs: the accuracy of each class after the last round, and seconds of each part of a run."""
    last = [np.array(run.rounds["class_accuracy"].iloc[-1], dtype=np.float64) for run in runs]
    parts = {name: float(np.mean([run.wall[name].sum() for run in runs])) for name in runs[0].wall}
    return {"class_accuracy": np.mean(last, axis=0).tolist(), "seconds": parts}


def _quantiles(run: fedcohort.Run) -> list[float | None]:
    """The smallest conformal quantile of each round; None if it is infinite. Empty without conformal participation."""
    if "q_hat" not in run.clients:
        return []
    smallest = run.clients.groupby("round")["q_hat"].min()
    return [float(value) if math.isfinite(value) else None for value in smallest]


def _admitted_by_round(runs: Sequence[fedcohort.Run]) -> list[float]:
    """Mean number over seeds of admitted clients in each round. Empty without conformal participation."""
    if "q_hat" not in runs[0].clients:
        return []
    means: list[float] = np.mean([run.rounds["admitted"].to_numpy(dtype=np.float64) for run in runs], axis=0).tolist()
    return means
