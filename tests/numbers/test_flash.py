"""FLASH: worked numbers, contexts and rewards by hand, who gets the credit, and the heads against MABWiser."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.parameters import make
from fedcohort.measures import regret
from fedcohort.selection import STRATEGIES, Cohort, Context, Outcome, Question, Round, choose
from fedcohort.selection.bandit_contexts import ELEMENTS, ContextBandit
from fedcohort.selection.bandit_heads import Candidates, Linear, draw, factor, gamma, gamma_theory, posterior, widths
from fedcohort.selection.strategies.flash import Flash, FlashLinUCB, FlashPrinted
from tests.selection.fakes import a_census, a_round, an_outcome, the_why

RNG = np.random.default_rng
X = np.array([[1.0, 0.5], [0.8, 1.0], [0.5, 0.2]])
REWARDS = np.array([0.4, 0.1])


# --- the spec's step in two dimensions -------------------------------------------------------------------------------------


def learned(head: Linear) -> dict[str, Any]:
    """The head's state after clients 0 and 1 were rewarded."""
    state = head.start(3, 2, RNG(0))
    head.learn(state, np.array([0, 1]), X[:2], REWARDS)
    return state


def judged(head: Linear, seed: int = 0) -> Any:
    return head.score(learned(head), Candidates(0, np.arange(3), X, ("a", "b"), RNG(seed)))


def test_gamma() -> None:
    found = [gamma(t, m=50, d=4) for t in (0, 1, 100, 1499)]
    assert np.round(found, 6).tolist() == [4.461637, 6.264051, 7.786199, 8.541968]
    assert round(gamma(100, m=3550, d=4), 6) == 8.943704
    assert gamma_theory(0, 4) == pytest.approx(math.sqrt(4 * math.log(20)) + 1)
    assert gamma_theory(3, 4, ridge=4.0, R=0.5, L=2.0, S=3.0) == pytest.approx(0.5 * math.sqrt(4 * math.log(80)) + 6)


def test_posterior_by_hand() -> None:
    state = learned(Linear())
    assert np.round(state["V"], 12).tolist() == [[2.64, 1.3], [1.3, 2.25]]
    assert np.round(state["b"], 12).tolist() == [0.48, 0.3]
    theta, L = posterior(state["V"], state["b"])
    assert np.round(theta, 6).tolist() == [0.162353, 0.039529]
    inverse = np.linalg.inv(L @ L.T)
    assert np.round(inverse, 6).tolist() == [[0.529412, -0.305882], [-0.305882, 0.621176]]


def test_scores_by_hand() -> None:
    greedy = judged(Linear("greedy"))
    assert np.round(greedy.scores, 6).tolist() == [0.182118, 0.169412, 0.089082]
    assert greedy.terms["a"] + greedy.terms["b"] == pytest.approx(greedy.scores)
    ucb = judged(Linear("lin_ucb", gamma=lambda t: 1.0))
    assert np.round(ucb.scores, 6).tolist() == [0.797604, 0.855406, 0.398959]
    assert ucb.terms["theta_a"].tolist() == pytest.approx([0.162353] * 3, abs=1e-6)


@pytest.mark.parametrize("kind", ["lin_ts", "lin_ucb"])
def test_without_gamma_it_is_greedy(kind: Any) -> None:
    found = judged(Linear(kind, gamma=lambda t: 0.0))
    assert found.scores.tolist() == judged(Linear("greedy")).scores.tolist()


def test_epsilon_greedy_is_greedy_or_uniform() -> None:
    assert judged(Linear("eps_greedy", epsilon=0.0)).override is None
    firsts = [int(np.argmax(judged(Linear("eps_greedy", epsilon=1.0), seed).override)) for seed in range(900)]
    assert stats.chisquare(np.bincount(firsts, minlength=3)).pvalue > 1e-6


def test_per_arm_is_one_bandit_a_client() -> None:
    for kind in ("greedy", "lin_ucb"):
        head = Linear(kind, gamma=lambda t: 0.7, per_arm=True)
        found = head.score(learned(head), Candidates(0, np.arange(3), X, ("a", "b"), RNG(0))).scores
        for i in range(3):
            alone = Linear(kind, gamma=lambda t: 0.7)
            state = alone.start(1, 2, RNG(0))
            if i < 2:
                alone.learn(state, np.array([0]), X[i : i + 1], REWARDS[i : i + 1])
            expected = alone.score(state, Candidates(0, np.array([0]), X[i : i + 1], ("a", "b"), RNG(0))).scores
            assert found[i] == pytest.approx(expected[0])


