"""Hand-made rounds, censuses and outcomes, for tests of strategies without a federation."""

from collections.abc import Mapping, Sequence

import numpy as np

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.random_streams import rng as stream
from fedcohort.selection import (
    Census,
    Cohort,
    GradientNorm,
    LocalAccuracy,
    LocalLoss,
    Outcome,
    Question,
    Round,
    Speed,
    UpdateNorm,
    Why,
)


def a_census(
    num_samples: Sequence[int] | Indices,
    k: int,
    histogram: Sequence[Sequence[int]] | Indices | None = None,
    epochs: int = 1,
) -> Census:
    """A census; with two classes if there is no histogram."""
    counts = None if histogram is None else np.array(histogram, dtype=np.int64)
    return Census(np.array(num_samples, dtype=np.int64), 2 if counts is None else counts.shape[1], k, counts, epochs)


def a_round(
    k: int,
    available: int | Sequence[int] | Indices,
    *,
    m: int | None = None,
    t: int = 1,
    seed: int = 0,
    rng: np.random.Generator | None = None,
    losses: Sequence[float] | Values | None = None,
    accuracies: Sequence[float] | Values | None = None,
    speeds: Sequence[Sequence[float]] | Values | None = None,
    norms: Sequence[float] | Values | None = None,
    durations: Sequence[float] | Values | None = None,
    compute_times: Sequence[float] | Values | None = None,
    upload_times: Sequence[float] | Values | None = None,
    asked: list[tuple[Question, list[int]]] | None = None,
) -> Round:
    """Round ``t`` for ``k`` clients.

    Args:
        k: number of clients to select, at most the number of available ones.
        available: ids of the available clients, or their number.
        m: number of all clients; the highest available id plus one if not given.
        t: round number.
        seed, rng: random generator; without ``rng``, the one that a run with ``seed`` would use.
        losses, accuracies, speeds, norms: answers by client id to ``LocalLoss``, ``LocalAccuracy``, ``Speed`` ([m, 2]), and to
            ``GradientNorm`` and ``UpdateNorm``.
        durations, compute_times, upload_times: measured times by client id; NaN if not given.
        asked: list to which every question is appended, with the clients that were asked.
    """
    ids = np.arange(available) if isinstance(available, int) else np.array(available, dtype=np.int64)

    def ask(question: Question, clients: Indices) -> Values:
        values = {LocalLoss: losses, LocalAccuracy: accuracies, Speed: speeds, GradientNorm: norms, UpdateNorm: norms}[
            type(question)
        ]
        assert values is not None, f"this round has no answers to {question}"
        if asked is not None:
            asked.append((question, clients.tolist()))
        answers = np.asarray(values, dtype=np.float64)[clients]
        return np.stack([answers, np.full(len(clients), 3.0)], axis=1) if isinstance(question, UpdateNorm) else answers

    m = int(ids.max(initial=-1)) + 1 if m is None else m
    known, computing, sending = (
        np.full(m, np.nan) if times is None else np.asarray(times, dtype=np.float64)
        for times in (durations, compute_times, upload_times)
    )
    return Round(t, min(k, len(ids)), ids, rng or stream(seed, "select", round=t), 0.0, known, ask, computing, sending)


def an_outcome(
    clients: Cohort | Sequence[int] | Indices,
    *,
    t: int = 1,
    accuracy: float = np.nan,
    class_accuracy: Sequence[float] = (),
    validation_losses: Sequence[float] | Values = (),
    trained: Sequence[bool] | None = None,
    admitted: Sequence[bool] | None = None,
    reports: Mapping[str, Sequence[float] | Values] | None = None,
    durations: Sequence[float] | Values | None = None,
) -> Outcome:
    """The outcome of a round with this cohort; by default, all its clients trained and were admitted."""
    cohort = clients if isinstance(clients, Cohort) else Cohort(np.array(clients, dtype=np.int64))
    n = len(cohort)
    has_trained = np.ones(n, dtype=bool) if trained is None else np.array(trained, dtype=bool)
    return Outcome(
        t=t,
        cohort=cohort,
        trained=has_trained,
        admitted=has_trained if admitted is None else np.array(admitted, dtype=bool),
        reports={name: np.array(values, dtype=np.float64) for name, values in (reports or {}).items()},
        durations=np.ones(n) if durations is None else np.array(durations, dtype=np.float64),
        duration=1.0,
        accuracy=accuracy,
        class_accuracy=np.array(class_accuracy, dtype=np.float64),
        validation_losses=np.array(validation_losses, dtype=np.float64),
    )


def the_why(cohort: Cohort) -> Why:
    """The reasons of a cohort, after checking that they have a note, and a score and all terms for every candidate."""
    assert cohort.why is not None
    assert cohort.why.note
    assert len(cohort.why.scores) == len(cohort.why.candidates)
    assert all(len(values) == len(cohort.why.candidates) for values in cohort.why.terms.values())
    return cohort.why
