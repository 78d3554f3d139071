"""What uniform selection among the available clients gives, compared with simulations of single runs and with counts by hand."""

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedcohort import measures
from fedcohort.measures import available_chance
from fedcohort.measures.available_chance import Mask
from fedcohort.measures.uniform_chance import points_of


def shares(m: int, n: int) -> np.ndarray:
    """Clients that are available in 5% to 95% of the rounds [n, m]."""
    rng = np.random.default_rng(m)
    return rng.random((n, m)) < np.linspace(0.05, 0.95, m)


def simulated(masks: np.ndarray, numbers: list[int], draws: int) -> np.ndarray:
    """How often each client is selected in each of some runs [draws, m]: of the available clients, those with the smallest keys."""
    rng = np.random.default_rng(1)
    counts = np.zeros((draws, masks.shape[1]), np.int64)
    for mask, number in zip(masks, numbers, strict=True):
        keys = np.where(mask, rng.random(counts.shape), 2.0)
        order = keys.argsort(axis=1)[:, : min(number, int(mask.sum()))]
        counts[np.arange(draws)[:, None], order] += 1
    return counts


def test_two_of_three_available_clients_in_two_rounds_by_hand() -> None:
    """Of four clients, one is never available. The same two are selected twice, counts (2, 2, 0, 0), with probability 1/3; otherwise,
    counts are (2, 1, 1, 0)."""
    found = measures.uniform_chance(4, [2, 2], lambda _: np.array([True, True, True, False])).participation
    same, other = measures.participation([2, 2, 0, 0]), measures.participation([2, 1, 1, 0])
    expected = [one / 3 + 2 * two / 3 for one, two in zip(same, other, strict=True)]
    assert found == pytest.approx(expected, abs=1e-3)
    assert expected[0] == pytest.approx(11 / 18)


