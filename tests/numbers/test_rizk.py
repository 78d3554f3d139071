"""Importance sampling of agents by what they were seen to do: the running mean, the probabilities, both kinds of weights."""

from typing import Any

import numpy as np
import pytest

from fedcohort.selection.draws import raj
from fedcohort.selection.rizk import Rizk
from tests.selection.fakes import a_census, a_round, an_outcome, the_why
from tests.selection.laws import mean_close, weights_of

SIZES = [10, 20, 30, 40]
P = np.array(SIZES) / 100


def ready(**values: Any) -> Rizk:
    selector = Rizk(**values)
    selector.setup(a_census(SIZES, 2))
    return selector


def saw(selector: Rizk, clients: list[int], norms: list[float], steps: list[float], **more: Any) -> None:
    selector.observe(an_outcome(clients, reports={"update_norm": norms, "steps": steps}, **more))


def test_the_first_rounds_are_uniform() -> None:
    why = the_why(ready().select(a_round(2, 4)))
    assert why.scores.tolist() == [0.25] * 4
    assert why.note == "random: no update seen yet"


def test_running_mean_of_norms_per_step() -> None:
    selector = ready()
    saw(selector, [0, 1], [6.0, 8.0], [3.0, 2.0])
    assert selector.norm[:2].tolist() == [2.0, 4.0]
    saw(selector, [0, 2], [4.0, 5.0], [1.0, 5.0])
    assert selector.norm[:3].tolist() == [3.0, 4.0, 1.0]
    saw(selector, [0, 1, 2], [np.nan, 9.0, 9.0], [1.0, 0.0, 1.0], trained=[True, True, False])
    assert selector.norm[:3].tolist() == [3.0, 4.0, 1.0]
    assert np.isnan(selector.norm[3])


def test_the_factor_is_what_the_newest_norm_counts() -> None:
    selector = ready(factor=0.25)
    saw(selector, [0, 1], [2.0, 8.0], [1.0, 1.0])
    saw(selector, [0, 1], [4.0, 0.0], [1.0, 1.0])
    assert selector.norm[:2].tolist() == [2.5, 6.0]  # ¾·2 + ¼·4, ¾·8 + ¼·0
    saw(selector, [0], [10.5], [1.0])
    assert selector.norm[0] == 4.5  # ¾·2.5 + ¼·10.5


def test_probabilities() -> None:
    """Client 3 was never seen and counts with the largest norm."""
    selector = ready()
    saw(selector, [0, 1, 2], [1.0, 2.0, 4.0], [1.0] * 3)
    worth = P * np.array([1, 2, 4, 4])
    expected = 0.9 * worth / worth.sum() + 0.1 / 4
    np.testing.assert_allclose(the_why(selector.select(a_round(2, 4))).scores, expected, rtol=1e-14)
    some = the_why(selector.select(a_round(1, [0, 2], m=4))).scores
    np.testing.assert_allclose(some, 0.9 * np.array([0.1, 1.2]) / 1.3 + 0.05, rtol=1e-14)


@pytest.mark.parametrize("estimator", ["raj", "self_normalised"])
def test_weights(estimator: str) -> None:
    selector = ready(estimator=estimator)
    saw(selector, [0, 1, 2], [1.0, 2.0, 4.0], [1.0] * 3)
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


def test_clients_that_do_not_move() -> None:
    selector = ready(xi=0.0)
    saw(selector, [0, 1, 2, 3], [0.0, 0.0, 0.0, 1.0], [1.0] * 4)
    assert the_why(selector.select(a_round(1, [0, 1], m=4))).note == "random: no available client has moved"
    for t in range(1, 20):
        assert 3 in selector.select(a_round(2, 4, t=t)).clients


def test_data_inside_a_client() -> None:
    """Batches by loss, reweighted; also when everybody takes part. How they are drawn: tests/training/test_local.py."""
    assert ready().select(a_round(2, 4)).sampling == "shuffled"
    assert ready(importance_data=True).select(a_round(2, 4)).sampling == "loss_unbiased"
    assert ready(importance_data=True).select(a_round(4, 4)).sampling == "loss_unbiased"
