"""Computing times (H10) with their worked numbers, and the part of them that is communication (H12)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcohort.federation.latency import Latency, LogNormalBandwidth, Share, ShiftedExponential

MANY = 200_000


def times(num_samples: list[int], t: int = 1, seed: int = 0, **values: object) -> np.ndarray:
    return ShiftedExponential(**values).times(np.array(num_samples), seed)(t)  # type: ignore[arg-type]


@pytest.mark.parametrize("redraw", ["client", "round", "mixed"])
@pytest.mark.parametrize(("spread", "mean"), [(1.0, 2_000), (10.0, 11_000), (100.0, 101_000)])
def test_the_mean_is_shift_plus_spread_times_samples(spread: float, mean: float, redraw: str) -> None:
    found = times([1_000] * MANY, spread=spread, redraw=redraw)
    deviation = spread * 1_000 * (1 if redraw != "mixed" else np.sqrt(2 * np.e - 1))  # E[(fE)²] = e·2
    assert found.mean() == pytest.approx(mean, abs=5 * deviation / np.sqrt(MANY))
    assert found.min() >= 1_000


@pytest.mark.parametrize("redraw", ["client", "round"])
@pytest.mark.parametrize(("spread", "expected"), [(1.0, 3_929), (10.0, 30_290), (100.0, 293_897)])
def test_the_expected_maximum_of_ten_clients(spread: float, expected: float, redraw: str) -> None:
    """α_T·N + λ_T·N·H_10, where H_10 = 2.928968; the maximum of ten exponentials has the variance Σ 1/i² = 1.5498."""
    assert 1_000 * (1 + spread * 2.928968) == pytest.approx(expected, abs=0.5)
    found = times([1_000] * MANY, spread=spread, redraw=redraw).reshape(-1, 10).max(axis=1)
    assert found.mean() == pytest.approx(expected, abs=5 * spread * 1_000 * np.sqrt(1.5498 / len(found)))


@pytest.mark.parametrize("redraw", ["client", "round"])
def test_the_law_is_a_shifted_exponential(redraw: str) -> None:
    """P[T ≤ x] = 1 − exp(−(x − αN)/(λN)) at several x; 6 standard errors of 100,000 draws. F-18: the mean of X is λN, not 1/λN."""
    found = times([50] * 100_000, shift=2.0, spread=3.0, redraw=redraw)
    for x in (120.0, 200.0, 400.0, 900.0):
        expected = 1 - np.exp(-(x - 100) / 150)
        assert (found <= x).mean() == pytest.approx(expected, abs=6 * 0.5 / np.sqrt(100_000))


def test_slow_clients_stay_slow_unless_redrawn() -> None:
    """F-19: with equal N_i and a fresh draw every round, the past says nothing; with a device's factor it says something."""
    correlation = {}
    for redraw in ("client", "round", "mixed"):
        first, second = (np.log(times([10] * 20_000, t, redraw=redraw) - 10) for t in (1, 2))
        correlation[redraw] = float(np.corrcoef(first, second)[0, 1])
    assert correlation["client"] == pytest.approx(1.0)
    assert abs(correlation["round"]) < 0.03
    # log X = log f + log E, with variances 1 and π²/6
    assert correlation["mixed"] == pytest.approx(1 / (1 + np.pi**2 / 6), abs=0.03)


@pytest.mark.parametrize("redraw", ["client", "round", "mixed"])
def test_times_are_a_function_of_seed_and_round(redraw: str) -> None:
    sizes = np.arange(1, 40)
    law = ShiftedExponential(redraw=redraw)  # type: ignore[arg-type]
    forwards, backwards = law.times(sizes, 3), law.times(sizes, 3)
    expected = {t: forwards(t).tolist() for t in range(1, 8)}
    assert {t: backwards(t).tolist() for t in range(7, 0, -1)} == {**expected}
    assert law.times(sizes, 4)(1).tolist() != expected[1]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(0, 10_000), min_size=1, max_size=30),
    st.floats(0.01, 100),
    st.floats(0, 100),
    st.sampled_from(["client", "round", "mixed"]),
    st.integers(1, 1_000),
)
def test_nobody_is_faster_than_the_shift_nor_than_the_least(
    sizes: list[int], shift: float, spread: float, redraw: str, t: int
) -> None:
    law = ShiftedExponential(shift=shift, spread=spread, redraw=redraw)  # type: ignore[arg-type]
    found = law.times(np.array(sizes), 0)(t)
    assert (found >= shift * np.array(sizes)).all()
    assert (found >= law.least(np.array(sizes), 0)).all()


def test_a_law_of_ones_own_says_nothing_about_the_least() -> None:
    assert Latency().least(np.array([1, 2]), 0).tolist() == [0.0, 0.0]


def test_without_a_network_a_fifth_of_the_time_is_communication() -> None:
    split = Share().split(3, 0, 1_000)
    whole, upload = split(np.array([10.0, 20.0, 0.1]), np.arange(3), np.full(3, 1_000.0))
    assert whole.tolist() == [10.0, 20.0, 0.1]  # the times of H10, to the last bit
    assert upload == pytest.approx([2.0, 4.0, 0.02])


def test_half_an_upload_saves_its_share_and_more_than_a_model_costs_nothing() -> None:
    split = Share().split(1, 0, 1_000)  # 500 bytes down, 500 up
    whole, upload = split(np.array([10.0]), np.array([0]), np.array([750.0]))
    assert (whole[0], upload[0]) == (pytest.approx(9.5), pytest.approx(1.5))
    whole, upload = split(np.array([10.0]), np.array([0]), np.array([2_000.0]))
    assert (whole[0], upload[0]) == (10.0, pytest.approx(2.0))


def test_with_a_network_sending_is_added_to_computing() -> None:
    split = LogNormalBandwidth(bandwidth=50.0, sigma=0.0).split(2, 0, 1_000)
    whole, upload = split(np.array([10.0, 20.0]), np.arange(2), np.array([1_000.0, 500.0]))
    assert (whole.tolist(), upload.tolist()) == ([30.0, 30.0], [20.0, 10.0])


def test_bandwidths_are_log_normal_and_stay_with_the_client() -> None:
    split = LogNormalBandwidth(bandwidth=50.0, sigma=0.7).split(MANY, 0, 0)
    _, upload = split(np.zeros(MANY), np.arange(MANY), np.ones(MANY))
    logs = -np.log(upload)
    assert logs.mean() == pytest.approx(np.log(50), abs=6 * 0.7 / np.sqrt(MANY))
    assert logs.std() == pytest.approx(0.7, abs=6 * 0.7 / np.sqrt(2 * MANY))
    _, again = split(np.zeros(3), np.array([5, 17, 3]), np.ones(3))
    assert again.tolist() == upload[[5, 17, 3]].tolist()