@pytest.mark.parametrize("approximated", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(30, 20, 3), (150, 40, 12)])
def test_it_agrees_with_runs_that_draw_among_the_available_clients(
    m: int, n: int, k: int, approximated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uniform selection of all clients gives a Jain's index that is higher by 0.06 and more."""
    if approximated:
        monkeypatch.setattr(available_chance, "FEWEST_DRAWS", 10**9)
    masks, numbers = shares(m, n), [k + t % 2 for t in range(n)]
    found = measures.uniform_chance(m, numbers, lambda t: masks[t - 1])
    counts = simulated(masks, numbers, 2000)
    runs = np.array([measures.participation(run) for run in counts])
    assert found.participation == pytest.approx(runs.mean(axis=0).tolist(), rel=0.02)
    assert found.reference.mean == found.participation.jain
    low, middle, high = np.quantile(runs[:, 0], [0.05, 0.5, 0.95])
    assert found.reference[1:] == pytest.approx((low, middle, high), rel=0.03)
    assert found.expected == pytest.approx(counts.mean(axis=0), abs=0.15)
    assert found.histogram.sum() == pytest.approx(m)
    mean_histogram = np.bincount(counts.ravel(), minlength=n + 1) / len(counts)
    assert found.histogram == pytest.approx(mean_histogram, abs=0.02 * m)
    assert np.abs(found.quantile(0.95) - np.quantile(counts, 0.95, axis=0)).max() <= 1
    assert measures.jain_random(m, k, n).mean > found.reference.mean + 0.06


@pytest.mark.parametrize(("share", "middle"), [((0.5, 0.5), 647), ((0.05, 0.95), 1031)])
def test_the_approximate_spread_has_the_mean_and_variance_of_runs(share: tuple[float, float], middle: float) -> None:
    """Where clients are alike, the variance is that of each one's own number; otherwise, a part of it is that of their levels."""
    m, n = 300, 12
    rng = np.random.default_rng(m)
    masks, numbers = rng.random((n, m)) < np.linspace(*share, m), [m // 10 + t % 2 for t in range(n)]
    total, mean, variance = available_chance._Rounds(m, np.array(numbers), lambda t: masks[t - 1]).moments[-1]
    spread = ((simulated(masks, numbers, 4000) - total / m) ** 2).sum(axis=1)
    assert total == sum(numbers)
    assert mean == pytest.approx(spread.mean(), rel=0.005)
    assert variance == pytest.approx(spread.var(), rel=0.06)
    assert variance == pytest.approx(middle, rel=0.001)


def test_the_first_rounds_of_a_long_run_are_not_on_a_straight_line() -> None:
    """Between two of few rounds that were computed, the index in round 10 of 10,000 was interpolated as 0.29."""
    m, k, n = 100, 10, 60
    path, draws = measures.uniform_chance(m, [k] * 10_000).jain, np.random.default_rng(0)
    counts = np.zeros((400, m))
    for t in range(n):
        order = draws.random(counts.shape).argsort(axis=1)[:, :k]
        counts[np.arange(400)[:, None], order] += 1
        runs = [measures.jain(run) for run in counts]
        assert path[t, 0] == pytest.approx(np.mean(runs), rel=0.01)
        assert path[t, [1, 3]] == pytest.approx(np.quantile(runs, [0.05, 0.95]), rel=0.05)


@pytest.mark.parametrize("empty", [1, 7, 40])
def test_rounds_before_the_first_selection_say_nothing_about_the_next(empty: int) -> None:
    """The index after 20 of 300 clients were selected once is at most 20 / 300, where chance is approximated, too."""
    masks = shares(300, 700)[:, ::-1]
    masks[:empty] = False
    numbers = [min(20, int(mask.sum())) for mask in masks]
    path = measures.uniform_chance(300, numbers, lambda t: masks[t - 1]).jain
    assert (path[:empty] == 1).all()
    assert (path[empty : empty + 5, 0] <= 20 / 300 * np.arange(1, 6) + 1e-9).all()


def test_after_one_round_the_index_is_certain_where_it_is_approximated() -> None:
    """100 of 30,000 clients have one selection, whichever they are: J = k²/(m·k)."""
    assert measures.uniform_chance(30_000, [100, 200]).jain[0] == pytest.approx([100 / 30_000] * 4, rel=1e-9)


def test_without_a_choice_the_index_is_certain_where_it_is_approximated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every available client is selected: counts are (1, 1, 0, 0), then (2, 2, 1, 0)."""
    monkeypatch.setattr(available_chance, "FEWEST_DRAWS", 10**9)
    masks = [np.array([True, True, False, False]), np.array([True, True, True, False])]
    found = measures.uniform_chance(4, [2, 3], lambda t: masks[t - 1]).jain
    assert found == pytest.approx(np.repeat([[2**2 / (4 * 2)], [5**2 / (4 * 9)]], 4, axis=1))


def test_the_histogram_of_many_kinds_of_clients_is_that_of_an_even_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(available_chance, "FEWEST_DRAWS", 10**9)  # without a simulation
    masks, numbers = shares(150, 40), [12 + t % 2 for t in range(40)]
    whole = measures.uniform_chance(150, numbers, lambda t: masks[t - 1])
    sample = replace(whole)  # nothing is computed yet
    assert whole.histogram.sum() == pytest.approx(150)
    monkeypatch.setattr(available_chance, "LAWS", 50)
    assert sample.histogram.sum() == pytest.approx(150)
    assert sample.histogram == pytest.approx(whole.histogram, abs=0.02 * 150)


def test_the_laws_of_kinds_that_are_left_out_are_those_of_a_neighbor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of clients in 1, 2, 3 and 4 rounds of 4, which each select all of them, the first and the last kind are computed."""
    found = available_chance.UniformChance(
        np.ones((4, 4)), measures.participation([1]), np.arange(1, 5), np.arange(1.0, 5.0)
    )
    monkeypatch.setattr(available_chance, "LAWS", 4)
    assert replace(found).quantile(0.5).tolist() == [1, 2, 3, 4]
    assert replace(found).histogram.tolist() == [0, 1, 1, 1, 1]
    monkeypatch.setattr(available_chance, "LAWS", 2)
    assert replace(found).quantile(0.5).tolist() == [1, 4, 4, 4]
    assert replace(found).histogram.tolist() == [0, 1, 0, 0, 3]


@pytest.mark.parametrize("n", [1, 5, 12])
def test_after_each_round_the_index_is_that_of_a_run_of_so_many_rounds(n: int) -> None:
    masks = shares(25, 12)
    whole = measures.uniform_chance(25, [4] * 12, lambda t: masks[t - 1]).jain[n - 1]
    part = measures.uniform_chance(25, [4] * n, lambda t: masks[t - 1]).reference
    assert whole == pytest.approx(part, rel=0.03)


def test_with_all_clients_it_is_that_of_uniform_selection() -> None:
    found = measures.uniform_chance(12, [3] * 20)
    assert found.reference == measures.jain_random(12, 3, 20)
    assert found.participation == measures.participation_random(12, 3, 20)
    assert found.expected.tolist() == pytest.approx([5.0] * 12)
    assert (found.quantile(0.05)[0], found.quantile(0.95)[0]) == (2, 8)


def test_clients_without_data_cannot_be_selected() -> None:
    """Of 20 clients, 12 have data: what uniform selection among these gives, and eight clients that are never selected."""
    has_data = np.arange(20) < 12
    found = measures.uniform_chance(20, [3] * 20, lambda _: has_data)
    own = measures.participation_random(12, 3, 20)
    assert found.reference.mean == pytest.approx(0.6 * measures.jain_random(12, 3, 20).mean)
    assert found.participation.coverage == pytest.approx(0.6 * own.coverage)
    assert found.participation.entropy == own.entropy
    counts = simulated(np.tile(has_data, (20, 1)), [3] * 20, 500)
    assert found.participation.gini == pytest.approx(np.mean([measures.gini(run) for run in counts]), rel=0.01)
    assert found.expected[12:].tolist() == [0.0] * 8


def test_kinds_of_very_many_clients_are_found_in_a_sort_of_numbers() -> None:
    """A sort of rows took ten times as long, for each run of a report."""
    rng = np.random.default_rng(0)
    present = rng.integers(0, 9, 300_000)
    expected = present * rng.integers(1, 9, 300_000) / 1e6
    found = available_chance.UniformChance(np.ones((9, 4)), measures.participation([1]), present, expected)
    begin = time.thread_time()
    laws, kind = found._laws
    needed, begin = time.thread_time() - begin, time.thread_time()
    kinds, of_rows = np.unique(np.column_stack([present, expected.round(9)]), axis=0, return_inverse=True)
    assert needed < (time.thread_time() - begin) / 2
    assert len(laws) == len(kinds)
    assert np.array_equal(kind, of_rows.ravel())


def test_the_same_rounds_take_no_time_for_each_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their sums are not computed, however many clients and rounds there are; those of other rounds begin with the first round."""
    has_data = np.arange(30) % 3 > 0
    copies = [has_data.copy() for _ in range(40)]
    expected = measures.uniform_chance(30, [4] * 40, lambda t: copies[t - 1])
    late = measures.uniform_chance(30, [4] * 40, lambda t: has_data if t < 40 else ~has_data)
    assert late.present.tolist() == [39 if there else 1 for there in has_data]
    assert late.expected == pytest.approx([39 * 0.2 if there else 0.4 for there in has_data])
    monkeypatch.delattr("fedcohort.measures.available_chance._Rounds._add")
    found = measures.uniform_chance(30, [4] * 40, lambda _: has_data)
    assert found.jain.tolist() == expected.jain.tolist()
    assert found.participation == expected.participation
    assert found.present.tolist() == [40 if there else 0 for there in has_data]
    assert found.expected == pytest.approx(40 * 0.2 * has_data)


def test_one_and_then_two_of_three_clients_by_hand() -> None:
    """Counts are (2, 1, 0) with probability 2/3, and otherwise (1, 1, 1)."""
    found = measures.uniform_chance(3, [1, 2])
    even, other = measures.participation([1, 1, 1]), measures.participation([2, 1, 0])
    expected = [one / 3 + 2 * two / 3 for one, two in zip(even, other, strict=True)]
    assert found.participation == pytest.approx(expected, rel=0.03)
    assert expected[0] == pytest.approx(11 / 15)
    assert found.jain[0].tolist() == pytest.approx([1 / 3] * 4)
    assert found.expected == pytest.approx([1.0] * 3)


def test_rounds_without_clients_and_with_fewer_than_are_selected(monkeypatch: pytest.MonkeyPatch) -> None:
    masks: list[Mask] = [np.array(own, bool) for own in ([1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1], [1, 1, 1, 0])]
    found = measures.uniform_chance(4, [2, 0, 1, 3], lambda t: masks[t - 1])
    assert found.jain[:, 0].tolist() == pytest.approx([0.5, 0.5, 0.75, 36 / (4 * 10)])
    assert found.participation == pytest.approx(measures.participation([2, 2, 1, 1]))
    assert found.present.tolist() == [2, 2, 1, 1]
    nothing = measures.uniform_chance(4, [0, 0], lambda t: masks[0])
    assert nothing.participation == (1.0, 0.0, 0.0, 0.0)
    assert measures.uniform_chance(4, []).reference == (1.0, 1.0, 1.0, 1.0)
    for draws in (300, 10**9):  # simulated and approximated
        monkeypatch.setattr(available_chance, "FEWEST_DRAWS", draws)
        others = measures.uniform_chance(4, [0, 0], lambda t: masks[t - 1])
        assert others.participation == (1.0, 0.0, 0.0, 0.0)
        assert others.jain.tolist() == [[1.0] * 4] * 2


@pytest.mark.parametrize("late", [1, 7, 400])
@pytest.mark.parametrize("m", [30, 3000])
def test_sums_that_the_same_clients_share_have_the_bits_of_sums_of_each_client(
    m: int, late: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cohorts of different sizes among the same clients, and among others from a late round on."""
    draw = np.random.default_rng(m)
    numbers, first, others = draw.integers(0, m // 2, 400), draw.random(m) < 0.8, draw.random((400, m)) < 0.5
    moments, read = available_chance._moments, []

    def counted(*given: Any) -> tuple[float, float]:
        read.append(given)
        return moments(*given)

    monkeypatch.setattr(available_chance, "_moments", counted)
    found = available_chance._Rounds(m, numbers, lambda t: first if t < late else others[t - 1])
    assert len(read) == len(points_of(400)) <= 300
    present, expected, missed, variance = np.zeros(m, int), np.zeros(m), np.ones(m), np.zeros(m)
    squares, total = 0.0, 0
    for t in range(400):
        mask = first if t + 1 < late else others[t]
        there, number = int(mask.sum()), min(int(numbers[t]), int(mask.sum()))
        share, total = number / there, total + number
        present, expected, missed = present + mask, expected + share * mask, missed * (1 - share * mask)
        variance, squares = variance + share * (1 - share) * mask, squares + there * (share * (1 - share)) ** 2
        if t in points_of(400):
            assert found.moments[t].tolist() == [total, *moments(expected, variance, squares, total)]
    for own, known in ((found.present, present), (found.expected, expected), (found.missed, missed)):
        assert own.tolist() == known.tolist()