def test_factor_survives_round_off() -> None:
    V = np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    V[0, 0] -= 1e-12
    L = factor(V)
    assert np.isfinite(L).all()
    assert np.abs(L @ L.T - V).max() < 1e-6
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        factor(-np.eye(2))


# --- an independent library ------------------------------------------------------------------------------------------------


def history(n: int = 40, d: int = 4) -> tuple[Values, Values]:
    g = RNG(7)
    x = g.uniform(0, 1, (n, d))
    return x, x @ g.normal(size=d) + 0.1 * g.normal(size=n)


def with_history(head: Linear) -> dict[str, Any]:
    x, rewards = history()
    state = head.start(1, x.shape[1], RNG(0))
    for row, reward in zip(x, rewards, strict=True):
        head.learn(state, np.array([0]), row[None], np.array([reward]))
    return state


def the_library(name: str, **parameters: float) -> Any:
    """The bandit of this name in mabwiser, after the same history; the test is skipped without that library."""
    library = pytest.importorskip("mabwiser.mab")
    policy = getattr(library.LearningPolicy, name)(**parameters)
    x, rewards = history()
    mab = library.MAB(arms=["client"], learning_policy=policy, seed=1)
    mab.fit(decisions=["client"] * len(x), rewards=rewards, contexts=x)
    return mab


def test_posterior_and_ucb_are_those_of_mabwiser() -> None:
    state, new = with_history(Linear()), RNG(1).uniform(0, 1, (30, 4))
    mab = the_library("LinUCB", alpha=0.8, l2_lambda=1.0)
    model = mab._imp.arm_to_model["client"]
    theta, L = posterior(state["V"], state["b"])
    np.testing.assert_allclose(theta, model.beta, rtol=1e-10)
    np.testing.assert_allclose(np.linalg.inv(L @ L.T), model.A_inv, rtol=1e-9)
    head = Linear("lin_ucb", gamma=lambda t: 0.8)
    ours = head.score(state, Candidates(0, np.zeros(30, dtype=np.int64), new, "abcd", RNG(0))).scores
    theirs = [found["client"] for found in mab.predict_expectations(new)]
    np.testing.assert_allclose(ours, theirs, rtol=1e-10)


def test_thompson_draws_have_the_law_of_mabwiser() -> None:
    """Their draws and ours, of θᵀx for one x: the same normal distribution; and each has the covariance γ²V⁻¹."""
    state, x = with_history(Linear()), np.array([0.3, 0.9, 0.1, 0.5])
    theta, L = posterior(state["V"], state["b"])
    mab = the_library("LinTS", alpha=0.5, l2_lambda=1.0)
    theirs = np.array([row["client"] for row in mab.predict_expectations(np.tile(x, (4000, 1)))])
    g = RNG(5)
    draws = np.array([draw(theta, L, 0.5, g) for _ in range(4000)])
    ours = draws @ x
    assert stats.ks_2samp(ours, theirs).pvalue > 1e-6
    law = stats.norm(theta @ x, 0.5 * float(widths(L, x[None])[0]))
    assert stats.kstest(ours, law.cdf).pvalue > 1e-6
    white = (draws - theta) @ L / 0.5  # L⁻ᵀz → z
    np.testing.assert_allclose(white.T @ white / 4000, np.eye(4), atol=0.15)


def test_linucb_regret_grows_slower_than_the_rounds() -> None:
    """D5: on a stationary linear problem R_n/n falls."""
    g, theta, head = (
        RNG(3),
        np.array([0.6, -0.4, 0.2, 0.5]),
        Linear("lin_ucb", gamma=lambda t: gamma_theory(t, 4, R=0.1)),
    )
    state, rewards, chosen = head.start(20, 4, g), [], []
    for t in range(600):
        x = g.uniform(0, 1, (20, 4))
        scores = head.score(state, Candidates(t, np.arange(20), x, "abcd", g)).scores
        picked = np.argsort(-scores)[:3]
        mean = x @ theta
        head.learn(state, picked, x[picked], mean[picked] + 0.1 * g.normal(size=3))
        rewards.append(mean)
        chosen.append(picked)
    rate = regret(np.array(rewards), chosen) / np.arange(1, 601)
    assert rate[599] < 0.5 * rate[99] < 0.5 * rate[19]


