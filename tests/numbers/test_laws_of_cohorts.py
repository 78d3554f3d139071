"""Frequencies of whole cohorts against their exact probabilities, by chi-square tests with fixed seeds."""

import itertools
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.parameters import make
from fedcohort.selection import STRATEGIES, Cohort, Question, Round, Selector
from tests.selection.fakes import a_census, a_round, an_outcome
from tests.selection.laws import same_law, successive_sets

PAIRS = list(itertools.combinations(range(5), 2))
"""All cohorts of two out of five."""
UNIFORM = dict.fromkeys(PAIRS, 0.1)
SIZES = [10, 20, 30, 40]
P = np.array(SIZES) / 100


def strategy_for(name: str, sizes: Sequence[int], **values: Any) -> Selector:
    selector: Selector = make(STRATEGIES.find(name, "selection.name"), values, "selection")
    selector.setup(a_census(sizes, 2))
    return selector


def answered(answers: Sequence[Sequence[float]] | Sequence[float] | Values) -> Callable[[Round], Round]:
    """Returns a function that gives a round in which client i answers any question with ``answers[i]``."""

    def ask(question: Question, clients: Indices) -> Values:
        return np.asarray(answers, dtype=np.float64)[clients]

    return lambda round: replace(round, ask=ask)


# --- strategies with uniform parts -------------------------------------------------------------------------------------------


def test_fedcs_draws_its_candidates_uniformly() -> None:
    """Clients differ in speed, but none misses the deadline, so all candidates are selected."""
    fedcs = strategy_for("fedcs", [1] * 5, d=2, deadline=100.0)
    with_answers = answered([[1, 3], [4, 2], [6, 1], [2, 3], [9, 9]])
    assert same_law(lambda round: fedcs.select(with_answers(round)), UNIFORM, 2, 5, 3_000)


def test_fedcs_without_answers_is_uniform() -> None:
    fedcs, with_answers = strategy_for("fedcs", [1] * 5, d=4), answered(np.full((5, 2), np.nan))
    assert same_law(lambda round: fedcs.select(with_answers(round)), UNIFORM, 2, 5, 3_000)


@pytest.mark.parametrize("head", ["lin_ts", "restless"])
def test_the_random_first_round_of_flash_is_uniform(head: str) -> None:
    with_answers = answered([[1, 2], [2, 1], [3, 3], [0.1, 5], [9, 1]])

    def select(round: Round) -> Cohort:
        return strategy_for("flash", [1] * 5, head=head, first_round="random").select(with_answers(round))

    assert same_law(select, UNIFORM, 2, 5, 1_500)


@pytest.mark.parametrize("epsilon", [0.4, 1.0])
def test_epsilon_greedy_selects_the_best_cohort_or_a_uniform_one(epsilon: float) -> None:
    """P(best two) = 1 − ε + ε/10, and ε/10 for each other cohort: the uniform choice may fall on the best two as well."""

    greedy = strategy_for("flash", [1] * 5, head="eps_greedy", epsilon=0.0)
    for t, losses in enumerate([[2.0, 3, 4, 5, 6], [1.9, 2.5, 1, 4.9, 5.9]], start=1):
        with_answers = answered(np.stack([losses, losses], axis=1))
        greedy.observe(an_outcome(greedy.select(with_answers(a_round(2, 5, t=t, durations=[1, 2, 3, 4, 5]))), t=t))
    state = deepcopy(greedy.state_dict())
    best = tuple(sorted(greedy.select(with_answers(a_round(2, 5, t=3))).clients.tolist()))
    flash = strategy_for("flash", [1] * 5, head="eps_greedy", epsilon=epsilon)

    def select(round: Round) -> Cohort:
        flash.load_state_dict(deepcopy(state))
        return flash.select(with_answers(round))

    distribution = {pair: epsilon / 10 + (1 - epsilon) * (pair == best) for pair in PAIRS}
    assert same_law(select, distribution, 2, 5, 1_500)


# --- strategies that sample with unequal probabilities -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ocs", "aocs"])
def test_ocs_and_aocs_select_candidates_independently(name: str) -> None:
    """u = 0.1, 0.2, 0.3, 0.4, 2 gives the probabilities 0.1, 0.2, 0.3, 0.4, 1; the probability of a cohort is their product."""
    chance = np.array([0.1, 0.2, 0.3, 0.4, 1.0])
    with_answers = answered([[norm, 3.0] for norm in (0.1, 0.2, 0.3, 0.4, 2.0)])
    distribution = {
        tuple(np.flatnonzero(coins).tolist()): float(np.prod(np.where(coins, chance, 1 - chance)))
        for coins in itertools.product([0, 1], repeat=5)
    }
    assert sum(distribution.values()) == pytest.approx(1)
    strategy = strategy_for(name, [7] * 5)
    assert same_law(lambda round: strategy.select(with_answers(round)), distribution, 2, 5, 6_000)


def test_md_draws_independently_with_replacement() -> None:
    """In two draws, one client comes twice with probability p_i², and two clients come with probability 2·p_i·p_j."""
    distribution: dict[tuple[int, ...], float] = {(i,): float(P[i] ** 2) for i in range(4)}
    distribution |= {(i, j): float(2 * P[i] * P[j]) for i, j in itertools.combinations(range(4), 2)}
    assert same_law(strategy_for("md", SIZES).select, distribution, 2, 4, 4_000)


def test_rizk_draws_successively_by_size_times_norm() -> None:
    rizk = strategy_for("rizk", SIZES)
    rizk.observe(an_outcome([0, 1, 2, 3], reports={"update_norm": [1.0, 2.0, 4.0, 0.5], "steps": [1.0] * 4}))
    weight = P * [1, 2, 4, 0.5]
    distribution = successive_sets(0.9 * weight / weight.sum() + 0.1 / 4, 2)
    assert same_law(rizk.select, distribution, 2, 4, 4_000)


def test_feel_draws_successively_by_size_times_norm() -> None:
    """All clients take the same time, so q ∝ p·‖g‖."""
    feel, norms = strategy_for("feel", SIZES, upload="measured"), np.array([4.0, 1.0, 1.0, 2.0])
    with_answers = answered(norms)
    distribution = successive_sets(P * norms / (P * norms).sum(), 2)
    assert same_law(lambda round: feel.select(with_answers(round)), distribution, 2, 4, 4_000)
