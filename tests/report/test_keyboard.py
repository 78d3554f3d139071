"""Pages by keyboard: a control keeps the focus while parts of the page are replaced, is not covered, and has a name of its own."""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedcohort.report.data.report_data import find_runs, gather
from fedcohort.report.live.live_server import serve
from fedcohort.report.page import page as report
from tests.records import played, written
from tests.report.test_browser import SHORT_WAITS, Watched, browser, cut, watch
from tests.report.test_browser import pytestmark as needs_chromium

__all__ = ["browser"]

pytestmark = [needs_chromium]

FOCUSED = """(() => { const e = document.activeElement, box = e.getBoundingClientRect(), bar = document.querySelector('.bar');
    return {name: e.tagName + ' ' + e.className, top: box.top, body: e === document.body,
            inside: bar.contains(e), bar: bar.getBoundingClientRect().bottom}; })()"""


@pytest.fixture(scope="module")
def opened(browser: Any, page_of_runs: Path) -> Iterator[Any]:
    watched = Watched(browser, reduced_motion="reduce")
    yield watched.open(page_of_runs.as_uri())
    assert watched.complaints == []
    watched.page.close()


def test_the_list_of_strategies_of_a_table_keeps_the_focus(opened: Any) -> None:
    """The table is filled anew, with its list: after the first arrow key, the next one scrolled the page."""
    chosen = opened.locator("select.sheet-of").first
    options = chosen.evaluate("list => [...list.options].map(option => option.value)")
    chosen.focus()
    for label in options[1:]:
        opened.keyboard.press("ArrowDown")
        assert chosen.input_value() == label
        assert opened.evaluate("document.activeElement.className") == "sheet-of"


def test_the_bar_does_not_cover_what_has_the_focus(opened: Any) -> None:
    """Backwards, controls scrolled to the upper end of the window, where the bar of the strategies lies over them."""
    opened.locator("#how summary").first.focus()
    covered = []
    for _ in range(130):
        opened.keyboard.press("Shift+Tab")
        at = opened.evaluate(FOCUSED)
        if not at["body"] and not at["inside"] and 0 < at["bar"] < 300 and at["top"] < at["bar"]:
            covered.append(at)
    assert covered == []


COVERED = """(() => { const e = document.activeElement, table = e.closest('table');
    if (!table || e.closest('tr > :first-child')) return '';
    const names = table.querySelector('thead th').getBoundingClientRect();
    return e.getBoundingClientRect().right <= names.right + 4 ? table.id + ': ' + e.textContent : ''; })()"""
"""The control that has the focus, if the names of the rows of its table lie over it."""


def test_the_names_of_rows_do_not_cover_what_has_the_focus(browser: Any, page_of_runs: Path) -> None:
    """On phones, headings scrolled to the left end of their table, where the names of its rows stay."""
    page = Watched(browser, reduced_motion="reduce", viewport={"width": 375, "height": 700}).open(page_of_runs.as_uri())
    page.locator("#wall .sort").last.focus()
    found = []
    for _ in range(60):
        page.keyboard.press("Shift+Tab")
        found.append(page.evaluate(COVERED))
    assert [one for one in found if one] == []
    page.close()


def test_the_head_of_a_long_table_does_not_cover_what_has_the_focus(browser: Any, tmp_path: Path) -> None:
    """Backwards, names of rows scrolled to the upper end of their table, where its head stays."""
    rounds = [played(t, [0, 1]) for t in (1, 2)]
    kinds = ["uniform", *({"name": "powd", "d": number} for number in range(3, 32))]
    runs = [written(tmp_path / f"{i}", rounds, label=f"row {i}", selection=kind) for i, kind in enumerate(kinds)]
    (tmp_path / "page.html").write_text(report(gather(runs)), encoding="utf-8")
    watched = Watched(browser, reduced_motion="reduce", viewport={"width": 1200, "height": 700})
    page = watched.open((tmp_path / "page.html").as_uri())
    page.locator("#results tbody .light").last.focus()
    covered = []
    for _ in range(29):
        page.keyboard.press("Shift+Tab")
        head, name = page.evaluate(
            "['#results thead th', ':focus'].map(e => document.querySelector(e).getBoundingClientRect().bottom)"
        )
        covered += [name] if name <= head + 4 else []
    assert page.locator(":focus").inner_text() == "row 0"
    assert covered == []
    page.close()


@pytest.mark.parametrize("width", [1200, 800])
def test_headings_stand_below_the_bar_after_a_link_to_their_section(
    browser: Any, page_of_runs: Path, width: int
) -> None:
    """Where strategies need several lines, the bar covered the heading."""
    page = Watched(browser, reduced_motion="reduce", viewport={"width": width, "height": 700}).open(
        page_of_runs.as_uri()
    )
    page.evaluate(
        """() => { const list = document.querySelector('.strategies');
        for (let i = 0; i < 60; i++) list.append(list.children[i % 3].cloneNode(true));
        dispatchEvent(new Event('resize')); }"""
    )
    page.locator('.contents a[href="#participation"]').click()
    page.wait_for_timeout(100)
    heading = page.evaluate("document.getElementById('title-participation').getBoundingClientRect().top")
    bar = page.evaluate("document.querySelector('.bar').getBoundingClientRect().bottom")
    assert 0 < bar < heading < bar + 60
    page.close()


def test_buttons_that_save_a_figure_name_it(opened: Any) -> None:
    """All of them were called SVG or CSV."""
    names = opened.evaluate(
        "[...document.querySelectorAll('figure:not(.away) [data-save]')].filter(b => !b.closest('.part-of'))"
        ".map(button => button.ariaLabel)"
    )
    assert len(names) > 20
    assert "SVG of Test accuracy" in names
    assert [name for name, times in Counter(names).items() if times > 1] == []


@pytest.mark.slow
def test_the_live_page_keeps_the_focus(browser: Any, runs: Path, tmp_path: Path) -> None:
    """With every round, readers who used the keyboard were back at the beginning of the page."""
    source, target = find_runs([runs])[0].path, tmp_path / "runs" / "one"
    shutil.copytree(source, target)
    cut(target, 3)
    server = serve(tmp_path / "runs", 0)
    watch(server)
    watched = Watched(browser)
    watched.page.add_init_script(SHORT_WAITS)
    page = watched.open(server.address)
    for rounds, selector in (
        (8, "#results .sort >> nth=2"),
        (4, '#figure-accuracy .switch input[value="1"]'),
        (8, '#figure-loss [data-save="csv"]'),
        (5, ".controls input[name=log]"),
        (8, "details.how summary"),
        (6, ".scroll:has(#results)"),
    ):
        control = page.locator(selector).first
        control.focus()
        before = control.element_handle()
        if rounds == 8:
            shutil.copy(source / "run.sqlite", target / "run.sqlite")
        else:
            cut(target, rounds)
        page.wait_for_function(f"fedcohort.data.accuracy_rounds.length === {rounds}", timeout=15000)
        assert not before.evaluate("control => control.isConnected"), "the page was renewed"
        assert control.evaluate("control => control === document.activeElement"), selector
    assert watched.complaints == []
    server.shutdown()
    server.server_close()
    page.close()
