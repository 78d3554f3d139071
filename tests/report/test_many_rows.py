"""Pages with more rows than a legend can name, in a browser: the best lines are named, and tables scroll below their heads."""

from typing import Any

import pytest

from fedcohort.report.page import page as report
from fedcohort.report.panel_rows import NAMES
from fedcohort.report.report_data import gather
from tests.report.test_answers import runs_of
from tests.report.test_browser import Watched, browser, pytestmark

__all__ = ["browser", "pytestmark"]

ROWS = 26
LABELS = ["uniform", *(f"power-of-choice, d={d}, and momentum" for d in range(3, ROWS + 2))]
STROKES = """[...document.querySelectorAll('#figure-accuracy .view:not([hidden]) .mark-line path')]
    .map(path => Number(path.getAttribute('opacity') ?? 1))"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("many")
    runs = [
        run
        for i, label in enumerate(LABELS)
        for run in runs_of(
            folder,
            label,
            [0.5 + i / 100, 0.52 + i / 100],
            selection="uniform" if i == 0 else {"name": "powd", "d": 2 + i},
        )
    ]
    (folder / "page.html").write_text(report(gather(runs)), encoding="utf-8")
    return (folder / "page.html").as_uri()


def test_the_reference_and_the_best_lines_are_named(browser: Any, file: str) -> None:
    watched = Watched(browser)
    page = watched.open(file)
    names = page.evaluate("fedcohort.data.accuracy_rounds_ends.name")
    shown = page.evaluate(
        "[...document.querySelectorAll('#figure-accuracy .view:not([hidden]) .mark-text text')].map(t => t.textContent)"
    )
    ends = [text for text in shown if text == "uniform" or "d=" in text]
    assert len(ends) == len(set(ends)) == NAMES, names
    assert "uniform" in ends
    assert all(any(f"d={d}" in text for text in ends) for d in range(ROWS - 4, ROWS + 2)), ends
    assert (
        "charts of lines draw the reference and the rows with the highest test accuracy stronger"
        in page.locator("main").inner_text()
    )
    before = page.evaluate(STROKES)
    assert sorted(set(before)) == [0.3, 1]
    assert before.count(1) == NAMES
    page.locator(".strategies .light", has_text="d=5,").click()
    page.wait_for_function(f"({STROKES}).filter(o => o === 1).length === 1")
    assert max(value for value in page.evaluate(STROKES) if value < 1) < 0.3, "all others are paler"
    assert watched.complaints == []
    page.close()


def test_heads_of_long_tables_stay_while_they_scroll_and_paper_has_all_rows(browser: Any, file: str) -> None:
    watched = Watched(browser)
    page = watched.open(file)
    box = page.locator(".scroll.tall", has=page.locator("#results"))
    assert box.evaluate("box => box.clientHeight < box.scrollHeight && box.clientHeight <= 0.81 * innerHeight")
    box.evaluate("box => box.scrollTo(0, 500)")
    heads = "box => box.querySelector('thead th').getBoundingClientRect().top - box.getBoundingClientRect().top"
    assert abs(box.evaluate(heads)) <= 1
    lines = "[...document.querySelectorAll('#results .name')].map(name => name.getBoundingClientRect().height / 20)"
    assert max(page.evaluate(lines)) <= 2.2, "long names take two lines"
    page.set_viewport_size({"width": 703, "height": 1000})
    page.emulate_media(media="print")
    columns = "new Set([...document.querySelectorAll('.strategy')].map(row => row.getBoundingClientRect().left)).size"
    assert page.evaluate(columns) >= 3, "the list of rows has columns on paper"
    assert box.evaluate("box => box.scrollHeight <= box.clientHeight + 1")
    page.close()


def test_long_tables_say_that_they_go_on_on_the_screen_only(browser: Any, file: str) -> None:
    watched = Watched(browser)
    page = watched.open(file)
    for table, lines in (("results", ROWS), ("fairness", ROWS), ("wall", ROWS)):
        box = page.locator(".scroll.tall", has=page.locator(f"#{table}"))
        said = box.locator("xpath=following-sibling::p[1]")
        assert said.inner_text() == f"The table has {lines} lines; scroll it to see all of them."
        assert "gradient" in box.evaluate("box => getComputedStyle(box).backgroundImage")
    page.emulate_media(media="print")
    assert page.locator(".goes-on:visible").count() == 0
    assert box.evaluate("box => getComputedStyle(box).backgroundImage") == "none"
    page.close()
