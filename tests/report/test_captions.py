"""Captions say what a figure shows, all of it, and nothing about what it does not show."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedcohort
from fedcohort.report.charts.equal_lines import about_equal
from fedcohort.report.charts.participation import fairness, participation
from fedcohort.report.data.report_data import Story, find_runs, gather
from fedcohort.report.figures.chart_style import PAGE, paper
from fedcohort.report.figures.paper_figures import CAPTIONS, export
from fedcohort.report.page_sections import figures
from tests.experiments import UCB, small
from tests.records import played, written
from tests.report.pages import caption
from tests.report.test_browser import Watched, browser, pytestmark

__all__ = ["browser"]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """A sweep of two points, with strategies that ask clients, that form strata, and that lose clients."""
    folder = tmp_path_factory.mktemp("captions") / "runs"
    rows = [
        {"label": "UCB", "selection": UCB},
        {"label": "loss", "selection": {"name": "select_by_loss"}},
        {"label": "strata", "selection": {"name": "stratified"}},
    ]
    given = small(rounds=6, seeds=2, variants=rows, sweep={"training.lr": [0.05, 0.1]}, systems={"dropout": 0.3})
    fedcohort.compare(given, runs=folder)
    return gather(find_runs([folder]))


LOOKED_AT = ("accuracy-lr-0.1", "loss-lr-0.1", "cost", "tradeoff-lr-0.1", "participation-lr-0.1", "terms", "map")
"""The figures whose captions the tests look at: drawing all of them takes long."""


@pytest.fixture(scope="module")
def captions(story: Story, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("figures")
    drawn = [figure for figure in figures(story, paper(1)) if figure.key.startswith(LOOKED_AT)]
    export(drawn, folder, "svg", paper(1))
    text = (folder / CAPTIONS).read_text(encoding="utf-8")
    return dict(caption.split("\n", 1) for caption in text.strip().split("\n\n"))


def test_figures_of_one_row_name_the_row_and_its_point(captions: dict[str, str]) -> None:
    assert captions["terms-ucb-lr-0.1.svg"].startswith(
        "UCB, lr=0.1: scores of the selected clients, by term, seed 0. Mean"
    )
    assert captions["map-ucb-lr-0.05-score.svg"].startswith(
        "UCB, lr=0.05: scores of all candidates by round, seed 0, score."
    )


def test_captions_are_about_what_their_file_shows(captions: dict[str, str]) -> None:
    """The caption of accuracy over rounds spoke of time and bytes, and that of the test loss of training loss."""
    over_rounds, over_time, over_bytes = (
        captions[f"accuracy-lr-0.1-{name}.svg"] for name in ("rounds", "simulated-time", "bytes")
    )
    assert not [word for word in ("time", "bytes", "shortest seed") if word in over_rounds]
    assert (
        "A point is the latest accuracy at that time. Simulated time does not include answers to questions of a strategy."
        in over_time
    )
    assert "A point is the latest accuracy at that number of bytes." in over_bytes
    assert "raining loss" not in captions["loss-lr-0.1-test-loss.svg"]
    assert "Training loss is" in captions["loss-lr-0.1-training-loss.svg"]
    assert "client pass" not in captions["cost-bytes.svg"].partition(". ")[2]
    assert "A client pass is" in captions["cost-client-passes.svg"]
    assert "Simulated time" not in captions["tradeoff-lr-0.1-client-passes.svg"]


def test_groups_of_clients_have_no_mean(story: Story, captions: dict[str, str]) -> None:
    """A stratum has a number as its name: the mean over the selected clients says nothing."""
    assert [name for name in captions if name.startswith("map-strata")]
    assert not [name for name in captions if name.startswith("terms-strata")]
    assert not [table for figure in figures(story, PAGE) for table in figure.data if table.startswith("terms_strata")]


def test_lines_on_each_other_are_named(story: Story, captions: dict[str, str]) -> None:
    """With the same losses of clients in all rows, the lines of four rows looked like one."""
    about = captions["participation-lr-0.1-available.svg"]
    assert "Rows with the same numbers lie on each other: 'uniform', 'UCB', 'loss' and 'strata'." in about
    selected = captions["participation-lr-0.1-selected.svg"]
    figure = participation(story, PAGE)
    assert figure is not None
    values = figure.data["clients_available"].pivot_table(index="x", columns="strategy", values="mean")
    assert np.ptp(values.to_numpy(), axis=1).max() == 0, "the rows are equal"
    assert "lie on each other" in selected


def test_lines_of_jains_index_on_each_other_are_named(tmp_path: Path) -> None:
    """A line that ends before another one lies on it, too; rows with the same selections looked like one."""
    runs = [
        written(
            tmp_path / name,
            [played(t, [(t * step) % 5]) for t in range(1, last + 1)],
            label=name,
            selection={"name": name},
        )
        for name, last, step in (("uniform", 6, 1), ("ucb", 4, 1), ("oort", 6, 0))
    ]
    for look in (PAGE, paper(1)):
        figure = fairness(gather(runs), look)
        assert figure is not None
        assert "Rows with the same numbers lie on each other: 'uniform' and 'ucb'." in caption(figure)
    assert "lie on each other" not in caption(fairness(gather(runs[1:]), PAGE))  # type: ignore[arg-type]


@pytest.mark.slow
@pytestmark
def test_the_page_shows_the_words_of_the_chosen_view_only(browser: Any, page_of_runs: Path) -> None:
    page = Watched(browser).open(page_of_runs.as_uri())
    caption = page.locator("#figure-accuracy figcaption")
    assert "shortest seed" not in caption.inner_text()
    page.locator('#figure-accuracy .switch input[value="2"]').check(force=True)
    assert "at that number of bytes" in caption.inner_text()
    assert "at that time" not in caption.inner_text()
    page.locator('#figure-accuracy .switch input[value="0"]').check(force=True)
    assert "shortest seed" not in caption.inner_text()
    page.close()


def test_many_sets_of_equal_lines_are_counted() -> None:
    """With 100 rows, the caption named seven sets of them."""

    def said(*means: float) -> str:
        rows = [{"strategy": f"row-{i}", "x": 1.0, "mean": mean} for i, mean in enumerate(means)]
        return about_equal(pd.DataFrame(rows), ())

    start = "Rows with the same numbers lie on each other: "
    assert said(1, 2, 3) == ""
    assert said(1, 2, 1, 2) == f"{start}'row-0' and 'row-2'; 'row-1' and 'row-3'."
    assert said(1, 1, 2, 2, 3, 3) == f"{start}'row-0' and 'row-1'; 'row-2' and 'row-3'; 'row-4' and 'row-5'."
    many = said(*([0] * 8), 1, 1, 2, 2, 3, 3)
    assert many == f"{start}8 of 14 rows; 'row-8' and 'row-9'; and 2 more sets of rows."


def test_a_name_with_a_comma_reads_as_one_row() -> None:
    """They were "uniform, uniform, lr 1e6"."""
    rows = [{"strategy": name, "x": 1.0, "mean": 0.5} for name in ("uniform", "uniform, lr 1e6")]
    assert about_equal(pd.DataFrame(rows), ()).endswith(": 'uniform' and 'uniform, lr 1e6'.")
