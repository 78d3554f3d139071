"""Answer questions for a few clients in one thread, so that an error names the client that caused it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress

import numpy as np

from fedcohort.algorithms import Algorithm, ModelState, Tensors
from fedcohort.core.arrays import Indices, Values
from fedcohort.engines.base import naming_client
from fedcohort.engines.threaded_cohort import CohortTrainer
from fedcohort.engines.work_splitting import series_of_clients
from fedcohort.selection import Cohort, Question
from fedcohort.training.answers import answer, answers
from fedcohort.training.client_memories import Memory
from fedcohort.training.personal_models import PersonalAccuracy, PersonalMeasure
from fedcohort.training.trainer import Trainer
from fedcohort.training.trial_training import norm_and_passes

__all__ = ["as_answers", "forward_answers", "received_for", "trial_answers"]


def received_for(question: Question, algorithm: Algorithm | None) -> dict[str, Tensors]:
    """What clients receive beside the model to answer a question: what the algorithm broadcasts, if they train for the answer."""
    return algorithm.broadcast() if question.trains and algorithm is not None else {}


def as_answers(rows: Sequence[Values], clients: Indices, question: Question) -> Values:
    """The answers of clients, one row each, in the form of :meth:`Engine.answer <fedcohort.engines.base.Engine.answer>`."""
    values = np.array(rows, dtype=np.float64).reshape(len(clients), question.numbers)
    return values[:, 0] if question.numbers == 1 else values


def forward_answers(
    trainer: Trainer, model: ModelState, t: int, question: Question, clients: Sequence[int]
) -> list[Values]:
    """Answers to a question that needs forward passes of ``model``, one row per client."""
    if isinstance(question, PersonalAccuracy):
        return _personal_answers(trainer, model, t, question, clients)
    common = trainer.show(model), trainer.federation, trainer.dtype, question, t
    with suppress(Exception):  # after an error, one client at a time shows which client caused it
        return answers(*common, clients, trainer.seed, trainer.outputs_program())
    rows = []
    for client in clients:
        with naming_client(client):
            rows.append(answer(*common, client, trainer.seed))
    return rows


def _personal_answers(
    trainer: Trainer, model: ModelState, t: int, question: PersonalAccuracy, clients: Sequence[int]
) -> list[Values]:
    """Accuracies of ``model`` before and after local epochs, one row per client. Clients with little work are trained several in one
    call."""
    measure, epochs = PersonalMeasure(trainer, clients), question.epochs
    rows: dict[int, Values] = {}
    for some in _personal_series(measure.tuner, measure.measured, epochs):
        if len(some) > 1:
            with suppress(Exception):  # after an error, one client at a time shows which client caused it
                rows |= measure.of_series(model, t, some, epochs)
        for client in some:
            if client not in rows:
                with naming_client(client):
                    rows[client] = measure.of_client(model, t, client, epochs)
    nothing = np.full(question.numbers, np.nan)
    return [rows.get(client, nothing) for client in clients]


def _personal_series(tuner: Trainer, clients: Sequence[int], epochs: int) -> Iterator[Sequence[int]]:
    """Neighboring clients that one call can train, for at most as many as share a call in a round."""
    if not tuner.series.possible(epochs):
        yield from ([client] for client in clients)
        return
    samples = np.array([stop - start for start, stop in map(tuner.federation.span, clients)], dtype=np.float64)
    for part in series_of_clients(samples * epochs, tuner.num_values, workers=1):
        together = clients[part]
        for some in tuner.series.slices(together, [epochs] * len(together)):
            yield together[some]


def trial_answers(
    trainer: Trainer,
    model: ModelState,
    t: int,
    clients: Sequence[int],
    received: dict[str, Tensors],
    memory_of: Callable[[int], Memory],
) -> list[Values]:
    """Answers to a question that needs a trial training from ``model``, one row per client.

    Clients with little work are trained several in one call.
    """
    cohort = Cohort(np.array(clients, dtype=np.int64))
    training = CohortTrainer(model, t, cohort, received, lambda: nullcontext(trainer), memory_of)
    samples = np.array([stop - start for start, stop in map(trainer.federation.span, clients)], dtype=np.float64)
    parts = training.parts(samples, workers=1)
    return [norm_and_passes(update, model, trainer) for part in parts for update, _ in training.train(part)]
