"""What readers choose on a page, in a real browser: seed, order of clients, axes, a strategy, columns; kept in the address."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedcohort.report.data.report_data import find_runs, gather
from fedcohort.report.page import page as report
from tests.report.test_browser import Watched, browser, pytestmark
from tests.report.test_pointer import opened_file

__all__ = ["browser", "pytestmark"]


@pytest.fixture(scope="module")
def shown(browser: Any, page_of_runs: Path) -> Iterator[Watched]:
    """The page of three strategies and three seeds."""
    yield from opened_file(browser, page_of_runs)


def choose(page: Any, script: str) -> None:
    page.evaluate(script)
    page.evaluate("fedcohort.drawAll()")


def order_by(page: Any, name: str) -> None:
    page.locator(".controls select").select_option(name)
    page.evaluate("fedcohort.drawAll()")


def texts(page: Any, selector: str) -> list[str]:
    return list(page.evaluate(f"[...document.querySelectorAll(`{selector}`)].map(e => e.textContent)"))


@pytest.mark.slow
def test_the_seed_switch_shows_single_clients_of_another_seed(shown: Watched, runs: Path) -> None:
    page = shown.page
    page.locator('.controls input[name="seed"][value="2"]').check(force=True)
    page.evaluate("fedcohort.drawAll()")
    assert page.locator("#figure-selections").is_hidden()
    figure = page.locator("#figure-selections-seed-2")
    assert figure.is_visible()
    assert "seed 2" in figure.inner_text()
    run = next(r for r in find_runs([runs]) if r.meta["label"] == "UCB" and r.meta["seed"] == "2")
    counts = [n for (n,) in run.query("SELECT COUNT(*) FROM clients GROUP BY client ORDER BY client")]
    drawn = page.evaluate(
        "fedcohort.data['selections@2'].filter(r => r.strategy === 'UCB' && r.times).map(r => r.times)"
    )
    assert drawn == counts
    assert page.evaluate("document.querySelectorAll('#figure-raster-seed-2 .mark-rect path').length") > 0
    table = page.locator("#figure-client-table-seed-2 tbody tr")
    assert table.count() == 12
    assert "seed=2" in page.evaluate("location.hash")
    page.locator('.controls input[name="seed"][value="0"]').check(force=True)
    assert page.locator("#figure-selections").is_visible()
    assert shown.complaints == []


@pytest.mark.slow
def test_a_chosen_strategy_is_highlighted_everywhere(shown: Watched) -> None:
    page = shown.page
    faint = """key => { const own = {}, lines = `#figure-${key} .view:not([hidden]) .mark-line path`;
        for (const line of document.querySelectorAll(lines))
            own[line.getAttribute("stroke")] = Number(line.getAttribute("opacity") ?? 1); return Object.values(own).sort(); }"""
    page.locator(".strategies .light[data-name=UCB]").click()
    page.wait_for_timeout(200)
    assert page.evaluate(f"({faint})('accuracy')")[:2] == [0.18, 0.18]
    assert page.evaluate(f"({faint})('accuracy')")[-1] == 1
    assert page.locator("#results tr.dim").count() == 2
    assert page.locator("#ledger tr:not(.dim) .name").first.inner_text() == "UCB"
    assert page.locator("#figure-client-table select").input_value() == "UCB"
    page.locator("#results .light[data-name=UCB]").click()
    page.wait_for_timeout(200)
    assert set(page.evaluate(f"({faint})('accuracy')")) == {1}
    assert page.locator("tr.dim").count() == 0
    assert shown.complaints == []


@pytest.mark.slow
def test_tables_sort_and_columns_can_be_hidden(shown: Watched) -> None:
    page = shown.page
    numbers = "[...document.querySelectorAll('#results tbody [data-field=accuracy]')].map(c => Number(c.dataset.value))"
    before = page.evaluate(numbers)
    head = page.locator("#results thead .sort").nth(1)
    head.click()
    assert page.evaluate(numbers) == sorted(before, reverse=True)
    head.click()
    assert page.evaluate(numbers) == sorted(before)
    assert page.locator("#results th[aria-sort=ascending]").count() == 1
    head.focus()
    page.keyboard.press("Enter")
    assert page.evaluate(numbers) == before
    best = page.evaluate(
        "[...document.querySelectorAll('#results td.best[data-field=accuracy]')].map(c => Number(c.dataset.value))"
    )
    assert best == [max(before)]
    boxes = page.locator("details.columns").first
    boxes.locator("summary").click()
    boxes.locator("input").first.uncheck()
    assert page.locator("#results td[data-field=accuracy]").first.is_hidden()
    assert page.locator("#results td[data-field=bytes]").first.is_visible()
    assert "columns-results=1" in page.evaluate("location.hash")
    boxes.locator("input").first.check()
    boxes.locator("summary").click()


@pytest.mark.slow
def test_clients_are_ordered_and_axes_become_logarithmic(shown: Watched) -> None:
    page = shown.page
    order_by(page, "times")
    heights = "[...document.querySelectorAll('#figure-selections [data-strategy=loss] .mark-rect.layer_2_marks path')]"
    heights += ".map(p => p.getBoundingClientRect()).sort((a, b) => a.x - b.x).map(b => Math.round(b.height))"
    drawn = page.evaluate(heights)
    assert len(drawn) == 12
    assert drawn == sorted(drawn, reverse=True)
    assert "client, most often selected first" in texts(page, "#figure-raster text"), "each panel is about its own row"
    assert "client, most often selected first,by all strategies together" in texts(
        page, "#figure-classes-of-clients text"
    )
    choose(page, "document.querySelector('.controls input[name=log]').click()")
    assert "round (log)" in texts(page, "#figure-loss text")
    names = {text.rstrip(" ↑↓") for text in texts(page, "#figure-loss text")}
    assert {"uniform", "UCB", "loss"} <= names, "names at the ends of lines stay, at places of their own"
    assert "test accuracy (log)" not in texts(page, "#figure-accuracy text"), "an accuracy has no logarithmic axis"
    assert "round (log)" in texts(page, "#figure-jain text")
    assert "Jain's index" in texts(page, "#figure-jain text"), "an index neither"
    choose(page, "document.querySelector('.controls input[name=log]').click()")
    order_by(page, "own")
    assert page.evaluate("location.hash") == ""
    assert shown.complaints == []


@pytest.mark.slow
def test_an_address_restores_the_page(browser: Any, shown: Watched) -> None:
    address = shown.page.url.partition("#")[0]
    watched = Watched(browser)
    chosen = (
        "at=cost&seed=1&order=size&log=1&strategy=loss&off=0&view-loss=1&sort-results=1.descending&columns-results=2.3"
        "&sort-clients-figure-client-table-seed-1=2.ascending&of-figure-client-table-seed-1=UCB"
    )
    page = watched.open(f"{address}#{chosen}")
    assert page.locator('.controls input[value="1"]').is_checked()
    assert page.locator(".controls select").input_value() == "size"
    assert page.locator('.strategies .light[data-name="loss"]').get_attribute("aria-pressed") == "true"
    assert page.locator(".strategies input").first.is_checked() is False
    assert page.locator("#figure-loss .view").nth(1).is_visible()
    assert page.locator("#results th[aria-sort=descending]").count() == 1
    assert page.locator("#results th").nth(2).is_hidden()
    assert page.locator("#figure-raster-seed-1").is_visible()
    clients = page.locator("#figure-client-table-seed-1")
    assert clients.locator("select").input_value() == "UCB"
    assert clients.locator("th").nth(2).get_attribute("aria-sort") == "ascending"
    clients.locator("select").select_option("loss")
    assert "of-figure-client-table-seed-1=loss" in page.evaluate("location.hash")
    assert clients.locator("th").nth(2).get_attribute("aria-sort") == "ascending"
    assert watched.empty_charts() == []
    page.locator("#figure-loss .switch input").first.check(force=True)
    assert "view-loss" not in page.evaluate("location.hash")
    assert "seed=1" in page.evaluate("location.hash")
    page.evaluate("location.hash = '#federation'")
    page.wait_for_function("location.hash.includes('at=federation')")
    assert "seed=1" in page.evaluate("location.hash")
    assert watched.complaints == []
    page.close()


@pytest.mark.slow
def test_without_scripts_the_answers_and_the_tables_are_there(browser: Any, shown: Watched) -> None:
    page = browser.new_page(java_script_enabled=False)
    page.goto(shown.page.url.partition("#")[0])
    for selector in ("#results", "#fairness", "#classes", "#ledger", "#wall", ".answers", ".health"):
        assert page.locator(selector).first.is_visible(), selector
    assert page.locator(".controls").is_hidden()
    assert page.locator("noscript p").is_visible()
    page.close()


def test_the_page_holds_a_limited_number_of_seeds(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedcohort.report.page_sections.ROWS", 1)
    text = report(gather(find_runs([runs])))
    assert 'type="radio" name="seed"' not in text
    assert "figure-raster-seed-1" not in text


@pytest.mark.slow
def test_an_address_that_was_cut_within_a_letter_shows_the_page(browser: Any, shown: Watched) -> None:
    """Its end could not be decoded, and no chart was drawn."""
    watched = Watched(browser)
    page = watched.open(f"{shown.page.url.partition('#')[0]}#participation%E2%8")
    page.wait_for_function("document.querySelector('#figure-accuracy svg')")
    assert watched.complaints == []
    page.close()
