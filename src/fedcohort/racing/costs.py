"""Costs that decide a race: what a run has spent by the end of each round, and the scale on which costs are compared."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.words import formatted_values
from fedcohort.core.words.report_names import MEASURED_BY_ALL
from fedcohort.selection import LossChange
from fedcohort.study.run_measures import Measured

__all__ = ["COSTS", "MAY_BE_NONE", "amount", "cost_of", "relative", "score_of", "spent"]

COSTS = {
    "rounds": "rounds",
    "time": "simulated time",
    "bytes": "bytes",
    "passes": "client passes",
    "disclosure": "disclosed numbers",
}
"""Objectives that are costs, which can also limit an accuracy, and their names in sentences."""

MAY_BE_NONE = "disclosure"
"""The cost that is 0 for many strategies. What is compared is 1 + the number; the other costs are compared by their ratios."""

LEAST = 1e-12
"""A run in which no client took part costs nothing, and nothing has no ratio to other costs. It counts as this, which is less than
any time: the unit of time can be long."""


def score_of(cost: str, value: float) -> float:
    """The score of a cost, higher is better: −log(cost), so that differences of scores are ratios of costs.

    For disclosed numbers, which can be 0, it is −log(1 + number).

    >>> round(score_of("rounds", 2) - score_of("rounds", 5), 3)  # log(5 / 2)
    0.916
    """
    return -math.log1p(value) if cost == MAY_BE_NONE else -math.log(max(value, LEAST))


def cost_of(cost: str, score: float) -> float:
    """The cost with this score; of the mean score over seeds, the geometric mean.

    >>> round(cost_of("rounds", (score_of("rounds", 2) + score_of("rounds", 8)) / 2), 4)
    4.0
    """
    if cost == MAY_BE_NONE:
        return math.expm1(-score) + 0.0  # + 0: not −0
    value = math.exp(-score)
    return value if value > LEAST * (1 + 1e-9) else 0.0


def spent(measured: Measured, cost: str) -> Values:
    """A cost up to the end of each round, float64 [n]."""
    return _SPENT[cost](measured)


def _by_round(measured: Measured, values: Values) -> Values:
    """A sum over the ledger's rows of each round, up to the end of each round."""
    summed = np.bincount(measured.ledger["round"].to_numpy(np.int64), values, minlength=measured.num_rounds + 1)
    total: Values = summed[1:].cumsum()
    return total


def _disclosed(measured: Measured) -> Values:
    """Numbers that clients sent besides their updates, up to the end of each round: answers to questions, and reports.

    The bytes of a trial round are those of its updates, too, so that its answers are counted by the clients that can be asked.
    """
    ledger = measured.ledger
    of_rows, kind = ledger["round"].to_numpy(np.int64) - 1, ledger["kind"].to_numpy()
    answers = ledger["bytes_up"].to_numpy(np.float64) / 4
    asked = measured.series("available")[of_rows]  # fedcor asks all clients for the change of their losses
    sent = np.where(kind == LossChange.__name__, asked, answers)
    training = kind == "training"
    sent[training] = _reported(measured, of_rows[training], ledger["discloses"][training].fillna("").tolist())
    return _by_round(measured, sent)


def _reported(measured: Measured, rounds: Indices, told: Sequence[str]) -> Values:
    """Numbers that clients sent with their updates, float64 [rounds]. Declined clients report, too; a number that a client could not
    measure, such as an infinite quantile, is not sent.

    Args:
        measured: the measures of the run.
        rounds: the rounds, from 0.
        told: what clients disclosed in each of them: the update, and the names of the numbers.
    """
    names = [text.split(", ")[1:] for text in told]
    if not any(names):
        return np.zeros(len(rounds))  # the table of clients is large
    clients, trained = measured.clients, measured.series("trained")
    clients = clients[clients["status"].isin(("admitted", "declined"))]
    recorded = {name for own in names for name in own if name in clients and name not in MEASURED_BY_ALL}
    known = {
        name: np.bincount(clients["round"][clients[name].notna()], minlength=measured.num_rounds + 1)[1:]
        for name in recorded
    }
    return np.array(
        [sum(float(known.get(name, trained)[t]) for name in own) for t, own in zip(rounds.tolist(), names, strict=True)]
    )


_SPENT: dict[str, Callable[[Measured], Values]] = {
    "rounds": lambda measured: measured.rounds.index.to_numpy(np.float64),
    "time": lambda measured: measured.series("simulated_time"),
    "bytes": lambda measured: measured.bytes_per_round.cumsum(),
    "passes": lambda measured: _by_round(measured, measured.ledger["passes"].to_numpy(np.float64)),
    "disclosure": _disclosed,
}


def amount(cost: str, value: float) -> str:
    """An amount of a cost."""
    write = {"bytes": formatted_values.size, "time": formatted_values.simulated_time}.get(cost, formatted_values.count)
    return write(value)


def relative(log_ratio: float) -> float:
    """A ratio of costs as a relative difference: log 0.8 as −0.2."""
    return math.expm1(log_ratio) + 0.0 if log_ratio < 50 else math.inf  # + 0: not −0
