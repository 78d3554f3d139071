"""Draws with unequal probabilities: laws by enumeration, unbiased weights, and edge cases."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedcohort.selection.draws import proportional, raj, repeated, shares, successive, systematic
from tests.selection.laws import mean_close, successive_orders


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_raj_is_unbiased_by_enumeration(k: int) -> None:
    p, q = np.array([0.1, 0.4, 0.3, 0.2]), np.array([0.25, 0.05, 0.3, 0.4])
    mean = np.zeros(4)
    for order, probability in successive_orders(q, k):
        drawn = list(order)
        mean[drawn] += probability * raj(p[drawn], q[drawn])
    np.testing.assert_allclose(mean, p, rtol=1e-12)


def test_raj_matches_its_definition() -> None:
    """(1/k) Σ_j e_j with e_j = Σ_{l<j} p_l Δ_l + p_j Δ_j / q̃_j; Δ is one unit vector for each client."""
    p, q = np.array([0.3, 0.2, 0.1]), np.array([0.2, 0.4, 0.1])
    estimate = np.zeros(3)
    for j in range(3):
        estimate[:j] += p[:j]
        estimate[j] += p[j] * (1 - q[:j].sum()) / q[j]
    np.testing.assert_allclose(raj(p, q), estimate / 3, rtol=1e-14)


def test_raj_with_q_equal_p_of_one_draw_is_one() -> None:
    assert raj(np.array([0.25]), np.array([0.25])).tolist() == [1.0]


def test_successive_draws_are_in_draw_order() -> None:
    q, rng = np.array([0.5, 0.3, 0.2]), np.random.default_rng(5)
    law = dict(successive_orders(q, 2))
    seen = dict.fromkeys(law, 0)
    for _ in range(20_000):
        seen[tuple(successive(q, 2, rng).tolist())] += 1
    assert stats.chisquare([seen[key] for key in law], [20_000 * law[key] for key in law]).pvalue > 1e-6


def test_successive_draws_take_weight_zero_last() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        assert set(successive(np.array([0.0, 2.0, 0.0, 1e-200, 1e9]), 2, rng).tolist()) == {4, 1}
        assert sorted(successive(np.zeros(4), 4, rng).tolist()) == [0, 1, 2, 3]
    assert successive(np.ones(3), 0, rng).tolist() == []


def test_repeated_draws_are_multinomial() -> None:
    weights, rng = np.array([0.0, 3.0, 0.0, 1.0, 4.0, 0.0]), np.random.default_rng(2)
    counts = np.zeros((5_000, 6))
    for row in counts:
        drawn, times = repeated(weights, 4, rng)
        row[drawn] = times
    assert (counts.sum(axis=1) == 4).all()
    assert (counts[:, [0, 2, 5]] == 0).all()
    assert mean_close(counts, 4 * weights / 8)
    assert stats.chisquare(counts.sum(axis=0)[[1, 3, 4]], 20_000 * np.array([3, 1, 4]) / 8).pvalue > 1e-6
    drawn, times = repeated(np.zeros(3), 60, rng)
    assert drawn.tolist() == [0, 1, 2]
    assert times.sum() == 60


@settings(deadline=None, max_examples=200)
@given(
    weights=st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1e6)), min_size=1, max_size=30),
    data=st.data(),
)
def test_proportional_probabilities_are_min_1_and_c_times_weight(weights: list[float], data: st.DataObject) -> None:
    """min(1, c·w) with the sum k: below 1, the ratio to the weight is constant, and larger weights have larger probabilities."""
    w = np.array(weights)
    k = data.draw(st.integers(1, len(w)))
    chance = proportional(w, k)
    assert ((chance >= 0) & (chance <= 1)).all()
    positive = w > 0
    if not positive.any():
        assert chance == pytest.approx(np.full(len(w), k / len(w)))
        return
    assert (chance[~positive] == 0).all()
    assert chance.sum() == pytest.approx(min(k, positive.sum()), rel=1e-9)
    below = positive & (chance < 1 - 1e-12)
    ratios = chance[below] / w[below]
    if len(ratios):
        assert ratios == pytest.approx(np.full(len(ratios), ratios[0]), rel=1e-9)
        assert (w[positive & ~below] * ratios[0] >= 1 - 1e-9).all()


def test_proportional_has_the_least_variance() -> None:
    """The variance is compared with that of many other probabilities with the same sum."""
    w, rng = np.array([0.1, 0.2, 0.3, 0.4, 2.0]), np.random.default_rng(3)
    best = (w**2 / proportional(w, 2)).sum()
    for _ in range(500):
        other = proportional(rng.uniform(0.05, 1.0, 5), 2)
        assert (w**2 / other).sum() >= best - 1e-12


def test_systematic_draws_have_their_probabilities() -> None:
    chance, rng = np.array([0.1, 0.7, 1.0, 0.2, 0.5, 0.5]), np.random.default_rng(4)
    hits = np.zeros((20_000, 6))
    for row in hits:
        drawn = systematic(chance, rng)
        assert len(set(drawn.tolist())) == 3
        row[drawn] = 1
    assert mean_close(hits, chance)


def test_shares_are_proportional_to_samples_or_equal() -> None:
    assert shares(np.array([1, 3])).tolist() == [0.25, 0.75]
    assert shares(np.array([0, 0])).tolist() == [0.5, 0.5]
    assert shares(np.array([], dtype=np.int64)).tolist() == []
