"""Bands and intervals end at the smallest and the largest value that is possible."""

import math
from pathlib import Path

import pandas as pd
import pytest

from fedcohort.core.words.score_style import ACCURACY, R_SQUARED
from fedcohort.record import Run
from fedcohort.report import terminal
from fedcohort.report.charts.accuracy import accuracy, differences
from fedcohort.report.charts.accuracy_and_cost import accuracy_and_cost
from fedcohort.report.charts.means_and_bands import SHARES, by_round
from fedcohort.report.charts.sweeps import studies
from fedcohort.report.data.report_data import Story, gather
from fedcohort.report.figures.chart_style import PAGE
from fedcohort.report.headline.headline import answers
from fedcohort.report.tables.paper_tables import to_latex
from fedcohort.study.compare_existing_runs import side_by_side
from fedcohort.study.comparison import Comparison
from tests.records import exchange, played, written

HIGH, LOW = (1.0, 0.98, 0.55), (0.0, 0.02, 0.45)
"""Accuracies of three seeds: mean ± standard deviation is 0.843 ± 0.25 and 0.157 ± 0.25."""


@pytest.fixture
def story(tmp_path: Path) -> Story:
    runs = [
        written(
            tmp_path / f"{label}{seed}",
            [played(t, [0, 1], test_accuracy=value, ledger=[exchange(10, 10)]) for t in (1, 2)],
            label=label,
            seed=seed,
        )
        for label, values in (("low", LOW), ("high", HIGH))
        for seed, value in enumerate(values)
    ]
    return gather(runs)


def test_bands_of_accuracies_end_at_0_and_1(story: Story) -> None:
    figure = accuracy(story, PAGE)
    assert figure is not None
    frames = [frame for frame in figure.data.values() if "low" in frame and "high" in frame]
    assert len(frames) >= 3
    for frame in frames:
        both = pd.DataFrame(frame).set_index("strategy")
        assert both["high"].loc[["high"]].eq(1.0).all()
        assert both["low"].loc[["low"]].eq(0.0).all()


def test_bands_of_other_quantities_have_no_limits(story: Story) -> None:
    def series(reading: object) -> list[float]:
        return [2.0 * reading.seed - 1.0]  # type: ignore[attr-defined]

    free, limited = by_round(story.played, series), by_round(story.played, series, SHARES)
    assert (free["low"].tolist(), free["high"].tolist()) == ([-1.0, -1.0], [3.0, 3.0])
    assert (limited["low"].tolist(), limited["high"].tolist()) == ([0.0, 0.0], [1.0, 1.0])


def test_intervals_of_differences_end_at_100_points(story: Story) -> None:
    figure = differences(story, PAGE)
    assert figure is not None
    (row,) = figure.data["differences"].to_dict("records")
    compared = story.comparison
    assert compared is not None
    table = compared.table
    assert row["high"] == pytest.approx(100 * table["difference_high"].iloc[1]) == 100
    assert row["high_text"] == "+100.0"
    assert compared.to_json()["rows"][1]["difference_high"] == table["difference_high"].iloc[1]
    assert "+100.0]" in terminal.as_text(terminal.comparison(compared))
    assert row["low"] < 0


def test_the_mean_of_the_reference_is_no_limit_of_differences(tmp_path: Path) -> None:
    """It is an estimate: of seeds with 23% and 29.4%, an interval can end below −26.2 points, and above with rows swapped."""
    runs = [
        written(tmp_path / f"{label}{seed}", [played(1, [0], test_accuracy=value)], label=label, seed=seed)
        for label, values in (("uniform", (0.23, 0.294)), ("other", (0.23, 0.18)))
        for seed, value in enumerate(values)
    ]
    rows = side_by_side(runs)
    found, swapped = Comparison("x", rows).table.iloc[1], Comparison("x", rows, reference="other").table.iloc[0]
    assert found["difference_low"] < -0.7
    assert found["difference_low"] == pytest.approx(-swapped["difference_high"])
    assert ACCURACY.differences == (-1, 1)
    assert R_SQUARED.differences == (-math.inf, math.inf)


CUT = "which ends where no larger difference is possible"


def runs_with(folder: Path, **rows: tuple[float, ...]) -> list[Run]:
    """Runs of one round with these accuracies by seed."""
    return [
        written(
            folder / f"{label}{seed}", [played(1, [0], test_accuracy=value, ledger=[exchange(9, 9)])], label=label, seed=seed,
            selection="uniform" if label == "uniform" else {"name": "powd", "d": 4},
        )
        for label, values in rows.items()
        for seed, value in enumerate(values)
    ]  # fmt: skip


def test_everything_with_an_interval_says_that_it_is_cut(story: Story) -> None:
    """Only the chart of differences said so."""
    compared = story.comparison
    assert compared is not None
    told = " ".join(terminal.as_text(terminal.comparison(compared)).split())
    assert f"Its 95% interval is that of Student's t, {CUT}." in told
    assert f"with a 95\\% interval (Student's t), {CUT}." in to_latex(compared)
    (sure,) = [sentences for question, sentences in answers(story)[0].answers if question == "How sure?"]
    assert "; the interval ends where no larger difference is possible)." in sure[0]
    cost = accuracy_and_cost(story, PAGE)
    assert cost is not None
    assert "(Student's t), which ends at 0% and at 100%, where the possible range ends." in cost.note


def test_intervals_that_are_not_cut_are_not_called_so(tmp_path: Path) -> None:
    found = gather(runs_with(tmp_path, uniform=(0.5, 0.52, 0.51), other=(0.6, 0.61, 0.63)))
    compared, cost = found.comparison, accuracy_and_cost(found, PAGE)
    assert compared is not None
    assert cost is not None
    assert "Vertical line: 95% interval of the mean (Student's t)." in cost.note
    texts = [terminal.as_text(terminal.comparison(compared)), to_latex(compared), *answers(found)[0].answers[1][1]]
    assert not [text for text in texts if "difference is possible" in text]
    one_end = accuracy_and_cost(
        gather(runs_with(tmp_path / "a", uniform=(0.5, 0.52, 0.51), other=(1.0, 0.9, 0.99))), PAGE
    )
    assert one_end is not None
    assert "(Student's t), which ends at 100%, where the possible range ends." in one_end.note


def test_bands_of_sweeps_end_at_1(tmp_path: Path) -> None:
    runs = [
        written(
            tmp_path / f"{lr}-{seed}",
            [played(1, [0, 1], test_accuracy=value)],
            label=f"uniform, lr={lr}",
            seed=seed,
            training={"lr": lr},
        )
        for lr in (0.1, 0.2, 0.3)
        for seed, value in enumerate(HIGH)
    ]
    (figure,) = studies(gather(runs), PAGE)
    (frame,) = (frame for frame in figure.data.values() if "high" in frame)
    assert (frame["high"] == 1.0).all()
    assert (frame["low"] > 0).all()
