"""Long names of strategies stay whole in tables and distinct in charts, on a wide page and on a phone. In a real browser."""

from typing import Any

import pytest

from fedcohort.report.data.report_data import gather
from fedcohort.report.figures.shortened_names import NUMBER, short
from fedcohort.report.page import page as report
from tests.report.headline.test_headline import runs_of
from tests.report.test_browser import Watched, browser
from tests.report.test_browser import pytestmark as needs_chromium

__all__ = ["browser"]

pytestmark = [needs_chromium, pytest.mark.slow]

NAMES = [f"power-of-choice with a long name, d={d}, and momentum" for d in range(3, 10)]
PLAIN = ["uniform", "round_robin", "clustered_similarity", "loss_proportional"]
TEXTS = "selector => [...document.querySelectorAll(selector)].map(text => text.textContent)"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("long")
    runs = [
        run
        for number, label in enumerate(PLAIN + NAMES)
        for run in runs_of(
            folder,
            label,
            [0.5 + number / 100, 0.52],
            selection="uniform" if number == 0 else {"name": "powd", "d": 3 + number},
        )
    ]
    (folder / "page.html").write_text(report(gather(runs)), encoding="utf-8")
    return (folder / "page.html").as_uri()


@pytest.mark.parametrize("width", [1200, 375])
def test_names_are_whole_in_tables_and_distinct_in_charts(browser: Any, file: str, width: int) -> None:
    watched = Watched(browser, viewport={"width": width, "height": 900})
    page = watched.open(file)
    cut = """[...document.querySelectorAll('#results .name')]
        .filter(n => n.scrollHeight > n.clientHeight + 1 || n.scrollWidth > n.clientWidth + 1).map(n => n.textContent)"""
    assert page.evaluate(cut) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    beside = page.evaluate(TEXTS, "#figure-differences .role-axis-label text")
    named = [text for text in beside if "power" in text]
    assert len(named) == len(set(named)) == len(NAMES)
    if width > 1000:
        for name in PLAIN:
            assert page.locator(f'#results .name[data-name="{name}"]').bounding_box()["height"] < 40, (
                "no word is broken"
            )
        listed = page.evaluate(TEXTS, "#figure-accuracy .view:not([hidden]) .role-legend-label text")
        assert listed == short(PLAIN + NAMES, 34)
        plot = page.locator("#figure-accuracy .view:not([hidden]) svg .background").first.bounding_box()
        assert plot["width"] > 600, "the legend leaves most of the width to the lines"
    else:
        assert all(f"d={d}" in text for d, text in zip(range(3, 10), named, strict=True))
    label = page.locator("#figure-differences .role-axis-label text", has_text="d=5").first
    label.scroll_into_view_if_needed()
    label.hover()
    assert page.locator("#figure-differences .chart").get_attribute("title") == NAMES[2], (
        "the whole name at the pointer"
    )
    page.mouse.move(2, 2)
    page.set_viewport_size({"width": 703, "height": 1000})
    page.emulate_media(media="print")
    beyond = """[...document.querySelectorAll('#results tbody th')].filter(head => {
        const name = head.querySelector('.name'), right = name.getBoundingClientRect().right;
        return name.scrollWidth > name.clientWidth + 1 || right > head.getBoundingClientRect().right + 1;
    }).map(head => head.textContent)"""
    assert page.evaluate(beyond) == [], "on paper, no name covers the number beside it"
    assert watched.complaints == []
    page.close()


def test_tooltips_and_headings_have_whole_names(browser: Any, file: str) -> None:
    watched = Watched(browser)
    page = watched.open(file)
    panels = page.evaluate(
        "[...document.querySelectorAll('#figure-raster .panel')].map(p => p.querySelector('.panel-title').title).filter(t => t)"
    )
    assert set(panels) <= set(NAMES)
    assert len(panels) == len(set(panels)) >= 5
    bar = page.locator("#figure-cost .view:not([hidden]) .mark-rect path").nth(8)
    bar.scroll_into_view_if_needed()
    bar.hover()
    tooltip = page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for(timeout=5000)
    assert any(name in tooltip.inner_text() for name in NAMES), tooltip.inner_text()
    page.close()


@pytest.mark.parametrize("limit", [28, 34])
def test_shortened_rows_of_a_sweep_keep_the_settings_of_their_points(limit: int) -> None:
    """They had numbers in their place: 'power-of-ch…all the training data… (2)'."""
    heads = (
        "power-of-choice with all the training data of each client",
        "power-of-choice with one mini-batch of each client",
    )
    points = [f"alpha={alpha}, lr={lr}" for alpha in (0.1, 1.0) for lr in (0.1, 0.05, 0.01)]
    cut = short(["uniform", *(f"{head}, {point}" for head in heads for point in points)], limit)
    assert len(set(cut)) == len(cut)
    assert max(map(len, cut)) <= limit + NUMBER
    assert all(name.endswith(point[-6:]) for name, point in zip(cut[1:], points * 2, strict=True))
    assert limit > 28 or [name.partition(", ")[2] for name in cut[1:]] == points * 2