# --- contexts, rewards, credit: three clients over a few rounds ---------------------------------------------------------------

LOSSES = np.array(  # round, client, (training, held-out)
    [
        [[2.0, 2.0], [4.0, 1.0], [1.0, 5.0]],
        [[1.5, 1.0], [3.0, 1.0], [1.1, 4.0]],
        [[1.0, 0.5], [2.9, 2.0], [0.9, 5.0]],
        [[0.9, 0.4], [2.0, 1.5], [0.8, 2.5]],
    ]
)
TIMES = np.array([10.0, 20.0, 40.0])


class Stage:
    """A federation of three that answers with :data:`LOSSES`. Rewards of ``flash`` are divided by the largest so far, so that they are
    round numbers."""

    def __init__(self, k: int = 1, losses: Values = LOSSES, **values: Any) -> None:
        name = values.pop("name", "flash")
        values = {"reward_unit": "largest", **values} if name == "flash" else values
        self.selector: ContextBandit = make(STRATEGIES.find(name, "name"), values, "selection")
        self.selector.setup(a_census([10, 20, 40], k))
        self.k, self.losses, self.times = k, losses, np.full(3, np.nan)
        self.asked: list[tuple[int, list[int]]] = []
        self.questions: list[Question] = []

    def play(
        self,
        t: int,
        available: Sequence[int] = (0, 1, 2),
        trained: Sequence[int] = (0, 1, 2),
        admitted: Sequence[int] = (0, 1, 2),
    ) -> Cohort:
        def ask(question: Question, clients: Indices) -> Values:
            self.questions.append(question)
            self.asked.append((t, clients.tolist()))
            found: Values = self.losses[t - 1][clients]
            return found

        ids = np.array(available)
        cohort = choose(self.selector, Round(t, min(self.k, len(ids)), ids, RNG(t), 0.0, self.times.copy(), ask))
        back = np.isin(cohort.clients, trained)
        entered = back & np.isin(cohort.clients, admitted)
        outcome: Outcome = an_outcome(cohort, t=t, trained=back.tolist(), admitted=entered.tolist())
        self.times[cohort.clients[back]] = TIMES[cohort.clients[back]]
        self.selector.observe(outcome)
        return cohort


def test_the_first_context_is_relative_to_itself() -> None:
    stage = Stage()
    assert stage.play(1).clients.tolist() == [0, 1, 2]  # S_0: everybody
    expected = [[1, 1, size / 20, 0] for size in (10, 20, 40)]  # sizes stand for times before any is measured
    np.testing.assert_allclose(stage.selector.context, expected)
    assert stage.questions == [Context(loss="robust")]
    assert stage.selector.learned is not None
    assert stage.selector.learned["b"].tolist() == [0, 0, 0, 0]


def test_contexts_and_causal_credit_by_hand() -> None:
    stage = Stage(head="greedy")
    stage.play(1)
    cohort = stage.play(2)
    # r_2 = |ΔL| / (T / 20): 0.5/0.5, 1/1, 0.1/2 relative to the largest, 1
    rewards = np.array([1.0, 1.0, 0.05])
    np.testing.assert_allclose(stage.selector.reward, rewards)
    np.testing.assert_allclose(stage.selector.context, [[0.75, 0.5, 0.5, 0], [0.75, 1, 1, 0], [1.1, 0.8, 2, 0]])
    # all three took part in round 1, with the context of round 1
    x = np.array([[1, 1, 0.5, 0], [1, 1, 1, 0], [1, 1, 2, 0]])
    state = stage.selector.learned
    assert state is not None
    np.testing.assert_allclose(state["V"], np.eye(4) + x.T @ x)
    np.testing.assert_allclose(state["b"], x.T @ rewards)
    assert len(cohort) == 1
    assert the_why(cohort).scores.tolist() == [0, 0, 0]  # scored before the pairs of round 1 were known

    before, old = stage.selector.context.copy(), state["b"].copy()
    player = int(cohort.clients[0])
    theta = np.linalg.solve(state["V"], state["b"])
    third = stage.play(3)
    np.testing.assert_allclose(the_why(third).scores, before @ theta)
    # r_3: 0.5/0.5, 0.1/1, 0.2/2
    np.testing.assert_allclose(stage.selector.reward, [1.0, 0.1, 0.1])
    np.testing.assert_allclose(stage.selector.context[:, 3], rewards)  # r of the round before
    np.testing.assert_allclose(state["b"] - old, before[player] * stage.selector.reward[player])
    assert third.clients.tolist() == [int(np.argmax(before @ theta))]


