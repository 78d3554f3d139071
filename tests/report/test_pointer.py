"""What readers point at and switch, in a real browser: one tooltip with all strategies, and one point of a sweep at a time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedcohort.record import Run
from fedcohort.report.data.report_data import gather
from fedcohort.report.page import page as report
from tests.report.headline.test_headline import swept
from tests.report.test_browser import Watched, browser
from tests.report.test_browser import pytestmark as needs_chromium

__all__ = ["browser", "swept"]

pytestmark = [needs_chromium, pytest.mark.slow]  # some seconds in a browser


@pytest.fixture(scope="module")
def three(browser: Any, page_of_runs: Path) -> Iterator[Watched]:
    """The page of three strategies."""
    yield from opened_file(browser, page_of_runs)


@pytest.fixture(scope="module")
def page_of_sweep(swept: list[Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("points") / "page.html"
    path.write_text(report(gather(swept)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def points(browser: Any, page_of_sweep: Path) -> Iterator[Watched]:
    """The page of a sweep of two points."""
    yield from opened_file(browser, page_of_sweep)


def opened(browser: Any, runs: list[Run], folder: Path) -> Iterator[Watched]:
    (folder / "page.html").write_text(report(gather(runs)), encoding="utf-8")
    yield from opened_file(browser, folder / "page.html")


def opened_file(browser: Any, path: Path) -> Iterator[Watched]:
    watched = Watched(browser)
    watched.open(path.as_uri())
    yield watched
    watched.page.close()


def tooltip(page: Any, figure: str, share: float) -> list[str]:
    """The lines of the tooltip at ``share`` of the width of a figure's chart."""
    page.mouse.move(2, 2)
    chart = page.locator(f"#figure-{figure} .view:not([hidden]) svg").first
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    for x in (share - 0.02, share):
        page.mouse.move(box["x"] + x * box["width"], box["y"] + 0.5 * box["height"])
    shown = page.locator("#vg-tooltip-element.visible")
    shown.wait_for(timeout=10_000)
    return [line.replace("\t", " ") for line in shown.inner_text().split("\n") if line.strip()]


def test_a_tooltip_has_all_strategies_at_that_round(three: Watched) -> None:
    head, what, *lines = tooltip(three.page, "accuracy", 0.5)
    assert what == "test accuracy (± one standard deviation)"
    t = int(head.removeprefix("round "))
    data = three.page.evaluate("fedcohort.data.accuracy_rounds")
    at = sorted((row for row in data if row["x"] == t), key=lambda row: -row["mean"])
    assert {row["strategy"] for row in at} == {"UCB", "loss", "uniform"}
    expected = [
        f"{row['strategy']} {100 * row['mean']:.1f}% ({100 * row['low']:.1f}% to {100 * row['high']:.1f}%)"
        for row in at
    ]
    assert lines == expected
    assert "undefined" not in " ".join(lines)
    assert three.complaints == []


def test_a_tooltip_leaves_out_hidden_strategies(three: Watched) -> None:
    three.page.locator('.strategies input[value="UCB"]').uncheck()
    _, _, *lines = tooltip(three.page, "jain", 0.4)
    assert sorted(line.split(" ")[0] for line in lines) == ["loss", "uniform"]
    three.page.locator('.strategies input[value="UCB"]').check()
    assert three.complaints == []


def test_a_tooltip_of_many_strategies_fits_the_window(three: Watched) -> None:
    page = three.page
    whole = tooltip(page, "accuracy", 0.5)
    page.evaluate("Object.defineProperty(window, 'innerHeight', {value: 80, configurable: true})")
    lowest = whole[-1].split(" ")[0]
    assert tooltip(page, "accuracy", 0.5) == [*whole[:3], "and 2 more"]
    page.locator(f'.strategies .light[data-name="{lowest}"]').click()
    assert tooltip(page, "accuracy", 0.5) == [*whole[:3], whole[-1], "and 1 more"]
    page.locator(f'.strategies .light[data-name="{lowest}"]').click()
    page.evaluate("delete window.innerHeight")
    assert three.complaints == []


def test_a_tooltip_over_bytes_says_what_was_reached_by_then(three: Watched) -> None:
    three.page.locator('#figure-accuracy .switch input[value="2"]').check(force=True)
    three.page.evaluate("fedcohort.drawAll()")
    head, _, *lines = tooltip(three.page, "accuracy", 0.3)
    assert head.startswith("bytes sent and received ")
    assert head.endswith("B")
    assert {line.split(" ")[0] for line in lines} >= {"uniform", "UCB"}
    three.page.locator('#figure-accuracy .switch input[value="0"]').check(force=True)
    assert three.complaints == []


PANEL_WIDTHS = """[...document.querySelectorAll('#figure-selections .panel')].filter(panel => panel.offsetParent)
    .map(panel => Math.abs(panel.querySelector('svg').getAttribute('width') - panel.clientWidth) < 12)"""


def visible(page: Any, selector: str) -> list[str]:
    """The texts of the elements that can be seen."""
    return [
        " ".join(text.split())
        for text in page.evaluate(
            f"[...document.querySelectorAll({selector!r})].filter(e => e.offsetParent).map(e => e.innerText)"
        )
    ]


def test_the_page_shows_one_point_of_a_sweep_at_a_time(points: Watched) -> None:
    page = points.page
    lines = "document.querySelectorAll('#figure-accuracy .view:not([hidden]) .mark-line path').length"
    names = "[...document.querySelectorAll('#figure-differences .role-axis-label text')].map(t => t.textContent)"
    for position, (point, lead) in enumerate((("alpha=0.1", "mine"), ("alpha=1.0", "uniform"))):
        page.locator(f'.points input[value="{position}"]').check(force=True)
        page.wait_for_function(f"{lines} === 2")
        (question, sure, cost) = visible(page, ".answers dd")
        assert question.startswith(f"At {point}, '{lead}' has the highest test accuracy")
        assert "paired seeds" in sure
        assert "uniform" in cost
        assert visible(page, "#results tbody th") == [f"uniform {point}", f"mine {point}"]
        assert visible(page, ".strategies .strategy") == ["uniform", "mine"]
        for key in ("selections", "jain", "raster"):
            (shown,) = visible(page, f"#figure-{key} .of-point")
            texts = page.locator(f"#figure-{key} .of-point").evaluate_all(
                "all => all.map(one => one.textContent.trim())"
            )
            assert shown == texts[position], key
        assert len(visible(page, "#figure-selections .panel-title")) == 2
        page.evaluate("fedcohort.drawAll()")
        assert page.evaluate(PANEL_WIDTHS) == [True, True], "charts of another point are as wide as their panels"
        assert page.evaluate(names)[-1:] == ["mine"]
    assert points.complaints == []


def test_a_phone_shows_the_answers_and_the_switch(browser: Any, page_of_sweep: Path) -> None:
    watched = Watched(browser, viewport={"width": 375, "height": 700}, color_scheme="dark")
    page = watched.open(page_of_sweep.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    assert len(visible(page, ".answers dt")) == 3
    assert watched.complaints == []
    page.close()
