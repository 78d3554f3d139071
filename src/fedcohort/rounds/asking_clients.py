"""Answer the questions that a strategy asks clients before it selects."""

import copy
from collections.abc import Iterator

import numpy as np

from fedcohort.algorithms import Update
from fedcohort.algorithms.updates import is_finite
from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError, shown
from fedcohort.core.tensor_sizes import num_bytes
from fedcohort.engines.base import MayLackAnswers
from fedcohort.rounds.ledger import Ledger
from fedcohort.rounds.round_facts import members
from fedcohort.rounds.run_state import RunState
from fedcohort.selection import Cohort, LocalLoss, LossChange, Question, Speed

__all__ = ["answer"]


def answer(
    run_state: RunState, t: int, available: Indices, ledger: Ledger, question: Question, clients: Indices
) -> Values:
    """The clients' answers to a question in round ``t``.

    The clock answers questions about simulated time. A question about a change of loss takes a trial round. The engine answers all
    other questions.

    Args:
        run_state: the run.
        t: round, from 1.
        available: ids of the available clients.
        ledger: gets the cost of a trial round, and the clients that gave no answer; the caller bills the question itself.
        question: the question.
        clients: ids of the clients that are asked.

    Raises:
        UsageError: the strategy asks clients that are not available, or for a trial round in which none or such clients train.
    """
    where = f"{type(run_state.selector).__name__}.select in round {t} asks"
    away = clients[~np.isin(clients, available)]
    if len(away):
        raise UsageError(
            f"{where} clients {away[:5].tolist()} for {question.kind}, but they are not available; ask only clients in "
            "round.available"
        )
    if isinstance(question, Speed):
        return run_state.clock.expected(t)[clients]
    if isinstance(question, LossChange):
        _check_participants(question, available, where)
        return _loss_change(run_state, t, ledger, question, clients)
    engine = run_state.engine
    answers = engine.answer(run_state.model, t, question, clients, run_state.algorithm)
    if isinstance(engine, MayLackAnswers):
        ledger.unanswered |= engine.unanswered
    return answers


def _check_participants(question: LossChange, available: Indices, where: str) -> None:
    """Refuse a trial round without clients, which would change no loss, and one with clients that are not available."""
    away = sorted({int(client) for client in question.participants} - set(available.tolist()))
    if question.participants and not away:
        return
    fault = f"but clients {away[:5]} are not available" if away else "which trains no client and changes no loss"
    raise UsageError(
        f"{where} for LossChange(participants = {shown(question.participants)}), {fault}; name clients in round.available, such "
        "as LossChange(tuple(round.sample(round.k).tolist()))"
    )


def _loss_change(run_state: RunState, t: int, ledger: Ledger, question: LossChange, clients: Indices) -> Values:
    """Play a trial round on copies of the model and the algorithm, and compare losses. Clients forget the trial round afterwards."""
    model, engine = run_state.model, run_state.engine
    algorithm = copy.copy(run_state.algorithm)
    algorithm.load_state_dict(copy.deepcopy(run_state.algorithm.state_dict()))
    cohort = Cohort(np.array(question.participants, dtype=np.int64))
    down = len(cohort) * num_bytes([model, *algorithm.broadcast().values()])
    sent: list[tuple[int, float]] = []

    def usable() -> Iterator[Update]:
        for update in engine.train(model, t, cohort, algorithm):
            sent.append((update.num_bytes, update.passes))
            if update.failure is None and is_finite(update):
                yield update

    known = members(cohort, run_state.clock.num_samples, len(cohort), t, engine.trainable)
    trained = algorithm.aggregate(model, usable(), known)
    engine.commit([])
    before, after = (engine.answer(state, t, LocalLoss(), clients) for state in (model, trained))
    change = np.subtract(
        after, before, out=np.full(len(before), np.nan), where=np.isfinite(before) & np.isfinite(after)
    )
    ledger.add(  # besides the cost of every question: the training, and the second model that all asked clients receive
        question.kind,
        messages=2 * len(cohort) + len(clients),
        down=down + len(clients) * ledger.model_bytes,
        up=sum(size for size, _ in sent),
        passes=sum(passes for _, passes in sent),
        seconds=0.0,
    )
    return np.asarray(change)