def test_printed_credit_goes_to_the_clients_of_the_round_with_their_new_context() -> None:
    stage = Stage(name="flash_printed", head="greedy")
    stage.play(1)
    state = stage.selector.learned
    assert state is not None
    assert not state["b"].any()  # nothing at t = 0
    cohort = stage.play(2)
    i = int(cohort.clients[0])
    np.testing.assert_allclose(stage.selector.reward, np.array([0.5, 1.0, 0.1]) / TIMES)  # raw units
    x = stage.selector.context[i]
    assert x.tolist() == pytest.approx(
        [LOSSES[1, i, 0] / LOSSES[0, i, 0], LOSSES[1, i, 1] / LOSSES[0, i, 1], TIMES[i], 0]
    )
    np.testing.assert_allclose(state["V"], np.eye(4) + np.outer(x, x))
    np.testing.assert_allclose(state["b"], x * stage.selector.reward[i])


def test_a_failed_client_is_not_rewarded() -> None:
    for name in ("flash", "flash_printed"):
        stage = Stage(name=name)
        stage.play(1, trained=[])
        stage.play(2, trained=[])
        stage.play(3, trained=[])
        assert stage.selector.learned is not None
        assert not stage.selector.learned["b"].any()


def test_causal_credit_is_given_to_admitted_clients_only() -> None:
    """All three train in round 1, and client 1 is declined: of the rewards 1, 1 and 0.05, the first and the last are learned."""
    stage = Stage(head="greedy")
    stage.play(1, admitted=[0, 2])
    stage.play(2)
    x = np.array([[1, 1, 0.5, 0], [1, 1, 2, 0]])
    state = stage.selector.learned
    assert state is not None
    np.testing.assert_allclose(state["V"], np.eye(4) + x.T @ x)
    np.testing.assert_allclose(state["b"], x.T @ np.array([1.0, 0.05]))


def test_printed_credit_is_given_to_admitted_clients_only() -> None:
    """All three train in round 2, and one is admitted: V grows by the context of that client alone."""
    for admitted in ([0], [1], [2]):
        stage = Stage(name="flash_printed", head="greedy", k=3)
        stage.play(1)
        stage.play(2, admitted=admitted)
        (i,) = admitted
        x, state = stage.selector.context[i], stage.selector.learned
        assert state is not None
        np.testing.assert_allclose(state["V"], np.eye(4) + np.outer(x, x))
        np.testing.assert_allclose(state["b"], x * np.array([0.5, 1.0, 0.1])[i] / TIMES[i])


def test_a_client_that_was_away_keeps_its_context_and_is_rewarded_for_the_whole_time() -> None:
    stage = Stage()
    stage.play(1)
    before = stage.selector.context[0].copy()
    stage.play(2, available=[1, 2])
    assert stage.selector.context[0].tolist() == before.tolist()
    stage.play(3)
    raw = stage.selector.reward[0] * stage.selector.largest_reward
    assert raw == pytest.approx(abs(1.0 - 2.0) / 0.5)


def test_a_client_never_heard_of_has_the_mean_context_and_no_reward() -> None:
    stage = Stage()
    stage.play(1, available=[0, 1])
    mean = stage.selector.context[:2].mean(axis=0)
    np.testing.assert_allclose(stage.selector.features(np.array([2]))[0], mean)
    stage.play(2)
    assert np.isnan(stage.selector.reward[2])
    assert stage.selector.context[2].tolist() == pytest.approx([1, 1, 2.0, 0])


