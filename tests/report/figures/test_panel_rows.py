"""Charts with a panel for each strategy show the reference and the best rows of many, in the colors that they have everywhere."""

import re
from types import SimpleNamespace
from typing import Any

import pytest

from fedcohort.record import Run
from fedcohort.report.data.report_data import Story, gather
from fedcohort.report.figures.chart_style import PAGE, STRATEGIES, UNCLEAR, paper
from fedcohort.report.figures.panel_rows import NAMES, PANELS, SWEEP_PANELS
from fedcohort.report.figures.paper_figures import composed, draw
from fedcohort.report.notes.shown_rows import about_panels
from fedcohort.report.page import page
from fedcohort.report.page_sections import figures
from fedcohort.report.tables.table_rows import strategies
from tests.report.headline.test_headline import runs_of
from tests.report.pages import Page

ROWS = 18
BEST = 16
REFERENCE = 17


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Later rows are better up to the best one; the last row is the reference, and the worst."""
    folder = tmp_path_factory.mktemp("panels")
    return [
        run
        for i in range(ROWS)
        for run in runs_of(
            folder,
            "uniform" if i == REFERENCE else f"row {i}",
            [0.1 if i == REFERENCE else 0.3 + i / 100] * 2,
            selection="uniform" if i == REFERENCE else {"name": "powd", "d": 3 + i},
        )
    ]


@pytest.fixture
def story(rows: list[Run]) -> Story:
    return gather(rows)


def finish(story: Story) -> None:
    for reading in story.everything:
        vars(reading)["meta"] = {**reading.meta, "status": "finished"}  # a cached property


@pytest.mark.slow
def test_the_reference_and_the_best_rows_have_panels(story: Story) -> None:
    finish(story)
    shown = [label for label, _ in story.panels]
    assert shown == [f"row {i}" for i in range(BEST - PANELS + 2, BEST + 1)] + ["uniform"]
    assert shown == [label for label, _ in story.at_seed(1).panels]
    said = f"show {PANELS} of {ROWS} rows, the reference and those with the highest test accuracy."
    assert said in Page(page(story)).prose


@pytest.mark.slow
def test_panels_stay_while_runs_are_played(story: Story) -> None:
    assert [label for label, _ in story.panels] == [f"row {i}" for i in range(PANELS)]
    said = f"show {PANELS} of {ROWS} rows, the first ones until all runs are finished."
    assert said in Page(page(story)).prose


def test_panels_have_the_colors_of_their_rows(story: Story) -> None:
    """The first panel is not that of the first row."""
    finish(story)
    colors = {row["label"]: row["color"] for row in strategies(story)}
    drawn = next(figure for figure in figures(story, PAGE) if figure.key == "selections")
    for panel in drawn.views[0].panels:
        assert f'"{colors[str(panel.strategy)]}"' in str(panel.chart.to_dict(validate=False)).replace("'", '"')
    look = paper(2)
    drawn = next(figure for figure in figures(story, look) if figure.key == "selections")
    assert f"Panels: {PANELS} of {ROWS} rows, the reference" in drawn.note
    svg = draw(composed(drawn, drawn.views[0], look), "svg").decode()
    filled = {color.upper() for color in re.findall(r'fill="(#[0-9A-Fa-f]{6})"', svg)}
    named = story.paper_row_looks.named
    assert len(named) == NAMES, "papers have no colors for more"
    assert named < {str(panel.strategy) for panel in drawn.views[0].panels}
    assert {color.upper() for color in STRATEGIES[:NAMES]} | {UNCLEAR} <= filled
    assert STRATEGIES[NAMES].upper() not in filled
    assert (
        f"Colored panels: those of the reference and of the {NAMES - 1} rows with the highest test accuracy"
        in drawn.note
    )
    assert drawn.note.endswith("Gray panels: rows that figures of lines do not name.")


def test_captions_say_which_panels_of_a_sweep_are_drawn() -> None:
    """Of 20 points with 5 rows each, only the references have panels, and the page spoke of the best rows."""

    def about(points: int, finished: bool = True) -> str:
        row = SimpleNamespace(runs={0: None})
        groups = [SimpleNamespace(rows=range(5 * i, 5 * i + 5)) for i in range(points)]
        compared: Any = SimpleNamespace(groups=groups, rows=[row] * (5 * points))
        return about_panels(compared, min(points, SWEEP_PANELS), "accuracy", finished)

    assert about(20) == "20 of 100 rows, the reference at each point of the sweep"
    assert (
        about(20, finished=False)
        == "20 of 100 rows, the first one at each point of the sweep until all runs are finished"
    )
    assert about(40) == "36 of 200 rows, the reference at the first 36 points of the sweep"
    best = "9 of 45 rows, the reference and those with the highest test accuracy at each point of the sweep"
    assert about(9) == best
