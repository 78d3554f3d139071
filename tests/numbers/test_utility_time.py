"""Utility per time: worked numbers, the estimate of unmeasured times, and random cohorts."""

import copy
import math

import numpy as np
import pytest

from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import make
from fedcohort.selection import choose
from fedcohort.selection.strategies.utility_time import UtilityTime
from tests.selection.fakes import a_census, a_round, an_outcome, the_why

HISTOGRAM = [[10, 0, 0], [2, 8, 0], [0, 10, 10]]  # fractions (1, 0, 0), (.2, .8, 0), (0, .5, .5)
ACCURACY = (0.9, 0.1, 0.5)


def ready(
    histogram: list[list[int]] = HISTOGRAM, accuracy: tuple[float, ...] = ACCURACY, **values: object
) -> UtilityTime:
    """A strategy after one validation with these class accuracies."""
    selector = make(UtilityTime, values, "strategy")
    selector.setup(a_census([sum(row) for row in histogram], 1, histogram))
    selector.observe(an_outcome([0], class_accuracy=accuracy))
    return selector


def test_scores_match_worked_values() -> None:
    cohort = ready().select(a_round(2, 3, durations=(1, 2, 1)))
    why = the_why(cohort)
    assert why.terms["utility"] == pytest.approx([0, 0.72, 0.45])
    assert why.terms["seconds"].tolist() == [1, 2, 1]
    assert why.scores == pytest.approx([0, 0.36, 0.45])
    assert why.note == "weakest classes [1]"
    assert cohort.clients.tolist() == [2, 1]


@pytest.mark.parametrize(("available", "utility"), [([1, 2], [0.72, 0.45]), ([2], [0.45]), ([0, 2], [0, 0.45])])
def test_the_fraction_refers_to_the_clients_own_samples_for_any_available_clients(
    available: list[int], utility: list[float]
) -> None:
    """Client 1 has 8 of its 10 samples in the weakest class, client 2 has 10 of its 20."""
    why = the_why(ready().select(a_round(1, available, m=3, durations=(1, 1, 1))))
    assert why.candidates.tolist() == available
    assert why.terms["utility"] == pytest.approx(utility)


def test_without_time_the_utility_decides() -> None:
    cohort = ready(use_time=False).select(a_round(2, 3, durations=(1, 2, 1)))
    assert the_why(cohort).scores == pytest.approx([0, 0.72, 0.45])
    assert cohort.clients.tolist() == [1, 2]


def test_strength_count_uses_the_number_of_samples() -> None:
    cohort = ready(strength="count").select(a_round(2, 3, durations=(1, 2, 1)))
    assert the_why(cohort).terms["utility"] == pytest.approx([0, 0.9 * 8, 0.9 * 10])
    assert the_why(cohort).scores == pytest.approx([0, 3.6, 9])


@pytest.mark.parametrize("weakest_w", [2, 3, 50])
def test_utilities_add_up_over_weak_classes(weakest_w: int) -> None:
    why = the_why(ready(weakest_w=weakest_w).select(a_round(2, 3, durations=(1, 1, 1))))
    of_the_first_class = 0.1 if weakest_w > 2 else 0.0
    assert why.scores == pytest.approx([of_the_first_class, 0.72 + 0.2 * of_the_first_class, 0.45 + 0.25])


def test_unmeasured_times_are_proportional_to_samples_on_the_scale_of_the_measured() -> None:
    histogram = [[0, 10], [0, 20], [0, 30], [0, 50]]
    selector = ready(histogram, (0.9, 0.1))
    why = the_why(selector.select(a_round(2, [1, 3], durations=(1.0, 8.0, 6.0, math.nan))))
    assert why.terms["seconds"].tolist() == [
        8.0,
        50 * 0.2,
    ]  # the median of 0.1, 0.4 and 0.2; client 2 was also measured
    why = the_why(selector.select(a_round(2, 4, durations=[math.nan] * 4)))
    assert why.terms["seconds"].tolist() == [10, 20, 30, 50]


def test_a_time_of_zero_gives_finite_scores() -> None:
    cohort = ready().select(a_round(1, 3, durations=(0, 0, 1)))
    assert cohort.clients.tolist() == [1]
    assert np.isfinite(the_why(cohort).scores).all()


