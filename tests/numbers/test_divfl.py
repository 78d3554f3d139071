"""DivFL: the worked greedy choice, distances that follow participants, weights, and the limit of memory."""

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import fedcohort
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import make
from fedcohort.core.random_streams import rng
from fedcohort.selection import choose
from fedcohort.selection.strategies.divfl import DivFL, facility_location
from tests.experiments import small
from tests.selection.fakes import a_census, a_round, an_outcome, the_why

UPDATES = np.array([[0.0, 0], [0, 1], [5, 5], [5, 6], [10, 0]])


def ready(updates: np.ndarray, k: int, **values: Any) -> DivFL:
    selector: DivFL = make(DivFL, values, "selection")
    selector.setup(a_census([10] * len(updates), k))
    selector.observe(an_outcome(np.arange(len(updates)), reports={"update": updates}))
    return selector


def test_worked_choice() -> None:
    table, seen = cdist(UPDATES, UPDATES), set()
    for seed in range(40):
        picks, costs = facility_location(table, 3, rng(seed, "test"))
        assert costs == pytest.approx([21.5453, 9.0711, 2.0], abs=5e-5)
        seen.add(tuple(picks))
    assert seen == {(2, 0, 4), (2, 1, 4)}  # the tie between 0 and 1 is broken at random


def test_worked_choice_by_the_strategy_with_masses() -> None:
    cohort = ready(UPDATES, 3).select(a_round(3, 5, t=2))
    assert cohort.clients[0] == 2
    assert cohort.clients[2] == 4
    assert cohort.weights is not None
    assert cohort.weights.tolist() == [0.4, 0.4, 0.2]  # {2, 3}, {0, 1}, {4}
    why = the_why(cohort)
    assert why.scores.max() == pytest.approx(-21.5453, abs=5e-5)
    assert "sum of distances 2" in why.note


def test_facilities_are_available_and_stand_for_everybody() -> None:
    """Clients 3 and 4 are away, and draw the choice from the middle of the others towards them all the same."""
    selector = ready(np.array([[0.0], [1], [2], [50], [60]]), 1)
    assert selector.select(a_round(1, [0, 1, 2], m=5, t=2)).clients.tolist() == [2]


def test_every_step_is_the_best_step() -> None:
    """Against a search over all candidates, on random points."""
    points = rng(0, "points").normal(size=(9, 3))
    table = cdist(points, points)
    picks, costs = facility_location(table, 4, rng(0, "test"))
    for step in range(4):
        before = list(picks[:step])
        best = min(np.min(table[:, [*before, j]], axis=1).sum() for j in range(9) if j not in before)
        assert costs[step] == pytest.approx(best)
    exact = min(np.min(table[:, list(s)], axis=1).sum() for s in itertools.combinations(range(9), 4))
    assert exact <= costs[-1] <= exact * 1.3


def test_a_random_part_of_the_candidates() -> None:
    table = cdist(UPDATES, UPDATES)
    firsts = {int(facility_location(table, 1, rng(seed, "test"), subset=1)[0][0]) for seed in range(60)}
    assert firsts == {0, 1, 2, 3, 4}
    assert len(set(facility_location(table, 5, rng(1, "test"), subset=2)[0])) == 5


def test_those_without_an_update_come_first() -> None:
    selector = DivFL()
    selector.setup(a_census([10] * 5, 2))
    assert the_why(selector.select(a_round(2, 5))).note.startswith("2 without an update")
    selector.observe(an_outcome([0, 2, 3], reports={"update": UPDATES[[0, 2, 3]]}, trained=[True, True, False]))
    for seed in range(10):
        cohort = selector.select(a_round(4, 5, t=2, seed=seed))
        assert set(cohort.clients[:3].tolist()) == {1, 3, 4}
        assert cohort.weights is not None
        assert cohort.weights.tolist() == [0.2, 0.2, 0.2, 0.4]


