"""TiFL: probabilities of tiers, credits, formation of tiers, and cohorts from several tiers."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import make
from fedcohort.core.random_streams import rng
from fedcohort.selection import LocalAccuracy, Question, Speed
from fedcohort.selection.strategies.tifl import TiFL, by_accuracy
from tests.selection.fakes import a_census, a_round, the_why

SPEEDS = np.stack([np.arange(10.0, 0.0, -1.0), np.zeros(10)], axis=1)  # client 9 is the fastest


def ready(k: int = 2, m: int = 10, **values: Any) -> TiFL:
    selector: TiFL = make(TiFL, values, "selection")
    selector.setup(a_census([10] * m, k))
    return selector


def test_probabilities_match_worked_values() -> None:
    all_tiers = np.ones(5, dtype=bool)
    probabilities = by_accuracy(np.array([0.1, 0.2, 0.3, 0.4, 0.5]), all_tiers, rng(0, "test"))
    assert probabilities == pytest.approx([0.3333, 0.2667, 0.2, 0.1333, 0.0667], abs=5e-5)
    shuffled = by_accuracy(np.array([0.5, 0.1, 0.4, 0.2, 0.3]), all_tiers, rng(0, "test"))
    assert shuffled == pytest.approx([1 / 15, 5 / 15, 2 / 15, 4 / 15, 3 / 15])


def test_only_tiers_with_credit_are_ranked() -> None:
    credit = np.array([True, False, True, True, False])
    probabilities = by_accuracy(np.array([0.3, 0.0, 0.1, math.nan, 0.2]), credit, rng(0, "test"))
    assert probabilities == pytest.approx([1 / 6, 0, 2 / 6, 3 / 6, 0])  # a tier of unknown accuracy ranks first
    assert by_accuracy(np.zeros(4), np.zeros(4, dtype=bool), rng(0, "test")).tolist() == [0.25] * 4


def test_tiers_have_equal_size_and_clients_are_asked_once() -> None:
    selector, asked = ready(), list[tuple[Question, list[int]]]()
    cohort = selector.select(a_round(2, 10, speeds=SPEEDS, asked=asked))
    assert selector.tier.tolist() == [4, 4, 3, 3, 2, 2, 1, 1, 0, 0]
    assert len(set(selector.tier[cohort.clients].tolist())) == 1
    selector.select(a_round(2, 10, t=2, speeds=SPEEDS, asked=asked))
    assert asked == [(Speed(), list(range(10)))]


def test_measured_times_replace_stated_ones_when_tiers_are_formed() -> None:
    selector = ready(tiers=2)
    selector.select(a_round(2, list(range(9)), m=10, speeds=SPEEDS))
    assert selector.tier.tolist() == [1, 1, 1, 1, 0, 0, 0, 0, 0, -1]
    durations = np.full(10, np.nan)
    durations[0] = 0.5
    selector.select(a_round(2, 10, t=2, speeds=SPEEDS, durations=durations))  # client 9 is new
    assert selector.tier.tolist() == [0, 1, 1, 1, 1, 1, 0, 0, 0, 0]


def test_clients_stay_in_their_tiers_although_one_never_states_its_time() -> None:
    speeds = SPEEDS.copy()
    speeds[9] = np.nan
    selector = ready(tiers=3)
    selector.select(a_round(2, 10, speeds=speeds))
    first = [2, 2, 2, 1, 1, 1, 0, 0, 0, -1]
    assert selector.tier.tolist() == first
    durations = np.append(np.arange(1.0, 10.0), np.nan)  # clients turn out to be as fast as others were
    selector.select(a_round(2, 10, t=2, speeds=speeds, durations=durations))
    assert selector.tier.tolist() == first


def test_a_tier_without_an_answer_keeps_its_accuracy() -> None:
    selector = ready(tiers=2)
    selector.tier[:] = np.arange(10) // 5
    selector.accuracy[:] = [0.2, 0.7]
    selector._rank_tiers(a_round(2, list(range(5)), m=10, accuracies=[0.25, 0.5, 0.75, np.nan, 0.5, *[0.0] * 5]))
    assert selector.accuracy.tolist() == [0.5, 0.7]
    assert selector.wanted == pytest.approx([2 / 3, 1 / 3])


def test_tiers_have_static_probabilities_and_their_clients_are_equally_likely() -> None:
    selector, counts = ready(1, policy="static", tiers=2, probabilities=[3.0, 1.0]), np.zeros(10)
    for seed in range(4000):
        counts[selector.select(a_round(1, 10, seed=seed, speeds=SPEEDS)).clients] += 1
    assert stats.chisquare(counts, 4000 * np.array([0.05] * 5 + [0.15] * 5)).pvalue > 1e-6


def test_nearest_tiers_fill_the_cohort() -> None:
    selector = ready(4, policy="static", probabilities=[1, 0, 0, 0, 0])
    for seed in range(20):
        clients = selector.select(a_round(4, 10, seed=seed, speeds=SPEEDS)).clients
        assert set(clients[:2].tolist()) == {8, 9}
        assert set(clients[2:].tolist()) == {6, 7}
    only_slow = selector.select(a_round(1, [0, 1, 2], m=10, t=2, speeds=SPEEDS))  # no client of tier 0 is available
    assert "tier 3" in the_why(only_slow).note or "tier 4" in the_why(only_slow).note


def test_each_draw_uses_credit_and_fast_tiers_have_more() -> None:
    selector = ready(2, credit=2)
    assert selector.credits.tolist() == [10, 8, 6, 4, 2]
    for t in range(1, 10):
        selector.select(a_round(2, 10, t=t, speeds=SPEEDS))
    assert selector.credits.sum() == 30 - 9
    selector.credits[:] = [0, 0, 0, 0, 1]
    assert "tier 4 of 5, chosen with probability 1" in the_why(selector.select(a_round(2, 10, t=9, speeds=SPEEDS))).note
    chosen = {
        the_why(selector.select(a_round(2, 10, t=9, seed=seed, speeds=SPEEDS))).note.split(" of")[0]
        for seed in range(99)
    }
    assert chosen == {f"tier {j}" for j in range(5)}  # no tier has credit left
    assert selector.credits.tolist() == [0] * 5


def test_tiers_with_credit_are_asked_for_accuracy_at_intervals() -> None:
    selector, asked = ready(2, interval=4), list[tuple[Question, list[int]]]()
    selector.select(a_round(2, 10, speeds=SPEEDS))
    selector.credits[2] = 0
    accuracies = [0.9, 0.7, 0.4, math.nan, 0.0, 0.0, 0.1, 0.3, 0.5, 0.5]
    for t in range(2, 6):
        selector.select(a_round(2, 10, t=t, speeds=SPEEDS, accuracies=accuracies, asked=asked))
    assert asked == [(LocalAccuracy(), [0, 1, 2, 3, 6, 7, 8, 9])]
    assert selector.accuracy.tolist()[:2] == [0.5, 0.2]
    assert selector.accuracy.tolist()[3:] == pytest.approx([0.4, 0.8])
    assert selector.wanted == pytest.approx([0.2, 0.4, 0, 0.3, 0.1])


def test_clients_without_a_speed_come_last() -> None:
    speeds = SPEEDS.copy()
    speeds[:4] = np.nan
    selector = ready(7, tiers=2)
    clients = selector.select(a_round(7, 10, speeds=speeds)).clients
    assert set(clients[:6].tolist()) == {4, 5, 6, 7, 8, 9}
    unknown = ready(2).select(a_round(2, 10, speeds=np.full((10, 2), np.nan)))
    assert the_why(unknown).note == "random: no client reported its speed"


@pytest.mark.parametrize("given", [[1.0, 2.0], [0.0, 0.0, 0.0]])
def test_invalid_probabilities_are_refused(given: list[float]) -> None:
    with pytest.raises(
        UsageError, match=r"selection\.probabilities = \[.*needs one number for each of selection\.tiers = 3"
    ):
        ready(tiers=3, probabilities=given)
