"""What a page says and draws after its reader has hidden rows."""

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from fedcohort.report.charts.accuracy_and_cost import COSTS, front
from fedcohort.report.charts.shown_front import BEATEN, ON_FRONT
from fedcohort.report.data.report_data import find_runs, gather
from fedcohort.report.page import page as report
from tests.report.pages import Page
from tests.report.test_browser import Watched, browser
from tests.report.test_browser import pytestmark as needs_chromium

__all__ = ["browser"]

pytestmark = [needs_chromium, pytest.mark.slow]  # some seconds in a browser

FILLED = """key => { const found = {};
    (function walk(item) {
        const points = item.marktype === 'symbol' ? item.items.filter(one => one.tooltip) : [];
        for (const one of points) found[one.datum.strategy] = [one.fillOpacity === 1, one.tooltip['on the front']];
        for (const inner of item.items || []) walk(inner);
    })(fedcohort.views.get(key).scenegraph().root);
    return found; }"""
"""The rows that have a point in a chart of accuracy and cost: whether it is filled, and what its tooltip says."""


@pytest.fixture(scope="module")
def text(runs: Path) -> str:
    return report(gather(find_runs([runs])))


@pytest.fixture(scope="module")
def opened(browser: Any, text: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(text, encoding="utf-8")
    watched = Watched(browser)
    yield watched.open(path.as_uri())
    assert watched.complaints == []
    watched.page.close()


def check(page: Any, labels: list[str], hidden: tuple[str, ...]) -> None:
    for label in labels:
        page.locator(f'.strategies input[value="{label}"]').set_checked(label not in hidden)
    drawn = "[...fedcohort.views].filter(([key]) => key.startsWith('tradeoff'))"
    page.evaluate(f"Promise.all({drawn}.map(([, view]) => view.runAsync())).then(() => null)")


def test_the_front_is_that_of_the_rows_that_are_shown(opened: Any, text: str) -> None:
    """Hidden rows kept others from the front: without the best row, no point was filled."""
    data = Page(text).payload["data"]
    labels = [row["strategy"] for row in data["tradeoff_bytes"]]
    failed = [row["strategy"] for row in data["tradeoff_bytes"] if not row["ranked"]]
    assert (len(labels), len(failed)) == (3, 1)
    assert sum(row["front"] for row in data["tradeoff_bytes"]) == 1
    for view, number in ((0, 2), (2, 1)):
        column = COSTS[view][0]
        opened.locator(f'figure[data-figure="tradeoff"] .switch input[value="{view}"]').check(force=True)
        opened.evaluate("fedcohort.drawAll()")
        for hidden in [(), *combinations(labels, number)]:
            check(opened, labels, hidden)
            left = [row for row in data[f"tradeoff_{column}"] if row["strategy"] not in hidden and row["ranked"]]
            on_front = front([row["accuracy"] for row in left], [row["x"] for row in left])
            said = {True: ON_FRONT, False: BEATEN}
            expected = {label: [False, "training failed"] for label in failed if label not in hidden}
            expected |= {row["strategy"]: [is_on, said[is_on]] for row, is_on in zip(left, on_front, strict=True)}
            assert opened.evaluate(FILLED, f"tradeoff.{view}.0") == expected, f"{column}, without {hidden}"
    check(opened, labels, ())
    caption = opened.locator("#figure-tradeoff figcaption").inner_text()
    assert "none of the other rows that are shown has at least this accuracy for less" in caption


def test_a_line_below_the_answers_says_that_they_are_about_all_rows(opened: Any, text: str) -> None:
    """The first screen named a row that was hidden, without a word."""
    said = opened.locator(".about-hidden")
    labels = [row["strategy"] for row in Page(text).payload["data"]["tradeoff_bytes"]]
    check(opened, labels, ())
    assert said.inner_text() == ""
    below = "document.querySelector('.contents').getBoundingClientRect().top + scrollY"
    before = opened.evaluate(below)
    check(opened, labels, ("UCB",))
    assert said.inner_text() == (
        "1 of 3 rows is hidden in charts. The answers above, and the verdicts and marks in tables, are about all rows."
    )
    assert opened.evaluate(below) == before, "the list of rows stays below the pointer"
    check(opened, labels, ("UCB", "loss"))
    assert said.inner_text().startswith("2 of 3 rows are hidden in charts. ")
    check(opened, labels, ())
    assert said.inner_text() == ""
