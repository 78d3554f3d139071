"""The rule of a race on scores that are made up: who is dropped, who rests, what is played next, and how often it errs."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from fedcohort.core.arrays import Values
from fedcohort.core.random_streams import rng
from fedcohort.racing.paired_rows import Pairs, paired
from fedcohort.racing.rule import FLOOR, Drop, Flags, RaceRule
from fedcohort.racing.sequential_test import critical_ratio
from tests.repetitions import slow_after

POINT = 0.005


def raced(scores: Values, margins: Sequence[float] = (POINT,), *, backwards: bool = False) -> RaceRule:
    """A race over scores [objectives, rows, seeds], until it is decided or the seeds end."""
    rule = RaceRule(scores.shape[1], margins)
    while (block := rule.next_block()) and max(seed for _, seed in block) < scores.shape[2]:
        rule.add_block(
            [(row, seed, scores[:, row, seed].tolist()) for row, seed in (block[::-1] if backwards else block)]
        )
    return rule


def gaussian(means: Sequence[float], seeds: int, sd: float = 0.01, number: int = 0) -> Values:
    """Independent Gaussian scores of one objective, and an effect of the seed that all rows share."""
    generator = rng(number, "scores")
    shared = generator.normal(size=seeds)
    return (np.array(means)[:, None] + shared + sd * generator.normal(size=(len(means), seeds)))[None]


def test_pairs_are_compared_over_the_seeds_that_both_have() -> None:
    scores = np.array([[0.1, 0.5, 0.3], [0.2, 0.1, 0.9], [0.4, np.nan, np.nan]])
    pairs = paired(scores, np.array([3, 3, 1]), floor=0.0)
    d = scores[1] - scores[0]
    assert pairs.mean[1, 0] == pytest.approx(d.mean())
    assert pairs.sd[1, 0] == pytest.approx(d.std())
    assert pairs.mean[2, 1] == pytest.approx(0.2)
    assert pairs.seeds.tolist() == [[3, 3, 1], [3, 3, 1], [1, 1, 1]]
    np.testing.assert_allclose(pairs.mean, -pairs.mean.T)
    assert paired(scores, np.array([3, 3, 1]), floor=0.3).sd[2, 0] == pytest.approx(0.3)


def test_the_best_row_is_found_and_the_others_stop_early() -> None:
    rule = raced(gaussian([0.80, 0.90, 0.885, 0.70, 0.60, 0.50], 80), [1e-6])
    assert rule.decided
    assert (rule.leader, rule.alive, rule.next_block()) == (1, [1], [])
    assert rule.counts[5] < rule.counts[1] == rule.depth < 80
    assert rule.drops[2] == Drop(by=1, seeds=rule.depth)
    assert rule.drops[5] in [Drop(by, seeds=int(rule.counts[5])) for by in (0, 1, 2, 3)]
    assert rule.counts.sum() < 0.75 * 6 * rule.depth


def test_rows_are_compared_once_for_all_that_a_block_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were compared again after every drop: 500 rows, of which one block dropped 276, took seconds."""
    compared: list[int] = []
    beaten = RaceRule._beaten

    def counted(rule: RaceRule, pairs: Sequence[Pairs]) -> Flags:
        compared.append(rule.depth)
        return beaten(rule, pairs)

    monkeypatch.setattr(RaceRule, "_beaten", counted)
    rule = raced(gaussian([0.90, *[0.50] * 19], 20))
    assert len(rule.drops) == 19
    assert len(compared) == len(set(compared)) < 19


def test_seeds_go_to_rows_that_can_still_change_the_answer() -> None:
    rule = raced(gaussian([0.900, 0.899, 0.50, 0.50, 0.50, 0.50, 0.50, 0.50, 0.50, 0.50], 200, sd=0.03))
    assert set(rule.drops) == set(range(2, 10))
    assert (
        10 * rule.counts.max() > 4 * rule.counts.sum()
    )  # more than four times fewer runs than all rows with all seeds


def test_the_order_of_results_in_a_block_does_not_matter() -> None:
    scores = gaussian([0.90, 0.89, 0.87, 0.80], 40)
    one, other = raced(scores), raced(scores, backwards=True)
    assert one.drops == other.drops
    assert one.counts.tolist() == other.counts.tolist()
    assert one.difference(3, 0) == other.difference(3, 0)


