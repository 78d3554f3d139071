"""The times of clients that a server knows, from the outcomes of its rounds."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedcohort.chooser.epochs_done import epochs_done
from fedcohort.core.arrays import Values
from fedcohort.rounds.client_result import ClientResult
from fedcohort.selection import Outcome
from fedcohort.selection.strategy_inputs import epochs_used

__all__ = ["KnownTimes", "remember"]


@dataclass(frozen=True)
class KnownTimes:
    """Last known seconds of each client for nominal work, float64 [m]; NaN if never measured. The arrays are written to.

    Attributes:
        durations: the whole time.
        compute_times, upload_times: its parts, if the server knows them.
    """

    durations: Values
    compute_times: Values
    upload_times: Values


def remember(
    known: KnownTimes, outcome: Outcome, results: Mapping[int, ClientResult], epochs: int, upload: Values | None
) -> None:
    """Keep the times of the clients of a round; a late client needs at least the time that the server waited.

    Args:
        known: the times so far.
        outcome: the outcome of the round.
        results: its results by client. They tell clients whose update has NaN or infinite entries from clients that were late.
        epochs: epochs of nominal work.
        upload: communication of each client, aligned with the cohort; None if unknown.
    """
    clients = outcome.cohort.clients
    work = epochs_done(outcome.cohort, epochs_used(outcome), epochs) / epochs
    times = outcome.durations / work
    in_time = [(own := results.get(client)) is not None and own.replied for client in clients.tolist()]
    replied = outcome.trained | np.array(in_time, dtype=bool)
    done, late = replied & np.isfinite(times), ~replied & np.isfinite(times)
    known.durations[clients[done]] = times[done]
    waited = outcome.durations[late] / np.maximum(work[late], 1.0)
    known.durations[clients[late]] = np.fmax(known.durations[clients[late]], waited)
    if upload is not None:
        split = done & np.isfinite(upload)
        known.upload_times[clients[split]] = upload[split]
        known.compute_times[clients[split]] = ((outcome.durations - upload) / work)[split]
        known.durations[clients[split]] = (known.compute_times + known.upload_times)[clients[split]]
