"""UCB: worked numbers, and agreement with a second implementation of the algorithm with lists and dictionaries."""

import copy
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from fedcohort.core.parameters import make
from fedcohort.core.random_streams import rng as stream
from fedcohort.selection import Round, Selector, choose
from fedcohort.selection.strategies.ucb import UCB
from tests.selection.fakes import a_census, a_round, an_outcome, the_why


def with_history(counts: Sequence[int], rewards: Sequence[Sequence[float]]) -> UCB:
    """A UCB without exploration and random first rounds, after these numbers of selections and these rewards of each client."""
    ucb = UCB(epsilon=0.0, initial_rounds=0)
    ucb.setup(a_census([1] * len(counts), k=2))
    ucb.selections[:] = counts
    ucb.reward_counts[:] = [len(values) for values in rewards]
    ucb.reward_sums[:] = [sum(values) for values in rewards]
    ucb.mean_rewards[:] = [sum(values) / max(len(values), 1) for values in rewards]
    return ucb


def test_scores_match_worked_values() -> None:
    ucb = with_history((5, 5, 5, 3), [(0.3, 0.1, 0, 0, 0), (0.2, 0, 0, 0, 0), (0.3, 0, 0, 0, 0), (0, 0.05, 0.1)])
    cohort = ucb.select(a_round(2, 4))
    why = the_why(cohort)
    assert np.round(why.scores, 6).tolist() == [1.155244, 1.115244, 1.135244, 1.438133]
    assert why.terms["mean_reward"] == pytest.approx([0.08, 0.04, 0.06, 0.05])
    assert why.terms["mean_reward"] + why.terms["bonus"] == pytest.approx(why.scores)
    assert cohort.clients.tolist() == [3, 0]


def test_a_client_never_selected_comes_first() -> None:
    ucb = with_history((4, 2, 3, 0), [(0.1,) * 4, (0.1,) * 2, (0.1,) * 3, ()])
    cohort = ucb.select(a_round(2, 4))
    assert np.round(the_why(cohort).scores[:3], 6).tolist() == [1.148147, 1.582304, 1.310296]
    assert round(the_why(cohort).scores[3]) == 209_629
    assert cohort.clients.tolist() == [3, 1]


class Printed:
    """Algorithm 1 with lists and dictionaries; it takes the same draws from the generator in the same order."""

    def __init__(self, m: int, c: float, epsilon: float, initial_rounds: int, reward: Callable[[float], float]) -> None:
        self.c, self.epsilon, self.initial_rounds, self.reward = c, epsilon, initial_rounds, reward
        self.n = dict.fromkeys(range(m), 0)
        self.rho: dict[int, list[float]] = {i: [] for i in range(m)}
        self.accuracy = 0.0

    def select(self, t: int, available: list[int], k: int, rng: np.random.Generator) -> list[int]:
        u = float(rng.random())
        k = min(k, len(available))
        if t <= self.initial_rounds or u < self.epsilon:
            chosen = [int(i) for i in rng.choice(available, size=k, replace=False)]
        else:
            s = 1e-10
            for count in self.n.values():
                s += count
            keys = [float(key) for key in rng.random(len(available))]
            ranked = []
            for i, key in zip(available, keys, strict=True):
                mean = 0.0
                for reward in self.rho[i]:
                    mean += reward
                mean = mean / len(self.rho[i]) if self.rho[i] else 0.0
                ucb = mean + self.c * math.sqrt(max(0.0, math.log(s)) / (self.n[i] + 1e-10))
                ranked.append((-ucb, key, i))
            chosen = [i for _, _, i in sorted(ranked)[:k]]
        for i in chosen:
            self.n[i] += 1
        return chosen

    def after(self, accuracy: float, participants: list[int]) -> None:
        if math.isnan(accuracy):
            return
        for i in participants:
            self.rho[i].append(self.reward(accuracy - self.accuracy))
        self.accuracy = accuracy


REWARDS: dict[str, Callable[[float], float]] = {
    "clip": lambda gain: min(1.0, max(0.0, gain)),
    "affine": lambda gain: (gain + 1.0) / 2.0,
    "raw": lambda gain: gain,
}


