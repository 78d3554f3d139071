"""What simulations, deployments and records of own servers say about a round in the same way: its row, its notes, its cohort."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedcohort.algorithms import Members
from fedcohort.core.arrays import Indices
from fedcohort.record import ClientRow, LedgerRow, Reasons, RoundRow
from fedcohort.selection import Cohort

__all__ = ["mean_of_known", "members", "round_notes", "round_row"]


def members(cohort: Cohort, num_samples: Indices, k: int, t: int, trainable: frozenset[str]) -> Members:
    """What the algorithm needs to know about the cohort of round ``t`` in order to weigh updates.

    Args:
        cohort: the selected clients.
        num_samples: training samples of each client, int64 [m].
        k: number of clients that the round should select.
        t: round, from 1.
        trainable: names of the model's trainable parameters.
    """

    def by_client(values: ArrayLike | None) -> dict[int, Any]:
        return {} if values is None else dict(zip(cohort.clients.tolist(), np.asarray(values).tolist(), strict=True))

    return Members(
        num_clients=len(num_samples),
        total_samples=int(num_samples.sum()),
        k=k,
        multiplicity=by_client(cohort.multiplicity),
        inclusion=by_client(cohort.inclusion),
        weights=by_client(cohort.weights),
        t=t,
        trainable=trainable,
    )


def round_row(
    t: int,
    clients: list[ClientRow],
    decision: Reasons,
    ledger: list[LedgerRow],
    *,
    available: int,
    time: float,
    duration: float,
    note: str,
    wall: dict[str, float],
) -> RoundRow:
    """The record of round ``t`` without the results of its model.

    Args:
        t: round, from 1.
        clients: what happened to each selected client.
        decision: the recorded candidates.
        ledger: the cost of each kind of exchange.
        available: number of available clients.
        time: the clock at the end of the round.
        duration: how long the round took, by the same clock.
        note: what was special about the round, in words.
        wall: seconds of the parts of the round.
    """
    trained = [row for row in clients if row.status in ("admitted", "declined")]
    return RoundRow(
        round=t,
        available=available,
        selected=len(clients),
        trained=len(trained),
        admitted=sum(row.status == "admitted" for row in clients),
        simulated_time=time,
        round_time=duration,
        steps=sum(row.steps for row in clients),
        local_accuracy=mean_of_known([row.accuracy for row in trained]),
        train_loss=mean_of_known([row.loss for row in trained]),
        note=note,
        clients=clients,
        decisions=decision,
        ledger=ledger,
        wall=wall,
    )


def round_notes(
    cohort: Cohort, clients: list[ClientRow], available: int, wanted: int, *, short: bool, why: str = ""
) -> list[str]:
    """What the note of a round says about its choice and its result.

    Args:
        cohort: the selected clients.
        clients: what happened to each of them.
        available: number of available clients.
        wanted: number of clients that the round should select.
        short: whether fewer are available than that, and the strategy cannot select fewer by itself.
        why: why no update was admitted, if it is known.
    """
    if available == 0:
        return ["empty round: no client available"]
    notes = [cohort.why.note] if cohort.why is not None else []
    if short:
        notes.append(f"short round: {available} of {wanted} available")
    if not any(row.status == "admitted" for row in clients):
        notes.append(f"no update admitted{why}: the model stays as it was")
    return notes


def mean_of_known(values: ArrayLike) -> float:
    """The mean of the finite values; NaN if there are none."""
    known = np.asarray(values, np.float64)
    known = known[np.isfinite(known)]
    return float(known.mean()) if len(known) else math.nan
