"""Tables of the page as a printer gets them."""

from pathlib import Path
from typing import Any

import pytest

from tests.report.test_browser import browser
from tests.report.test_browser import pytestmark as needs_chromium

__all__ = ["browser"]

pytestmark = [needs_chromium, pytest.mark.slow]  # some seconds in a browser

PADDING = "[...document.querySelectorAll('#results td[data-field^=bytes]')].map(x => parseFloat(getComputedStyle(x).paddingLeft))"


@pytest.mark.slow
def test_columns_of_bytes_have_space_for_the_mark_of_the_best(browser: Any, page_of_runs: Path) -> None:
    page = browser.new_page(viewport={"width": 703, "height": 900})
    page.goto(page_of_runs.as_uri())
    page.emulate_media(media="print")
    paddings = page.evaluate(PADDING)
    assert paddings
    assert min(paddings) >= 9, "the mark hangs 0.7em, about 6 pixels, into it"
    assert page.evaluate("document.documentElement.scrollWidth") <= 703
    table = page.locator("#results")
    assert table.evaluate("table => getComputedStyle(table).breakInside") == "avoid", "a short table stays on one sheet"
    spread = (
        "[...document.querySelectorAll('#results td[data-field=accuracy]')].map(x => getComputedStyle(x).whiteSpace)"
    )
    assert set(page.evaluate(spread)) == {"nowrap"}
    mark = page.locator("#results tbody tr", has=page.locator(".ours"))
    assert mark.locator(".ours").evaluate("mark => getComputedStyle(mark, '::after').content") == '"°"'
    assert mark.evaluate("row => row.getBoundingClientRect().height") < 20, "the words took a second line"
    said = page.locator("#result .note").first.inner_text()
    assert "° marks rows with a part" in said
    assert "pointer" not in said
    page.close()
