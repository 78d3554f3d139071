"""Importance sampling of agents by past updates: the running mean of norms, the probabilities, and both kinds of weights."""

from typing import Any

import numpy as np
import pytest

from fedcohort.selection.draws import raj
from fedcohort.selection.strategies.rizk import Rizk
from tests.selection.fakes import a_census, a_round, an_outcome, the_why
from tests.selection.laws import mean_close, weights_of

SIZES = [10, 20, 30, 40]
P = np.array(SIZES) / 100


def ready(**values: Any) -> Rizk:
    selector = Rizk(**values)
    selector.setup(a_census(SIZES, 2))
    return selector


def observe(selector: Rizk, clients: list[int], norms: list[float], steps: list[float], **more: Any) -> None:
    selector.observe(an_outcome(clients, reports={"update_norm": norms, "steps": steps}, **more))


def test_without_updates_the_probabilities_are_uniform() -> None:
    why = the_why(ready().select(a_round(2, 4)))
    assert why.scores.tolist() == [0.25] * 4
    assert why.note == "random: no updates yet"


def test_the_norm_per_step_is_a_running_mean_over_trained_rounds() -> None:
    selector = ready()
    observe(selector, [0, 1], [6.0, 8.0], [3.0, 2.0])
    assert selector.norm[:2].tolist() == [2.0, 4.0]
    observe(selector, [0, 2], [4.0, 5.0], [1.0, 5.0], admitted=[True, False])  # a declined client trained, too
    assert selector.norm[:3].tolist() == [3.0, 4.0, 1.0]
    observe(selector, [0, 1, 2], [np.nan, 9.0, 9.0], [1.0, 0.0, 1.0], trained=[True, True, False])
    assert selector.norm[:3].tolist() == [3.0, 4.0, 1.0]
    assert np.isnan(selector.norm[3])


def test_the_factor_is_the_weight_of_the_newest_norm() -> None:
    selector = ready(factor=0.25)
    observe(selector, [0, 1], [2.0, 8.0], [1.0, 1.0])
    observe(selector, [0, 1], [4.0, 0.0], [1.0, 1.0])
    assert selector.norm[:2].tolist() == [2.5, 6.0]  # ¾·2 + ¼·4, ¾·8 + ¼·0
    observe(selector, [0], [10.5], [1.0])
    assert selector.norm[0] == 4.5  # ¾·2.5 + ¼·10.5


def test_probabilities_match_the_formula() -> None:
    """Client 3 never trained, so it has the largest norm of the others."""
    selector = ready()
    observe(selector, [0, 1, 2], [1.0, 2.0, 4.0], [1.0] * 3)
    importance = P * np.array([1, 2, 4, 4])
    expected = 0.9 * importance / importance.sum() + 0.1 / 4
    np.testing.assert_allclose(the_why(selector.select(a_round(2, 4))).scores, expected, rtol=1e-14)
    two_available = the_why(selector.select(a_round(1, [0, 2], m=4))).scores
    np.testing.assert_allclose(two_available, 0.9 * np.array([0.1, 1.2]) / 1.3 + 0.05, rtol=1e-14)


@pytest.mark.parametrize("estimator", ["raj", "self_normalised"])
def test_only_the_weights_of_raj_are_unbiased(estimator: str) -> None:
    selector = ready(estimator=estimator)
    observe(selector, [0, 1, 2], [1.0, 2.0, 4.0], [1.0] * 3)
    draws = np.zeros((3_000, 4))
    for t in range(3_000):
        cohort = selector.select(a_round(2, 4, t=t + 1))
        q = the_why(cohort).scores[cohort.clients]
        ratio = P[cohort.clients] / q
        expected = raj(P[cohort.clients], q) if estimator == "raj" else ratio / ratio.sum()
        assert cohort.weights is not None
        np.testing.assert_allclose(cohort.weights, expected)
        draws[t] = weights_of(cohort, 4)
    assert mean_close(draws, P) == (estimator == "raj")


def test_clients_with_zero_updates_are_drawn_last_or_uniformly() -> None:
    selector = ready(xi=0.0)
    observe(selector, [0, 1, 2, 3], [0.0, 0.0, 0.0, 1.0], [1.0] * 4)
    assert (
        the_why(selector.select(a_round(1, [0, 1], m=4))).note == "random: all updates of the available clients were 0"
    )
    for t in range(1, 20):
        assert 3 in selector.select(a_round(2, 4, t=t)).clients


def test_importance_data_draws_batches_by_loss_without_bias() -> None:
    """Also if all available clients are selected. tests/training/test_local.py tests the draws."""
    assert ready().select(a_round(2, 4)).sampling == "shuffled"
    assert ready(importance_data=True).select(a_round(2, 4)).sampling == "loss_unbiased"
    assert ready(importance_data=True).select(a_round(4, 4)).sampling == "loss_unbiased"