def test_everybody_at_the_start() -> None:
    """All who are there, once; who was away comes first when there again, k a round."""
    selector: DivFL = make(DivFL, {"start": "everybody"}, "selection")
    selector.setup(a_census([10] * 5, 2))
    cohort = choose(selector, a_round(2, [0, 1, 2, 3], m=5))
    assert sorted(cohort.clients.tolist()) == [0, 1, 2, 3]
    assert cohort.weights is not None
    assert cohort.weights.tolist() == [0.25] * 4  # each stands for itself
    selector.observe(an_outcome(cohort, reports={"update": np.full((4, 2), np.nan)}))
    assert len(choose(selector, a_round(2, [0, 1, 2, 3], m=5, t=2))) == 4  # nobody came back: once more
    selector.observe(an_outcome(cohort, t=2, reports={"update": UPDATES[cohort.clients]}))
    for seed in range(10):
        later = choose(selector, a_round(2, 5, t=3, seed=seed)).clients.tolist()
        assert later[0] == 4
        assert len(later) == 2
    assert "variable_size" not in selector.state_dict()
    assert not DivFL().variable_size


def test_a_run_that_begins_with_everybody(tmp_path: Any) -> None:
    run = fedcohort.run(small(selection={"name": "divfl", "k": 4, "start": "everybody"}), runs=tmp_path)
    assert run.rounds["selected"].tolist() == [12, *[4] * (len(run.rounds) - 1)]
    assert run.rounds["note"].iloc[1].startswith("0 without an update, 4 that represent 12")


def test_distances_follow_those_who_take_part() -> None:
    selector = ready(UPDATES, 2)
    moved = UPDATES.copy()
    moved[[1, 4]] = [[3, 3], [-1, 2]]
    selector.observe(an_outcome([4, 1], t=2, reports={"update": moved[[4, 1]]}))
    assert selector.distances == pytest.approx(cdist(moved, moved), rel=1e-6)


def test_too_much_memory_is_refused_in_words() -> None:
    selector: DivFL = make(DivFL, {"memory_limit": 0.01}, "selection")
    selector.setup(a_census([1] * 1000, 2))
    message = (
        r"selection\.memory_limit = 0\.01: the updates of 1,000 clients with 10,000 parameters, .* take 0\.041 GiB"
    )
    with pytest.raises(UsageError, match=message):
        selector.observe(an_outcome([0], reports={"update": np.zeros((1, 10_000))}))
    known = dataclasses.replace(a_census([1] * 1000, 2), num_parameters=10_000)
    with pytest.raises(UsageError, match=message):  # before anything is trained
        selector.setup(known)
    with pytest.raises(UsageError, match="the updates of 3,000 clients, and their distances"):
        selector.setup(a_census([1] * 3_000, 2))


def test_too_many_clients_are_refused_in_words() -> None:
    """All candidates of 4,000 clients can be tried, and as many distances with a subset."""
    for m, subset in ((4_000, None), (4_001, 3_999), (10_000, 1_600)):
        DivFL(subset=subset).setup(a_census([1] * m, 2))
    with pytest.raises(UsageError, match=r"selection\.subset: .* with 4,001 clients; set subset to 3,999 or"):
        DivFL().setup(a_census([1] * 4_001, 2))
    with pytest.raises(UsageError, match=r"subset = 1601: .* with 10,000 clients; set subset to 1,600 or less"):
        DivFL(subset=1_601).setup(a_census([1] * 10_000, 2))
    with pytest.raises(UsageError, match=r"subset = 9999999: .* with 10,000 clients"):
        DivFL(subset=9_999_999).setup(a_census([1] * 10_000, 2))
    with pytest.raises(
        UsageError, match=r"'divfl': 10,001 clients; .* at most 4,000 clients, or 10,000 with subset = 1,600; use"
    ):
        DivFL(subset=1).setup(a_census([1] * 10_001, 2))


def test_a_run_with_masses_as_weights(tmp_path: Any) -> None:
    run = fedcohort.run(small(selection={"name": "divfl", "k": 4}, algorithm={"weights": "cohort"}), runs=tmp_path)
    assert (run.rounds["admitted"] == 4).all()
    assert run.clients.query("round == 6")["weight"].sum() == pytest.approx(1)
    assert run.rounds["note"].iloc[0].startswith("4 without an update")
    assert run.rounds["note"].iloc[-1].startswith("0 without an update, 4 that represent 12")
