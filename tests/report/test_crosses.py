"""Readers see where lines end: at crosses that are whole on every axis, in captions of each point of a sweep, and on phones."""

from pathlib import Path
from typing import Any

import pytest

from fedcohort.report.data.report_data import gather
from fedcohort.report.page import page as report
from tests.report.charts.test_lost_losses import INF, NAN, SOUND, runs
from tests.report.test_browser import Watched, browser, pytestmark

__all__ = ["browser", "pytestmark"]

CHART = "#figure-loss .view:not([hidden]) .chart"
WORDS = "No row has a finite test loss within this axis."

CROSSES = f"""[...document.querySelectorAll('{CHART} [aria-label*="no number"]')].map(mark => {{
  const box = mark.getBoundingClientRect(), chart = document.querySelector('{CHART} svg').getBoundingClientRect();
  const inside = chart.left <= box.left && box.right <= chart.right && chart.top <= box.top && box.bottom <= chart.bottom;
  const clipped = mark.closest('[clip-path]') !== null, opacity = Number(mark.getAttribute('opacity') ?? 1);
  return {{wide: box.width, x: (box.left + box.right) / 2, y: (box.top + box.bottom) / 2, top: chart.top, inside, clipped, opacity}};
}})"""
"""The crosses of the chart of losses, each with the wider one behind it."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two strategies at two learning rates: with the higher one, both losses are above the axis, and one has no number at last."""
    folder, powd = tmp_path_factory.mktemp("crosses"), {"name": "powd", "d": 4}
    low, high = {"lr": 0.1}, {"lr": 1e6}
    found = runs(folder, "uniform, lr=0.1", SOUND, training=low, selection="uniform")
    found += runs(folder, "powd, lr=0.1", [2.0, 1.5, 1.2, INF, INF], training=low, selection=powd)
    found += runs(folder, "uniform, lr=1e6", [1e20, 1e7, 1e7, 1e7, 1e7], training=high, selection="uniform")
    found += runs(folder, "powd, lr=1e6", [1e30, 1e31, 1e31, NAN, NAN], training=high, selection=powd)
    path = folder / "report.html"
    path.write_text(report(gather(found)), encoding="utf-8")
    return path


def shown(page: Any, point: int) -> Any:
    """The crosses of a point, after the charts are drawn."""
    page.locator(".points label").nth(point).click()
    page.evaluate("fedcohort.drawAll()")
    return page.evaluate(CROSSES)


@pytest.mark.slow
def test_crosses_are_whole_where_the_line_is_last_seen(browser: Any, file: Path) -> None:
    """A cross stood at the last mean, out of the chart, or it was cut by the lower end of a logarithmic axis."""
    watched = Watched(browser)
    page = watched.open(file.as_uri())
    caption = page.locator("#figure-loss figcaption")
    for point in (0, 1):
        behind, cross = shown(page, point)
        assert cross["inside"], point
        assert not cross["clipped"], point
        assert behind["opacity"] == cross["opacity"] == 1
        assert cross["wide"] > 9
        assert (cross["y"] - cross["top"] < 30) == (point == 1), (
            "at the upper edge, where the line is above the axis in round 1"
        )
        text = " ".join(caption.inner_text().split())
        named = ("'powd, lr=0.1'", "'powd, lr=1e6'")
        assert (named[point] in text, named[1 - point] in text) == (True, False), "each point has its own rows"
        assert (WORDS in page.locator(CHART).inner_text()) == (point == 1), "an empty chart says why"
        assert ("Every row of this point failed: none has a finite test loss within the axis." in text) == (point == 1)
        assert ("the highest mean is 1e+31, of 'powd, lr=1e6'." in text) == (point == 1)
        assert ("In no round within the axis: 'uniform, lr=1e6'." in text) == (point == 1)
    page.locator('.controls input[name="log"]').check()
    for point in (0, 1):
        _, cross = shown(page, point)
        assert (cross["inside"], cross["clipped"], cross["wide"] > 9) == (True, False, True), point
        assert WORDS not in page.locator(CHART).inner_text(), "the lines are on the logarithmic axis"
    assert watched.complaints == []
    page.close()


@pytest.mark.slow
def test_crosses_leave_with_their_line(browser: Any, file: Path) -> None:
    """Readers can drag a chart: a cross that is not cut at its edge vanishes there."""
    page = Watched(browser).open(file.as_uri())
    page.locator(CHART).scroll_into_view_if_needed()
    box = page.locator(f"{CHART} svg").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.1, box["y"] + 100, steps=5)
    page.mouse.up()
    assert {cross["opacity"] for cross in page.evaluate(CROSSES)} == {0}
    page.close()


@pytest.mark.slow
def test_names_on_phones_have_the_signs_of_those_beside_lines(browser: Any, file: Path) -> None:
    page = Watched(browser, viewport={"width": 375, "height": 700}).open(file.as_uri())
    names = f"[...document.querySelectorAll('{CHART} .names span:not(.away)')].map(s => s.textContent)"
    assert shown(page, 0)
    assert sorted(page.evaluate(names)) == ["powd ×", "uniform"]
    shown(page, 1)
    assert sorted(page.evaluate(names)) == ["powd ×", "uniform ↑"]
    page.locator('.controls input[name="log"]').check()
    page.evaluate("fedcohort.drawAll()")
    assert sorted(page.evaluate(names)) == ["powd ×", "uniform"], "the line is on the logarithmic axis"
    page.close()
