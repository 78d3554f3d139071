"""The measured values of one run, as a comparison shows them."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import numpy as np

from fedcohort import measures
from fedcohort.record import Run
from fedcohort.study.run_measures import Measured

__all__ = ["AVERAGED", "Result", "own_measure_columns", "plain", "result", "result_of"]


@dataclass(frozen=True)
class Result:
    """The results of one run. Accuracies are fractions on the test set unless stated otherwise; NaN is unknown.

    Attributes:
        seed: seed of the run.
        path: run directory.
        rounds: number of rounds played.
        accuracy: accuracy after the last round.
        macro_accuracy: its mean over classes; NaN if it was not recorded, and for numeric labels.
        best_accuracy: the highest accuracy of all rounds.
        early_stop_accuracy: accuracy in the round with the best validation accuracy before early stopping (``measures.patience``)
            would have ended the run.
        local_accuracy: mean training accuracy of the clients of the last round in which any trained, each with its own model.
        simulated_time: simulated time of all rounds; by default, the fastest possible client needs 1 unit per sample and round.
            Seconds of wall time if that is the run's clock, see :attr:`fedcohort.Run.clock`.
        jain: Jain's index of how often each client was selected; NaN if none ever was.
        jain_random: its mean under uniform selection of as many of the available clients in each round.
        bytes: bytes sent and received.
        client_passes: forward passes over a client's training data, summed over clients.
        wall_seconds: wall time of the simulator for all rounds.
        updates: number of updates that the server received, summed over rounds: those of clients that trained, and diverged ones.
        diverged: number of them that had NaN or infinite entries and were dropped.
        classes: number of classes; 0 if the accuracy of classes was not recorded.
        client_accuracy: mean over all clients of the last model's accuracy on their own data, see
            :attr:`fedcohort.Run.client_accuracy`.
        worst_client_accuracy: mean over the 10% of the clients with the lowest accuracy.
        client_accuracy_sd: standard deviation of the accuracy over clients.
        own_measures: the measures of ``measures.extra`` in the last evaluated round, by name.
        labels: ``classes``, or ``numbers`` for a regression: all accuracies are then R².
        personal_accuracy: mean over clients of the accuracy on their test or held-out samples after ``measures.personal_epochs`` local
            epochs.
        worst_personal_accuracy: mean over the 10% of the clients with the lowest.
        personal_gain: mean over clients of the difference to the global model on the same samples.
    """

    seed: int
    path: Path
    rounds: int
    accuracy: float
    macro_accuracy: float
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
    classes: int
    client_accuracy: float
    worst_client_accuracy: float
    client_accuracy_sd: float
    own_measures: dict[str, float] = field(default_factory=dict)
    labels: str = "classes"
    personal_accuracy: float = math.nan
    worst_personal_accuracy: float = math.nan
    personal_gain: float = math.nan

    def to_json(self) -> dict[str, object]:
        """Plain values; unknown values are None."""
        return {key: plain(value) for key, value in asdict(self).items()}


AVERAGED = tuple(
    field.name
    for field in fields(Result)
    if field.name not in ("seed", "path", "rounds", "accuracy", "classes", "own_measures", "labels")
)
"""Columns of a comparison's table that are means of results."""


def result(run: Run) -> Result:
    """The results of a run, from its record.

    Raises:
        UsageError: the run has no finished round, or its database is damaged.
    """
    return result_of(Measured(run))


def result_of(measured: Measured) -> Result:
    """The results of a run, from measures that are read already."""
    return Result(
        seed=measured.experiment.seed,
        path=measured.run.path,
        rounds=measured.num_rounds,
        accuracy=measured.accuracy,
        macro_accuracy=measures.mean_over_classes(measured.class_accuracy),
        best_accuracy=measured.best_accuracy,
        early_stop_accuracy=measured.early_stop_accuracy,
        local_accuracy=measured.local_accuracy,
        simulated_time=measured.simulated_time,
        jain=measured.selected.jain,
        jain_random=measured.chance.reference.mean,
        bytes=measured.bytes,
        client_passes=measured.client_passes,
        wall_seconds=measured.wall_seconds["total"],
        updates=measured.updates,
        diverged=measured.diverged,
        classes=len(measured.class_accuracy),
        client_accuracy=measured.over_clients.mean,
        worst_client_accuracy=measured.over_clients.worst,
        client_accuracy_sd=measured.over_clients.sd,
        own_measures=measured.own_measures,
        labels=measured.run.labels,
        personal_accuracy=measured.personal.accuracy,
        worst_personal_accuracy=measured.personal.worst,
        personal_gain=measured.personal.gain,
    )


def own_measure_columns(names: Iterable[str], results: Sequence[Result]) -> dict[str, float]:
    """Mean and standard deviation of each own measure, as columns of a comparison's table; NaN if it is unknown under a seed."""
    columns = {}
    for name in names:
        values = [result.own_measures.get(name, math.nan) for result in results]
        known = np.isfinite(values).all()
        columns[name], columns[f"{name}_sd"] = measures.mean_sd(values) if known else (math.nan, math.nan)
    return columns


def plain(value: object) -> object:
    """A value for JSON: numbers of Python, paths as strings, and None for unknown values."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
