"""Power-of-choice and select-by-loss: worked numbers, the law of the candidate draw, missing and non-finite losses."""

import copy
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import make
from fedcohort.selection import LocalLoss, Question, Selector, choose
from fedcohort.selection.strategies.power_of_choice import (
    CommunicationPowerOfChoice,
    ComputationPowerOfChoice,
    PowerOfChoice,
    draw_by_size,
)
from fedcohort.selection.strategies.select_by_loss import SelectByLoss
from tests.selection.fakes import a_census, a_round, an_outcome, the_why

ASKING: list[type[Selector]] = [PowerOfChoice, ComputationPowerOfChoice, SelectByLoss]
ALL: list[type[Selector]] = [*ASKING, CommunicationPowerOfChoice]
LOSSES = (0.2, 1.5, 0.9, 1.5)


def ready(strategy: type[Selector], num_samples: list[int], k: int, d: int | None = None) -> Selector:
    """A strategy after setup."""
    selector = make(strategy, {} if d is None else {"d": d}, "strategy")
    selector.setup(a_census(num_samples, k))
    return selector


@pytest.mark.parametrize("strategy", ASKING)
def test_the_highest_losses_are_selected_and_ties_are_random(strategy: type[Selector]) -> None:
    selector = ready(strategy, [10, 20, 30, 40], k=2, d=4)
    orders = set()
    for seed in range(50):
        two = selector.select(a_round(2, 4, losses=LOSSES, seed=seed))
        three = selector.select(a_round(3, 4, losses=LOSSES, seed=seed))
        assert set(two.clients.tolist()) == {1, 3}
        assert three.clients.tolist()[2] == 2
        assert set(three.clients.tolist()[:2]) == {1, 3}
        orders.add(tuple(two.clients.tolist()))
    assert orders == {(1, 3), (3, 1)}  # the tie is broken at random (R2)
    why = the_why(two)
    assert why.terms["loss"].tolist() == [LOSSES[i] for i in why.candidates]
    assert why.scores.tolist() == why.terms["loss"].tolist()


def test_the_highest_losses_of_the_last_participation_are_selected() -> None:
    selector = ready(CommunicationPowerOfChoice, [10, 20, 30, 40], k=2, d=4)
    selector.observe(an_outcome([3, 2, 1, 0], reports={"loss": [9.0, 9.0, 9.0, 9.0]}))
    selector.observe(an_outcome([0, 1, 2, 3], reports={"loss": LOSSES}))
    assert set(selector.select(a_round(2, 4)).clients.tolist()) == {1, 3}
    assert selector.select(a_round(3, 4)).clients.tolist()[2] == 2


@pytest.mark.parametrize("strategy", ASKING)
def test_only_the_candidates_are_asked_for_their_loss(strategy: type[Selector]) -> None:
    asked: list[tuple[Question, list[int]]] = []
    cohort = ready(strategy, [10] * 20, k=3).select(a_round(3, 20, losses=np.arange(20.0), asked=asked))
    question = LocalLoss(batch=32) if strategy is ComputationPowerOfChoice else LocalLoss()
    candidates = the_why(cohort).candidates
    assert asked == [(question, candidates.tolist())]
    assert len(candidates) == 6
    assert cohort.clients.tolist() == sorted(candidates.tolist(), reverse=True)[:3]


def test_the_batch_of_the_asked_loss_is_a_parameter() -> None:
    asked: list[tuple[Question, list[int]]] = []
    selector = make(ComputationPowerOfChoice, {"batch_size": 8}, "strategy")
    selector.setup(a_census([10] * 4, 1))
    selector.select(a_round(1, 4, losses=LOSSES, asked=asked))
    assert asked[0][0] == LocalLoss(batch=8)
    for size in (20, 0):  # the batch size of training; 0 means all samples in one batch
        default = ComputationPowerOfChoice()
        default.setup(replace(a_census([10] * 4, 1), batch_size=size))
        default.select(a_round(1, 4, losses=LOSSES, asked=asked))
        assert asked[-1][0] == LocalLoss(batch=size)
    with pytest.raises(UsageError, match=r"strategy.batch_size = 0: should be at least 1"):
        make(ComputationPowerOfChoice, {"batch_size": 0}, "strategy")


def test_the_communication_variant_asks_no_client() -> None:
    asked: list[tuple[Question, list[int]]] = []
    ready(CommunicationPowerOfChoice, [10] * 20, k=3).select(a_round(3, 20, losses=[1.0] * 20, asked=asked))
    assert asked == []


