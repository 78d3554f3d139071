"""Sampling by size, by importance, and by loss: laws of the draws, and weights that keep the sum unbiased."""

from typing import Any

import numpy as np
import pytest

from fedcohort.core.errors import UsageError
from fedcohort.selection import LocalLoss, Question, choose
from fedcohort.selection.draws import raj, shares
from fedcohort.selection.strategies.loss_proportional import LossProportional
from fedcohort.selection.strategies.size import BySize
from tests.selection.fakes import a_census, a_round, the_why
from tests.selection.laws import mean_close, same_law, successive_orders, successive_sets, weights_of

SIZES = [50, 30, 10, 8, 2]


def by_size(**values: Any) -> BySize:
    selector = BySize(**values)
    selector.setup(a_census(SIZES, 2))
    return selector


def test_draws_without_replacement_follow_the_law_of_successive_draws() -> None:
    assert same_law(by_size().select, successive_sets(SIZES, 2), 2, 5, 5_000)


def test_draws_with_replacement_have_multiplicities() -> None:
    selector, counts = by_size(replacement=True), np.zeros((2_000, 5))
    for t, row in enumerate(counts):
        cohort = selector.select(a_round(3, 5, t=t + 1))
        assert cohort.multiplicity is not None
        row[cohort.clients] = cohort.multiplicity
    assert (counts.sum(axis=1) == 3).all()
    assert mean_close(counts, 3 * np.array(SIZES) / 100)


@pytest.mark.parametrize("values", [{}, {"importance": [1.0, 1.0, 5.0, 0.5, 2.0]}])
def test_weights_without_replacement_are_unbiased_by_enumeration(values: dict[str, Any]) -> None:
    """The weights are Raj's, and their mean over all ordered samples is p."""
    p = shares(np.array(SIZES))
    q = np.array(values.get("importance", SIZES)) / np.sum(values.get("importance", SIZES))
    mean = np.zeros(5)
    for order, probability in successive_orders(q, 2):
        mean[list(order)] += probability * raj(p[list(order)], q[list(order)])
    np.testing.assert_allclose(mean, p, rtol=1e-12)
    for t in range(1, 50):
        cohort = by_size(**values).select(a_round(2, 5, t=t))
        assert cohort.weights is not None
        np.testing.assert_allclose(cohort.weights, raj(p[cohort.clients], q[cohort.clients]), rtol=1e-12)


def test_weights_with_replacement_are_unbiased() -> None:
    selector = by_size(replacement=True, importance=[1.0, 1.0, 5.0, 0.5, 2.0])
    draws = np.stack([weights_of(selector.select(a_round(2, 5, t=t)), 5) for t in range(1, 3_001)])
    assert mean_close(draws, shares(np.array(SIZES)))
    plain = by_size(replacement=True).select(a_round(4, 5))  # by size, this is MD sampling
    assert plain.weights is not None
    assert plain.multiplicity is not None
    np.testing.assert_allclose(plain.weights, plain.multiplicity / 4)


@pytest.mark.parametrize("replacement", [False, True])
def test_zero_importances_are_uniform(replacement: bool) -> None:
    selector = by_size(importance=[0.0] * 5, replacement=replacement)
    chance = np.zeros(5)
    for t in range(1, 2_001):
        chance[selector.select(a_round(1, 5, t=t)).clients] += 1
    assert np.abs(chance - 400).max() < 6 * np.sqrt(2_000 * 0.2 * 0.8)


def test_importance_needs_one_number_per_client() -> None:
    with pytest.raises(UsageError, match=r"selection.importance: 3 numbers for 5 clients; give one for each"):
        by_size(importance=[1.0, 1.0, 1.0])


# --- by loss ---------------------------------------------------------------------------------------------------------------

LOSSES = [0.2, 1.5, 0.9, 1.5, 3.0]


def by_loss(**values: Any) -> LossProportional:
    selector = LossProportional(**values)
    selector.setup(a_census(SIZES, 2))
    return selector


@pytest.mark.parametrize("temperature", [1.0, 0.5, 4.0])
def test_draws_by_loss_follow_the_law_of_successive_draws(temperature: float) -> None:
    q = np.array(SIZES) * np.array(LOSSES) ** (1 / temperature)
    selector = by_loss(temperature=temperature)

    def select(round: Any) -> Any:
        return selector.select(a_round(2, 5, t=round.t, rng=round.rng, losses=LOSSES))

    assert same_law(select, successive_sets(q, 2), 2, 5, 3_000)


def test_the_temperature_moves_from_the_highest_loss_to_size() -> None:
    cold = by_loss(temperature=1e-3)
    for t in range(1, 30):
        assert set(cold.select(a_round(1, 5, t=t, losses=LOSSES)).clients.tolist()) == {4}
    hot = the_why(by_loss(temperature=1e6).select(a_round(2, 5, losses=LOSSES))).scores
    np.testing.assert_allclose(hot, np.array(SIZES) / 100, rtol=1e-4)


def test_weights_by_loss_are_unbiased_over_the_candidates() -> None:
    draws = np.stack([weights_of(by_loss().select(a_round(2, 5, t=t, losses=LOSSES)), 5) for t in range(1, 2_001)])
    assert mean_close(draws, shares(np.array(SIZES)))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_client_without_a_finite_loss_is_drawn_last(bad: float) -> None:
    for t in range(1, 20):
        cohort = by_loss().select(a_round(2, 5, t=t, losses=[bad, 0.1, bad, 0.3, bad]))
        assert set(cohort.clients.tolist()) == {1, 3}
    law = successive_sets(SIZES, 2)  # without any finite loss, clients are drawn by size

    def select(round: Any) -> Any:
        return by_loss().select(a_round(2, 5, t=round.t, rng=round.rng, losses=[bad] * 5))

    assert same_law(select, law, 2, 5, 2_000)


def test_all_candidates_are_asked_for_their_loss() -> None:
    asked: list[tuple[Question, list[int]]] = []
    by_loss().select(a_round(2, 5, losses=LOSSES, asked=asked))
    assert asked == [(LocalLoss(), [0, 1, 2, 3, 4])]
    cohort = by_loss(candidates=3).select(a_round(2, 5, losses=LOSSES, asked=asked))
    assert len(asked[1][1]) == 3
    assert set(cohort.clients.tolist()) <= set(asked[1][1])
    assert len(choose(by_loss(), a_round(5, 5, asked=asked))) == 5
    assert len(asked) == 2  # all clients are selected, so no question is needed