def test_ties_of_the_weakest_class_are_random() -> None:
    selector = ready(accuracy=(0.1, 0.1, 0.5))
    notes = [the_why(selector.select(a_round(1, 3, t=t, durations=(1, 1, 1)))).note for t in range(1, 51)]
    assert set(notes) == {"weakest classes [0]", "weakest classes [1]"}


def test_before_the_first_validation_the_cohort_is_random() -> None:
    selector = UtilityTime()
    selector.setup(a_census([10, 10, 20], 1, HISTOGRAM))
    cohorts = [selector.select(a_round(1, 3, t=t)) for t in range(1, 51)]
    assert {cohort.clients.tolist()[0] for cohort in cohorts} == {0, 1, 2}
    assert {the_why(cohort).note for cohort in cohorts} == {"random: no validation yet"}


def test_without_available_clients_of_the_class_the_cohort_is_random() -> None:
    selector = ready(accuracy=(0.9, 0.5, 0.1))  # only client 2 has class 2
    cohorts = [selector.select(a_round(1, [0, 1], m=3, t=t)) for t in range(1, 51)]
    assert {cohort.clients.tolist()[0] for cohort in cohorts} == {0, 1}
    assert {the_why(cohort).note for cohort in cohorts} == {"random: no utility for the weakest classes [2]"}


def test_clients_without_utility_fill_the_cohort_at_random() -> None:
    histogram = [[10, 0]] * 5 + [[0, 10]]
    selector = ready(histogram, (0.9, 0.1))
    cohorts = [selector.select(a_round(2, 6, t=t)).clients.tolist() for t in range(1, 101)]
    assert {cohort[0] for cohort in cohorts} == {5}
    assert {cohort[1] for cohort in cohorts} == {0, 1, 2, 3, 4}


def test_classes_without_validation_samples_are_never_the_weakest() -> None:
    selector = ready(accuracy=(0.9, math.nan, 0.5))
    for t in range(1, 21):
        assert the_why(selector.select(a_round(1, 3, t=t))).note == "weakest classes [2]"


def test_a_round_without_validation_keeps_the_accuracies() -> None:
    selector = ready()
    selector.observe(an_outcome([0], class_accuracy=(math.nan,) * 3))
    assert selector.class_accuracy.tolist() == list(ACCURACY)
    selector.observe(an_outcome([0], class_accuracy=(0.2, math.nan, 0.6)))
    assert selector.class_accuracy.tolist() == [0.2, 0.1, 0.6]


def test_with_at_most_k_available_clients_all_are_selected() -> None:
    assert sorted(choose(ready(), a_round(3, [0, 2])).clients.tolist()) == [0, 2]


def test_histograms_are_required() -> None:
    with pytest.raises(UsageError, match=r"give Census\.histogram"):
        UtilityTime().setup(a_census([1, 2], 1))


def test_a_restored_state_selects_the_same_cohorts() -> None:
    straight, resumed = ready(), ready()
    world = np.random.default_rng(0)
    for t in range(1, 21):
        if t == 11:
            resumed.load_state_dict(copy.deepcopy(straight.state_dict()))
        cohort = straight.select(a_round(1, 3, t=t))
        outcome = an_outcome(cohort, t=t, class_accuracy=tuple(world.random(3)))
        straight.observe(outcome)
        if t >= 11:
            assert resumed.select(a_round(1, 3, t=t)).clients.tolist() == cohort.clients.tolist()
            resumed.observe(outcome)


def test_a_target_class_replaces_the_weakest_classes() -> None:
    why = the_why(ready(target_class=2).select(a_round(2, 3, durations=(1, 2, 1))))
    assert why.terms["utility"] == pytest.approx([0, 0, 0.5 * 0.5])


@pytest.mark.parametrize("target", [2, 7])
def test_a_target_class_without_samples_is_refused(target: int) -> None:
    selector = make(UtilityTime, {"target_class": target}, "selection")
    with pytest.raises(UsageError, match=rf"selection\.target_class = {target}: no client has samples of it.*\[0, 1\]"):
        selector.setup(a_census([10, 10], 1, [[10, 0, 0], [2, 8, 0]]))
