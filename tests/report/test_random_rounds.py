"""Rounds in which a strategy selects at random are called so in reasons, captions, and ``fedcohort why``."""

from pathlib import Path
from typing import Any

import pytest

from fedcohort.record import RoundRow, Run
from fedcohort.report.charts.selection_reasons import reasons
from fedcohort.report.data.report_data import gather
from fedcohort.report.figures.chart_style import PAGE
from fedcohort.report.figures.figure import Figure
from fedcohort.report.terminal import as_text, explanation
from fedcohort.study.decisions.explain_decision import explain
from tests.records import played, written

NEVER = 1e5
FIRST = "random: first rounds"


def round_of_ucb(t: int, note: str, bonuses: dict[int, float], selected: list[int]) -> RoundRow:
    """A round in which each client's score is its bonus."""
    decisions: list[Any] = [
        (client, client in selected, bonus, {"mean_reward": 0.0, "bonus": bonus}) for client, bonus in bonuses.items()
    ]
    return played(t, selected, note=note, decisions=decisions)


def run_of(path: Path, *later: RoundRow) -> Run:
    """UCB with two random first rounds, in the second of which some clients were never selected."""
    first = round_of_ucb(1, FIRST, dict.fromkeys(range(4), 0.0), [0])
    second = round_of_ucb(2, FIRST, {0: 1.0, 1: NEVER, 2: NEVER, 3: NEVER}, [0, 2])
    return written(path, [first, second, *later], label="ucb", selection={"name": "ucb"})


def figures_of(run: Run) -> list[Figure]:
    ((_, figures),) = reasons(gather([run]), PAGE)
    return figures


def test_untried_clients_do_not_come_first_in_random_rounds(tmp_path: Path) -> None:
    run = run_of(tmp_path / "a", round_of_ucb(3, "random: epsilon", {0: 1.0, 1: NEVER, 2: 1.5, 3: NEVER}, [2, 3]))
    terms, scores = (next(one for one in figures_of(run) if one.key.startswith(key)) for key in ("terms", "map"))
    random = "In 3 of 3 rounds, clients were selected at random, whatever their scores (first rounds: 2, epsilon: 1)."
    for figure in (terms, scores):
        assert figure.note.count(random) == 1
        assert "come first" not in figure.note
    assert "Clients that had never been selected are left out: their scores are only very large numbers." in terms.note
    assert set(scores.data["map_ucb_0"]["state"]) == {"", "untried, in a random round"}


def test_untried_clients_come_first_in_the_other_rounds(tmp_path: Path) -> None:
    run = run_of(tmp_path / "a", round_of_ucb(3, "highest UCB", {0: 1.0, 1: NEVER, 2: 1.5, 3: NEVER}, [1, 3]))
    terms, scores = (next(one for one in figures_of(run) if one.key.startswith(key)) for key in ("terms", "map"))
    assert "In 2 of 3 rounds, clients were selected at random, whatever their scores (first rounds: 2)." in terms.note
    assert "are left out: they come first in the other rounds, whatever their scores." in terms.note
    cells = scores.data["map_ucb_0"]
    assert set(cells["state"][cells["round"] == 2]) == {"", "untried, in a random round"}
    assert set(cells["state"][cells["round"] == 3]) == {"", "untried, comes first"}


@pytest.mark.parametrize(("round_", "first"), [(2, False), (3, True)])
def test_why_says_that_a_round_was_random(tmp_path: Path, round_: int, first: bool) -> None:
    run = run_of(tmp_path / "a", round_of_ucb(3, "highest UCB", {0: 1.0, 1: NEVER, 2: 1.5, 3: NEVER}, [1, 3]))
    about = explain(run, round_, 3).words()[0]
    table = " ".join(as_text(explanation(explain(run, round_)), 100).split())
    assert ("and come first" in about) == first
    assert ("in this round, clients were selected at random" in about) != first
    assert ("and comes first" in table) == first
    assert ("In this round, clients were selected at random, whatever their scores." in table) != first
