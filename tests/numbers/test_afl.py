"""Active federated learning: who can be drawn by valuation, how often, and what is asked."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedcohort.core.parameters import make
from fedcohort.selection import LocalLoss, Question
from fedcohort.selection.strategies.active import ActiveFL
from tests.selection.fakes import a_census, a_round, an_outcome, the_why


def ready(valuation: list[float], k: int, **values: Any) -> ActiveFL:
    """Everybody has been asked and has one sample, so that the valuation is the loss."""
    selector: ActiveFL = make(ActiveFL, values, "selection")
    selector.setup(a_census([1] * len(valuation), k))
    selector.valuation = np.array(valuation)
    selector.asked[:] = True
    return selector


def test_worked_example_all_mass_on_the_highest() -> None:
    selector = ready([1, 2, 3, 4], 1, alpha3=0.0)
    for seed in range(30):
        cohort = selector.select(a_round(1, 4, t=5, seed=seed))
        assert cohort.clients.tolist() == [3]
    assert the_why(cohort).terms["probability"].tolist() == [0, 0, 0, 1]


def test_valuations_are_asked_once_and_grow_with_samples() -> None:
    selector = ActiveFL()
    selector.setup(a_census([4, 9, 16, 25], 1))
    asked: list[tuple[Question, list[int]]] = []
    selector.select(a_round(1, [0, 1, 2], m=4, losses=[1.0, 2.0, math.nan, 0.5], asked=asked))
    assert selector.valuation.tolist() == [2.0, 6.0, -math.inf, -math.inf]
    selector.select(a_round(1, 4, losses=[9.0, 9.0, 9.0, 0.5], asked=asked))
    assert selector.valuation.tolist() == [2.0, 6.0, -math.inf, 2.5]
    assert asked == [(LocalLoss(), [0, 1, 2]), (LocalLoss(), [3])]
    selector.observe(an_outcome([0, 1, 3], reports={"loss": [3.0, math.nan, 1.0]}, trained=[True, True, False]))
    assert selector.valuation.tolist() == [6.0, 6.0, -math.inf, 2.5]
    selector.observe(an_outcome([1, 2], reports={"loss": [4.0, 0.5]}, admitted=[True, False]))
    assert selector.valuation.tolist() == [6.0, 12.0, 2.0, 2.5], "a declined client trained, too"


def test_the_law_of_the_draws() -> None:
    """α₁ = ½ keeps two of four, ∝ exp(v); the second of k = 2 is uniform among the rest."""
    selector, first, second = (
        ready([0.1, 3.0, 0.2, 4.0], 2, alpha1=0.5, alpha2=1.0, alpha3=0.5),
        np.zeros(4),
        np.zeros(4),
    )
    for seed in range(4000):
        one, other = selector.select(a_round(2, 4, t=2, seed=seed)).clients
        first[one] += 1
        second[other] += 1
    p = math.exp(3) / (math.exp(3) + math.exp(4))
    assert first[[0, 2]].tolist() == [0, 0]
    assert stats.chisquare(first[[1, 3]], [4000 * p, 4000 * (1 - p)]).pvalue > 1e-6
    assert stats.chisquare(second, 4000 * np.array([1 / 3, (1 - p) / 3, 1 / 3, p / 3])).pvalue > 1e-6


@pytest.mark.parametrize(
    ("k", "alpha3", "by_value"), [(10, 0.1, 9), (3, 0.1, 2), (10, 0.0, 10), (5, 1.0, 0), (10, 0.7, 3)]
)
def test_how_many_are_drawn_by_valuation(k: int, alpha3: float, by_value: int) -> None:
    why = the_why(ready([1.0] * 40, k, alpha3=alpha3).select(a_round(k, 40, t=2)))
    assert why.note.startswith(f"{by_value} by valuation")


def test_the_share_left_out_is_of_the_available_clients() -> None:
    """Four of eight clients are available: α₁ = ½ leaves out two of them, and the other two are drawn ∝ exp(v)."""
    selector = ready([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], 1, alpha1=0.5, alpha2=1.0, alpha3=0.0)
    why = the_why(selector.select(a_round(1, [0, 1, 2, 3], m=8, t=2)))
    p = math.exp(3) / (math.exp(3) + math.exp(4))
    assert why.terms["probability"] == pytest.approx([0, 0, p, 1 - p])
    assert why.note == "1 by valuation among 2, 0 at random"


def test_fewer_are_left_out_when_too_few_would_remain() -> None:
    selector = ready([5.0, 4, 3, 2, 1], 4, alpha3=0.0)  # ⌊.75·5⌋ = 3 would leave 2 for 4 draws
    for seed in range(20):
        assert set(selector.select(a_round(4, 5, t=2, seed=seed)).clients.tolist()) == {0, 1, 2, 3}


def test_huge_valuations_and_none_at_all() -> None:
    assert ready([1e300, 1.0, 2.0, 3.0], 1, alpha3=0.0).select(a_round(1, 4, t=2)).clients.tolist() == [0]
    nobody, seen = ready([-math.inf] * 4, 1, alpha3=0.0), set()
    for seed in range(60):
        seen.update(nobody.select(a_round(1, 4, t=2, seed=seed)).clients.tolist())
    assert seen == {0, 1, 2, 3}
