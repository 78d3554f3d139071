"""Round robin: equal numbers of selections, and clients that were unavailable come first."""

import numpy as np
import pytest

from fedcohort.measures import jain
from fedcohort.selection import choose
from fedcohort.selection.strategies.round_robin import RoundRobin
from tests.selection.fakes import a_census, a_round, an_outcome


def ready(m: int, k: int) -> RoundRobin:
    selector = RoundRobin()
    selector.setup(a_census([10] * m, k))
    return selector


@pytest.mark.parametrize(("m", "k"), [(7, 3), (10, 5), (12, 12), (5, 1)])
def test_numbers_of_selections_differ_by_at_most_one(m: int, k: int) -> None:
    selector, counts = ready(m, k), np.zeros(m)
    for t in range(1, 41):
        cohort = choose(selector, a_round(k, m, t=t))
        selector.observe(an_outcome(cohort, t=t))
        counts[cohort.clients] += 1
        assert counts.max() - counts.min() <= 1
        if k * t % m == 0:
            assert jain(counts) == 1.0


def test_the_order_is_random_and_fixed() -> None:
    orders = set()
    for seed in range(20):
        selector = ready(4, 2)
        picks = []
        for t in range(1, 5):
            cohort = selector.select(a_round(2, 4, t=t, seed=seed))
            selector.observe(an_outcome(cohort))
            picks.append(cohort.clients.tolist())
        assert picks[2:] == picks[:2]
        orders.add(str(picks))
    assert len(orders) > 10


def test_unavailable_clients_keep_their_place_in_the_queue() -> None:
    selector = ready(6, 2)
    selector.place = np.arange(6)
    away = selector.select(a_round(2, [2, 3, 4, 5], m=6))
    assert away.clients.tolist() == [2, 3]
    selector.observe(an_outcome(away))
    back = selector.select(a_round(2, 6))
    assert back.clients.tolist() == [0, 1]
    selector.observe(an_outcome(back))
    assert selector.select(a_round(4, 6)).clients.tolist() == [4, 5, 2, 3]


def test_a_selected_client_that_fails_moves_to_the_end() -> None:
    selector = ready(4, 2)
    first = selector.select(a_round(2, 4))
    selector.observe(an_outcome(first, trained=[False, False]))
    assert not set(selector.select(a_round(2, 4, t=2)).clients.tolist()) & set(first.clients.tolist())
