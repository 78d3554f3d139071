"""Stratified and survey cluster sampling: worked allocations, the formation of strata, and the laws of the draws."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcohort.core.errors import UsageError
from fedcohort.selection import choose
from fedcohort.selection.client_strata import strata
from fedcohort.selection.draws import shares
from fedcohort.selection.strategies.cluster_survey import ClusterSurvey
from fedcohort.selection.strategies.stratified import Stratified, allocate, members
from tests.selection.fakes import a_census, a_round, an_outcome, the_why
from tests.selection.laws import mean_close, ratios_of, same_law, weights_of


def labels(*sizes: int) -> list[int]:
    return [h for h, size in enumerate(sizes) for _ in range(size)]


def ready(kind: type[Any], k: int, label: list[int], num_samples: list[int] | None = None, **values: Any) -> Any:
    selector = kind(by="given", given=label, **values)
    selector.setup(a_census(num_samples or [10] * len(label), k))
    return selector


def seats(selector: Any, k: int, m: int, seed: int = 0) -> list[int]:
    cohort = selector.select(a_round(k, m, seed=seed))
    return np.bincount(np.array(selector.given)[cohort.clients], minlength=max(selector.given) + 1).tolist()


# --- allocation ------------------------------------------------------------------------------------------------------------


def test_allocations_match_worked_values() -> None:
    for seed in range(20):
        assert seats(ready(Stratified, 4, labels(6, 3, 3), min_one=False), 4, 12, seed) == [2, 1, 1]
        assert seats(ready(Stratified, 3, labels(7, 4, 1), min_one=False), 3, 12, seed) == [2, 1, 0]
        assert seats(ready(Stratified, 3, labels(7, 4, 1)), 3, 12, seed) == [1, 1, 1]


def test_equal_allocation_assigns_the_remainder_at_random() -> None:
    allocations = {
        tuple(seats(ready(Stratified, 5, labels(9, 5, 4), allocation="equal"), 5, 18, seed)) for seed in range(60)
    }
    assert allocations == {(2, 2, 1), (2, 1, 2), (1, 2, 2)}


def test_surplus_seats_go_to_other_strata() -> None:
    assert seats(ready(Stratified, 9, labels(1, 2, 9), allocation="equal"), 9, 12) == [1, 2, 6]


def test_neyman_allocation_follows_the_spread_of_losses() -> None:
    selector = ready(Stratified, 9, labels(10, 10), allocation="neyman", min_one=False)
    assert sorted(seats(selector, 9, 20)) == [4, 5]  # no losses are known: proportional
    losses = [1.0, 3.0] * 5 + [1.0, 2.0] * 5  # the first stratum has twice the spread
    selector.observe(an_outcome(np.arange(20), reports={"loss": losses}))
    assert seats(selector, 9, 20) == [6, 3]
    selector.observe(an_outcome(np.arange(20), reports={"loss": [np.nan, np.inf] * 10}))
    assert seats(selector, 9, 20) == [6, 3]  # losses that are not finite are not stored
    selector.observe(an_outcome(np.arange(20), reports={"loss": [2.0] * 20}))
    assert sorted(seats(selector, 9, 20)) == [4, 5]  # no spread: proportional


@pytest.mark.parametrize("loss", [1e308, -1e308, 1e160, 1e99])
def test_one_client_with_an_impossible_loss_does_not_end_the_run(loss: float) -> None:
    selector = ready(Stratified, 9, labels(10, 10), allocation="neyman", min_one=False)
    selector.observe(an_outcome(np.arange(20), reports={"loss": [1.0, 3.0] * 5 + [1.0, 2.0] * 5}))
    selector.observe(an_outcome([0], reports={"loss": [loss]}))
    assert seats(selector, 9, 20) == ([9, 0] if loss == 1e99 else [6, 3])


def test_a_stratum_with_one_known_loss_has_the_mean_spread_of_the_others() -> None:
    selector = ready(Stratified, 6, labels(6, 6, 6), allocation="neyman", min_one=False)
    selector.observe(an_outcome([0, 1, 6, 7, 12], reports={"loss": [0.0, 2.0, 0.0, 2.0, 9.0]}))
    assert seats(selector, 6, 18) == [2, 2, 2]


@settings(deadline=None, max_examples=150)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6), data=st.data())
def test_all_seats_are_allocated_and_no_stratum_exceeds_its_size(sizes: list[int], data: st.DataObject) -> None:
    worth = data.draw(st.lists(st.floats(0, 5), min_size=len(sizes), max_size=len(sizes)))
    k = data.draw(st.integers(0, sum(sizes) + 2))
    allocated = allocate(np.array(worth), np.array(sizes), k, np.random.default_rng(0))
    assert allocated.sum() == min(k, sum(sizes))
    assert ((allocated >= 0) & (allocated <= sizes)).all()


@settings(deadline=None, max_examples=60)
@given(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=6), data=st.data())
def test_the_number_of_clients_is_min_k_and_available(sizes: list[int], data: st.DataObject) -> None:
    m = sum(sizes)
    available = data.draw(st.lists(st.integers(0, m - 1), unique=True, min_size=1).map(sorted))
    k = data.draw(st.integers(1, m))
    allocation = data.draw(st.sampled_from(["proportional", "equal", "neyman"]))
    selector = ready(Stratified, k, labels(*sizes), allocation=allocation, min_one=data.draw(st.booleans()))
    assert len(choose(selector, a_round(k, available, m=m))) == min(k, len(available))
    survey = ready(ClusterSurvey, k, labels(*sizes), per_group=data.draw(st.sampled_from([None, 1, 2])))
    assert len(choose(survey, a_round(k, available, m=m))) == min(k, len(available))


def test_a_stratum_without_available_clients_is_skipped() -> None:
    selector = ready(Stratified, 2, labels(3, 3, 3))
    for seed in range(10):
        cohort = selector.select(a_round(2, [0, 1, 2, 6, 7, 8], m=9, seed=seed))
        assert sorted(client // 3 for client in cohort.clients.tolist()) == [0, 2]


def test_with_fewer_seats_than_strata_each_drawn_stratum_has_one_client() -> None:
    selector = ready(Stratified, 2, labels(4, 3, 2, 1))
    picks = np.zeros((2_000, 10))
    for t, row in enumerate(picks):
        cohort = selector.select(a_round(2, 10, t=t + 1))
        assert len({selector.given[client] for client in cohort.clients}) == 2
        assert cohort.inclusion is not None
        assert cohort.inclusion.tolist() == pytest.approx([0.2, 0.2])
        row[cohort.clients] = 1
    assert mean_close(picks, np.full(10, 0.2))


# --- inside the strata, and weights ----------------------------------------------------------------------------------------


def test_clients_of_a_stratum_are_equally_likely() -> None:
    law = {
        tuple(sorted([*first, second])): 1 / 18 for first in itertools.combinations(range(4), 2) for second in (4, 5, 6)
    }
    selector = ready(Stratified, 3, labels(4, 3), allocation="proportional")
    assert same_law(selector.select, law, 3, 7, 4_000)  # after one seat each, the quotas are 4/7 and 3/7


@pytest.mark.parametrize(("k", "sizes"), [(5, (4, 3, 2)), (2, (4, 3, 2))])
def test_weights_are_unbiased(k: int, sizes: tuple[int, ...]) -> None:
    num_samples = [5, 9, 20, 1, 7, 7, 30, 2, 11]
    selector = ready(Stratified, k, labels(*sizes), num_samples)
    p = shares(np.array(num_samples))
    draws = np.zeros((2_000, 9))
    for t, row in enumerate(draws):
        cohort = selector.select(a_round(k, 9, t=t + 1))
        row[:] = ratios_of(cohort, p)
        own = weights_of(cohort, 9)
        assert own.sum() == pytest.approx(1)
        np.testing.assert_allclose(own, row / row.sum())
    assert mean_close(draws, p)


def test_members_are_drawn_from_their_strata() -> None:
    stratum = np.array([2, 0, 2, 2, 1])
    drawn = members(stratum, np.array([1, 0, 2]), np.random.default_rng(0))
    assert np.bincount(stratum[drawn], minlength=3).tolist() == [1, 0, 2]
    assert members(stratum, np.zeros(3, dtype=np.int64), np.random.default_rng(0)).tolist() == []


# --- how strata are formed -------------------------------------------------------------------------------------------------


def formed(by: Any, histogram: list[list[int]], groups: int = 3, epsilon_dp: float | None = None) -> list[int]:
    census = a_census([sum(row) for row in histogram], 2, histogram)
    rng = np.random.default_rng(0)
    return strata(by, census, rng, given=None, groups=groups, epsilon_dp=epsilon_dp).tolist()


def test_dominant_label_takes_the_lowest_class_of_a_tie() -> None:
    assert formed("dominant_label", [[5, 5, 0], [0, 5, 5], [0, 0, 9], [3, 1, 2]]) == [0, 1, 2, 0]
    assert formed("dominant_label", [[0, 0, 9], [0, 0, 1], [9, 0, 0]]) == [1, 1, 0]  # numbered without gaps


def test_label_cluster_separates_the_clusters() -> None:
    draw = np.random.default_rng(6)
    kinds = np.array([[90, 5, 5], [5, 90, 5], [5, 5, 90]])
    histogram = np.concatenate([draw.poisson(kind * scale, (20, 3)) for kind in kinds for scale in (1, 4)])
    cluster = np.array(formed("label_cluster", histogram.tolist()))
    blocks = [set(cluster[40 * j : 40 * (j + 1)].tolist()) for j in range(3)]
    assert all(len(block) == 1 for block in blocks)
    assert len(set.union(*blocks)) == 3


def test_label_cluster_with_few_distinct_histograms_has_one_group_each() -> None:
    cluster = formed("label_cluster", [[2, 2], [1, 0], [5, 5], [7, 0], [1, 1]], groups=4)
    assert cluster[0] == cluster[2] == cluster[4]
    assert cluster[1] == cluster[3]
    assert set(cluster) == {0, 1}
    assert formed("label_cluster", [[1, 1]] * 4) == [0] * 4


def test_size_quantiles_keep_equal_sizes_together() -> None:
    census = a_census([1, 2, 3, 4, 5, 6, 7, 8], 2)
    four = strata("size_quantile", census, np.random.default_rng(0), given=None, groups=4, epsilon_dp=None)
    assert four.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    tied = strata(
        "size_quantile", a_census([5] * 6, 2), np.random.default_rng(0), given=None, groups=4, epsilon_dp=None
    )
    assert tied.tolist() == [0] * 6


def test_speed_quantiles_follow_measured_times() -> None:
    selector = Stratified(by="speed_quantile", groups=2)
    selector.setup(a_census([10] * 6, 3))
    unknown = selector.select(a_round(3, 6))
    assert the_why(unknown).terms["stratum"].tolist() == [0] * 6
    measured = selector.select(a_round(3, 6, durations=[1.0, 9.0, 2.0, 8.0, np.nan, np.nan]))
    assert the_why(measured).terms["stratum"].tolist() == [0, 1, 0, 1, 2, 2]
    assert the_why(measured).note == "proportional seats in 3 strata by speed_quantile: 1, 1, 1"


def test_laplace_noise_hides_single_samples() -> None:
    histogram = [[40, 0, 0], [0, 40, 0], [0, 0, 40]] * 5
    assert formed("dominant_label", histogram, epsilon_dp=50.0) == [0, 1, 2] * 5
    assert formed("dominant_label", histogram, epsilon_dp=0.01) != [0, 1, 2] * 5


def test_strata_are_formed_once() -> None:
    """Noise is drawn once, so later rounds have the strata of the first."""
    selector = Stratified(epsilon_dp=0.1)
    selector.setup(a_census([40] * 9, 3, [[40, 0, 0], [0, 40, 0], [0, 0, 40]] * 3))
    first = the_why(selector.select(a_round(3, 9, t=1))).terms["stratum"]
    assert the_why(selector.select(a_round(3, 9, t=2))).terms["stratum"].tolist() == first.tolist()


@pytest.mark.parametrize("kind", [Stratified, ClusterSurvey])
def test_invalid_labels_are_refused(kind: type[Any]) -> None:
    with pytest.raises(UsageError, match=r"selection.given: 2 labels for 3 clients; give one for each"):
        ready(kind, 2, [0, 1], [10, 10, 10])
    with pytest.raises(
        UsageError, match=r"selection.given: not set with selection.by = 'given'; use by = 'given' together"
    ):
        kind(by="given").setup(a_census([1, 1], 1))
    with pytest.raises(UsageError, match=r"selection.given: 2 labels with selection.by = 'size_quantile'"):
        kind(by="size_quantile", given=[0, 1]).setup(a_census([1, 1], 1))
    selector = kind(by="dominant_label")
    selector.setup(a_census([1, 1, 1], 1))
    with pytest.raises(UsageError, match=r"the census has no label histograms; use 'size_quantile'"):
        selector.select(a_round(1, 3))


# --- cluster sampling ------------------------------------------------------------------------------------------------------


def test_one_stage_with_groups_of_k_selects_one_group() -> None:
    selector = ready(ClusterSurvey, 4, labels(4, 4, 4))
    law = {tuple(range(4 * h, 4 * h + 4)): 1 / 3 for h in range(3)}
    assert same_law(selector.select, law, 4, 12, 1_500)


def test_the_scores_say_which_groups_were_drawn() -> None:
    """The last of the two groups gives one of its members, and its other members have the score 1, too."""
    selector = ready(ClusterSurvey, 5, labels(4, 4, 4, 4))
    cohort = selector.select(a_round(5, 16))
    drawn = {client // 4 for client in cohort.clients.tolist()}
    why = the_why(cohort)
    assert len(drawn) == 2
    assert why.scores.tolist() == [client // 4 in drawn for client in range(16)]
    assert why.terms["group"].tolist() == [client // 4 for client in range(16)]
    assert why.note == "2 of 4 groups by given"


def test_one_stage_draws_from_the_last_group_at_random() -> None:
    selector = ready(ClusterSurvey, 3, labels(2, 2))
    law = {(0, 1, 2): 0.25, (0, 1, 3): 0.25, (0, 2, 3): 0.25, (1, 2, 3): 0.25}
    assert same_law(selector.select, law, 3, 4, 2_000)


def test_groups_are_drawn_by_size_or_uniformly() -> None:
    selector = ready(ClusterSurvey, 1, labels(3, 1), chance="size")
    assert same_law(selector.select, {(i,): 0.25 for i in range(4)}, 1, 4, 2_000)
    selector = ready(ClusterSurvey, 1, labels(3, 1))
    assert same_law(selector.select, {(0,): 1 / 6, (1,): 1 / 6, (2,): 1 / 6, (3,): 0.5}, 1, 4, 2_000)


def test_two_stages_select_per_group_clients_of_each_group() -> None:
    selector = ready(ClusterSurvey, 5, labels(4, 4, 4, 4), per_group=2)
    for seed in range(20):
        assert sorted(seats(selector, 5, 16, seed)) == [0, 1, 2, 2]


def test_two_stages_draw_more_groups_if_groups_are_small() -> None:
    assert sorted(seats(ready(ClusterSurvey, 4, labels(1, 1, 5), per_group=3), 4, 7)) in ([0, 1, 3], [1, 1, 2])
    assert sorted(seats(ready(ClusterSurvey, 6, labels(1, 1, 5), per_group=2), 6, 7)) in ([1, 1, 4], [0, 1, 5])


def test_cluster_sampling_is_less_precise_than_uniform_and_stratified() -> None:
    """As the thesis expects, the mean of a trait that differs between groups has the largest variance."""
    trait = np.repeat([0.0, 1.0, 2.0, 3.0], 5) + np.tile(np.linspace(-0.2, 0.2, 5), 4)

    def variance(selector: Any) -> float:
        return float(np.var([trait[selector.select(a_round(5, 20, t=t)).clients].mean() for t in range(1, 401)]))

    survey, stratified = ready(ClusterSurvey, 5, labels(5, 5, 5, 5)), ready(Stratified, 5, labels(5, 5, 5, 5))
    uniform = trait.var() / 5 * 15 / 19
    assert variance(survey) > 2 * uniform > 4 * variance(stratified)