def test_an_answer_that_is_not_finite_ranks_last_and_changes_nothing() -> None:
    losses = LOSSES.copy()
    losses[1, 0] = np.nan
    stage = Stage(k=2, losses=losses)
    stage.play(1)
    before = stage.selector.context[0].copy()
    stage.play(2)
    assert stage.selector.context[0].tolist() == before.tolist()
    cohort = stage.play(3)
    assert cohort.clients.tolist() != [0]
    assert sorted(cohort.clients.tolist()) == [1, 2]
    assert the_why(cohort).scores[0] == -np.inf
    assert np.isfinite(the_why(stage.play(4)).scores).all(), "it has answered in round 3"


def test_a_client_without_a_finite_answer_is_not_explored_either() -> None:
    """Forced exploration takes the least selected clients, and client 0 was never selected."""
    losses = LOSSES.copy()
    losses[1, 0] = np.nan
    stage = Stage(name="restless", k=2, losses=losses)
    stage.play(1, available=[1, 2])
    cohort = stage.play(2)
    assert the_why(cohort).note == "forced exploration: least selected"
    assert sorted(cohort.clients.tolist()) == [1, 2]


def test_a_client_whose_reward_is_unknown_is_not_rewarded_for_a_later_round() -> None:
    """Client 0 takes part in round 1 without an answer; it answers in round 2, in which another client takes part."""
    losses = LOSSES.copy()
    losses[0, 0] = np.nan
    stage = Stage(head="greedy", losses=losses)
    stage.play(1)
    cohort = stage.play(2)
    state = stage.selector.learned
    assert state is not None
    before, old, player = stage.selector.context.copy(), state["b"].copy(), int(cohort.clients[0])
    assert player != 0
    stage.play(3)
    np.testing.assert_allclose(state["b"] - old, before[player] * stage.selector.reward[player])


def test_printed_credit_is_not_given_again_for_an_old_reward() -> None:
    """All three take part in round 3, but client 0 has no finite answer: its reward is that of round 2."""
    losses = LOSSES.copy()
    losses[2, 0] = np.nan
    stage = Stage(name="flash_printed", head="greedy", k=3, losses=losses)
    stage.play(1)
    stage.play(2)
    state = stage.selector.learned
    assert state is not None
    old = state["b"].copy()
    stage.play(3)
    x, rewards = stage.selector.context, np.array([0.0, 0.1, 0.2]) / TIMES
    np.testing.assert_allclose(state["b"] - old, rewards @ x)


def test_the_unit_of_time_is_the_median_of_the_first_measured_times_of_clients_with_samples() -> None:
    """Before any is measured, sizes stand for times: those of clients with samples have the median 20."""
    stage = Stage()
    stage.selector.setup(a_census([10, 20, 40, 0], 1))
    stage.times = np.full(4, np.nan)
    stage.play(1)
    assert stage.selector.context[:3, 2].tolist() == [0.5, 1.0, 2.0]
    stage.times[:3] = [100.0, 400.0, 800.0]
    stage.play(2)
    assert stage.selector.context[:3, 2].tolist() == [0.25, 1.0, 2.0]


def test_rewards_are_divided_by_the_largest_of_all_rounds() -> None:
    """The largest is 1 in rounds 2 and 3; those of round 4 are 0.1/0.5, 0.9/1 and 0.1/2."""
    stage = Stage()
    for t in (1, 2, 3, 4):
        stage.play(t)
    np.testing.assert_allclose(stage.selector.reward, [0.2, 0.9, 0.05])


def test_gamma_is_that_of_the_round_of_the_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    """FLASH counts rounds from 0, and chooses in round t by the contexts of the round before."""
    seen: list[int] = []

    def noted(_: Flash, t: int) -> float:
        seen.append(t)
        return 1.0

    monkeypatch.setattr(Flash, "gamma", noted)
    stage = Stage(head="lin_ucb")
    for t in (1, 2, 3, 4):
        stage.play(t)
    assert seen == [0, 1, 2]


def test_a_first_loss_of_zero_makes_a_ratio_of_one() -> None:
    losses = LOSSES.copy()
    losses[0, 1] = 0.0
    stage = Stage(losses=losses)
    stage.play(1)
    stage.play(2)
    assert stage.selector.context[1, :2].tolist() == [1.0, 1.0]


