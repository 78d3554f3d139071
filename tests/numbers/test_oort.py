"""Oort: worked numbers, exploration, pacer, blacklist, fairness, and stragglers."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedcohort.core.parameters import make
from fedcohort.rounds import play_round
from fedcohort.selection import Question, Speed, choose
from fedcohort.selection.strategies.oort import Oort
from tests.run_states import a_run_state
from tests.selection.fakes import a_census, a_round, an_outcome, the_why

UTILITY, DURATIONS, LAST = (10.0, 40.0, 25.0, 100.0), (5.0, 20.0, 8.0, 10.0), (1, 2, 3, 3)
NO_SPEEDS = np.full((50, 2), np.nan)


def ready(num_samples: list[int] | np.ndarray, k: int, **values: Any) -> Oort:
    selector: Oort = make(Oort, values, "selection")
    selector.setup(a_census(num_samples, k))
    return selector


def explored(utility: Any, last: Any = None, k: int = 2, **values: Any) -> Oort:
    """All clients are explored, with these utilities."""
    selector = ready([10] * len(utility), k, **values)
    selector.utility = np.array(utility, dtype=np.float64)
    selector.last_round = np.array([1] * len(utility) if last is None else last)
    return selector


def reports(losses: list[float]) -> dict[str, list[float]]:
    return {"samples": [float(len(losses))], "square_loss": [float(np.mean(np.square(losses)))]}


# --- worked numbers ----------------------------------------------------------------------------------------------------------


def test_statistical_utility_matches_worked_values() -> None:
    selector = ready([4], 1)
    selector.observe(an_outcome([0], reports=reports([1, 2, 2, 4])))
    assert selector.utility.tolist() == [10.0]  # 4 × the mean would be 9


def test_utilities_match_worked_values() -> None:
    selector = explored(UTILITY, LAST, epsilon=0.0, epsilon_min=0.0, round_threshold=50.0)
    selected = selector.select(a_round(2, 4, t=4, durations=DURATIONS, speeds=NO_SPEEDS))
    why = the_why(selected)
    assert "preferred duration 10" in why.note
    assert why.terms["statistical"] == pytest.approx([0.000111, 0.333407, 0.166759, 1], abs=5e-7)
    assert why.terms["temporal"] == pytest.approx([0.372330, 0.263277, 0.214965, 0.214965], abs=5e-7)
    assert why.terms["system"].tolist() == [1, 0.25, 1, 1]
    assert why.scores == pytest.approx([0.372441, 0.149171, 0.381724, 1.214965], abs=5e-7)
    assert np.argsort(-why.scores).tolist() == [3, 2, 0, 1]
    assert 0.95 * np.sort(why.scores)[-2] == pytest.approx(0.362638, abs=5e-7)


def test_utilities_are_clipped_by_those_of_all_clients_and_scaled_by_those_of_the_available_ones() -> None:
    """Of (1, 5, 9, 100), position ⌊0.5·4⌋ is 9; of the available ones, clipped to 5 and 9, the smallest is 5."""
    selector = explored([1, 5, 9, 100], clip_quantile=0.5)
    _, terms = selector.utilities(1, np.array([1, 3]), np.full(4, np.nan), math.inf)
    assert terms["statistical"] == pytest.approx([(5 - 4.995) / (9 - 4.995), 1.0])


def test_weights_of_new_clients_by_hand() -> None:
    """By speed, 1/time, with the median 4 of the known times for an unknown one; by size, at most the samples of a round."""
    selector = ready([10, 20, 30, 40], 2)
    clients, seconds = np.arange(4), np.array([1.0, np.nan, 4.0, 16.0])
    assert selector._exploration_weights(clients, seconds.copy(), math.inf, 2).tolist() == [1, 0.25, 0.25, 0.0625]
    by_size = ready([10, 20, 30, 40], 2, exploration="size", samples_per_round=25)
    assert by_size._exploration_weights(clients, seconds, math.inf, 2).tolist() == [10, 20, 25, 25]
    assert by_size._exploration_weights(clients, seconds, 8.0, 2).tolist() == [10, 20, 25, 25 * (8 / 16) ** 2]


def test_new_clients_take_the_places_that_too_few_explored_ones_leave() -> None:
    """ε·k is a quarter of a place, but only one of the five available clients is explored."""
    selector = explored([10.0] * 5, epsilon=0.0625, epsilon_min=0.0625)
    selector.utility[1:] = np.nan
    selected = selector.select(a_round(4, 5, t=2, durations=[1.0] * 5, speeds=np.full((5, 2), np.nan)))
    assert the_why(selected).note.startswith("1 by utility, 3 exploring, preferred duration 1")
    assert "blacklist" not in the_why(selected).note
    assert selected.clients[0] == 0
    assert len(set(selected.clients.tolist())) == 4


def test_exploited_clients_are_drawn_by_utility_above_the_cut_off() -> None:
    """W = {3, 2, 0}: the first of the two draws has the probabilities 0.617006, 0.193854 and 0.189140 (chi-square test)."""
    selector = explored(UTILITY, LAST, epsilon=0.0, epsilon_min=0.0, round_threshold=50.0)
    firsts, seen = np.zeros(4), set()
    for seed in range(4000):
        clients = selector.select(a_round(2, 4, t=4, durations=DURATIONS, seed=seed)).clients
        firsts[clients[0]] += 1
        seen.update(clients.tolist())
    assert seen == {0, 2, 3}
    expected = 4000 * np.array([0.617006, 0.193854, 0.189140])
    assert stats.chisquare(firsts[[3, 2, 0]], expected * 4000 / expected.sum()).pvalue > 1e-6
    why = the_why(selector.select(a_round(2, 4, t=4, durations=DURATIONS)))
    said = f"in proportion to their scores, among the 3 with scores of {np.sort(why.scores)[1]:.4g} or more"
    assert why.note.endswith(f"; those by utility were drawn, {said}")
    why = the_why(selector.select(a_round(3, 4, t=4, durations=DURATIONS)))
    assert "in proportion" not in why.note, "all of them were selected"


def test_epsilon_decays_to_its_lower_bound() -> None:
    free = ready([1], 1, epsilon_min=0.0)
    assert free.epsilon_at(1) == 0.9
    assert free.epsilon_at(11) == pytest.approx(0.7354, abs=5e-5)
    below = next(updates for updates in range(200) if free.epsilon_at(updates + 1) < 0.2)
    assert below == 75
    assert ready([1], 1).epsilon_at(1000) == 0.2


# --- exploration and exploitation ------------------------------------------------------------------------------------------


def test_the_first_round_is_uniform() -> None:
    selector, counts = ready([1, 100, 1, 1], 1), np.zeros(4)
    for seed in range(2000):
        cohort = selector.select(a_round(1, 4, seed=seed))
        counts[cohort.clients] += 1
    assert stats.chisquare(counts).pvalue > 1e-6
    assert the_why(cohort).note == "random: first round"


@pytest.mark.parametrize(
    ("epsilon", "k", "exploring"), [(0.5, 5, 3), (0.25, 2, 1), (0.1, 4, 0), (1.0, 4, 4), (0.49, 5, 2)]
)
def test_the_number_of_unexplored_clients_is_rounded_half_up(epsilon: float, k: int, exploring: int) -> None:
    selector = explored([1.0] * 20, k=k, epsilon=epsilon, epsilon_decay=1.0, epsilon_min=0.0)
    selector.utility[10:] = np.nan
    clients = selector.select(a_round(k, 20, t=3, speeds=NO_SPEEDS)).clients
    assert (clients >= 10).sum() == exploring


def test_unexplored_clients_are_asked_once_and_drawn_by_stated_speed() -> None:
    selector, firsts = ready([10, 10, 10, 40], 1), np.zeros(4)
    speeds = [[1.0, 0.0], [1.0, 1.0], [3.0, 1.0], [np.nan, 1.0]]  # times 1, 2, 4, and unknown, so the median 2
    asked: list[tuple[Question, list[int]]] = []
    for seed in range(4000):
        firsts[selector.select(a_round(1, 4, t=2, seed=seed, speeds=speeds, asked=asked)).clients] += 1
    assert asked[:2] == [(Speed(), [0, 1, 2, 3]), (Speed(), [3])]  # a client that did not answer is asked again
    assert stats.chisquare(firsts, 4000 * np.array([1, 0.5, 0.25, 0.5]) / 2.25).pvalue > 1e-6


def test_without_stated_speeds_unexplored_clients_are_drawn_by_size() -> None:
    selector, firsts = ready([10, 30, 5, 80], 1, samples_per_round=40), np.zeros(4)
    for seed in range(4000):
        firsts[selector.select(a_round(1, 4, t=2, seed=seed, speeds=NO_SPEEDS)).clients] += 1
    assert stats.chisquare(firsts, 4000 * np.array([10, 30, 5, 40]) / 85).pvalue > 1e-6


def test_exploration_by_size_draws_the_largest_with_a_penalty_for_slow_clients_and_asks_nothing() -> None:
    selector = ready(np.arange(1, 21), 1, exploration="size", round_threshold=50.0)
    durations = [1.0] * 19 + [10.0]  # T = 1: the weight of client 19 is 20/100
    seen = {int(selector.select(a_round(1, 20, t=2, seed=s, durations=durations)).clients[0]) for s in range(300)}
    assert seen == {14, 15, 16, 17, 18}


def test_a_pool_admits_clients_below_the_cut_off() -> None:
    utility = np.linspace(1.0, 100.0, 40)
    narrow, wide = (explored(utility, epsilon=0.0, epsilon_min=0.0, pool=pool) for pool in (0, 10))
    seen = [
        {int(c) for seed in range(400) for c in selector.select(a_round(2, 40, t=5, seed=seed)).clients}
        for selector in (narrow, wide)
    ]
    assert min(seen[0]) > 34
    assert min(seen[1]) == 20  # the 10·k_e clients with the highest utility


def test_utilities_are_clipped_at_the_quantile() -> None:
    selector = explored([*range(1, 20), 1e6], epsilon=0.0, epsilon_min=0.0, clip_quantile=0.9)
    statistical = the_why(selector.select(a_round(2, 20, t=3))).terms["statistical"]
    assert statistical[18] == statistical[19] == 1.0  # position 18 of the 20 utilities, counted from 0, is 19
    raw = explored([*range(1, 20), 1e6], epsilon=0.0, epsilon_min=0.0, clip_quantile=0.9, utility_scale="raw")
    assert the_why(raw.select(a_round(2, 20, t=3))).terms["statistical"].tolist() == [*range(1, 20), 19]


def test_a_single_utility_and_zero_utilities_are_valid() -> None:
    single = explored([7.0], k=1, epsilon=0.0, epsilon_min=0.0)
    assert the_why(single.select(a_round(1, 1, t=2))).terms["statistical"] == pytest.approx([0.007 / 0.007])
    zeros, counts = explored([0.0] * 4, k=1, epsilon=0.0, epsilon_min=0.0, utility_scale="raw"), np.zeros(4)
    zeros.last_round[:] = 10**9
    for seed in range(2000):
        counts[zeros.select(a_round(1, 4, t=2, seed=seed)).clients] += 1
    assert stats.chisquare(counts).pvalue > 1e-6


def test_missing_explored_clients_are_replaced_by_unexplored_ones_and_vice_versa() -> None:
    few_explored = explored([5.0] * 6, k=4, epsilon=0.0, epsilon_min=0.0)
    few_explored.utility[1:] = np.nan
    assert (
        0 in few_explored.select(a_round(4, 6, t=2, speeds=NO_SPEEDS)).clients
    )  # 1 explored client, so 3 unexplored clients are drawn
    few_unexplored = explored([5.0] * 6, k=4, epsilon=1.0)
    few_unexplored.utility[5] = np.nan
    assert (
        5 in few_unexplored.select(a_round(4, 6, t=2, speeds=NO_SPEEDS)).clients
    )  # 1 unexplored client, so 3 explored clients are drawn
    assert len(set(few_unexplored.select(a_round(4, 6, t=2, speeds=NO_SPEEDS)).clients.tolist())) == 4


def test_fairness_favors_rarely_selected_clients() -> None:
    selector = explored([1.0, 50.0, 100.0], epsilon=0.0, epsilon_min=0.0, fairness=1.0)
    selector.selections[:] = [0, 3, 4]
    assert the_why(selector.select(a_round(1, 3, t=9))).scores == pytest.approx([1, 0.25, 0])
    half = explored([1.0, 50.0, 100.0], epsilon=0.0, epsilon_min=0.0, fairness=0.5)
    half.selections[:] = [0, 3, 4]
    plain = explored([1.0, 50.0, 100.0], epsilon=0.0, epsilon_min=0.0)
    scores = the_why(plain.select(a_round(1, 3, t=9))).scores
    assert the_why(half.select(a_round(1, 3, t=9))).scores == pytest.approx(scores / 2 + [0.5, 0.125, 0])


# --- blacklist ---------------------------------------------------------------------------------------------------------------


def test_the_blacklist_contains_the_most_selected_clients_and_at_most_30_percent() -> None:
    selector = explored([1.0] * 10, k=7, epsilon=0.0, epsilon_min=0.0, blacklist_rounds=10)
    selector.selections[:] = [20, 19, 18, 17, 16, 10, 10, 0, 0, 0]
    for seed in range(20):
        assert set(selector.select(a_round(7, 10, t=30, seed=seed)).clients.tolist()) == {3, 4, 5, 6, 7, 8, 9}
    selector.selections[:] = [11, 10, 10, 10, 10, 10, 10, 10, 10, 10]
    assert 0 not in selector.select(a_round(7, 10, t=30)).clients


def test_only_clients_selected_more_often_than_the_limit_are_blacklisted() -> None:
    """Client 0 was selected 11 times, the others 10 times: with the limit 10 exactly nine of ten clients remain."""
    selector = explored([1.0] * 10, k=9, epsilon=0.0, epsilon_min=0.0, blacklist_rounds=10)
    selector.selections[:] = [11, 10, 10, 10, 10, 10, 10, 10, 10, 10]
    cohort = selector.select(a_round(9, 10, t=30))
    assert sorted(cohort.clients.tolist()) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert the_why(cohort).note.startswith("9 by utility, 0 exploring")
    assert "from the blacklist" not in the_why(cohort).note


def test_blacklisted_clients_are_selected_if_the_others_are_not_enough() -> None:
    selector = explored([1.0] * 10, k=9, epsilon=0.0, epsilon_min=0.0, blacklist_rounds=10)
    selector.selections[:3] = 20
    cohort = selector.select(a_round(9, 10, t=30))
    assert set(range(3, 10)) < set(cohort.clients.tolist())
    assert len(cohort) == 9
    assert the_why(cohort).note.endswith("2 from the blacklist")


# --- feedback ----------------------------------------------------------------------------------------------------------------


def test_stragglers_get_the_mean_utility_of_the_round() -> None:
    selector = ready([10] * 5, 4)
    reported = {"samples": [4, 4, np.nan, 4], "square_loss": [6.25, 25.0, np.nan, np.nan]}
    selector.observe(an_outcome([0, 1, 2, 3], t=3, trained=[True, True, False, True], reports=reported))
    assert selector.utility[:4].tolist() == [10.0, 20.0, 15.0, 15.0]  # client 2 was late, and client 3 reported NaN
    assert math.isnan(selector.utility[4])
    assert selector.last_round.tolist() == [3, 3, 3, 3, 0]
    assert selector.selections.tolist() == [1, 1, 1, 1, 0]


def test_a_round_without_reports_keeps_the_utilities() -> None:
    selector = ready([10] * 3, 2)
    selector.observe(an_outcome([0], t=1, reports=reports([1, 2, 2, 4])))
    selector.observe(an_outcome([0, 1], t=2, trained=[False, False]))
    assert selector.utility[0] == 10.0
    assert np.isnan(selector.utility[1:]).all()


def play_pacer(means: list[float], **values: Any) -> list[float]:
    """The percentile after each round, if these are the mean utilities of exploited clients."""
    selector = explored([1.0, 1.0], k=1, pacer_window=3, **values)
    path = []
    for t, mean in enumerate(means, start=1):
        selector.observe(an_outcome([0], t=t, reports={"samples": [1.0], "square_loss": [mean**2]}))
        path.append(selector.threshold)
    return path


@pytest.mark.parametrize(
    ("means", "rule", "path"),
    [
        ([1, 1, 1, 1, 1, 1.3], "flat", [30, 30, 30, 30, 30, 35]),  # 3.3 − 3 is 10% of 3
        ([1, 1, 1, 1, 1, 1.4], "flat", [30] * 6),
        ([1, 1, 1, 6, 6, 6], "flat", [30, 30, 30, 30, 30, 25]),  # 18 − 3 is five times 3
        ([1, 1, 1, 6, 6, 5.9], "flat", [30] * 6),
        ([1, 1, 1, 1, 1, 0.9], "paper", [30, 30, 30, 30, 30, 35]),
        ([1, 1, 1, 1, 1, 1], "paper", [30] * 6),
        ([1] * 9, "flat", [30, 30, 30, 30, 30, 35, 35, 35, 40]),
    ],
)
def test_the_pacer_changes_the_percentile_by_its_rule(means: list[float], rule: str, path: list[float]) -> None:
    assert play_pacer(means, pacer_rule=rule) == path


def test_the_percentile_stays_between_one_step_and_100() -> None:
    assert play_pacer([1] * 60, pacer_step=30.0)[-1] == 100
    selector = explored(UTILITY, LAST, round_threshold=100.0)
    why = the_why(selector.select(a_round(2, 4, t=4, durations=DURATIONS)))
    assert why.terms["system"].tolist() == [1, 1, 1, 1]
    assert play_pacer([1, 1, 1, 6, 6, 6], round_threshold=6.0)[-1] == 5
    assert play_pacer([1] * 12, pacer_step=0.0)[-1] == 30


def test_the_pacer_uses_exploited_clients_that_trained() -> None:
    selector = explored([1.0, np.nan, 1.0], k=3, pacer_window=1)
    selector.observe(
        an_outcome([0, 1, 2], trained=[True, True, False], reports={"samples": [1, 1, 1], "square_loss": [4, 9, 16]})
    )
    assert selector.history == [2.0]


# --- over-commitment, whole runs ---------------------------------------------------------------------------------------------


def test_with_over_commitment_late_clients_become_explored() -> None:
    with a_run_state(selection={"name": "oort", "k": 3}, systems={"overcommit": 1.3}) as run_state:
        rows = [play_round(run_state, t, test=False) for t in range(1, 5)]
        selector = run_state.selector
    assert isinstance(selector, Oort)
    assert [row.selected for row in rows] == [4] * 4
    assert [row.admitted for row in rows] == [3] * 4
    late = {client.client for row in rows for client in row.clients if client.status == "late"}
    assert late
    assert np.isfinite(selector.utility[sorted(late)]).all()
    assert any(line.kind == "Speed" for line in rows[1].ledger)


def test_with_at_most_k_available_clients_all_are_selected() -> None:
    selector = explored([1.0, 2.0, 3.0], k=3)
    assert sorted(choose(selector, a_round(3, [0, 2], m=3, t=2)).clients.tolist()) == [0, 2]
