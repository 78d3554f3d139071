"""Pages and figures of unfinished runs say how far they are, and compare no rows after unequal numbers of rounds."""

import html
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcohort.core.words import formatted_values
from fedcohort.record import Run, writing
from fedcohort.report import terminal
from fedcohort.report.charts import accuracy_and_cost
from fedcohort.report.data.report_data import Story, gather
from fedcohort.report.figures.chart_style import PAGE, paper
from fedcohort.report.notebook import comparison_in_notebook
from fedcohort.report.page import page
from fedcohort.report.page_sections import figures
from fedcohort.report.tables.compared_rows import compared_rows
from fedcohort.report.tables.paper_tables import to_latex
from fedcohort.study.compare_existing_runs import read
from fedcohort.study.rows.unfinished_rows import counted_runs
from fedcohort.study.targets import shown_cost
from fedcohort.study.verdicts import BASELINE, UNCLEAR, UNEVEN
from tests.experiments import UCB
from tests.records import exchange, played, written
from tests.report.pages import Page, caption

HOW_FAR = "Not final: 'stopped' has played 2 of 6 rounds in 1 of its 3 seeds."


def runs_of(folder: Path, label: str, last: int, *, finished: bool, seeds: int = 3, **values: Any) -> list[Run]:
    """Runs that have played all six rounds, except that of seed 1, which ended after the round ``last``."""
    found = []
    for seed in range(seeds):
        until = last if seed == 1 else 6
        rounds = [
            played(t, [0], test_accuracy=0.3 + 0.01 * t, class_accuracy=[0.2, 0.4 + 0.02 * t], ledger=[exchange(9, 9)])
            for t in range(1, until + 1)
        ]
        run = written(folder / f"{label}{seed}", rounds, label=label, seed=seed, **{"rounds": 6, **values})
        if finished or until == 6:
            with writing(run) as writer:
                writer.finish({})
        found.append(Run(run.path))
    return found


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """A finished row, and one of which a seed has stopped after two of six rounds."""
    folder = tmp_path_factory.mktemp("uneven")
    ended = runs_of(folder, "ended", 6, finished=True)
    return gather([*ended, *runs_of(folder, "stopped", 2, finished=False, selection=UCB)])


def test_runs_that_were_not_tested_after_their_last_round_are_compared_after_another_one(tmp_path: Path) -> None:
    """With measures.evaluate_every = 2, the accuracy of round 4 was said to be that after the last round so far, which is round 5."""
    settings: dict[str, Any] = {"rounds": 8, "measures": {"evaluate_every": 2}}
    rounds = [played(t, [0], test_accuracy=math.nan if t % 2 else 0.1 * t + 0.4) for t in range(1, 6)]
    runs = {
        last: [
            written(tmp_path / f"{label}{last}", rounds[:last], label=label, **settings)
            for label in ("uniform", "mine")
        ]
        for last in (1, 4, 5)
    }
    when = {last: compared.when for last, own in runs.items() if (compared := gather(own).comparison) is not None}
    so_far = "after the last round so far"
    assert when == {1: so_far, 4: so_far, 5: "after round 4"}


def test_every_caption_of_a_paper_says_that_runs_are_not_finished(uneven: Story, tmp_path: Path) -> None:
    """Captions said nowhere that rows are not final. Those about clients and their data are about no round."""
    drawn = {figure.key: figure for figure in figures(uneven, paper(1))}
    about_rounds = set(drawn) - {"sizes"}
    assert {"accuracy", "tradeoff", "cost", "bars", "selections", "raster", "class-accuracy"} <= about_rounds
    for name in about_rounds:
        assert drawn[name].note.count(HOW_FAR) == 1, name
    ended = gather(runs_of(tmp_path, "ended", 6, finished=True))
    assert not [figure.key for figure in figures(ended, paper(1)) if "Not final" in caption(figure)]


def test_rows_after_unequal_numbers_of_rounds_are_not_compared(uneven: Story) -> None:
    """The headline declined already; the table, the marks of classes, and the front compared them all the same."""
    shown = Page(page(uneven))
    assert "It is too early to say" in shown.prose
    assert not [found for tag, found in shown.tags if tag == "td" and found.get("class") == "best"]
    (stopped,) = [row for row in shown.texts["results"] if row["strategy"] == "stopped"]
    assert (stopped["difference"], stopped["p_holm"]) == ("–", UNEVEN)
    assert "Unequal rounds: the row and its reference have not played the same number of rounds" in shown.prose
    assert shown.prose.count("No best mean is marked among rows that have played unequal numbers of rounds") == 2
    assert "▸" not in shown.prose
    assert "Test accuracy after the last round of each run so far," in shown.prose
    assert "Whole runs" not in shown.prose
    assert "differences" not in {figure.key for figure in figures(uneven, PAGE)}