@pytest.mark.parametrize(
    ("norm", "c", "epsilon", "initial_rounds", "seed"),
    [
        ("clip", math.sqrt(2), 0.1, 5, 0),
        ("clip", 0.05, 0.1, 0, 1),
        ("clip", 0.0, 0.3, 5, 2),
        ("affine", 0.1, 0.0, 2, 3),
        ("raw", 0.02, 0.1, 5, 4),
    ],
)
def test_cohorts_match_the_printed_algorithm(
    norm: str, c: float, epsilon: float, initial_rounds: int, seed: int
) -> None:
    m, k = 12, 3
    values = {"c": c, "epsilon": epsilon, "initial_rounds": initial_rounds, "reward_norm": norm}
    ucb = make(UCB, values, "strategy")
    ucb.setup(a_census([1] * m, k))
    printed = Printed(m, c, epsilon, initial_rounds, REWARDS[norm])
    world = np.random.default_rng(seed)
    accuracy, notes = 0.1, set()
    for t in range(1, 101):
        available = sorted(world.choice(m, size=world.integers(2, m + 1), replace=False).tolist())
        cohort = choose(ucb, a_round(k, available, t=t, seed=seed))
        expected = printed.select(t, available, k, stream(seed, "select", round=t))
        assert cohort.clients.tolist() == expected, f"round {t}"
        admitted = world.random(len(expected)) < 0.8
        accuracy = float(np.clip(accuracy + world.normal(0.005, 0.05), 0, 1))
        shown = math.nan if world.random() < 0.1 else accuracy
        ucb.observe(an_outcome(cohort, t=t, accuracy=shown, admitted=admitted.tolist()))
        printed.after(shown, [i for i, ok in zip(expected, admitted.tolist(), strict=True) if ok])
        notes.add(the_why(cohort).note)
    assert "highest UCB" in notes
    assert ("random: first rounds" in notes) == (initial_rounds > 0)
    assert ("random: epsilon" in notes) == (epsilon > 0)


@pytest.mark.parametrize(("norm", "rewards"), [("clip", [0.4, 0.0]), ("affine", [0.7, 0.45]), ("raw", [0.4, -0.1])])
def test_rewards_of_a_gain_and_of_a_loss_by_hand(norm: str, rewards: list[float]) -> None:
    """Gains of 0.4 and −0.1: affine rewards are (0.4 + 1)/2 and (−0.1 + 1)/2."""
    ucb = make(UCB, {"reward_norm": norm}, "strategy")
    ucb.setup(a_census([1, 1], k=1))
    ucb.observe(an_outcome([0], accuracy=0.4))
    ucb.observe(an_outcome([1], accuracy=0.3))
    assert ucb.mean_rewards == pytest.approx(rewards)


def test_the_first_reward_is_the_accuracy_and_a_decrease_has_reward_0() -> None:
    ucb = with_history((0, 0, 0), [(), (), ()])
    ucb.observe(an_outcome([0, 1], accuracy=0.4))
    ucb.observe(an_outcome([1, 2], accuracy=0.3))
    ucb.observe(an_outcome([2], accuracy=0.35))
    assert ucb.reward_sums == pytest.approx([0.4, 0.4, 0.05])
    assert ucb.mean_rewards == pytest.approx(ucb.reward_sums / ucb.reward_counts)
    assert ucb.reward_counts.tolist() == [1, 2, 2]
    assert ucb.selections.tolist() == [1, 2, 2]


def test_a_client_that_is_not_admitted_is_counted_but_not_rewarded() -> None:
    ucb = with_history((0, 0, 0), [(), (), ()])
    ucb.observe(an_outcome([0, 2], accuracy=0.4, admitted=[True, False]))
    assert ucb.selections.tolist() == [1, 0, 1]
    assert ucb.reward_counts.tolist() == [1, 0, 0]