# --- the candidates --------------------------------------------------------------------------------------------------


def law_of_successive_draws(sizes: list[int], count: int) -> dict[tuple[int, ...], float]:
    """Probability of every set of candidates if clients are drawn successively, ∝ size among those not yet drawn."""
    law: dict[tuple[int, ...], float] = {}
    for order in itertools.permutations(range(len(sizes)), count):
        probability, left = 1.0, float(sum(sizes))
        for i in order:
            probability *= sizes[i] / left
            left -= sizes[i]
        key = tuple(sorted(order))
        law[key] = law.get(key, 0.0) + probability
    return law


@pytest.mark.parametrize(("sizes", "d"), [([1, 2, 3, 10, 50], 2), ([1, 2, 3, 10, 50], 3), ([7, 7, 7, 7], 1)])
def test_the_candidate_draw_follows_the_law_of_successive_draws(sizes: list[int], d: int) -> None:
    law = law_of_successive_draws(sizes, d)
    assert math.isclose(sum(law.values()), 1.0)
    rng, rounds = np.random.default_rng(0), 20_000
    seen = dict.fromkeys(law, 0)
    round = a_round(1, len(sizes), rng=rng)
    for _ in range(rounds):
        seen[tuple(draw_by_size(np.array(sizes), d, round).tolist())] += 1
    result = stats.chisquare([seen[key] for key in law], [rounds * law[key] for key in law])
    assert result.pvalue > 1e-6


def test_powd_draws_candidates_by_size_among_available_clients() -> None:
    sizes = [1, 10_000, 10_000, 1, 10_000]
    selector = ready(PowerOfChoice, sizes, k=1, d=2)
    for t in range(1, 101):
        cohort = selector.select(a_round(1, [0, 2, 3, 4], t=t, losses=[9.0, 9.0, 1.0, 9.0, 2.0]))
        assert set(the_why(cohort).candidates.tolist()) <= {0, 2, 3, 4}
    assert the_why(cohort).candidates.tolist() == [2, 4]


def test_a_client_without_samples_is_drawn_last() -> None:
    for seed in range(100):
        round = a_round(1, 4, seed=seed)
        assert draw_by_size(np.array([0, 1, 0, 1]), 2, round).tolist() == [1, 3]
    assert draw_by_size(np.array([0, 1, 0, 1]), 4, round).tolist() == [0, 1, 2, 3]


def test_select_by_loss_with_d_equal_to_k_is_uniform_selection() -> None:
    m, k, rounds = 10, 3, 5_000
    selector = ready(SelectByLoss, [1, 2, 3, 4, 5, 100, 200, 300, 400, 500], k, d=k)
    counts = np.zeros(m)
    rng = np.random.default_rng(1)
    for t in range(1, rounds + 1):
        counts[selector.select(a_round(k, m, t=t, rng=rng, losses=np.linspace(0, 1, m))).clients] += 1
    chance = k / m  # counts of draws without replacement: covariance rounds · chance (1 − chance) m/(m − 1) (I − 11ᵀ/m)
    statistic = ((counts - rounds * chance) ** 2).sum() * (m - 1) / (m * rounds * chance * (1 - chance))
    assert stats.chi2.sf(statistic, m - 1) > 1e-6


@pytest.mark.parametrize("strategy", ALL)
def test_with_d_equal_to_k_the_candidates_are_the_cohort(strategy: type[Selector]) -> None:
    selector = ready(strategy, list(range(1, 21)), k=5, d=5)
    cohort = selector.select(a_round(5, 20, losses=np.linspace(2, 1, 20)))
    assert sorted(cohort.clients.tolist()) == sorted(the_why(cohort).candidates.tolist())


@pytest.mark.parametrize("strategy", ALL)
def test_the_number_of_candidates_is_limited_by_the_available_clients(strategy: type[Selector]) -> None:
    cohort = ready(strategy, [10] * 10, k=2, d=7).select(a_round(2, [1, 4, 6], losses=[1.0] * 10))
    assert sorted(the_why(cohort).candidates.tolist()) == [1, 4, 6]
    assert len(cohort) == 2


@pytest.mark.parametrize("strategy", ALL)
def test_d_below_k_is_raised_to_k_with_a_warning(strategy: type[Selector]) -> None:
    selector = ready(strategy, [10] * 10, k=5, d=3)
    with pytest.warns(
        UserWarning, match=r"selection\.d = 3: fewer candidates than the k = 5 clients to select; using d = k"
    ):
        cohort = selector.select(a_round(5, 10, losses=[1.0] * 10))
    assert len(cohort) == 5


