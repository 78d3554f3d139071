"""A summary of one run: all measures of its record, and what uniform selection would give."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from numbers import Real
from typing import Any

import numpy as np

from fedcohort import measures
from fedcohort.core.arrays import Values
from fedcohort.core.errors import UsageError, shown
from fedcohort.measures import JainReference, Participation
from fedcohort.record import Run
from fedcohort.study.rows.references import Entry, grouped
from fedcohort.study.rows.unfinished_rows import rounds_left
from fedcohort.study.run_measures import Cost, Measured
from fedcohort.study.targets import TO_TARGET, Target, group_targets

__all__ = ["OverSeeds", "Summary", "over_seeds", "summaries", "summary"]


@dataclass(frozen=True)
class Summary:
    """All measures of one run. Accuracies are fractions; NaN is unknown, and inf is the cost of a target that was not reached.

    Attributes:
        rounds: number of rounds played.
        accuracy, macro_accuracy, class_accuracy: test accuracy after the last round: of all samples, mean over classes, per class.
        best_accuracy: the highest test accuracy of all rounds.
        early_stop_accuracy, early_stop_round: test accuracy in the round with the best validation accuracy before early stopping
            (``measures.patience``) would have ended the run, and that round.
        local_accuracy: mean training accuracy of the clients of the last round in which any trained, each with its own model.
        client_accuracy: mean over all clients of the last model's accuracy on their own data, see
            :attr:`fedcohort.Run.client_accuracy`; NaN if it was not measured.
        worst_client_accuracy: mean over the 10% of the clients with the lowest accuracy.
        client_accuracy_sd: standard deviation of the accuracy over clients.
        personal_accuracy, worst_personal_accuracy, personal_gain: of the clients' personal models after the last round, see
            :class:`~fedcohort.study.measured_values.Result`; NaN without ``measures.personal_epochs``.
        target: the target test accuracy; NaN without one.
        target_chosen: where the target comes from: ``argument``, ``measures.target_accuracy``, or ``results`` (the best accuracy of
            the run, rounded down to two decimals); or why there is none, such as ``none, because training failed``.
        rounds_to_target, time_to_target, bytes_to_target: cost of reaching the target; NaN as long as an unfinished run has not
            reached it.
        simulated_time, bytes, client_passes: cost of the whole run.
        clock: the clock of the times, ``simulated`` or ``wall`` (seconds), see :attr:`fedcohort.Run.clock`.
        wall_seconds: wall time of the simulator, by part of a round and in total.
        selected, admitted: how evenly clients were selected, and admitted; if none ever was, only the coverage, which is 0, is
            known.
        selected_random: the expected values under uniform selection of as many of the available clients in each round.
        jain_random: the distribution of Jain's index under uniform selection.
        tail_sd: standard deviation of the test accuracy over the last fifth of the rounds.
        largest_drop: largest drop of the test accuracy from one round to the next.
        forgetting: mean over classes of the difference between their best accuracy and their last.
        own_measures: the measures of ``measures.extra`` in the last evaluated round, by name.
        labels: ``classes``, or ``numbers`` for a regression: all accuracies are then R², and those of clients are their scores.
    """

    rounds: int
    accuracy: float
    macro_accuracy: float
    class_accuracy: list[float]
    best_accuracy: float
    early_stop_accuracy: float
    early_stop_round: float
    local_accuracy: float
    client_accuracy: float
    worst_client_accuracy: float
    client_accuracy_sd: float
    personal_accuracy: float
    worst_personal_accuracy: float
    personal_gain: float
    target: float
    target_chosen: str
    rounds_to_target: float
    time_to_target: float
    bytes_to_target: float
    simulated_time: float
    bytes: float
    client_passes: float
    wall_seconds: dict[str, float]
    selected: Participation
    selected_random: Participation
    jain_random: JainReference
    admitted: Participation
    tail_sd: float
    largest_drop: float
    forgetting: float
    clock: str
    own_measures: dict[str, float] = field(default_factory=dict)
    labels: str = "classes"

    def to_json(self) -> dict[str, Any]:
        """Plain values; NaN and inf stay floats. The target is called ``target_accuracy``, as in tables of comparisons."""
        values = {{"target": "target_accuracy"}.get(name, name): value for name, value in asdict(self).items()}
        for name in ("selected", "selected_random", "jain_random", "admitted"):
            values[name] = values[name]._asdict()
        return values


@dataclass(frozen=True)
class OverSeeds:
    """The summaries of runs that differ only in their seed.

    Attributes:
        mean: the mean of every number over the seeds that have it. Costs of the target are means over the seeds that reached it.
        seeds: number of seeds.
        reached: number of seeds that reached the target.
        accuracy_sd: standard deviation of the test accuracy over seeds; NaN with one seed.
        runs: the summary of each seed.
    """

    mean: Summary
    seeds: int
    reached: int
    accuracy_sd: float
    runs: tuple[Summary, ...]


def over_seeds(runs: Sequence[Summary]) -> OverSeeds:
    """The means of runs of the same row with different seeds."""
    plain = [vars(run) for run in runs]
    means = {name: _mean_of(name, [own[name] for own in plain]) for name in plain[0]}
    reached = sum(math.isfinite(run.rounds_to_target) for run in runs)
    sd = measures.mean_sd([run.accuracy for run in runs])[1] if len(runs) > 1 else math.nan
    return OverSeeds(Summary(**means), len(runs), reached, sd, tuple(runs))


def _mean_of(name: str, values: Sequence[Any]) -> Any:
    """The mean of one field of several summaries; the first value of texts."""
    first = values[0]
    if isinstance(first, dict):
        return {key: _mean([own.get(key, math.nan) for own in values]) for key in first}
    if isinstance(first, tuple):
        means: list[Any] = [_mean(own) for own in zip(*values, strict=True)]
        return type(first)(*means)
    if isinstance(first, list):
        return [_mean(own) for own in zip(*filter(None, values), strict=True)]  # without runs that have no such numbers
    return _mean_number(name, values) if isinstance(first, int | float) else first


def _mean_number(name: str, values: Sequence[float]) -> float:
    """The mean of numbers; costs of the target are means over the runs that reached it. If none did, they are infinite, or unknown as
    long as a run is not finished."""
    if name not in TO_TARGET:
        return _mean(values)
    reached = [value for value in values if value < math.inf]
    return _mean(reached) if reached else math.nan if any(map(math.isnan, values)) else math.inf


def _mean(values: Sequence[float]) -> float:
    """The mean of the known values; NaN without any."""
    known = [float(value) for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def summaries(runs: Sequence[Run], target: float | None = None) -> list[Summary]:
    """Summarize runs with one target for all that are about the same clients and data, so that costs of reaching it can be compared.

    Args:
        runs: the runs.
        target: the target test accuracy; by default the targets of a comparison of these runs, see
            :func:`fedcohort.study.targets.group_targets`.

    Raises:
        UsageError: a run has no finished round, or the target is not an accuracy.
    """
    if target is not None or len(runs) < 2:
        return [summary(run, target) for run in runs]
    measured = [Measured(run) for run in runs]
    return [_summary(one, own.accuracy, _chosen(own)) for one, own in zip(measured, _targets(measured), strict=True)]


def _targets(measured: Sequence[Measured]) -> list[Target]:
    """The target of each run, as a comparison of these runs has it; runs that differ only in their seed are one row."""
    rows: dict[tuple[str, str], list[int]] = {}
    for i, one in enumerate(measured):
        rows.setdefault((one.run.meta["label"], one.run.meta["row"]), []).append(i)
    firsts = [measured[own[0]] for own in rows.values()]
    labels = [label for label, _ in rows]
    groups = grouped(
        [
            Entry(label, one.run.meta.get("given selector") or one.experiment.selection.name, one.experiment)
            for label, one in zip(labels, firsts, strict=True)
        ]
    )
    given = [one.experiment.measures.target_accuracy for one in firsts]
    of_groups = group_targets(labels, [[measured[i] for i in own] for own in rows.values()], given, groups)
    of_row = {row: target for group, target in zip(groups, of_groups, strict=True) for row in group.rows}
    of_run = {i: of_row[row] for row, own in enumerate(rows.values()) for i in own}
    return [of_run[i] for i in range(len(measured))]


def summary(run: Run, target: float | None = None) -> Summary:
    """Summarize a run from its record; see :meth:`fedcohort.Run.summary`."""
    if target is not None and not (isinstance(target, Real) and 0 < target <= 1):
        raise UsageError(f"target = {shown(target)}: give a test accuracy above 0 and at most 1, such as 0.8")
    measured = Measured(run)
    if target is not None:
        return _summary(measured, target, "argument")
    own = _targets([measured])[0]
    return _summary(measured, own.accuracy, _chosen(own))


def _chosen(target: Target) -> str:
    """Where a target comes from, or why there is none, see :attr:`Summary.target_chosen`."""
    return "results" if target.from_results else target.chosen


def _summary(measured: Measured, target: float, chosen: str) -> Summary:
    """All measures of a run, with a target and how it was chosen."""
    run = measured.run
    by_class = _by_class(measured.rounds["class_accuracy"].tolist())
    final, tested, stop = by_class[-1:].ravel(), measured.series("test_accuracy"), measured.early_stop
    cost = measured.cost_of(target)
    if math.isinf(cost.rounds) and rounds_left(run):
        cost = Cost(math.nan, math.nan, math.nan)
    return Summary(
        rounds=measured.num_rounds,
        accuracy=measured.accuracy,
        macro_accuracy=measures.mean_over_classes(final),
        class_accuracy=final.tolist(),
        best_accuracy=measured.best_accuracy,
        early_stop_accuracy=measured.early_stop_accuracy,
        early_stop_round=stop.round if stop is not None else math.nan,
        local_accuracy=measured.local_accuracy,
        client_accuracy=measured.over_clients.mean,
        worst_client_accuracy=measured.over_clients.worst,
        client_accuracy_sd=measured.over_clients.sd,
        personal_accuracy=measured.personal.accuracy,
        worst_personal_accuracy=measured.personal.worst,
        personal_gain=measured.personal.gain,
        target=target,
        target_chosen=chosen,
        rounds_to_target=cost.rounds,
        time_to_target=cost.time,
        bytes_to_target=cost.bytes,
        simulated_time=measured.simulated_time,
        bytes=measured.bytes,
        client_passes=measured.client_passes,
        wall_seconds=measured.wall_seconds,
        selected=measured.selected,
        selected_random=measured.chance.participation,
        jain_random=measured.chance.reference,
        admitted=measured.admitted,
        tail_sd=measures.tail_sd(tested),
        largest_drop=measures.largest_drop(tested) if measured.tested else math.nan,
        forgetting=float(measures.forgetting(by_class)[-1]) if len(by_class) else math.nan,
        clock=run.clock,
        own_measures=measured.own_measures,
        labels=run.labels,
    )


def _by_class(rows: list[list[float]]) -> Values:
    """Class accuracies [rounds, K] of the rounds in which the test set was evaluated."""
    return np.array([row for row in rows if row], dtype=np.float64)
