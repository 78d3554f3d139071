"""What one run is judged by, in one call: every measure that its record can give, beside what chance would give."""

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcohort import measures
from fedcohort.core.arrays import Values
from fedcohort.core.errors import UsageError
from fedcohort.measures import JainReference, Participation

if TYPE_CHECKING:
    from fedcohort.record import Run

__all__ = ["Summary", "summary"]


@dataclass(frozen=True)
class Summary:
    """What one run came to. Accuracies are fractions; NaN is unknown, and inf a target that was never reached.

    Attributes:
        rounds: rounds played.
        accuracy, macro_accuracy, class_accuracy: on the test set after the last round: of all samples, mean over classes, per class.
        best_accuracy: the highest test accuracy of all rounds.
        early_stop_accuracy, early_stop_round: in the round with the best validation accuracy.
        local_accuracy: mean over the last round's clients of their training accuracy, by their own models.
        client_accuracy: mean over all clients of the last model's accuracy on their own data; NaN without ``measures.clients_every``.
        worst_client_accuracy: mean over the tenth of the clients that the last model serves worst.
        target: the test accuracy that costs are counted to.
        rounds_to_target, time_to_target, bytes_to_target: what it took; time is simulated.
        simulated_time, bytes, client_passes: of the whole run.
        wall_seconds: of the simulator, by part of a round and in all.
        selected, admitted: how evenly clients were selected, and admitted.
        selected_random: what uniform selection of as many of all clients gives on average.
        jain_random: the law of Jain's index under uniform selection.
        tail_sd: standard deviation of the test accuracy over the last fifth of the rounds.
        largest_drop: of the test accuracy from one round to the next.
        forgetting: after the last round, mean over classes of what they lost of their best accuracy.
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
    target: float
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

    def to_json(self) -> dict[str, Any]:
        """Plain values; NaN and inf stay floats."""
        values = asdict(self)
        for name in ("selected", "selected_random", "jain_random", "admitted"):
            values[name] = values[name]._asdict()
        return values


def summary(run: "Run", target: float | None = None) -> Summary:
    """Judge a run by its record; see :meth:`fedcohort.Run.summary`."""
    if target is not None and not 0 < target <= 1:
        raise UsageError(f"target = {target}: is a test accuracy, above 0 and at most 1, such as 0.8")
    experiment, rounds, ledger, clients = run.experiment, run.rounds, run.ledger, run.clients
    if rounds.empty:
        raise UsageError(f"{run.path}: has no finished round yet; start it again with `fedcohort run`")

    def series(name: str) -> Values:
        return rounds[name].to_numpy(np.float64)

    m, tested, validated = experiment.federation.clients, series("test_accuracy"), series("validation_accuracy")
    by_class = _by_class(rounds["class_accuracy"].tolist())
    final = by_class[-1]
    best = measures.best_accuracy(tested)
    if target is None:
        target = experiment.measures.target_accuracy or math.floor(round(best * 100, 6)) / 100
    spent = (ledger["bytes_down"] + ledger["bytes_up"]).groupby(ledger["round"]).sum()
    per_round = spent.reindex(rounds.index, fill_value=0).to_numpy(np.float64)
    stop = (
        measures.early_stop(validated, tested, experiment.measures.patience) if np.isfinite(validated).any() else None
    )
    served = run.client_accuracy
    last = served.iloc[-1].to_numpy(np.float64) if len(served) else np.full(1, np.nan)
    known = bool(np.isfinite(last).any())
    selected = np.bincount(clients["client"].to_numpy(np.int64), minlength=m)
    admitted = np.bincount(clients.loc[clients["status"] == "admitted", "client"].to_numpy(np.int64), minlength=m)
    k = max(1, round(float(rounds["selected"].mean())))
    local = series("local_accuracy")
    return Summary(
        rounds=len(rounds),
        accuracy=measures.final_accuracy(tested),
        macro_accuracy=float(np.nanmean(final)) if np.isfinite(final).any() else math.nan,
        class_accuracy=final.tolist(),
        best_accuracy=best,
        early_stop_accuracy=stop.accuracy if stop else math.nan,
        early_stop_round=stop.round if stop else math.nan,
        local_accuracy=measures.final_accuracy(local) if np.isfinite(local).any() else math.nan,
        client_accuracy=float(np.nanmean(last)) if known else math.nan,
        worst_client_accuracy=measures.worst_accuracy(last) if known else math.nan,
        target=target,
        rounds_to_target=measures.rounds_to(tested, target),
        time_to_target=measures.time_to(tested, series("simulated_time"), target),
        bytes_to_target=measures.bytes_to(tested, per_round, target),
        simulated_time=float(series("simulated_time")[-1]),
        bytes=float(per_round.sum()),
        client_passes=float(ledger["passes"].sum()),
        wall_seconds={str(part): float(seconds) for part, seconds in run.wall.sum().items()},
        selected=measures.participation(selected),
        selected_random=measures.participation_random(m, k, len(rounds)),
        jain_random=measures.jain_random(m, k, len(rounds)),
        admitted=measures.participation(admitted),
        tail_sd=measures.tail_sd(tested),
        largest_drop=measures.largest_drop(tested),
        forgetting=float(measures.forgetting(by_class)[-1]),
    )


def _by_class(rows: list[list[float]]) -> Values:
    """Class accuracies [rounds, K] of the rounds in which the test set was evaluated."""
    return np.array([row for row in rows if row], dtype=np.float64)
