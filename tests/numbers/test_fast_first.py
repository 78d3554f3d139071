"""Eiffel's score, CS-UCB and FedCS: numbers by hand, ties, unknown times, deadlines."""

import math
from typing import Any

import numpy as np
import pytest

import fedcohort
from fedcohort.core.parameters import make
from fedcohort.selection import Cohort, Question, Speed, choose
from fedcohort.selection.strategies.cs_ucb import CSUCB
from fedcohort.selection.strategies.eiffel import Eiffel
from fedcohort.selection.strategies.fedcs import FedCS
from tests.experiments import small
from tests.selection.fakes import a_census, a_round, an_outcome, the_why

# --- Eiffel ------------------------------------------------------------------------------------------------------------------


def eiffel(**values: Any) -> Eiffel:
    selector: Eiffel = make(Eiffel, values, "selection")
    selector.setup(a_census([10, 20, 30, 40], 1))
    selector.observe(an_outcome([0, 1, 2], t=1, reports={"loss": [1.0, 3.0, math.nan]}))
    selector.observe(an_outcome([1], t=3, reports={"loss": [2.0]}, trained=[False]))
    return selector


def test_eiffels_score_by_hand() -> None:
    """Losses 1, 3, –, –; times 1, 2, 4, 40/10 (the median of 1/10, 1/10 and 4/30 a sample); ages at t = 5 are 4, 2, 4, 5."""
    why = the_why(eiffel().select(a_round(1, 4, t=5, durations=[1, 2, 4, math.nan])))
    loss, speed, age = np.array([0, 1, 1, 1]), np.array([1, 1 / 3, 0, 0]), np.array([2 / 3, 0, 2 / 3, 1])
    assert why.terms["loss"].tolist() == loss.tolist()
    assert why.terms["speed"] == pytest.approx(speed)
    assert why.terms["age"] == pytest.approx(age)
    assert why.scores == pytest.approx((loss + speed + age) / 3)


@pytest.mark.parametrize(("weights", "first"), [((1, 0, 0), {1, 2, 3}), ((0, 1, 0), {0}), ((0, 0, 1), {3})])
def test_eiffels_weights(weights: tuple[float, float, float], first: set[int]) -> None:
    selector = eiffel(loss=weights[0], speed=weights[1], age=weights[2])
    seen = {int(selector.select(a_round(1, 4, t=5, durations=[1, 2, 4, 4], seed=s)).clients[0]) for s in range(60)}
    assert seen == first


def test_eiffel_when_all_are_alike() -> None:
    selector = Eiffel()
    selector.setup(a_census([10] * 4, 1))
    selector.observe(an_outcome([0, 1, 2, 3], reports={"loss": [1.0] * 4}))
    assert the_why(selector.select(a_round(1, 4, t=2))).scores.tolist() == [0] * 4


# --- CS-UCB ------------------------------------------------------------------------------------------------------------------


def test_cs_ucb_by_hand() -> None:
    selector = CSUCB()
    selector.setup(a_census([1] * 4, 2))
    selector.observe(an_outcome([0, 1], t=1, durations=[2.0, 8.0]))
    selector.observe(an_outcome([0, 2], t=2, durations=[4.0, math.nan], trained=[True, False]))
    why = the_why(selector.select(a_round(2, 4, t=3)))
    assert why.terms["mean_reward"].tolist() == [1 - 3 / 8, 0, 0, 0]
    bonus = np.sqrt(3 * math.log(3) / np.array([2, 1, 1]))
    assert why.scores[:3] == pytest.approx([0.625 + bonus[0], bonus[1], bonus[2]])
    assert math.isinf(why.scores[3])


def test_cs_ucb_tries_everybody_once_first() -> None:
    selector, seen = CSUCB(), list[int]()
    selector.setup(a_census([1] * 9, 3))
    for t in range(1, 4):
        cohort = selector.select(a_round(3, 9, t=t))
        selector.observe(an_outcome(cohort, t=t))
        seen += cohort.clients.tolist()
    assert sorted(seen) == list(range(9))


