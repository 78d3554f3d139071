"""HACCS: clusters by labels, weights of clusters, seats, the fastest clients, noise, and the limit on clients."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import make
from fedcohort.selection import Question, Speed
from fedcohort.selection.strategies.haccs import HACCS
from tests.selection.fakes import a_census, a_round, an_outcome, the_why

HISTOGRAM = [
    [10, 0, 0],
    [19, 1, 0],
    [0, 10, 0],
    [0, 9, 1],
    [3, 3, 4],
]  # two pairs of similar clients, and one client on its own
SPEEDS = np.array([[1.0, 1], [3, 1], [4, 4], [1, 1], [5, 0]])  # total times 2, 4, 8, 2, 5


def ready(k: int = 2, histogram: Any = HISTOGRAM, **values: Any) -> HACCS:
    selector: HACCS = make(HACCS, values, "selection")
    selector.setup(a_census([sum(row) for row in histogram], k, histogram))
    return selector


def test_similar_clients_form_clusters_and_other_clients_are_alone() -> None:
    selector, asked = ready(), list[tuple[Question, list[int]]]()
    selector.select(a_round(2, 5, speeds=SPEEDS, asked=asked))
    assert selector.cluster is not None
    a, b, c, d, e = selector.cluster.tolist()
    assert a == b
    assert c == d
    assert len({a, c, e}) == 3
    selector.select(a_round(2, 5, t=2, speeds=SPEEDS, asked=asked))
    assert asked == [(Speed(), [0, 1, 2, 3, 4])]


def test_weights_match_hand_computed_values() -> None:
    """Latencies (2+4)/2 = 3, (8+2)/2 = 5, 5; mean squared losses (1+4)/2, 9, and unknown, so the highest, 9; their sum is 20.5."""
    selector = ready()
    selector.observe(an_outcome([0, 1, 2], reports={"loss": [1.0, 2.0, 3.0]}))
    why = the_why(selector.select(a_round(2, 5, t=2, speeds=SPEEDS)))
    assert why.terms["fast"] == pytest.approx([0.4, 0.4, 0, 0, 0])
    assert why.terms["share of loss"] == pytest.approx(np.array([2.5, 2.5, 9, 9, 9]) / 20.5)
    assert why.scores == pytest.approx(0.5 * np.array([0.4, 0.4, 0, 0, 0]) + 0.5 * np.array([2.5, 2.5, 9, 9, 9]) / 20.5)
    only_loss = ready(rho=0.0)
    only_loss.observe(an_outcome([0, 1, 2, 4], reports={"loss": [1.0, 2.0, 3.0, math.nan]}))
    assert the_why(only_loss.select(a_round(2, 5, t=2, speeds=SPEEDS))).scores == pytest.approx(
        np.array([2.5, 2.5, 9, 9, 9]) / 20.5
    )


def test_only_losses_of_trained_clients_are_stored() -> None:
    """Clients 2 and 4 fail in round 2: the squared losses stay 1 and 9, and a cluster without a loss has the highest."""
    selector = ready(rho=0.0)
    selector.observe(an_outcome([0, 2], reports={"loss": [1.0, 3.0]}))
    selector.observe(an_outcome([2, 4], t=2, trained=[False, False], reports={"loss": [50.0, 70.0]}))
    share = the_why(selector.select(a_round(2, 5, t=3, speeds=SPEEDS))).terms["share of loss"]
    assert share == pytest.approx(np.array([1, 1, 9, 9, 9]) / 19)


def test_seats_in_order_go_to_the_fastest_clients_and_repeat_over_clusters() -> None:
    selector = ready(5, deterministic=1.0, rho=1.0)
    for seed in range(10):
        clients = selector.select(a_round(5, 5, t=2, seed=seed, speeds=SPEEDS)).clients.tolist()
        assert clients[0] == 0  # the faster client of the cluster with latency 3
        assert set(clients[1:3]) == {3, 4}
        assert clients[3:] == [1, 2] or set(clients[3:]) == {1, 2}
        three = ready(3, deterministic=1.0, rho=1.0).select(a_round(3, 5, t=2, seed=seed, speeds=SPEEDS)).clients
        assert set(three.tolist()) == {0, 3, 4}


def test_drawn_seats_follow_the_weights() -> None:
    selector = ready(1, deterministic=0.0, rho=0.0)
    selector.observe(an_outcome([0, 1, 2, 3, 4], reports={"loss": [1.0, 1.0, 2.0, 2.0, 3.0]}))
    counts = np.zeros(5)
    for seed in range(3000):
        counts[selector.select(a_round(1, 5, t=2, seed=seed, speeds=SPEEDS)).clients] += 1
    assert counts[[1, 2]].tolist() == [0, 0]  # the slower client of each pair
    assert stats.chisquare(counts[[0, 3, 4]], 3000 * np.array([1, 4, 9]) / 14).pvalue > 1e-6


def test_the_share_of_seats_without_a_draw_is_rounded_down() -> None:
    selector = ready(3, deterministic=0.5, rho=1.0)  # ⌊1.5⌋ = 1 seat without a draw, for the cluster of clients 0 and 1
    firsts = {int(selector.select(a_round(3, 5, t=2, seed=s, speeds=SPEEDS)).clients[0]) for s in range(40)}
    assert firsts == {0}


def test_only_available_clients_of_a_cluster_are_selected() -> None:
    cohort = ready(2, deterministic=1.0, rho=1.0).select(a_round(2, [1, 2, 3], m=5, speeds=SPEEDS))
    assert cohort.clients.tolist() == [1, 3]


def test_noise_is_added_before_clustering() -> None:
    same = [[50, 50]] * 6
    exact, noisy = ready(2, same), ready(2, same, epsilon_dp=0.01)
    exact.select(a_round(2, 6, speeds=np.ones((6, 2))))
    noisy.select(a_round(2, 6, speeds=np.ones((6, 2))))
    assert exact.cluster is not None
    assert noisy.cluster is not None
    assert len(set(exact.cluster.tolist())) == 1
    assert len(set(noisy.cluster.tolist())) > 1


def test_clients_without_samples_are_in_no_cluster() -> None:
    selector = ready(1, [[0, 0], [5, 5], [6, 5]])
    selector.select(a_round(1, [1, 2], m=3, speeds=np.ones((3, 2))))
    assert selector.cluster is not None
    assert selector.cluster.tolist() == [-1, 0, 0]


def test_more_than_10000_clients_are_refused() -> None:
    with pytest.raises(UsageError, match=r"selection\.name = 'haccs': 10,001 clients; .* at most 10,000"):
        ready(2, np.ones((10_001, 2), dtype=np.int64))