def test_rewards_in_means_of_their_round_keep_their_scale_while_losses_shrink() -> None:
    """The mean of 1, 1 and 0.05 in units of the largest reward is 41/60."""
    for scale in (1.0, 1e-3):
        stage = Stage(reward_unit="round", losses=scale * LOSSES)
        stage.play(1)
        stage.play(2)
        np.testing.assert_allclose(stage.selector.reward, np.array([1, 1, 0.05]) * 60 / 41)
        assert stage.selector.reward.mean() == pytest.approx(1.0)


def test_options_of_contexts_and_rewards() -> None:
    stage = Stage(reward_data="validation", reward_unit="raw", time_unit="raw")
    stage.play(1)
    stage.play(2)
    np.testing.assert_allclose(stage.selector.reward, np.array([1.0, 0.0, 1.0]) / TIMES)

    stage = Stage(reward_scope="global", reward_unit="raw", time_unit="raw")
    stage.play(1)
    stage.play(2)
    np.testing.assert_allclose(stage.selector.reward, (np.array([0.5, 1.0, 0.1]) / TIMES).mean())

    stage = Stage(duration_scope="round", time_unit="raw")
    stage.play(1)
    stage.play(2)  # an_outcome's rounds take 1
    assert stage.selector.context[:, 2].tolist() == [1, 1, 1]

    stage = Stage(scaling="colnorm")
    stage.play(1)
    stage.play(2)
    x = stage.selector.features(np.arange(3))
    np.testing.assert_allclose(np.linalg.norm(x[:, :3], axis=0), 1)
    assert stage.selector.learned is not None
    old = np.array([[1, 1, 0.5, 0], [1, 1, 1, 0], [1, 1, 2, 0]])
    old[:, :3] = old[:, :3] / np.linalg.norm(old[:, :3], axis=0)
    np.testing.assert_allclose(stage.selector.learned["V"], np.eye(4) + old.T @ old)

    stage = Stage(context_loss="ce")
    stage.play(1)
    assert stage.questions == [Context()]
    stage = Stage(alpha=1.0, beta=8.0)
    stage.play(1)
    assert stage.questions == [Context(loss="robust", alpha=1.0, beta=8.0)]


@pytest.mark.parametrize("element", ELEMENTS)
def test_without_an_element_contexts_and_gamma_are_shorter(element: Any) -> None:
    stage = Stage(without=element)
    flash = stage.selector
    assert isinstance(flash, Flash)
    stage.play(1)
    stage.play(2)
    kept = [j for j, name in enumerate(ELEMENTS) if name != element]
    assert flash.features(np.arange(3)).tolist() == flash.context[:, kept].tolist()
    assert flash.gamma(1) == gamma(1, 3, 3)
    terms = the_why(stage.play(3)).terms
    assert element not in terms
    assert len(terms) == 10  # θ·x, x, θ of three elements, and exploration


def test_only_the_selected_answer_where_that_is_wanted() -> None:
    stage = Stage(context_refresh="selected", first_round="random")
    first = stage.play(1)
    assert len(first) == 1
    cohorts = [stage.play(t) for t in (2, 3)]
    assert stage.asked[1:] == [(t, cohort.clients.tolist()) for t, cohort in zip((2, 3), cohorts, strict=True)]


@pytest.mark.parametrize("values", [{"context_refresh": "selected"}, {"eval_point": "local"}], ids=str)
def test_where_only_the_selected_answer_a_lost_answer_counts_for_one_round(values: dict[str, Any]) -> None:
    """Otherwise such a client would never be asked again, and so rank last forever."""
    flash = Flash(first_round="random", head="greedy", **values)
    flash.setup(a_census([10, 20, 40], 2))
    cohorts: list[list[int]] = []
    ranked_last: list[list[int]] = []
    for t in range(1, 5):
        answers = np.full((3, 2), np.nan if t == 1 else 1.0 + t)
        ask = partial(lambda values, question, clients: values[clients], answers)
        cohort = choose(flash, Round(t, 2, np.arange(3), RNG(t), 0.0, np.full(3, np.nan), ask))
        ranked_last.append(np.flatnonzero(np.isneginf(the_why(cohort).scores)).tolist())
        cohorts.append(sorted(cohort.clients.tolist()))
        reports = {"training_loss": answers[cohort.clients, 0], "held_out_loss": answers[cohort.clients, 1]}
        flash.observe(an_outcome(cohort, t=t, reports=reports, durations=[1.0, 1.0]))
    assert ranked_last == [[], cohorts[0], [], []]