def test_cs_ucb_cuts_at_the_given_time() -> None:
    selector: CSUCB = make(CSUCB, {"t_max": 4.0}, "selection")
    selector.setup(a_census([1] * 2, 1))
    selector.observe(an_outcome([0, 1], durations=[1.0, 99.0]))
    selector.observe(an_outcome([1], t=2, durations=[2.0]))
    assert the_why(selector.select(a_round(1, 2, t=3))).terms["mean_reward"].tolist() == [0.75, 0.25]


# --- FedCS -------------------------------------------------------------------------------------------------------------------

COMPUTING, SENDING = [1.0, 4.0, 6.0, 2.0, 9.0], [3.0, 2.0, 1.0, 3.0, 9.0]
SPEEDS = np.array([COMPUTING, SENDING]).T  # whole: 4, 6, 7, 5, 18


def fedcs(seed: int = 0, speeds: Any = SPEEDS, k: int = 5, **values: Any) -> Cohort:
    selector: FedCS = make(FedCS, values, "selection")
    selector.setup(a_census([1] * 5, k))
    return choose(selector, a_round(k, 5, seed=seed, speeds=speeds))


def test_one_after_the_other_by_hand() -> None:
    """Θ: 4 with client 0; 6 with client 1, which sends 2; 7 with client 2, done computing at 6; 10 with client 3; 4 needs 9 more."""
    cohort = fedcs(deadline=12.0, uploads="sequential")
    assert cohort.clients.tolist() == [0, 1, 2, 3]
    assert fedcs(deadline=9.9, uploads="sequential").clients.tolist() == [0, 1, 2]
    assert fedcs(deadline=6.0, uploads="sequential").clients.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("deadline", "clients"), [(100.0, [0, 3, 1, 2, 4]), (6.0, [0, 3, 1]), (4.5, [0]), (None, [0, 3, 1])]
)
def test_all_at_once(deadline: float | None, clients: list[int]) -> None:
    assert fedcs(deadline=deadline).clients.tolist() == clients  # without one: the median, 6


@pytest.mark.parametrize("uploads", ["sequential", "parallel"])
def test_nobody_meets_the_deadline(uploads: str) -> None:
    cohort = fedcs(deadline=3.0, uploads=uploads)
    assert cohort.clients.tolist() == [0]
    assert "no client meets the deadline 3" in the_why(cohort).note


def test_candidates_are_drawn_and_only_they_are_asked() -> None:
    selector: FedCS = make(FedCS, {"d": 2, "deadline": 100.0}, "selection")
    selector.setup(a_census([1] * 5, 1))
    asked: list[tuple[Question, list[int]]] = []
    cohort = choose(selector, a_round(1, 5, speeds=SPEEDS, asked=asked))
    assert len(cohort) == 2  # as many as can be done, not k
    assert asked[0][0] == Speed()
    assert sorted(asked[0][1]) == sorted(cohort.clients.tolist())


def test_those_who_do_not_answer_are_not_added_unless_nobody_does() -> None:
    speeds = SPEEDS.copy()
    speeds[[0, 3]] = np.nan
    assert fedcs(deadline=100.0, speeds=speeds).clients.tolist() == [1, 2, 4]
    nobody = fedcs(deadline=100.0, speeds=np.full((5, 2), np.nan), k=3)
    assert len(nobody) == 3
    assert the_why(nobody).note.startswith("random")


@pytest.mark.parametrize("uploads", ["sequential", "parallel"])
def test_a_round_ends_by_the_deadline(uploads: str, tmp_path: Any) -> None:
    """With times drawn once, what clients say is what they need."""
    selection = {"name": "fedcs", "k": 6, "deadline": 400.0, "uploads": uploads}
    run = fedcohort.run(small(selection=selection), runs=tmp_path)
    fine = ~run.rounds["note"].str.contains("no client meets")
    assert fine.any()
    assert (run.rounds["round_time"][fine] <= 400).all()
    assert run.rounds["selected"].nunique() > 1
