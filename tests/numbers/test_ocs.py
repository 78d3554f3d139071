"""Optimal client sampling: worked probabilities, unbiasedness by enumeration of all draws, and missing norms."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcohort.selection import Question, UpdateNorm, choose
from fedcohort.selection.draws import proportional, shares
from fedcohort.selection.strategies.ocs import AOCS, OCS, approximate
from tests.selection.fakes import a_census, a_round, the_why
from tests.selection.laws import mean_close, ratios_of, weights_of

U = np.array([0.1, 0.2, 0.3, 0.4, 2.0])
SIZES = [10, 20, 30, 25, 15]
NORMS = [3.0, 0.5, 1.0, 2.0, 0.1]


def ready(kind: type[OCS], k: int = 2, **values: Any) -> OCS:
    selector = kind(**values)
    selector.setup(a_census(SIZES, k))
    return selector


def test_probabilities_match_worked_values() -> None:
    np.testing.assert_allclose(proportional(U, 2), [0.1, 0.2, 0.3, 0.4, 1.0], rtol=1e-12)
    shuffled = [2, 4, 0, 3, 1]
    np.testing.assert_allclose(proportional(U[shuffled], 2), [0.3, 1.0, 0.1, 0.4, 0.2], rtol=1e-12)


def test_approximate_probabilities_match_worked_values() -> None:
    np.testing.assert_allclose(approximate(U, 2, 0), [0.0667, 0.1333, 0.2, 0.2667, 1.0], atol=5e-5)
    np.testing.assert_allclose(approximate(U, 2, 1), [0.1, 0.2, 0.3, 0.4, 1.0], rtol=1e-12)
    np.testing.assert_allclose(approximate(U, 2), approximate(U, 2, 1), rtol=1e-12)


@settings(deadline=None, max_examples=200)
@given(norms=st.lists(st.floats(0.01, 100), min_size=1, max_size=20), data=st.data())
def test_the_approximation_converges_to_the_exact_probabilities(norms: list[float], data: st.DataObject) -> None:
    u, k = np.array(norms), data.draw(st.integers(1, len(norms)))
    chance = approximate(u, k, 50)
    assert chance.sum() <= k + 1e-9
    np.testing.assert_allclose(chance, proportional(u, k), rtol=1e-6)


@pytest.mark.parametrize("probabilities", [proportional, approximate])
def test_probabilities_with_zero_norms_and_few_clients(probabilities: Any) -> None:
    assert probabilities(np.zeros(4), 2).tolist() == [0.5] * 4
    np.testing.assert_allclose(probabilities(np.array([0.0, 1.0, 1.0, 0.0]), 1), [0, 0.5, 0.5, 0])
    np.testing.assert_allclose(probabilities(np.array([0.0, 1.0, 3.0]), 3), [0, 1, 1])
    assert probabilities(np.array([]), 0).tolist() == []
    np.testing.assert_allclose(probabilities(np.array([5.0]), 1), [1.0])


@pytest.mark.parametrize("kind", [OCS, AOCS])
def test_weights_are_unbiased_by_enumeration_of_all_draws(kind: type[OCS]) -> None:
    p = shares(np.array(SIZES))
    chance = ready(kind).probabilities(p * NORMS, 2)
    mean, size = np.zeros(5), 0.0
    for coins in itertools.product([0, 1], repeat=5):
        sent = np.array(coins)
        probability = np.prod(np.where(sent == 1, chance, 1 - chance))
        mean += probability * sent * p / chance
        size += probability * sent.sum()
    np.testing.assert_allclose(mean, p, rtol=1e-12)
    assert size == pytest.approx(2)


@pytest.mark.parametrize("kind", [OCS, AOCS])
@pytest.mark.parametrize("candidates", [None, 3])
def test_the_cohort_has_its_probabilities_and_weights(kind: type[OCS], candidates: int | None) -> None:
    selector, p = ready(kind, candidates=candidates), shares(np.array(SIZES))
    ratios, sizes = np.zeros((3_000, 5)), np.zeros(3_000)
    for t in range(3_000):
        cohort = selector.select(a_round(2, 5, t=t + 1, norms=NORMS))
        why = the_why(cohort)
        chance = dict(zip(why.candidates.tolist(), why.scores.tolist(), strict=True))
        share = np.array(SIZES) / np.array(SIZES)[why.candidates].sum()
        np.testing.assert_allclose(
            weights_of(cohort, 5)[cohort.clients], [share[i] / chance[i] for i in cohort.clients]
        )
        ratios[t], sizes[t] = ratios_of(cohort, p), len(cohort)
    assert mean_close(ratios, p)
    assert mean_close(sizes[:, None], np.array([2.0]))
    assert len(set(sizes)) > 2


def test_all_candidates_train_and_their_number_is_at_least_k() -> None:
    asked: list[tuple[Question, list[int]]] = []
    ready(OCS).select(a_round(2, 5, norms=NORMS, asked=asked))
    ready(OCS, candidates=3).select(a_round(2, 5, norms=NORMS, asked=asked))
    ready(OCS, candidates=1).select(a_round(2, 5, norms=NORMS, asked=asked))
    assert [(question, len(clients)) for question, clients in asked] == [
        (UpdateNorm(), 5),
        (UpdateNorm(), 3),
        (UpdateNorm(), 2),  # at least k candidates
    ]
    assert len(choose(ready(OCS), a_round(5, 5, asked=asked))) == 5
    assert len(asked) == 3  # all clients send their updates, so no question is needed


def test_the_note_tells_the_draw_and_not_what_arrives() -> None:
    """Clients that are drawn can still fail or be late, so that it is not known when the note is written who sends an update."""
    cohort = ready(OCS).select(a_round(2, 5, norms=NORMS))
    assert the_why(cohort).note == f"{len(cohort)} of 5 candidates drawn to send their update; 2 expected"


def test_a_client_without_a_norm_is_not_a_candidate() -> None:
    for t in range(1, 30):
        cohort = ready(OCS).select(a_round(2, 5, t=t, norms=[np.nan, 1.0, np.inf, 1.0, 1.0]))
        assert the_why(cohort).candidates.tolist() == [1, 3, 4]
        assert set(cohort.clients.tolist()) <= {1, 3, 4}
        assert the_why(cohort).note.endswith("2 without a norm")
    cohort = choose(ready(OCS), a_round(2, 5, norms=[np.nan] * 5))
    assert len(cohort) == 0