def test_a_score_decides_one_round_later_among_those_who_are_there() -> None:
    stage = Stage(head="greedy", k=2)
    for t in (1, 2):
        stage.play(t)
    context, state = stage.selector.context.copy(), stage.selector.learned
    assert state is not None
    scores = context @ np.linalg.solve(state["V"], state["b"])
    order = np.argsort(-scores)
    cohort = stage.play(3, available=sorted(order[1:].tolist()))  # the best is away: the next two
    assert cohort.clients.tolist() == order[1:].tolist()


def test_presets() -> None:
    flash, printed, ucb = Flash(), FlashPrinted(), FlashLinUCB()
    assert (flash.credit, flash.time_unit, flash.reward_unit, flash.head) == ("causal", "median", "round", "lin_ts")
    assert (printed.credit, printed.time_unit, printed.reward_unit, printed.head) == ("printed", "raw", "raw", "lin_ts")
    assert ucb.head == "lin_ucb"


def test_gamma_scale_and_the_theory() -> None:
    for values, expected in (
        ({"gamma_scale": 0.1}, 0.1 * gamma(5, 3, 4)),
        ({"gamma_rule": "theory"}, gamma_theory(5, 4)),
    ):
        flash = Stage(**values).selector
        assert isinstance(flash, Flash)
        assert flash.gamma(5) == pytest.approx(expected)


@pytest.mark.parametrize(("m", "first"), [(100, 100), (101, 7)])
def test_everybody_takes_part_in_the_first_round_of_a_small_federation(m: int, first: int) -> None:
    flash = Flash()
    flash.setup(a_census([1] * m, 7))
    seen = Round(1, 7, np.arange(m), RNG(0), 0.0, np.full(m, np.nan), lambda q, c: np.ones((len(c), 2)))
    assert len(choose(flash, seen)) == first


def test_losses_of_the_local_models_give_contexts_rewards_and_credit_at_once() -> None:
    stage = Stage(eval_point="local", head="greedy", k=1)

    def play(t: int, local: Values) -> Cohort:
        ids = np.arange(3)
        cohort = choose(stage.selector, Round(t, 1, ids, RNG(t), 0.0, stage.times, nobody_is_asked))
        i = cohort.clients
        stage.times = stage.times.copy()
        stage.times[i] = TIMES[i]
        reports = {"training_loss": local[i, 0], "held_out_loss": local[i, 1]}
        stage.selector.observe(an_outcome(cohort, t=t, reports=reports, durations=TIMES[i]))
        return cohort

    def nobody_is_asked(question: Question, clients: Indices) -> Values:
        raise AssertionError

    first = play(1, LOSSES[0])
    assert first.stop == {"rule": "losses", "loss": "robust", "alpha": 0.1, "beta": 4.0, "log_zero": -4.0}
    assert len(first) == 3
    assert np.isnan(stage.selector.reward).all()
    i = int(play(2, LOSSES[1]).clients[0])
    state = stage.selector.learned
    assert state is not None
    assert stage.selector.reward[i] == pytest.approx(1.0)  # the first reward is the largest so far
    x = stage.selector.context[i]
    assert x == pytest.approx([*(LOSSES[1, i] / LOSSES[0, i]), TIMES[i] / 20, 0])
    np.testing.assert_allclose(state["V"], np.eye(4) + np.outer(x, x))
    np.testing.assert_allclose(state["b"], x)