def test_shares_protect_the_best_row_or_the_front() -> None:
    few, many, front = RaceRule(3, [POINT]), RaceRule(5, [POINT]), RaceRule(5, [POINT, 0.05])
    assert few.shares.tolist() == [1 / 2]
    assert many.shares == pytest.approx(np.array([1 / 4, 1 / 9, 1 / 16, 1 / 25]) / (1 / 4 + 1 / 9 + 1 / 16 + 1 / 25))
    assert front.shares.tolist() == [1 / (4 * 5)]
    for rule in (few, many, front):
        rule.drops[2] = Drop(by=0, seeds=5)
    assert few.shares.tolist() == [1 / 2]
    assert many.shares.sum() == pytest.approx(1.0)
    assert front.shares.tolist() == [1 / (4 * 4)]


def test_the_first_seed_ranks_the_opponents_of_each_row_and_is_no_evidence() -> None:
    """Whichever row is the best, the shares of its opponents add up to 1."""
    scores = gaussian([0.5, 0.9, 0.7, 0.8], 3, sd=0.0)[0]
    rule = RaceRule(4, [POINT])
    rule.add_block([(row, 0, [scores[row, 0]]) for row in range(4)])
    shares = rule.shares[rule._share]
    np.testing.assert_allclose([np.delete(shares[:, row], row).sum() for row in range(4)], 1.0)
    assert shares[1, [0, 2, 3]].tolist() == [rule.shares[0]] * 3  # row 1 was the best
    assert shares[[3, 2, 0], 1].tolist() == rule.shares.tolist()  # its own opponents, by their ranks
    assert not rule.drops
    assert rule.difference(0, 1) == (pytest.approx(-0.4), -math.inf, math.inf)
    for seed in (1, 2):
        rule.add_block([(row, seed, [scores[row, seed] + 0.01 * seed * (row == 0)]) for row in range(4)])
    mean, low, high = rule.difference(0, 1)
    sd = math.sqrt(0.005**2 + (FLOOR * POINT) ** 2)
    assert mean == pytest.approx(-0.4 + 0.015)
    assert mean - low == pytest.approx(critical_ratio(2, -math.log(0.05)) * sd)
    assert high - mean == pytest.approx(critical_ratio(2, -math.log(0.05 * rule.shares[0])) * sd)


def test_a_row_that_was_the_best_under_the_first_seed_needs_less_evidence() -> None:
    """Rows 1 and 2 have the same scores after the first seed, and row 3 is dropped by the one that ranks higher."""
    scores = gaussian([0.9, 0.9, 0.9, 0.5, 0.5], 12)
    scores[0, 2] = scores[0, 1]
    for best, seed in ((1, 0.001), (2, -0.001)):
        changed = scores.copy()
        changed[0, :3, 0] = [0.1, 0.9, 0.9 - seed]
        changed[0, 3:, 0] = 0.2
        rule = raced(changed, [1e-6])
        assert rule.drops[3].by == best


def test_rows_with_the_same_scores_rest() -> None:
    scores = np.broadcast_to(rng(0, "same").normal(size=30), (1, 3, 30))
    rule = raced(scores)
    assert rule.decided
    assert not rule.drops
    assert rule.resting == {1, 2}
    assert rule.depth < 12
    mean, low, high = rule.difference(1, 0)
    assert mean == 0
    assert -POINT <= low < 0 < high <= POINT


def test_a_resting_row_catches_up_when_the_leader_changes() -> None:
    """Rows 0 and 2 are the same, so 2 rests. Then 0 falls behind 1, and 2 must be compared with 1."""
    seeds = np.arange(40)
    noise = 0.06 * (-1.0) ** seeds
    first = np.where(seeds < 15, 0.9, 0.7)
    rule = RaceRule(3, [POINT])
    scores = np.stack([first, 0.85 + noise, first])[None]
    waited, caught_up = 0, False
    while (block := rule.next_block()) and max(seed for _, seed in block) < 40:
        caught_up |= sum(row == 2 for row, _ in block) > 1
        rule.add_block([(row, seed, scores[:, row, seed].tolist()) for row, seed in block])
        waited = max(waited, rule.depth - int(rule.counts[2]))
    assert waited > 3
    assert caught_up
    assert rule.leader == 1


@pytest.mark.parametrize("law", slow_after(1, ["gaussian", "t with 3 degrees of freedom", "different spreads"]))
def test_a_best_row_is_dropped_in_fewer_than_5_percent_of_races(law: str) -> None:
    """A small version of results/race_errors.py: rows with equal means, of which each is a best one."""
    errors, generator = np.zeros(12), rng(0, law)
    spreads = np.linspace(0.2, 5, 12)[:, None] if law == "different spreads" else 1.0
    for _ in range(100):
        heavy = law.startswith("t ")
        draws = generator.standard_t(3, size=(12, 20)) if heavy else generator.normal(size=(12, 20))
        errors[list(raced((0.02 * spreads * draws)[None]).drops)] += 1
    assert 0 < errors.mean() < 5


