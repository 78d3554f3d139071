"""Pages as a printer gets them: with every chart, and without half-empty sheets."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.report.test_browser import Watched, browser
from tests.report.test_browser import pytestmark as needs_chromium

__all__ = ["browser"]

pytestmark = [needs_chromium, pytest.mark.slow]  # some seconds in a browser

MILLIMETER = 96 / 25.4
SHEETS = {"A4": (210, 297), "Letter": (216, 279)}
MARGIN = 12
UNDRAWN = "[...document.querySelectorAll('.view:not([hidden]) .chart:not([data-drawn=done])')].filter(c => !c.closest('.away')).length"

HELD = "window.requestIdleCallback = goOn => { window.goOn = goOn; }"
"""The page draws its first chart and then waits, as on a busy machine."""
GO_ON = "window.requestIdleCallback = goOn => setTimeout(goOn, 0); window.goOn()"


@pytest.fixture(scope="module")
def file(page_of_runs: Path) -> str:
    return page_of_runs.as_uri()


def sheets(pdf: bytes) -> int:
    return len(re.findall(rb"/Type /Page\b", pdf))


@pytest.mark.slow
def test_a_page_printed_at_once_has_every_chart(browser: Any, file: str) -> None:
    """Charts are drawn one by one after the page opens. A printer does not wait for that, so that most of them were missing."""
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.add_init_script(  # before the page's own script, which then goes back to the screen
        f"window.addEventListener('afterprint', () => {{ window.left = {UNDRAWN}; }}); {HELD}"
    )
    page.goto(file, wait_until="domcontentloaded")
    left = page.evaluate(UNDRAWN)
    at_once = page.pdf(format="A4")
    assert left > 10, "the page was printed before its charts were drawn"
    assert page.evaluate("window.left") == 0
    page.evaluate(GO_ON)
    page.evaluate("fedcohort.ready")
    later = page.pdf(format="A4")
    assert sheets(at_once) == sheets(later)
    assert len(at_once) == pytest.approx(len(later), rel=0.01), "both have the same charts"
    page.close()


@pytest.mark.slow
def test_charts_are_drawn_for_programs_that_ask_for_the_look_on_paper(browser: Any, file: str) -> None:
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.add_init_script(HELD)
    page.goto(file, wait_until="domcontentloaded")
    before = page.evaluate(UNDRAWN)
    page.emulate_media(media="print")
    assert before > 10
    page.wait_for_function(f"{UNDRAWN} === 0", timeout=10_000)  # charts beyond the window are drawn on paper only
    page.close()


@pytest.mark.parametrize("name", SHEETS)
def test_sheets_are_filled(browser: Any, file: str, name: str) -> None:
    """A table or a figure that begins on a new sheet leaves the rest of the last one empty: small ones only may do so."""
    watched = Watched(browser)
    page = watched.open(file)
    width, height = ((side - 2 * MARGIN) * MILLIMETER for side in SHEETS[name])
    number = sheets(page.pdf(format=name))
    page.emulate_media(media="print")
    page.evaluate(f"document.body.style.width = '{width}px'")
    page.wait_for_function(f"{UNDRAWN} === 0", timeout=10_000)
    content = page.evaluate("document.body.scrollHeight")
    assert content / ((number - 0.5) * height) > 0.86, "the last sheet can be any"
    results = page.evaluate("document.querySelector('#results').getBoundingClientRect().bottom")
    assert results < height, "the first sheet has the results"
    page.close()


def test_figures_stand_side_by_side_on_paper(browser: Any, file: str) -> None:
    """A sheet is narrower than a tablet, but figures that fill half of a screen fill half of it, too."""
    watched = Watched(browser)
    page = watched.open(file)
    reasons = "[...new Set([...document.querySelectorAll('#reasons figure:not(.away)')].map(f => f.getBoundingClientRect().left))]"
    drawing = "document.querySelector(`#figure-${key} .view:not([hidden]) svg`).viewBox.baseVal"
    size = f"key => {{ const box = {drawing}; return [box.width, box.height]; }}"
    charts = "accuracy", "terms-ucb", "raster"
    on_screen = [page.evaluate(size, key) for key in charts]
    assert page.evaluate(f"{reasons}.length") == 1
    page.emulate_media(media="print")
    page.wait_for_function(f"{UNDRAWN} === 0", timeout=10_000)
    page.evaluate("document.body.style.width = '703px'")
    assert page.evaluate(f"{reasons}.length") == 2, (
        "reasons stand in two columns, since each of them filled half of a sheet"
    )
    (wide, low), (narrow, _), panel = (page.evaluate(size, key) for key in charts)
    assert low == pytest.approx(on_screen[0][1] - 60, abs=10), "so that another figure fits the sheet"
    assert narrow < 0.55 * wide, "its letters are as large as those of others"
    assert panel[1] == on_screen[2][1]
    halves = page.evaluate(
        "[...document.querySelectorAll('#federation figure.half:not(.away)')].map(f => f.getBoundingClientRect().left)"
    )
    assert len(set(halves)) == 2
    page.emulate_media(media="screen")
    page.evaluate("document.body.style.width = ''")
    as_before = json.dumps(on_screen, separators=(",", ":"))
    sizes = f"JSON.stringify({json.dumps(charts)}.map({size}))"
    page.wait_for_function(f"{sizes} === '{as_before}'", timeout=10_000)  # the charts are drawn anew one by one
    assert page.evaluate(f"{reasons}.length") == 1
    page.close()


def test_the_table_of_clients_names_its_strategy_on_paper(browser: Any, file: str) -> None:
    """The list to choose from was left out, and with it the name of the strategy."""
    page = Watched(browser).open(file)
    page.emulate_media(media="print")
    chosen = page.locator("figure:not(.away) .sheet .of")
    assert chosen.evaluate("label => getComputedStyle(label).display") != "none"
    assert chosen.locator("select").evaluate("s => s.selectedOptions[0].textContent") == "uniform"
    views = page.locator("#reasons figure:not(.away) .switch :checked + span")
    assert views.count() > 0
    lines = "spans => spans.map(span => span.getBoundingClientRect().height / parseFloat(getComputedStyle(span).lineHeight))"
    page.evaluate("document.body.style.width = '703px'")
    assert max(views.evaluate_all(lines)) < 1.6, "the name of a view is not broken, as score was"
    page.close()


@pytest.mark.slow
def test_reproduction_is_open_on_paper_and_closed_again_on_the_screen(browser: Any, file: str) -> None:
    """Printed pages had the headings of Reproduction only. Of the settings, they have all of the first row, and what differs."""
    page = Watched(browser).open(file)
    seen = "[...d.querySelectorAll('dl, pre')].filter(e => e.offsetParent).length"
    shown = f"[...document.querySelectorAll('details.how')].map(d => [d.open, d.open ? {seen} : 0])"
    assert page.evaluate(shown) == [[False, 0]] * 3
    page.evaluate("document.querySelectorAll('details.how')[1].open = true")
    page.emulate_media(media="print")
    page.wait_for_function("[...document.querySelectorAll('details.how')].every(d => d.open)")
    assert page.evaluate(shown) == [[True, 2], [True, 1], [True, 1]]
    differing = page.locator("details.how").nth(2).locator("dt", has_text="Differs from 'uniform' in")
    assert differing.locator("+ dd").inner_text().startswith("selection.name = select_by_loss")
    own = [page.locator("details.how").nth(i).locator("dt:visible").all_inner_texts() for i in range(3)]
    assert own[0] == ["Repeat", "Versions", "Data", "Run"]
    assert own[1] == ["Run", "Differs from 'uniform' in"], (
        "100 rows took 14 sheets with what is the same in all of them"
    )
    assert "Of all rows but the first, this print has the keys of their runs" in page.locator("#how").inner_text()
    page.emulate_media(media="screen")
    page.wait_for_function("![...document.querySelectorAll('details.how')].every(d => d.open)")
    assert [is_open for is_open, _ in page.evaluate(shown)] == [False, True, False]
    page.close()


def test_a_heading_stays_whole_on_paper(browser: Any, file: str) -> None:
    """The last word of a long heading began the next column."""
    page = Watched(browser).open(file)
    page.emulate_media(media="print")
    broken = (
        "[...document.querySelectorAll('h2, h3, h4')].filter(h => getComputedStyle(h).breakInside !== 'avoid').length"
    )
    assert page.locator("h3").count() > 3
    assert page.evaluate(broken) == 0
    page.close()
