"""FEEL: worked probabilities, the optimum by an independent optimiser, imputations, weights."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from scipy.optimize import minimize

from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import make
from fedcohort.selection import GradientNorm, Question, Speed
from fedcohort.selection.draws import raj
from fedcohort.selection.strategies.feel import FEEL, scheduling
from tests.selection.fakes import a_census, a_round, an_outcome, the_why
from tests.selection.laws import mean_close, weights_of

A, T = np.array([0.5, 0.6, 0.3]), np.array([1.0, 4.0, 2.0])


def objective(q: Any, a: Any, times: Any, rho: float) -> float:
    return float(rho * (a**2 / q).sum() + (1 - rho) * (q * times).sum())


@pytest.mark.parametrize(
    ("rho", "expected"),
    [
        (0.5, (0.491132, 0.298643, 0.210226)),
        (0.1, (0.787549, 0.114618, 0.097833)),
        (1.0, (0.357143, 0.428571, 0.214286)),
        (1 - 1e-12, (0.357143, 0.428571, 0.214286)),
    ],
)
def test_worked_probabilities(rho: float, expected: tuple[float, ...]) -> None:
    q, multiplier = scheduling(A, T, rho)
    np.testing.assert_allclose(q, expected, atol=5e-7)
    if rho == 0.5:
        assert multiplier == pytest.approx(0.01822, abs=5e-6)
        assert objective(q, A, T, rho) == pytest.approx(2.124374, abs=5e-7)


def test_stored_norms_are_those_per_step_of_all_clients_that_trained() -> None:
    """Client 1 was declined, client 2 failed, and client 3 made no step."""
    selector: FEEL = make(FEEL, {"gradient": "cached"}, "selection")
    selector.setup(a_census([10] * 5, 2))
    selector.observe(
        an_outcome(
            [0, 1, 2, 3],
            reports={"update_norm": [6.0, 8.0, 9.0, 1.0], "steps": [3.0, 2.0, 3.0, 0.0]},
            trained=[True, True, False, True],
            admitted=[True, False, False, True],
        )
    )
    assert selector.last_norm.tolist() == pytest.approx([2.0, 4.0, np.nan, np.nan, np.nan], nan_ok=True)


@settings(deadline=None, max_examples=100)
@given(
    clients=some.lists(some.tuples(some.floats(1e-3, 1e3), some.floats(1e-3, 1e3)), min_size=1, max_size=20),
    rho=some.floats(1e-3, 1.0),
)
def test_the_conditions_of_an_optimum(clients: list[tuple[float, float]], rho: float) -> None:
    """ρa²/q² = (1 − ρ)T + λ for one λ: the derivative is the same everywhere."""
    a, times = np.array(clients).T
    q, multiplier = scheduling(a, times, rho)
    assert q.sum() == pytest.approx(1)
    rounding = 1e-12 * times.max()  # (1 − ρ)T and λ may cancel
    np.testing.assert_allclose(rho * a**2 / q**2, (1 - rho) * times + multiplier, rtol=1e-6, atol=rounding)


def test_the_optimum_by_an_independent_optimiser() -> None:
    more: Any = {"constraints": {"type": "eq", "fun": lambda q: q.sum() - 1}, "options": {"ftol": 1e-14}}
    found = minimize(
        partial(objective, a=A, times=T, rho=0.3),
        np.full(3, 1 / 3),
        bounds=[(1e-6, 1)] * 3,
        method="SLSQP",
        **more,
    )
    np.testing.assert_allclose(scheduling(A, T, 0.3)[0], found.x, atol=1e-5)


def test_edges_of_the_probabilities() -> None:
    q, _ = scheduling(np.array([0.0, 1.0, 2.0]), np.array([1e-9, 1.0, 1.0]), 0.5)
    np.testing.assert_allclose(q, [0, 1 / 3, 2 / 3], rtol=1e-12)
    assert scheduling(np.array([3.0]), np.array([2.0]), 0.5)[0].tolist() == [1.0]


@pytest.mark.parametrize("times", [(1.0, 1e-12, 5.0), (1.0, 4.0, 2.0)])
def test_importances_whose_squares_are_0_do_not_count(times: tuple[float, ...]) -> None:
    q, multiplier = scheduling(np.array([1.0, 1e-200, 1e-320]), np.array(times), 0.5)
    assert q.tolist() == [1.0, 0.0, 0.0]
    assert np.isfinite(multiplier)


# --- the strategy ----------------------------------------------------------------------------------------------------------

SIZES = [10, 20, 30, 40]
P = np.array(SIZES) / 100
NORMS = [4.0, 3.0, 2.0, 1.0]


def ready(**values: Any) -> FEEL:
    selector = FEEL(**{"upload": "measured", **values})
    selector.setup(a_census(SIZES, 2))
    return selector


def test_what_is_asked_and_how_it_is_scaled() -> None:
    asked: list[tuple[Question, list[int]]] = []
    cohort = ready().select(a_round(2, 4, norms=NORMS, upload_times=[1.0, 2.0, 3.0, 6.0], asked=asked))
    assert asked == [(GradientNorm(), [0, 1, 2, 3])]
    importance = P * NORMS / (P * NORMS).sum()
    expected, _ = scheduling(importance, np.array([1, 2, 3, 6]) / 3, 0.5)
    np.testing.assert_allclose(the_why(cohort).scores, expected)
    larger = ready().select(a_round(2, 4, norms=100 * np.array(NORMS), upload_times=[7.0, 14.0, 21.0, 42.0]))
    np.testing.assert_allclose(the_why(larger).scores, expected)  # units do not matter


@pytest.mark.parametrize("norm", [1e200, 1e299, 1e300, 1e-320, np.inf])
@pytest.mark.parametrize("time", [0.0, 1e-320, 1.0, 1e308, -1.0, np.inf])
def test_one_client_with_impossible_answers_does_not_end_the_run(norm: float, time: float) -> None:
    speeds = [[1.0, time], *[[1.0, 1.0]] * 3]
    for norms in ([norm, 3.0, 2.0, 1.0], [4.0, norm, 2.0, 1.0]):
        cohort = ready(upload="asked").select(a_round(2, 4, norms=norms, speeds=speeds))
        assert cohort.weights is not None
        assert np.isfinite(cohort.weights).all()


def test_upload_times_are_asked_for() -> None:
    asked: list[tuple[Question, list[int]]] = []
    speeds = [[9.0, 1.0], [9.0, 2.0], [9.0, 3.0], [9.0, 6.0]]
    why = the_why(ready(upload="asked").select(a_round(2, 4, norms=NORMS, speeds=speeds, asked=asked)))
    assert asked == [(GradientNorm(), [0, 1, 2, 3]), (Speed(), [0, 1, 2, 3])]
    assert why.terms["upload_time"].tolist() == [1.0, 2.0, 3.0, 6.0]
    importance = P * NORMS / (P * NORMS).sum()
    np.testing.assert_allclose(why.scores, scheduling(importance, np.array([1, 2, 3, 6]) / 3, 0.5)[0])
    silent = the_why(ready(upload="asked").select(a_round(2, 4, norms=NORMS, speeds=[[9.0, np.nan], *speeds[1:]])))
    assert silent.terms["upload_time"].tolist() == [3.0, 2.0, 3.0, 6.0]


def test_times_never_measured_count_with_the_median() -> None:
    why = the_why(ready().select(a_round(2, 4, norms=NORMS, upload_times=[1.0, np.nan, 3.0, 7.0])))
    assert why.terms["upload_time"].tolist() == [1.0, 3.0, 3.0, 7.0]
    why = the_why(ready().select(a_round(2, 4, norms=NORMS)))
    np.testing.assert_allclose(why.scores, P * NORMS / (P * NORMS).sum())


def test_a_fifth_of_the_whole_time_stands_for_an_unknown_upload_time() -> None:
    measured = a_round(
        2, 4, norms=NORMS, upload_times=[7.0, np.nan, np.nan, np.nan], durations=[10.0, 20.0, np.nan, 40.0]
    )
    assert the_why(ready().select(measured)).terms["upload_time"].tolist() == [7.0, 4.0, 7.0, 8.0]


def test_norms_that_are_missing() -> None:
    why = the_why(ready().select(a_round(2, 4, norms=[4.0, np.nan, 2.0, np.inf])))
    assert why.terms["norm"].tolist() == [4.0, 3.0, 2.0, 3.0]
    for nothing in (np.nan, 0.0):
        why = the_why(ready(rho=1.0).select(a_round(2, 4, norms=[nothing] * 4)))
        np.testing.assert_allclose(why.scores, P)


def test_norms_that_cannot_be_added_up_are_missing() -> None:
    why = the_why(ready().select(a_round(2, 4, norms=[1.7e308, 1.7e308, 2.0, np.nan])))
    assert why.terms["norm"].tolist() == [2.0] * 4


def test_cached_norms_ask_nobody() -> None:
    asked: list[tuple[Question, list[int]]] = []
    selector = ready(gradient="cached")
    np.testing.assert_allclose(the_why(selector.select(a_round(2, 4, asked=asked))).scores, P)
    reports = {"update_norm": [6.0, 4.0, np.nan], "steps": [3.0, 4.0, 1.0]}
    selector.observe(an_outcome([0, 1, 2], reports=reports))
    why = the_why(selector.select(a_round(2, 4, asked=asked)))
    assert why.terms["norm"].tolist() == [2.0, 1.0, 2.0, 2.0]
    assert asked == []


def test_small_probabilities_are_raised() -> None:
    norms = [1e-20, 1.0, 1.0, 1.0]
    q = the_why(ready().select(a_round(2, 4, norms=norms))).scores
    assert q[0] == pytest.approx(1e-6, rel=1e-5)
    assert q.sum() == pytest.approx(1)


def test_weights_are_unbiased() -> None:
    draws, selector = np.zeros((3_000, 4)), ready()
    for t in range(3_000):
        cohort = selector.select(a_round(2, 4, t=t + 1, norms=NORMS, upload_times=[1.0, 2.0, 3.0, 6.0]))
        q = the_why(cohort).scores[cohort.clients]
        assert cohort.weights is not None
        np.testing.assert_allclose(cohort.weights, raj(P[cohort.clients], q))
        draws[t] = weights_of(cohort, 4)
    assert mean_close(draws, P)


def test_always_the_fastest_is_refused() -> None:
    with pytest.raises(UsageError, match=r"selection.rho = 0: should be above 0"):
        make(FEEL, {"rho": 0}, "selection")
