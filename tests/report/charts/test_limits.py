"""Bands and intervals end at the smallest and the largest value that is possible."""

from pathlib import Path

import pandas as pd
import pytest

from fedcohort.report.chart_style import PAGE
from fedcohort.report.charts.accuracy import accuracy, differences
from fedcohort.report.charts.means_and_bands import SHARES, by_round
from fedcohort.report.charts.sweeps import studies
from fedcohort.report.report_data import Story, gather
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
    assert row["high"] == 100 * compared.table["difference_high"].iloc[1] == 100.0
    assert row["high_text"] == "+100.0"
    assert row["low"] < 0


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
