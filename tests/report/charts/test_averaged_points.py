"""Captions of lines say how many rounds a point is the mean of, row by row."""

import math
from pathlib import Path

import pandas as pd
import pytest

from fedcohort.record import Run
from fedcohort.report.charts.averaged_points import about_points, each_is_mean
from fedcohort.report.charts.means_and_bands import thinned
from fedcohort.report.data.report_data import POINTS, blocks, gather
from fedcohort.report.figures.chart_style import PAGE
from fedcohort.report.figures.figure import Figure
from fedcohort.report.page_sections import figures
from tests.experiments import UCB
from tests.records import played, written


def run_of(folder: Path, label: str, rounds: int, every: int = 1) -> Run:
    """A run that is tested every few rounds."""
    rows = [
        played(
            t,
            [t % 2],
            available=2 + t % 2,
            train_loss=1 / t,
            test_accuracy=math.nan if t % every else 0.5,
            test_loss=math.nan if t % every else 1 / t,
            client_accuracy=None if t % every else [0.5] * 12,
        )
        for t in range(1, rounds + 1)
    ]
    return written(folder / label, rows, label=label, selection=UCB if label == "short" else "uniform")


def captions(runs: list[Run]) -> dict[str, dict[str, str]]:
    """What the caption says about each view of each figure."""
    drawn: list[Figure] = list(figures(gather(runs), PAGE))
    return {figure.key: {view.name: view.note for view in figure.views} for figure in drawn}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """The captions of a run with twice as many rounds as a chart has points, tested in every second one, and of a short run."""
    folder = tmp_path_factory.mktemp("averaged")
    return captions([run_of(folder, "long", 2 * POINTS, 2), run_of(folder, "short", 4)])


def test_every_chart_of_lines_says_it(said: dict[str, dict[str, str]]) -> None:
    """Only that of accuracy over rounds did."""
    mean = "Each point is the mean of 2 rounds, except in 'short' (single rounds)."
    assert mean in said["loss"]["training loss"]
    assert mean in said["jain"]["jain"]
    assert all(mean in note for note in said["participation"].values())


def test_rounds_without_a_test_do_not_count(said: dict[str, dict[str, str]]) -> None:
    """The number of rounds was taken from the longest run, tested or not: each of its tests has a point."""
    for note in (said["loss"]["test loss"], *said["accuracy"].values(), *said["client-accuracy"].values()):
        assert "is the mean of" not in note


def test_points_of_long_lines_are_means_of_blocks_of_rounds() -> None:
    """Seven rounds at three points: two blocks of three, and one round that is left."""
    frame = pd.DataFrame({"x": [1.0, 2, 3, 4, 5, 6, 7], "mean": [0.0, 3, 6, 1, 1, 4, 9], "seeds": 2})
    assert blocks(7, 3).tolist() == [0, 0, 0, 1, 1, 1, 2]
    found = thinned(frame, 3)
    assert found["x"].tolist() == [2, 5, 7]
    assert found["mean"].tolist() == [3, 2, 9]
    assert found["averaged"].tolist() == [3, 3, 1]
    assert about_points(found.assign(strategy="a"), {}) == "Each point is the mean of 3 rounds."
    assert thinned(frame, 7) is frame


def test_rows_are_named_with_what_their_points_are() -> None:
    def points(label: str, number: int, apart: float) -> pd.DataFrame:
        return pd.DataFrame({"strategy": label, "x": [apart, 2 * apart], "mean": 0.5, "averaged": number})

    same = pd.concat([points("a", 2, 2.0), points("b", 2, 2.0)])
    assert about_points(same, {}) == "Each point is the mean of 2 rounds."
    assert about_points(same.drop(columns="averaged"), {}) == ""
    frame = pd.concat([same, points("c", 2, 4.0), points("d", 3, 3.0), points("e", 1, 1.0)])
    assert about_points(frame, {"d": "the whole name"}) == (
        "Each point is the mean of 2 rounds, except in 'c' (mean of 2 rounds with a value), in 'the whole name' (mean of 3 rounds), "
        "in 'e' (single rounds)."
    )
    most = pd.concat([points("a", 2, 2.0), points("b", 1, 1.0), points("c", 1, 1.0)])
    assert about_points(most, {}) == "Each point is one round, except in 'a' (mean of 2 rounds)."
    assert about_points(points("a", 2, 77.5), {}, over_rounds=False) == "Each point is the mean of 2 rounds."
    assert each_is_mean("bar", 1) == ""