def test_a_row_as_far_as_its_reference_is_compared(uneven: Story, tmp_path: Path) -> None:
    """One row that was behind kept the verdicts of finished rows back, and was not counted in the correction of p."""
    third = runs_of(tmp_path, "third", 6, finished=True, selection={"name": "powd"})
    compared = gather([*(reading.run for reading in uneven.everything), *third]).comparison
    assert compared is not None
    assert (sorted(compared.uneven), sorted(compared.without_difference)) == ([0, 1, 2], [1])
    assert [verdict.words for verdict in compared.verdicts] == [BASELINE, UNEVEN, UNCLEAR]
    assert np.isfinite(compared.table["difference"]).tolist() == [True, False, True]
    assert compared.comparisons == 2
    assert "p corrected by Holm for 2 comparisons, 1 of them to come;" in compared.about_verdicts
    assert compared.paired(1, 2) == ([], [])
    assert compared.paired(2, 0)[0] == compared.paired(0, 2)[0]


def test_no_front_among_rows_after_unequal_numbers_of_rounds(uneven: Story) -> None:
    figure = accuracy_and_cost.accuracy_and_cost(uneven, PAGE)
    assert figure is not None
    points = figure.data["tradeoff_bytes"]
    assert not points["front"].any()
    assert points["standing"].str.startswith("unknown").all()
    assert np.isfinite(points["x"]).all(), "the rows are drawn"
    assert "Rows have played unequal numbers of rounds, since some runs are not finished, so that they" in figure.note
    assert "Filled" not in figure.note


def test_rows_after_equal_numbers_of_rounds_are_compared(tmp_path: Path) -> None:
    """Rows that stopped after the same round, and rows that a stopping rule ended before others."""
    ended = runs_of(tmp_path, "ended", 6, finished=True)
    early = runs_of(tmp_path, "early", 2, finished=True, selection=UCB)
    compared = gather([*ended, *early]).comparison
    assert compared is not None
    assert (compared.uneven, compared.when) == (frozenset(), "after the last round")
    assert np.isfinite(compared.table["difference"]).all()
    story = gather([run for run in runs_of(tmp_path / "a", "a", 2, finished=False) if run.meta["seed"] == "1"])
    assert story.comparison is not None
    assert not story.comparison.uneven


def test_a_run_behind_its_row_is_not_in_the_numbers_of_the_row(uneven: Story) -> None:
    """Means of two seeds after all rounds and one after a few were numbers of nothing, such as 70.3 ± 44.3."""
    compared = uneven.comparison
    assert compared is not None
    said = "Runs that are behind the others of their row are not in its numbers yet: 'stopped' with seed 1."
    ended, stopped = compared.table.to_dict("records")
    assert [(row["seeds"], row["unfinished"]) for row in (ended, stopped)] == [(3, 0), (2, 1)]
    for name in ("accuracy", "best_accuracy", "bytes", "client_passes", "simulated_time"):
        assert stopped[name] == pytest.approx(ended[name]), name
    shown = Page(page(uneven))
    assert said in shown.prose
    for table in ("results", "fairness", "classes", "ledger", "wall"):
        own = ("strategy", "accuracy_sd", "difference", "p_holm")
        first, other = ({name: text for name, text in row.items() if name not in own} for row in shown.texts[table])
        assert first == other, table
    assert [row["accuracy_sd"] for row in shown.texts["results"]] == ["± 0.0seeds 0 to 2", "± 0.0seeds 0, 2"]
    latex, notes = to_latex(compared), comparison_in_notebook(compared)["text/html"]
    for text in (terminal.as_text(terminal.comparison(compared)), latex, html.unescape(str(notes))):
        assert said in " ".join(text.split())
    assert to_latex(gather([reading.run for reading in uneven.readings[0]]).comparison).count("behind") == 0  # type: ignore[arg-type]


def test_the_runs_that_are_furthest_stand_for_a_row_without_a_finished_one(tmp_path: Path) -> None:
    lengths = {0: 3, 1: 5, 2: 5}
    runs = {
        seed: written(tmp_path / str(seed), [played(t, [0]) for t in range(1, last + 1)], seed=seed, rounds=9)
        for seed, last in lengths.items()
    }
    assert list(counted_runs(runs)) == [1, 2]
    with writing(runs[0]) as writer:
        writer.finish({})
    assert list(counted_runs(runs)) == [0], "a stopping rule has ended it"
    assert list(counted_runs({seed: runs[seed] for seed in (1, 2)})) == [1, 2]


def test_a_target_that_runs_can_still_reach_is_not_called_missed(tmp_path: Path) -> None:
    """It was ∞, "no seed reached it", while half of the rounds were to be played."""
    target = {"target_accuracy": 0.9}
    ended = runs_of(tmp_path, "ended", 6, finished=True, measures=target)
    stopped = runs_of(tmp_path, "stopped", 2, finished=False, selection=UCB, measures=target)
    story = gather([*ended, *stopped])
    shown = Page(page(story))
    assert [row["rounds_to_target"] for row in shown.texts["results"]] == ["∞", "–"]
    assert "∞: no seed reached it. –: not reached yet, since runs are not finished." in shown.prose
    compared = story.comparison
    assert compared is not None
    printed = terminal.as_text(terminal.comparison(compared))
    assert "–: not reached yet, since runs are not finished." in " ".join(printed.split())
    partial = read([run.path for run in (*ended, *stopped)], partial=True)
    costs = [shown_cost(row, "rounds_to_target") for row in compared_rows(partial)]
    assert list(map(formatted_values.rounds, costs)) == ["–"] * 2, "no run is compared up to its end"
