"""Probabilities of whole cohorts: observed frequencies compared with exact probabilities, by chi-square with fixed seeds."""

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
"""All cohorts of two out of five clients."""
UNIFORM = dict.fromkeys(PAIRS, 0.1)
SIZES = [10, 20, 30, 40]
P = np.array(SIZES) / 100


def ready(name: str, sizes: Sequence[int], **values: Any) -> Selector:
    selector: Selector = make(STRATEGIES.find(name, "selection.name"), values, "selection")
    selector.setup(a_census(sizes, 2))
    return selector


def with_answers(answers: Sequence[Sequence[float]] | Sequence[float] | Values) -> Callable[[Round], Round]:
    """A function that replaces the answers of a round: client i answers any question with ``answers[i]``."""

    def ask(question: Question, clients: Indices) -> Values:
        return np.asarray(answers, dtype=np.float64)[clients]

    return lambda round: replace(round, ask=ask)


# --- uniform parts of other strategies ---------------------------------------------------------------------------------------


def test_candidates_of_fedcs_are_uniform() -> None:
    """All candidates meet the deadline and are selected, and clients differ in speed."""
    fedcs = ready("fedcs", [1] * 5, d=2, deadline=100.0)
    answer = with_answers([[1, 3], [4, 2], [6, 1], [2, 3], [9, 9]])
    assert same_law(lambda round: fedcs.select(answer(round)), UNIFORM, 2, 5, 3_000)


def test_fedcs_without_answers_is_uniform() -> None:
    fedcs, answer = ready("fedcs", [1] * 5, d=4), with_answers(np.full((5, 2), np.nan))
    assert same_law(lambda round: fedcs.select(answer(round)), UNIFORM, 2, 5, 3_000)


@pytest.mark.parametrize("head", ["lin_ts", "restless"])
def test_the_random_first_round_of_flash_is_uniform(head: str) -> None:
    answer = with_answers([[1.0, 2.0], [2.0, 1.0], [3.0, 3.0], [0.1, 5.0], [9.0, 1.0]])

    def select(round: Round) -> Cohort:
        return ready("flash", [1] * 5, head=head, first_round="random").select(answer(round))

    assert same_law(select, UNIFORM, 2, 5, 1_500)


@pytest.mark.parametrize("epsilon", [0.4, 1.0])
def test_epsilon_greedy_is_the_best_cohort_or_a_uniform_one(epsilon: float) -> None:
    """P(best two) = 1 − ε + ε/10, and ε/10 for each other cohort, because the uniform choice can also be the best two."""
    greedy = ready("flash", [1] * 5, head="eps_greedy", epsilon=0.0)
    for t, losses in enumerate([[2.0, 3, 4, 5, 6], [1.9, 2.5, 1, 4.9, 5.9]], start=1):
        answer = with_answers(np.stack([losses, losses], axis=1))
        greedy.observe(an_outcome(greedy.select(answer(a_round(2, 5, t=t, durations=[1, 2, 3, 4, 5]))), t=t))
    state = deepcopy(greedy.state_dict())
    best = tuple(sorted(greedy.select(answer(a_round(2, 5, t=3))).clients.tolist()))
    flash = ready("flash", [1] * 5, head="eps_greedy", epsilon=epsilon)

    def select(round: Round) -> Cohort:
        flash.load_state_dict(deepcopy(state))
        return flash.select(answer(round))

    law = {pair: epsilon / 10 + (1 - epsilon) * (pair == best) for pair in PAIRS}
    assert same_law(select, law, 2, 5, 1_500)


# --- samplers ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ocs", "aocs"])
def test_candidates_of_ocs_are_drawn_independently(name: str) -> None:
    """u = 0.1, 0.2, 0.3, 0.4, 2 gives the probabilities 0.1, 0.2, 0.3, 0.4, 1; the law of a cohort is their product."""
    chance = np.array([0.1, 0.2, 0.3, 0.4, 1.0])
    answer = with_answers([[norm, 3.0] for norm in (0.1, 0.2, 0.3, 0.4, 2.0)])
    law = {
        tuple(np.flatnonzero(coins).tolist()): float(np.prod(np.where(coins, chance, 1 - chance)))
        for coins in itertools.product([0, 1], repeat=5)
    }
    assert sum(law.values()) == pytest.approx(1)
    strategy = ready(name, [7] * 5)
    assert same_law(lambda round: strategy.select(answer(round)), law, 2, 5, 6_000)


def test_md_draws_independently() -> None:
    """Two draws: the same client twice with probability p_i², two clients with 2·p_i·p_j."""
    law: dict[tuple[int, ...], float] = {(i,): float(P[i] ** 2) for i in range(4)}
    law |= {(i, j): float(2 * P[i] * P[j]) for i, j in itertools.combinations(range(4), 2)}
    assert same_law(ready("md", SIZES).select, law, 2, 4, 4_000)


def test_rizk_draws_successively() -> None:
    rizk = ready("rizk", SIZES)
    rizk.observe(an_outcome([0, 1, 2, 3], reports={"update_norm": [1.0, 2.0, 4.0, 0.5], "steps": [1.0] * 4}))
    importance = P * [1, 2, 4, 0.5]
    law = successive_sets(0.9 * importance / importance.sum() + 0.1 / 4, 2)
    assert same_law(rizk.select, law, 2, 4, 4_000)


def test_feel_draws_successively() -> None:
    """All clients have the same upload time, so q ∝ p·‖g‖."""
    feel, norms = ready("feel", SIZES, upload="measured"), np.array([4.0, 1.0, 1.0, 2.0])
    answer = with_answers(norms)
    law = successive_sets(P * norms / (P * norms).sum(), 2)
    assert same_law(lambda round: feel.select(answer(round)), law, 2, 4, 4_000)