def test_a_pareto_front_keeps_rows_that_are_best_in_something() -> None:
    """Row 1 is cheap, row 0 accurate, row 2 is worse than row 0 in accuracy at the same cost, and row 3 equals row 0."""
    accuracy = gaussian([0.90, 0.80, 0.85, 0.90], 60, sd=0.001)[0]
    cost = -np.log(np.broadcast_to(np.array([100.0, 50.0, 100.0, 100.0])[:, None], (4, 60)))
    rule = raced(np.stack([accuracy, cost]), (POINT, 0.05))
    assert rule.decided
    assert set(rule.drops) == {2}
    assert rule.drops[2].by in (0, 3)
    assert rule.resting == {0, 1, 3}
    assert rule.depth < 20


def test_a_row_that_is_cheaper_and_more_accurate_is_the_whole_front() -> None:
    accuracy = gaussian([0.90, 0.80], 60, sd=0.001)[0]
    cost = np.log(np.broadcast_to(np.array([[2.0], [1.0]]), (2, 60)))
    rule = raced(np.stack([accuracy, cost]), (POINT, 0.05))
    assert rule.decided
    assert rule.alive == [0]


def test_a_row_that_is_cheaper_and_not_worse_in_practice_drops_the_other() -> None:
    """Row 0 is more accurate by less than the margin; row 1 is cheaper, also by less than the margin, but this is clear first."""
    accuracy = gaussian([0.901, 0.900], 100, sd=0.0005)[0]
    cost = np.log(np.broadcast_to(np.array([[1.0], [1.03]]), (2, 100)))
    rule = raced(np.stack([accuracy, cost]), (POINT, 0.05))
    assert rule.decided
    assert rule.alive == [1]


@pytest.mark.parametrize(("lead", "rows"), [(0.01, 2), (0.0, 2), (0.012, 5)])
def test_the_number_of_seeds_that_would_decide_is_that_of_a_race_that_goes_on_alike(lead: float, rows: int) -> None:
    """Differences of +0.02 and −0.02 around the lead in turn have the same mean and spread after every second seed."""
    others = np.tile([lead + 0.02, lead - 0.02], 150)
    scores = np.stack([np.full(300, 0.9), *(0.9 - others for _ in range(rows - 1))])[None]
    first = 7 if rows >= 4 else 6  # the first seed of four rows or more gives no evidence
    begun = raced(scores[:, :, :first])
    assert not begun.decided
    predicted = begun.seeds_to_decide(1, 0, 300)
    whole = raced(scores)
    assert whole.decided
    assert whole.depth - 1 <= predicted <= 1.2 * whole.depth, (
        "an odd seed moves the mean, and can end it a little earlier"
    )
    assert begun.seeds_to_decide(1, 0, int(predicted)) == predicted
    assert begun.seeds_to_decide(1, 0, int(predicted) - 1) == math.inf
    assert raced(scores[:, :, :1]).seeds_to_decide(1, 0, 300) == 0, "one seed has no spread"


@pytest.mark.parametrize(("accuracy", "cost"), [(0.03, 0.10), (0.03, -0.10), (0.0, 0.0)])
def test_the_number_of_seeds_that_would_settle_a_front_is_that_of_a_race_that_goes_on_alike(
    accuracy: float, cost: float
) -> None:
    """Row 1 is less accurate, and dearer, cheaper, or as dear; differences swing around their means in turn."""
    swing = np.tile([1.0, -1.0], 150)
    scores = np.stack(
        [
            np.stack([np.full(300, 0.9), 0.9 - accuracy + 0.03 * swing]),
            np.stack([np.full(300, -1.0), -1.0 - cost + 0.10 * swing]),
        ]
    )
    margins = (0.01, 0.05)
    begun, whole = raced(scores[:, :, :6], margins), raced(scores, margins)
    assert not begun.decided
    assert whole.decided
    predicted = begun.seeds_to_settle(1, 300)
    assert predicted == begun.seeds_to_settle(0, 300)
    assert whole.depth - 1 <= predicted <= 1.2 * whole.depth
    assert begun.seeds_to_settle(1, int(predicted) - 1) == math.inf
    assert raced(scores[:, :, :1], margins).seeds_to_settle(1, 300) == 0, "one seed has no spread"
