"""What a round of a strategy costs."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedcohort.core.tensor_sizes import num_bytes
from fedcohort.racing.costs import spent
from fedcohort.racing.row_results import RacedRow
from fedcohort.record import Run
from fedcohort.study.run_measures import Measured

__all__ = ["RoundCost", "round_cost"]


@dataclass(frozen=True)
class RoundCost:
    """What a round costs, mean over the rounds and seeds of a row.

    Attributes:
        label: label of the row.
        selected: number of clients that are selected.
        models: bytes that are sent and received, in units of the model's size; NaN if that is not known.
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
    selected = _mean(float(one.rounds["selected"].mean()) for one in measured)
    models = each["bytes"] / _model_bytes(measured[0].run)
    return RoundCost(row.label, selected, models, each["bytes"], each["passes"], each["time"], each["disclosure"])


def _model_bytes(run: Run) -> float:
    """Size of the model in bytes, as it is sent; NaN if a run of an earlier version has no final model.

    The ledger does not have it: clients can have the model from a question before they train, and algorithms can send more than that.
    """
    if "model bytes" in run.meta:
        return float(run.meta["model bytes"])
    from safetensors.torch import load_file  # slow to import

    file = run.path / "model.safetensors"
    return num_bytes([load_file(file)]) if file.exists() else math.nan


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))