def test_losses_of_local_models_give_credit_to_admitted_clients_only() -> None:
    """All three train in both rounds. In round 2 client 1 is declined: its context is kept, and nothing is learned from it."""
    stage = Stage(eval_point="local", head="greedy", k=3)
    for t, admitted in ((1, [True] * 3), (2, [True, False, True])):
        cohort = choose(stage.selector, a_round(3, 3, t=t, durations=stage.times))
        reports = {"training_loss": LOSSES[t - 1, :, 0], "held_out_loss": LOSSES[t - 1, :, 1]}
        in_order = replace(cohort, clients=np.arange(3))
        stage.selector.observe(an_outcome(in_order, t=t, admitted=admitted, reports=reports, durations=TIMES))
        stage.times = TIMES
    rewards = np.array([1.0, 1.0, 0.05])  # 0.5/0.5, 1/1, 0.1/2 relative to the largest
    np.testing.assert_allclose(stage.selector.reward, rewards)
    np.testing.assert_allclose(stage.selector.context, [[0.75, 0.5, 0.5, 0], [0.75, 1, 1, 0], [1.1, 0.8, 2, 0]])
    x, state = stage.selector.context[[0, 2]], stage.selector.learned
    assert state is not None
    np.testing.assert_allclose(state["V"], np.eye(4) + x.T @ x)
    np.testing.assert_allclose(state["b"], x.T @ rewards[[0, 2]])


# --- what the presets are for ------------------------------------------------------------------------------------------------


def reward_rate(name: str, seed: int, m: int = 50, k: int = 10, rounds: int = 300, **values: Any) -> float:
    """Mean reward of a toy bandit, relative to the best fixed choice of k clients.

    Client i has the time T_i = 1000·(1 + Exp(10)). Its loss moves towards a level by gain_i·U(½, 1½), gain_i ~ U(.02, .1), when it has
    trained, and by 0.3·U(0, 1) through what others do; what it is worth is gain_i/T_i.
    """
    g = RNG(seed)
    gain, times = g.uniform(0.02, 0.1, m), 1000 * (1 + g.exponential(10, m))
    worth, loss = gain / times, g.uniform(1.5, 2.5, m)
    selector = make(STRATEGIES.find(name, "name"), values, "selection")
    selector.setup(a_census([1000] * m, k))
    level, known, trained, rates = loss.copy(), np.full(m, np.nan), np.zeros(m, dtype=bool), []

    def ask(question: Question, clients: Indices) -> Values:
        held_out = 1.1 * loss[clients] * (1 + 0.02 * g.normal(size=len(clients)))
        return np.stack([loss[clients], held_out], axis=1)

    for t in range(1, rounds + 1):
        move = np.where(trained, gain * g.uniform(0.5, 1.5, m), 0.3 * g.uniform(0, 1, m))
        loss = loss + np.where(loss > level, -move, move)
        cohort = choose(selector, Round(t, k, np.arange(m), RNG([seed, t]), 0.0, known.copy(), ask))
        trained = np.isin(np.arange(m), cohort.clients)
        known[cohort.clients] = times[cohort.clients]
        selector.observe(an_outcome(cohort, t=t, durations=times[cohort.clients]))
        if len(cohort) == k:  # the first round has everybody
            rates.append(worth[cohort.clients].sum())
    return float(np.mean(rates) / np.sort(worth)[-k:].sum())


@pytest.mark.slow
def test_presets_in_a_toy_bandit() -> None:
    """In raw units γ hides every difference. With rewards relative to the largest FLASH learns little, and more with a tenth of the
    exploration; with rewards in means of their round it learns at once.

    The specification's figures, of a bandit that it does not describe further: uniform 0.39, printed 0.37, relative to the largest
    0.41, with gamma_scale = 0.1 0.53. Ours: 0.36, 0.40, 0.47, 0.74; in means of the round 0.77.
    """
    seeds = range(10)
    uniform = np.mean([reward_rate("uniform", seed) for seed in seeds])
    printed = np.mean([reward_rate("flash_printed", seed) for seed in seeds])
    largest = np.mean([reward_rate("flash", seed, reward_unit="largest") for seed in seeds])
    calm = np.mean([reward_rate("flash", seed, reward_unit="largest", gamma_scale=0.1) for seed in seeds])
    flash = np.mean([reward_rate("flash", seed) for seed in seeds])
    assert [round(float(found), 2) for found in (uniform, printed, largest, calm, flash)] == pytest.approx(
        [0.36, 0.40, 0.47, 0.74, 0.77], abs=0.03
    )
    assert abs(printed - uniform) < 0.06 < largest - uniform < calm - largest < flash - largest