def test_without_validation_no_client_is_rewarded_and_the_previous_accuracy_is_kept() -> None:
    ucb = with_history((0, 0), [(), ()])
    ucb.observe(an_outcome([0], accuracy=0.4))
    ucb.observe(an_outcome([0], accuracy=math.nan))
    ucb.observe(an_outcome([1], accuracy=0.5))
    assert ucb.reward_sums == pytest.approx([0.4, 0.1])
    assert ucb.reward_counts.tolist() == [1, 1]
    assert ucb.selections.tolist() == [2, 1]


def test_unavailable_clients_are_not_candidates() -> None:
    ucb = with_history((4, 2, 3, 0), [(0.1,) * 4, (0.1,) * 2, (0.1,) * 3, ()])
    cohort = ucb.select(a_round(2, [0, 1, 2]))
    assert cohort.clients.tolist() == [1, 2]
    assert the_why(cohort).candidates.tolist() == [0, 1, 2]


def test_before_any_selection_all_scores_are_tied_and_the_choice_is_random() -> None:
    ucb = with_history((0,) * 6, [()] * 6)
    picks = [tuple(ucb.select(a_round(1, 6, t=t)).clients.tolist()) for t in range(1, 101)]
    assert the_why(ucb.select(a_round(1, 6))).scores.tolist() == [0.0] * 6
    assert len(set(picks)) == 6


def test_the_exploration_draw_is_also_made_in_the_first_rounds() -> None:
    def state_after(selector: Selector, round: Round) -> object:
        selector.select(round)
        return round.rng.bit_generator.state

    first, later = UCB(epsilon=1.0, initial_rounds=5), UCB(epsilon=1.0, initial_rounds=0)
    for ucb in (first, later):
        ucb.setup(a_census([1] * 12, 3))
    states = [state_after(ucb, a_round(3, 12, t=2)) for ucb in (first, later)]
    assert repr(states[0]) == repr(states[1])


def test_selection_is_nearly_least_selected_first_with_the_default_c() -> None:
    ucb = UCB()
    ucb.setup(a_census([1] * 12, 3))
    world = np.random.default_rng(0)
    for t in range(1, 101):
        cohort = ucb.select(a_round(3, 12, t=t))
        ucb.observe(an_outcome(cohort, t=t, accuracy=0.5 + 0.05 * float(world.random())))
    assert ucb.selections.sum() == 300
    assert np.ptp(ucb.selections) <= 6


def test_a_restored_state_selects_the_same_cohorts() -> None:
    straight = UCB()
    straight.setup(a_census([1] * 12, 3))
    resumed: UCB | None = None
    for t in range(1, 31):
        accuracy = 1 - 1 / (1 + t)
        cohort = straight.select(a_round(3, 12, t=t))
        if resumed is not None:
            again = resumed.select(a_round(3, 12, t=t))
            assert again.clients.tolist() == cohort.clients.tolist()
            resumed.observe(an_outcome(again, t=t, accuracy=accuracy))
        straight.observe(an_outcome(cohort, t=t, accuracy=accuracy))
        if t == 12:
            resumed = UCB()
            resumed.setup(a_census([1] * 12, 3))
            saved = copy.deepcopy(straight.state_dict())
            del saved["mean_rewards"]  # not in earlier checkpoints
            resumed.load_state_dict(saved)
            assert np.array_equal(resumed.mean_rewards, straight.mean_rewards)


def test_scores_match_mabwiser() -> None:
    """UCB1 of mabwiser on the same history; its bonus is alpha·√(2 ln s / n)."""
    draw = stream(0, "a test")
    played, rewards = draw.integers(0, 4, 60), draw.uniform(0, 0.3, 60)
    library = pytest.importorskip("mabwiser.mab")
    mab = library.MAB(arms=[0, 1, 2, 3], learning_policy=library.LearningPolicy.UCB1(alpha=0.7))
    mab.fit(decisions=played, rewards=rewards)
    ucb = with_history(np.bincount(played).tolist(), [rewards[played == i].tolist() for i in range(4)])
    ucb.c = 0.7 * math.sqrt(2)
    scores = the_why(ucb.select(a_round(2, 4))).scores
    assert scores == pytest.approx([mab.predict_expectations()[i] for i in range(4)])
