"""The last round that a chooser observed, for its record."""

from collections.abc import Mapping
from dataclasses import dataclass

from fedcohort.core.arrays import Indices
from fedcohort.record import Reasons
from fedcohort.rounds.client_result import ClientResult
from fedcohort.rounds.ledger import Ledger, Stopwatch
from fedcohort.selection import Outcome

__all__ = ["ObservedRound"]


@dataclass(frozen=True)
class ObservedRound:
    """What a chooser knows about the last round that it observed. The beginning of the next round does not change it.

    Attributes:
        outcome: the outcome that the strategy has learned from.
        results: the results of this outcome, by client.
        reasons: what is recorded of the decision.
        available: ids of the clients that could take part, int64 [n].
        let_in: the clients that the strategy admits; None if it was not asked.
        ledger: the cost of the questions.
        watch: wall time from the beginning of the round, and of the selection in it.
        clock: sum of the durations of all rounds up to this one.
    """

    outcome: Outcome
    results: Mapping[int, ClientResult]
    reasons: Reasons | None
    available: Indices
    let_in: frozenset[int] | None
    ledger: Ledger
    watch: Stopwatch
    clock: float
