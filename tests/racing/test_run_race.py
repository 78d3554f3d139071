"""When a race ends, what it tells after each block, and the rows of its result, from worked scores instead of runs."""

import logging
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedcohort.core.errors import UsageError
from fedcohort.racing import run_race
from fedcohort.racing.objectives import objectives
from fedcohort.racing.row_results import BEST, DROPPED, UNDECIDED, Cost
from fedcohort.racing.rule import RaceRule
from fedcohort.racing.run_race import Limits, PlannedRace


def planned(labels: str, objective: str | list[str] = "accuracy", names: Sequence[str] = (), **limits: Any) -> Any:
    """A race of rows with these labels, whose first seed is 10."""
    rows: Any = [SimpleNamespace(label=label, given=SimpleNamespace(names=lambda: names)) for label in labels]
    experiment: Any = SimpleNamespace(name="made up", seed=10)
    return PlannedRace(experiment, rows, {}, objectives(objective), Limits(**limits))


def rule_of(*scores: Sequence[float]) -> RaceRule:
    """A race of rows with these scores, one for each seed."""
    rule = RaceRule(len(scores), [0.01])
    for seed in range(len(scores[0])):
        rule.add_block([(row, seed, (own[seed],)) for row, own in enumerate(scores)])
    return rule


def test_a_race_ends_before_a_block_that_would_pass_a_limit() -> None:
    new, one = RaceRule(2, [0.01]), rule_of([0.5], [0.6])
    assert planned("ab", runs=2)._ended(new, 0, 0.0, 0.0) is None
    assert planned("ab", runs=3)._ended(one, 2, 0.0, 0.0) == "runs"
    assert planned("ab", runs=4)._ended(one, 2, 0.0, 0.0) is None
    assert planned("ab", seeds=2)._ended(one, 2, 0.0, 0.0) is None
    assert planned("ab", seeds=2)._ended(rule_of([0.5, 0.6], [0.6, 0.5]), 4, 0.0, 0.0) == "seeds"


def test_a_block_may_take_twice_the_time_of_the_last_one() -> None:
    own, one = planned("ab", minutes=1), rule_of([0.5], [0.6])
    assert own._ended(one, 2, 20.0, 20.0) is None
    assert own._ended(one, 2, 20.0, 20.1) == "minutes"
    assert own._ended(RaceRule(2, [0.01]), 0, 20.0, 99.0) is None  # the first block is played


def test_after_each_block_the_best_row_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "fedcohort"):
        planned("ab")._tell(rule_of([0.5], [0.6]))
        planned("ab")._tell(rule_of([0.5, 0.8], [0.6, 0.5]))
        two = RaceRule(2, [0.01, 0.1])
        two.add_block([(0, 0, (0.5, -math.log(8))), (1, 0, (0.6, -math.log(9)))])
        planned("ab", ["accuracy", "rounds"])._tell(two)
    accuracy, rounds = objectives(["accuracy", "rounds"])
    assert [record.getMessage() for record in caplog.records] == [
        f"after 1 seed: 2 of 2 rows left; best so far b, {accuracy.told(0.6)}",
        f"after 2 seeds: 2 of 2 rows left; best so far a, {accuracy.told(0.65)}",
        f"after 1 seed: 2 of 2 rows left; best so far b, {accuracy.told(0.6)}; a, {rounds.told(-math.log(8))}",
    ]


def race_of(own: Any, scores: Sequence[Sequence[float]], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The result of a race in which row i has the score ``scores[i][s]`` under seed s; each run costs 100 bytes and 2 seconds."""

    def play(block: Any, runs: Any, jobs: int, progress: Any, trust: bool, played: dict[Any, Any]) -> None:
        for row, seed in block:
            score, run = (scores[row][seed],), f"run {row} {10 + seed}"
            played[row, seed] = run_race._Played(run, score, Cost(1, 100, 3, 50, 2), seed > 0, seed > 1, seed > 2)  # type: ignore[arg-type]

    monkeypatch.setattr(own, "_play", play)
    monkeypatch.setattr(own, "_failure", lambda row, played: f"{len(played)} of row {row}")
    return own.run()


def test_a_row_that_is_clearly_worse_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = np.random.default_rng(0).normal(0.0, 0.01, (2, 30))
    scores = (np.array([[0.5], [0.9]]) + noise).tolist()
    found = race_of(planned("ab"), scores, monkeypatch)
    assert found.ended == "best"
    best, dropped = found.rows
    n = len(dropped.runs)
    assert (best.label, best.state, best.dropped_by, best.dropped_after) == ("b", BEST, "", 0)
    assert (dropped.label, dropped.state, dropped.dropped_by, dropped.dropped_after) == ("a", DROPPED, "b", n)
    assert 2 <= n < 30
    assert dropped.runs == {10 + seed: f"run 0 {10 + seed}" for seed in range(n)}
    assert dropped.scores == (tuple(scores[0][:n]),)
    assert dropped.difference == pytest.approx(np.mean(scores[0][:n]) - np.mean(scores[1][:n]))
    assert dropped.low < dropped.difference < dropped.high < 0
    assert math.isnan(best.difference)
    assert dropped.cost == Cost(n, 100 * n, 3 * n, 50 * n, 2 * n)
    assert (dropped.reached, dropped.unspent, dropped.untested) == (n - 1, n - 2, max(n - 3, 0))
    assert (best.failure, dropped.failure) == (f"{n} of row 1", "")
    assert best.needed == dropped.needed == 0


def test_rows_that_are_left_stand_in_the_order_of_their_means(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = [[0.5, 0.7], [0.9, 0.6], [0.8, 0.6]]
    found = race_of(planned("abc", seeds=2), scores, monkeypatch)
    assert found.ended == "seeds"
    assert [(row.label, row.state) for row in found.rows] == [(label, UNDECIDED) for label in "bca"]
    assert [len(row.runs) for row in found.rows] == [2] * 3
    assert found.rows[0].needed == 0
    assert min(row.needed for row in found.rows[1:]) > 2


def test_objects_from_python_stay_in_their_process(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="jobs = 2: objects from Python stay in their process"):
        planned("ab", names=["selector"]).run(jobs=2)
    own = planned("ab", names=["selector"], seeds=2)
    assert race_of(own, [[0.5, 0.6], [0.6, 0.5]], monkeypatch).ended == "seeds"
