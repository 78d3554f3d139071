"""Figures of single clients name the seeds that they show: a row that lacks the chosen seed shows another one."""

from pathlib import Path
from typing import Any

import pytest

from fedcohort.report.charts.shown_seeds import about_seeds
from fedcohort.report.data.report_data import Story, find_runs, gather
from fedcohort.report.figures.chart_style import PAGE, paper
from fedcohort.report.figures.figure import Figure
from fedcohort.report.page import page as report
from fedcohort.report.page_sections import figures
from tests.records import played, written
from tests.report.pages import caption
from tests.report.test_browser import Watched, browser, pytestmark

__all__ = ["browser", "pytestmark"]

PANELS = ("selections", "raster", "class-accuracy")


@pytest.fixture(scope="module")
def story(runs: Path) -> Story:
    """Rows with seed 0 only, and one with seed 1 only."""
    chosen = {"uniform": "0", "UCB": "0", "loss": "1"}
    return gather([run for run in find_runs([runs]) if chosen[run.meta["label"]] == run.meta["seed"]])


@pytest.mark.parametrize("look", [PAGE, paper(1)], ids=["page", "paper"])
def test_titles_and_captions_name_the_seeds_of_the_runs_that_figures_show(story: Story, look: Any) -> None:
    """Headings said seed 0, captions said that of the first row, and the panel of a row with seed 1 said nothing."""
    first: dict[str, Figure] = {}
    for figure in figures(story, look):
        first.setdefault(figure.key, figure)
    for key in PANELS:
        assert first[key].title.endswith(", seeds 0 and 1"), key
        titles = [panel.title.partition(" · Jain")[0] for panel in first[key].views[0].panels]
        assert titles == ["uniform · seed 0", "UCB · seed 0", "loss · seed 1"], key
        assert "rows without it show another one: 'loss' seed 1." in caption(first[key]), key
        about_numbers = (
            "'loss' seed 1. Under another seed, the same number is another client, with other data."
            in caption(first[key])
        )
        assert about_numbers == (key != "class-accuracy"), "panels of classes show no client"
    for key, figure in first.items():
        if key.startswith(("terms-", "map-")):
            own = "seed 1" if "loss" in key else "seed 0"
            assert figure.title.endswith(own), key
            assert f" {own.capitalize()}." in caption(figure), key
    assert first["classes-of-clients"].title == "Clients × classes, seed 0"
    assert caption(first["accuracy"]).startswith("One seed for each row, not the same one: 0 or 1.")


@pytest.mark.parametrize(("partition", "verb"), [("natural", "can be"), ("iid", "is")])
def test_clients_of_the_data_can_be_the_same_under_every_seed(tmp_path: Path, partition: str, verb: str) -> None:
    """With a client for each one of the data, seeds need not change who is who."""
    same: Any = {"federation": {"clients": 2, "partition": {"name": partition}}}
    rows = [("a", 0), ("b", 1)]
    runs = [written(tmp_path / label, [played(1, [0])], label=label, seed=seed, **same) for label, seed in rows]
    story = gather(runs)
    assert f"the same number {verb} another client, with other data." in about_seeds(story, story.panels)


def test_figures_of_another_seed_say_which_rows_they_leave_out(story: Story) -> None:
    """Rows without seed 1 were missing under seed 1 without a word; the clients are those of the chosen seed, whichever row has it."""
    second = {figure.key: figure for figure in figures(story, PAGE) if figure.seed == 1}
    for key in PANELS:
        assert [panel.strategy for panel in second[key].views[0].panels] == ["loss"]
        assert second[key].title.endswith(", seed 1")
        assert "the same number" not in caption(second[key]), key
        assert "Rows without a round under seed 1 are left out: 'uniform' and 'UCB'." in caption(second[key]), key
    of_row = dict(zip(story.labels, story.readings, strict=True))
    turned = gather([reading.run for label in ("loss", "uniform") for reading in of_row[label]])
    (clients,) = [figure for figure in figures(turned, paper(1)) if figure.key == "classes-of-clients"]
    assert (clients.title, ", seed 0. " in clients.note) == ("Clients × classes, seed 0", True)


def test_rows_of_one_seed_say_so_once(runs: Path) -> None:
    """All rows have the seed that a page shows at first: panels need not name it."""
    every = {figure.key: figure for figure in figures(gather(find_runs([runs])), paper(1))}
    assert every["raster"].title == "Selected clients by round, seed 0"
    assert [panel.title for panel in every["raster"].views[0].panels] == ["uniform", "UCB", "loss"]
    assert every["raster"].note.startswith("Seed 0. A cell is a client that was selected")


@pytest.mark.slow
def test_clients_are_ordered_by_the_sizes_of_their_own_seed(browser: Any, story: Story, tmp_path: Path) -> None:
    """The clients of a panel with seed 1 were ordered by the sizes of the clients of seed 0."""
    file = tmp_path / "report.html"
    file.write_text(report(story), encoding="utf-8")
    watched = Watched(browser)
    page = watched.open(file.as_uri())
    heading = page.locator("#figure-raster .title").inner_text()
    assert heading == "Selected clients by round, seeds 0 and 1"
    page.locator('select[name="order"]').select_option("size")
    page.evaluate("fedcohort.drawAll()")
    for label, seed in (("uniform", "0"), ("loss", "1")):
        size = page.evaluate(f"fedcohort.clients['{seed}'].size")
        panel = page.locator(f'#figure-raster .panel[data-strategy="{label}"]')
        assert f"seed {seed}" in panel.locator(".panel-title").inner_text()
        rows = [int(text) for text in panel.locator("svg .role-axis-label text").all_text_contents()]
        by_size = sorted(range(12), key=lambda i: (-size[i], i))
        assert rows[:-7:-1] == by_size[::2], label
    assert watched.complaints == []
    page.close()
