"""HACCS: clusters by labels, weights of clusters, seats, the fastest inside, noise, and the limit."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import make
from fedcohort.selection import Question, Speed
from fedcohort.selection.haccs import HACCS
from tests.selection.fakes import a_census, a_round, an_outcome, the_why

HISTOGRAM = [[10, 0, 0], [19, 1, 0], [0, 10, 0], [0, 9, 1], [3, 3, 4]]  # two pairs and one alone
SPEEDS = np.array([[1.0, 1], [3, 1], [4, 4], [1, 1], [5, 0]])  # 2, 4, 8, 2, 5


def ready(k: int = 2, histogram: Any = HISTOGRAM, **values: Any) -> HACCS:
    selector: HACCS = make(HACCS, values, "selection")
    selector.setup(a_census([sum(row) for row in histogram], k, histogram))
    return selector


def test_clusters_and_those_near_nobody() -> None:
    selector, asked = ready(), list[tuple[Question, list[int]]]()
    selector.select(a_round(2, 5, speeds=SPEEDS, asked=asked))
    assert selector.cluster is not None
    a, b, c, d, e = selector.cluster.tolist()
    assert a == b
    assert c == d
    assert len({a, c, e}) == 3
    selector.select(a_round(2, 5, t=2, speeds=SPEEDS, asked=asked))
    assert asked == [(Speed(), [0, 1, 2, 3, 4])]


def test_weights_by_hand() -> None:
    """Latencies (2+4)/2 = 3, (8+2)/2 = 5, 5; squared losses (1+4)/2, 9, unknown (so the highest, 9): sum 20.5."""
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


def test_losses_are_kept_of_clients_whose_update_came_back() -> None:
    """Clients 2 and 4 fail in round 2: the squared losses stay 1 and 9, and the highest counts where none is known."""
    selector = ready(rho=0.0)
    selector.observe(an_outcome([0, 2], reports={"loss": [1.0, 3.0]}))
    selector.observe(an_outcome([2, 4], t=2, trained=[False, False], reports={"loss": [50.0, 70.0]}))
    share = the_why(selector.select(a_round(2, 5, t=3, speeds=SPEEDS))).terms["share of loss"]
    assert share == pytest.approx(np.array([1, 1, 9, 9, 9]) / 19)


def test_seats_in_order_go_to_the_fastest_and_round_again() -> None:
    selector = ready(5, deterministic=1.0, rho=1.0)
    for seed in range(10):
        clients = selector.select(a_round(5, 5, t=2, seed=seed, speeds=SPEEDS)).clients.tolist()
        assert clients[0] == 0  # the cluster with latency 3, its faster client
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
    assert counts[[1, 2]].tolist() == [0, 0]  # the slower ones of their pairs
    assert stats.chisquare(counts[[0, 3, 4]], 3000 * np.array([1, 4, 9]) / 14).pvalue > 1e-6


def test_the_share_of_seats_without_a_draw() -> None:
    selector = ready(3, deterministic=0.5, rho=1.0)  # ⌊1.5⌋ = 1 for the cluster of clients 0 and 1
    firsts = {int(selector.select(a_round(3, 5, t=2, seed=s, speeds=SPEEDS)).clients[0]) for s in range(40)}
    assert firsts == {0}


def test_a_cluster_of_those_who_are_there() -> None:
    cohort = ready(2, deterministic=1.0, rho=1.0).select(a_round(2, [1, 2, 3], m=5, speeds=SPEEDS))
    assert cohort.clients.tolist() == [1, 3]


def test_noise_is_added_before_anything_is_compared() -> None:
    same = [[50, 50]] * 6
    calm, noisy = ready(2, same), ready(2, same, epsilon_dp=0.01)
    calm.select(a_round(2, 6, speeds=np.ones((6, 2))))
    noisy.select(a_round(2, 6, speeds=np.ones((6, 2))))
    assert calm.cluster is not None
    assert noisy.cluster is not None
    assert len(set(calm.cluster.tolist())) == 1
    assert len(set(noisy.cluster.tolist())) > 1


def test_clients_without_samples_are_in_no_cluster() -> None:
    selector = ready(1, [[0, 0], [5, 5], [6, 5]])
    selector.select(a_round(1, [1, 2], m=3, speeds=np.ones((3, 2))))
    assert selector.cluster is not None
    assert selector.cluster.tolist() == [-1, 0, 0]


def test_too_many_clients_are_refused_in_words() -> None:
    with pytest.raises(UsageError, match=r"selection\.name = 'haccs': 10,001 clients; .* at most 10,000"):
        ready(2, np.ones((10_001, 2), dtype=np.int64))