@pytest.mark.parametrize("strategy", ALL)
def test_d_above_m_is_lowered_to_m_with_a_warning(strategy: type[Selector]) -> None:
    selector = ready(strategy, [10] * 10, k=2, d=11)
    with pytest.warns(UserWarning, match=r"selection\.d = 11: more candidates than the 10 clients; using d = 10"):
        cohort = selector.select(a_round(2, 10, losses=[1.0] * 10))
    assert sorted(the_why(cohort).candidates.tolist()) == list(range(10))


@pytest.mark.parametrize("strategy", ALL)
def test_with_at_most_k_available_clients_all_are_selected(strategy: type[Selector]) -> None:
    selector = ready(strategy, [10] * 10, k=5)
    assert sorted(choose(selector, a_round(5, [2, 7], losses=[math.nan] * 10)).clients.tolist()) == [2, 7]
    assert len(choose(selector, a_round(5, []))) == 0


# --- the losses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ASKING)
def test_adding_a_constant_to_all_losses_does_not_change_the_cohort(strategy: type[Selector]) -> None:
    selector = ready(strategy, list(range(1, 31)), k=4, d=12)
    losses = np.random.default_rng(3).integers(0, 8, 30) / 4  # with ties; sums with 2 are exact
    for t in range(1, 21):
        plain = selector.select(a_round(4, 30, t=t, losses=losses))
        moved = selector.select(a_round(4, 30, t=t, losses=losses + 2))
        assert plain.clients.tolist() == moved.clients.tolist()


@pytest.mark.parametrize("strategy", ASKING)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_missing_or_not_finite_ranks_last(strategy: type[Selector], bad: float) -> None:
    selector = ready(strategy, [10] * 5, k=2, d=5)
    for seed in range(20):
        cohort = selector.select(a_round(2, 5, seed=seed, losses=[bad, 0.1, bad, 0.3, bad]))
        assert cohort.clients.tolist() == [3, 1]
        assert the_why(cohort).note.endswith("3 without a loss")
        three = selector.select(a_round(3, 5, seed=seed, losses=[bad, 0.1, bad, 0.3, bad]))
        assert three.clients.tolist()[:2] == [3, 1]  # the third is a client without a loss
        assert len(three) == 3


def test_clients_without_a_report_come_first_and_keep_that_rank_if_they_fail() -> None:
    selector = ready(CommunicationPowerOfChoice, [10] * 4, k=2, d=4)
    selector.observe(an_outcome([0, 1, 2], trained=[True, True, False], reports={"loss": [5.0, 7.0, math.nan]}))
    cohort = selector.select(a_round(2, 4))
    assert set(cohort.clients.tolist()) == {2, 3}
    assert the_why(cohort).note.endswith("2 without a report")
    assert selector.select(a_round(3, 4)).clients.tolist()[2] == 1


def test_a_reported_loss_that_is_not_finite_ranks_last_in_later_rounds() -> None:
    selector = ready(CommunicationPowerOfChoice, [10] * 3, k=2, d=3)
    selector.observe(an_outcome([0, 1, 2], reports={"loss": [math.inf, 0.1, 0.2]}))
    assert selector.select(a_round(2, 3)).clients.tolist() == [2, 1]


def test_a_restored_state_selects_the_same_cohorts() -> None:
    straight = ready(CommunicationPowerOfChoice, list(range(1, 21)), k=3)
    resumed = ready(CommunicationPowerOfChoice, list(range(1, 21)), k=3)
    world = np.random.default_rng(0)
    for t in range(1, 31):
        if t == 11:
            resumed.load_state_dict(copy.deepcopy(straight.state_dict()))
        cohort = straight.select(a_round(3, 20, t=t))
        report = {"loss": world.random(3).tolist()}
        straight.observe(an_outcome(cohort, reports=report))
        if t >= 11:
            assert resumed.select(a_round(3, 20, t=t)).clients.tolist() == cohort.clients.tolist()
            resumed.observe(an_outcome(cohort, reports=report))


@pytest.mark.parametrize("strategy", [PowerOfChoice, SelectByLoss, ComputationPowerOfChoice])
def test_strategies_that_ask_keep_no_state(strategy: type[Selector]) -> None:
    selector = ready(strategy, [10] * 5, k=2)
    cohort = selector.select(a_round(2, 5, losses=[1.0] * 5))
    selector.observe(an_outcome(cohort, reports={"loss": [1.0, 2.0]}))
    assert selector.state_dict() == {}
