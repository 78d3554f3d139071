"""A live page that is opened before the first round: it draws everything that comes, and stays with its experiment."""

import shutil
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from fedcohort.report.data.report_data import find_runs
from fedcohort.report.live.live_server import serve
from tests.records import played, written
from tests.report.test_browser import SHORT_WAITS, Watched, browser, cut, watch
from tests.report.test_browser import pytestmark as needs_chromium

__all__ = ["browser"]

pytestmark = [needs_chromium, pytest.mark.slow]  # some seconds in a browser

HIDDEN = "[...document.querySelectorAll('#results tbody tr:first-child > [hidden]')].map(cell => cell.dataset.field)"
SORTED = "document.querySelector('#results th[aria-sort]').innerText"


def add(runs: Path, folder: Path, label: str, seed: int) -> Path:
    """A copy of a run of the comparison in another folder."""
    (run,) = [run for run in find_runs([runs]) if (run.meta["label"], run.meta["seed"]) == (label, str(seed))]
    return Path(shutil.copytree(run.path, folder / run.path.name))


@pytest.mark.slow
def test_a_page_of_no_runs_draws_those_that_come(browser: Any, runs: Path, tmp_path: Path) -> None:
    """Controls that appeared with the first runs had no value: no chart of clients was drawn. Columns were kept by their numbers,
    which are others as soon as there is a second row."""
    folder = tmp_path / "runs"
    server = serve(folder, 0)
    watch(server)
    watched = Watched(browser)
    watched.page.add_init_script(SHORT_WAITS)
    page, chosen = watched.open(server.address), Watched(browser)
    chosen.page.add_init_script(SHORT_WAITS)
    chosen.open(f"{server.address}#seed=1&off=0")
    assert page.locator("h1").inner_text() == "no run yet"
    assert page.locator("#reasons").inner_text().endswith("No round has been played yet."), "of no strategy"
    cut(add(runs, folder, "uniform", 0), 4)
    page.wait_for_selector("#figure-raster svg", timeout=15000)
    page.evaluate("fedcohort.drawAll()")
    assert page.title() == "small · FedCohort"
    assert page.locator(".controls select").input_value() == "own"
    assert watched.empty_charts() == []
    assert parse_qs(urlsplit(page.url).query)["name"] == ["small"]
    page.locator("details.columns summary").first.click()
    page.get_by_label("best round").uncheck()
    page.locator("#results th [role=button]").nth(4).click()
    assert (page.evaluate(HIDDEN), page.evaluate(SORTED)) == (["best_accuracy"], "bytes\nin total")
    add(runs, folder, "uniform", 1)
    add(runs, folder, "UCB", 1)
    page.wait_for_function("document.querySelectorAll('#results tbody tr').length === 2", timeout=15000)
    page.evaluate("fedcohort.drawAll()")
    assert (page.evaluate(HIDDEN), page.evaluate(SORTED)) == (["best_accuracy"], "bytes\nin total")
    assert "seed=" not in page.url, "nobody has chosen a seed"
    assert watched.empty_charts() == []
    chosen.page.wait_for_function("document.querySelector('#figure-raster figcaption')?.innerText.includes('Seed 1.')")
    chosen.page.evaluate("fedcohort.drawAll()")
    assert chosen.page.locator(".strategies input").first.is_checked() is False, "as its address says"
    assert chosen.empty_charts() == []
    written(folder / "other", [played(1)], name="other")
    page.wait_for_selector("nav.others", timeout=15000)
    assert page.locator("h1").inner_text() == "small", "another experiment has the latest round"
    assert watched.complaints + chosen.complaints == []
    chosen.page.close()
    server.shutdown()
    server.server_close()
    page.close()
