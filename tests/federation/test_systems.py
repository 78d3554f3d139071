"""The virtual clock: H10's law and its worked numbers, availability, drop-out, independence of the strategy."""

import numpy as np
import pytest

from fedcohort.algorithms.base import Update
from fedcohort.federation.systems import Clock, Systems


def clock(num_samples: list[int], seed: int = 0, **values: object) -> Clock:
    return Clock(Systems(**values), np.array(num_samples), seed)  # type: ignore[arg-type]


def updates(clients: list[int], work: float = 1.0) -> list[Update]:
    return [Update(client=i, num_samples=1, steps=1, state={}, work=work) for i in clients]


@pytest.mark.parametrize(("spread", "mean"), [(1.0, 2_000), (10.0, 11_000), (100.0, 101_000)])
def test_the_mean_time_is_shift_plus_spread_times_samples(spread: float, mean: float) -> None:
    times = clock([1_000] * 200_000, latency_spread=spread).nominal(1)
    assert times.mean() == pytest.approx(mean, rel=0.015)
    assert times.min() >= 1_000


@pytest.mark.parametrize(("spread", "expected"), [(1.0, 3_929), (10.0, 30_290), (100.0, 293_897)])
def test_the_expected_maximum_of_ten_clients(spread: float, expected: float) -> None:
    times = clock([1_000] * 200_000, latency_spread=spread).nominal(1).reshape(-1, 10)
    assert times.max(axis=1).mean() == pytest.approx(expected, rel=0.02)


def test_the_law_is_a_shifted_exponential() -> None:
    """P[T ≤ x] = 1 − exp(−(x − aN)/(sN)) at several x; 6 standard errors of 100,000 draws."""
    times = clock([50] * 100_000, latency_shift=2.0, latency_spread=3.0).nominal(1)
    for x in (120.0, 200.0, 400.0, 900.0):
        expected = 1 - np.exp(-(x - 100) / 150)
        assert (times <= x).mean() == pytest.approx(expected, abs=6 * 0.5 / np.sqrt(100_000))


def test_slow_clients_stay_slow_unless_redrawn() -> None:
    kept, fresh = clock([10] * 50), clock([10] * 50, latency_redraw="round")
    assert np.array_equal(kept.nominal(1), kept.nominal(2))
    assert not np.array_equal(fresh.nominal(1), fresh.nominal(2))
    assert np.array_equal(
        fresh.nominal(2), clock([10] * 50, latency_redraw="round").nominal(2)
    )  # a function of the round


def test_work_scales_time_and_the_slowest_ends_the_round() -> None:
    c = clock([10, 20, 30], latency_spread=0.0)
    durations = [u.duration for u in c.settle(1, updates([2, 0], work=2.0))]
    assert durations == [60.0, 20.0]
    assert c.now == 60.0
    assert c.durations.tolist()[::2] == [10.0, 30.0]  # for nominal work
    assert np.isnan(c.durations[1])


def test_clients_without_data_are_never_available() -> None:
    assert clock([5, 0, 3]).available(1).tolist() == [0, 2]


def test_availability_share_and_independence_of_history() -> None:
    c = clock([1] * 100_000, availability=0.3)
    assert len(c.available(5)) / 100_000 == pytest.approx(0.3, abs=6 * np.sqrt(0.21 / 100_000))
    assert np.array_equal(c.available(9), clock([1] * 100_000, availability=0.3).available(9))
    assert not np.array_equal(c.available(9), c.available(10))


def test_dropout_share() -> None:
    c = clock([1] * 4_000, dropout=0.25)
    failed = [u for u in c.settle(1, updates(list(range(4_000)))) if u.failure]
    assert len(failed) / 4_000 == pytest.approx(0.25, abs=6 * np.sqrt(0.1875 / 4_000))


def test_a_clock_goes_on_from_its_state() -> None:
    c = clock([10, 20], latency_spread=0.0)
    list(c.settle(1, updates([1])))
    other = clock([10, 20], latency_spread=0.0)
    other.load_state_dict(c.state_dict())
    assert (other.now, other.durations[1]) == (20.0, 20.0)
