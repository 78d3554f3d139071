"""What a round of a strategy costs."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedcohort.racing.costs import spent
from fedcohort.racing.row_results import RacedRow
from fedcohort.study.run_measures import Measured

__all__ = ["RoundCost", "round_cost"]


@dataclass(frozen=True)
class RoundCost:
    """What a round costs, mean over the rounds and seeds of a row.

    Attributes:
        label: label of the row.
        selected: number of clients that are selected.
        models: bytes that are sent and received, in units of the model's size.
        bytes: the same in bytes.
        client_passes: forward passes over a client's training data, summed over clients.
        simulated_time: simulated time.
        disclosed: numbers that clients send besides their updates.
    """

    label: str
    selected: float
    models: float
    bytes: float
    client_passes: float
    simulated_time: float
    disclosed: float


def round_cost(row: RacedRow) -> RoundCost:
    """The costs of a round of a row of a race."""
    measured = [Measured(run) for run in row.runs.values()]
    each = {
        cost: _mean(spent(one, cost)[-1] / one.num_rounds for one in measured)
        for cost in ("bytes", "passes", "time", "disclosure")
    }
    size = _mean(map(_model_bytes, measured))
    selected = _mean(float(one.rounds["selected"].mean()) for one in measured)
    models = each["bytes"] / size if size else 0.0
    return RoundCost(row.label, selected, models, each["bytes"], each["passes"], each["time"], each["disclosure"])


def _model_bytes(measured: Measured) -> float:
    """Bytes that a client receives for training; 0 if no client trained."""
    training = measured.ledger[measured.ledger["kind"] == "training"]
    selected = measured.series("selected")[training["round"].to_numpy(np.int64) - 1].sum()
    return float(training["bytes_down"].sum() / selected) if selected else 0.0


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))
