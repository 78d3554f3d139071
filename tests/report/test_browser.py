"""The report in a real browser: drawn without an error, usable by keyboard, on a phone, in the dark, on paper, and by everybody.

Needs Chromium (``apt-get install chromium``, or any whose path is in ``FEDCOHORT_BROWSER``); skipped without it.
"""

import csv
import itertools
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from fedcohort.experiment.given_objects import Given
from fedcohort.record.database import SEALED
from fedcohort.report.data.report_data import find_runs, gather
from fedcohort.report.federation_page import pictures
from fedcohort.report.live.live_server import serve
from fedcohort.report.page import page as report
from fedcohort.runs.prepare_run import look
from tests.experiments import small
from tests.records import seal_again
from tests.repetitions import slow_after
from tests.report.test_page import hostile

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = os.environ.get("FEDCOHORT_BROWSER") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")

MARKS = """place => [...place.querySelectorAll('[class*="role-mark"] > :not(g)')]
    .filter(mark => mark.getAttribute('display') !== 'none').length"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


class Watched:
    """A page, and everything that went wrong on it or left the machine."""

    def __init__(self, browser: Any, **settings: Any) -> None:
        self.page = browser.new_page(**{"viewport": {"width": 1200, "height": 900}, **settings})
        self.complaints: list[str] = []
        self.addresses: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.addresses.append(request.url))

    def open(self, address: str) -> Any:
        self.page.goto(address)
        self.page.evaluate("fedcohort.ready")
        return self.page

    def empty_charts(self) -> list[str]:
        charts = "[...document.querySelectorAll('.view:not([hidden]) .chart')].filter(c => !c.closest('.away'))"
        return list(self.page.evaluate(f"{charts}.filter(c => !({MARKS})(c)).map(c => c.dataset.chart)"))


@pytest.fixture(scope="module")
def file(page_of_runs: Path) -> str:
    return page_of_runs.as_uri()


@pytest.fixture(scope="module")
def opened(browser: Any, file: str) -> Iterator[Watched]:
    watched = Watched(browser)
    watched.open(file)
    yield watched
    watched.page.close()


@pytest.mark.slow
@pytest.mark.parametrize("width", [1200, 375])
def test_pages_keep_room_for_charts_that_are_not_drawn_yet(browser: Any, file: str, width: int) -> None:
    """Sections moved down by thousands of pixels while the charts before them were drawn, and later by hundreds, for legends."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(file, wait_until="domcontentloaded")
    places = "['federation', 'participation', 'cost', 'how'].map(id => document.getElementById(id).offsetTop)"
    before = page.evaluate(places)
    page.evaluate("fedcohort.ready")
    after = page.evaluate(places)
    assert after == pytest.approx(before, rel=0.01)
    page.close()


def test_every_chart_is_drawn_with_marks_and_nothing_complains(opened: Watched) -> None:
    assert opened.page.evaluate("document.querySelectorAll('.view:not([hidden]) .chart').length") >= 25
    assert opened.empty_charts() == []
    assert opened.page.evaluate("fedcohort.problems") == []
    assert opened.complaints == []
    assert [address for address in opened.addresses if not address.startswith(("file:", "blob:", "data:"))] == []


def test_the_table_shows_the_numbers_behind_it(opened: Watched, runs: Path) -> None:
    shown = opened.page.locator("#results tbody tr").first
    group = [run for run in find_runs([runs]) if run.meta["label"] == "uniform"]
    mean = sum(run.query("SELECT test_accuracy FROM rounds ORDER BY round DESC LIMIT 1")[0][0] for run in group) / 3
    assert shown.locator('[data-field="accuracy"] strong').inner_text() == f"{100 * mean:.1f}"
    assert float(shown.locator('[data-field="accuracy"]').get_attribute("data-value")) == pytest.approx(mean)


@pytest.mark.slow
def test_every_switch_shows_another_view_with_marks(opened: Watched) -> None:
    page = opened.page
    figures = page.evaluate(
        "[...document.querySelectorAll('figure:not(.away):has(.switch)')].map(f => f.dataset.figure)"
    )
    assert len(figures) >= 6
    for key in figures:
        radios = page.locator(f'figure[data-figure="{key}"] .switch input')
        for position in reversed(range(radios.count())):
            radios.nth(position).check(force=True)
            page.evaluate("fedcohort.drawAll()")
            views = f"""[...document.querySelectorAll('figure[data-figure="{key}"] .view')]"""
            seen = page.evaluate(f"{views}.map(v => [v.hidden, [...v.querySelectorAll('.chart')].map({MARKS})])")
            assert [hidden for hidden, _ in seen] == [i != position for i in range(len(seen))]
            assert all(seen[position][1]), f"{key}, view {position}: {seen[position][1]}"
    assert opened.complaints == []


def test_strategies_can_be_hidden_everywhere(opened: Watched) -> None:
    page = opened.page
    lines = "document.querySelectorAll('#figure-accuracy .view:not([hidden]) .mark-line path').length"
    panels = "[...document.querySelectorAll('#figure-selections .panel')].filter(p => p.offsetParent).length"
    before = page.evaluate(lines), page.evaluate(panels)
    page.locator('.strategies input[value="UCB"]').uncheck()
    page.wait_for_function(f"{lines} === {before[0] - 1}")
    assert page.evaluate(panels) == before[1] - 1
    assert page.locator("#results tr.off").count() == 1
    page.locator('.strategies input[value="UCB"]').check()
    page.wait_for_function(f"{lines} === {before[0]}")
    assert opened.complaints == []


def test_values_show_at_the_pointer(opened: Watched) -> None:
    page = opened.page
    chart = page.locator("#figure-accuracy .view:not([hidden]) svg").first
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 0.5 * box["height"])
    page.mouse.move(box["x"] + 0.42 * box["width"], box["y"] + 0.5 * box["height"])
    tooltip = page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for(timeout=5000)
    assert "test accuracy" in tooltip.inner_text()
    page.mouse.move(2, 2)


def test_every_control_is_reached_by_keyboard(opened: Watched) -> None:
    page = opened.page
    groups = page.evaluate(
        "new Set([...document.querySelectorAll('.switch input')].filter(i => !i.closest('.away')).map(i => i.name)).size"
    )
    others = page.evaluate(
        "[...document.querySelectorAll('a[href], .strategies input, button, summary, [tabindex=\"0\"]')]"
        ".filter(e => !e.closest('.away')).length"
        " - document.querySelectorAll('details:not([open]) [tabindex]').length"
    )
    page.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
    page.mouse.click(3, 3)
    reached = set()
    for _ in range(groups + others + 5):
        page.keyboard.press("Tab")
        reached.add(page.evaluate(
            "(() => { const e = document.activeElement; e.dataset.stop = e.dataset.stop || String(Math.random());"
            " return e.type === 'radio' ? e.name : e.tagName === 'BODY' ? 'body' : e.dataset.stop; })()"))  # fmt: skip
    assert len(reached - {"body"}) >= groups + others
    page.locator('#figure-accuracy .switch input[value="0"]').focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.querySelector('#figure-accuracy .switch input:checked').value") == "1"
    assert (
        page.evaluate("getComputedStyle(document.querySelector('.switch input:focus + span')).outlineStyle") == "solid"
    )
    page.keyboard.press("ArrowLeft")


def test_it_prints(opened: Watched) -> None:
    printed = opened.page.pdf(format="A4")
    assert printed.startswith(b"%PDF")
    assert len(printed) > 50_000


def test_charts_that_are_not_drawn_say_so_on_paper(opened: Watched) -> None:
    """They were blank, without a word, if a page was printed before all of its charts were drawn."""
    page = opened.page
    page.emulate_media(media="print")
    missing = "getComputedStyle(document.querySelector('.view:not([hidden]) .chart'), '::before').content"
    assert page.evaluate(missing) == "none"
    page.evaluate("delete document.querySelector('.view:not([hidden]) .chart').dataset.drawn")
    assert "not drawn yet when the page was printed" in page.evaluate(missing)
    page.evaluate("document.querySelector('.view:not([hidden]) .chart').dataset.drawn = 'done'")
    page.emulate_media(media="screen")


def test_heads_of_tables_are_repeated_on_paper(opened: Watched) -> None:
    """Browsers repeat a head on each page only if it cannot be broken, and leave controls out of it."""
    page = opened.page
    page.emulate_media(media="print")
    assert set(
        page.evaluate("[...document.querySelectorAll('main thead')].map(h => getComputedStyle(h).breakInside)")
    ) == {"avoid"}
    assert page.locator("main thead :is(button, input, select)").count() == 0
    page.emulate_media(media="screen")


@pytest.mark.slow
def test_nothing_is_cut_on_paper(opened: Watched) -> None:
    """On A4 with its margins, tables fit, and charts that became narrower have no empty space above and below."""
    page = opened.page
    page.set_viewport_size({"width": 703, "height": 1000})
    page.emulate_media(media="print")
    wide = "[...document.querySelectorAll('main table')].filter(t => t.getBoundingClientRect().right > innerWidth + 1).map(t => t.id)"
    assert page.evaluate(wide) == []
    ratios = """[...document.querySelectorAll('.view:not([hidden]) .chart svg')].filter(s => s.clientWidth).map(s => {
        const box = s.getBoundingClientRect(), own = s.viewBox.baseVal;
        return (box.height / box.width) / (own.height / own.width); })"""
    drawn = page.evaluate(ratios)
    assert len(drawn) >= 10
    assert all(0.98 < ratio < 1.02 for ratio in drawn)
    page.emulate_media(media="screen")
    page.set_viewport_size({"width": 1200, "height": 900})


def at_rest(box: Any) -> bytes:
    """A picture of an element of the page, when two in a row are equal: charts beside it may still be drawn."""
    before = b""
    for _ in range(20):
        now: bytes = box.screenshot(animations="disabled")
        if now == before:
            break
        before = now
        box.page.wait_for_timeout(100)
    return now


@pytest.mark.slow
def test_lists_and_tables_that_do_not_scroll_have_no_shade(opened: Watched) -> None:
    """Faint stripes stood behind the list of strategies, and beside and below tables, as if there were more."""
    page = opened.page
    for selector in (".strategies", ".scroll:has(#results)", ".scroll.sheet"):
        box = page.locator(selector).first
        box.scroll_into_view_if_needed()
        shaded = at_rest(box)
        box.evaluate("box => { box.style.background = 'none'; }")
        assert at_rest(box) == shaded, selector
        box.evaluate("box => { box.style.background = ''; }")


@pytest.mark.parametrize("scheme", slow_after(1, ["dark", "light"]))
def test_everybody_can_read_it(browser: Any, file: str, scheme: str) -> None:
    """Contrast, names and roles, as axe-core judges them; in the dark the page is dark."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    watched = Watched(browser, color_scheme=scheme)
    page = watched.open(file)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 24, 29)")
    found = axe.Axe().run(page).response["violations"]
    assert [(one["id"], [node["html"][:120] for node in one["nodes"][:3]]) for one in found] == []
    assert watched.empty_charts() == []
    page.close()


def test_costs_that_only_some_seeds_have_do_not_make_the_table_of_results_too_wide(browser: Any, file: str) -> None:
    """A race gives most rows other seeds, so that all costs of the target have a number of seeds, and all scores their seeds."""
    watched = Watched(browser)
    page = watched.open(file)
    fits = """texts => {
        const table = document.querySelector("#results"), rows = [...table.tBodies[0].rows].slice(0, 4);
        table.className = "wide";
        for (const row of rows) for (const [field, text] of Object.entries(texts))
            row.querySelector(`[data-field=${field}]`).innerHTML = text;
        return [table.parentElement.scrollWidth, table.parentElement.clientWidth];
    }"""
    texts = {
        "accuracy": "<strong>48.7</strong> <span class=sd>± 15.5</span><br><small>seeds 0 to 29</small>",
        "difference": "−11.5 <small>[−11.5, +12.9]</small>",
        "p_holm": "not clear, 0.91",
        "rounds_to_target": "5.3 (18/30)",
        "time_to_target": "1,317 (18/30)",
        "bytes_to_target": "812 kB (18/30)",
        "bytes": "924 kB",
        "wall_seconds": "0.090 s",
    }
    needed, room = page.evaluate(fits, texts)
    assert needed <= room
    page.close()


def test_a_phone_is_wide_enough(browser: Any, file: str) -> None:
    watched = Watched(browser, viewport={"width": 375, "height": 700})
    page = watched.open(file)
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    wide = page.evaluate(
        "[...document.querySelectorAll('figure')].filter(f => f.getBoundingClientRect().right > 376).map(f => f.id)"
    )
    assert wide == []
    cut = """[...document.querySelectorAll('.view:not([hidden]) svg text')].filter(text => text.textContent &&
        text.getBoundingClientRect().right > text.closest('svg').getBoundingClientRect().right + 2).map(text => text.textContent)"""
    assert page.evaluate(cut) == []
    heights = "[...document.querySelectorAll('#ledger tbody tr')].map(row => row.getBoundingClientRect().height)"
    assert max(page.evaluate(heights)) < 140, "words about disclosure are not squeezed into a narrow column"
    assert watched.empty_charts() == []
    assert watched.complaints == []
    page.close()


@pytest.mark.slow
def test_pictures_of_clients_fit_a_phone_and_pies_are_one_file(browser: Any, tmp_path: Path) -> None:
    experiment = small(federation={"clients": 20, "partition": {"name": "dirichlet_client", "min_size": 1}}).single(0)
    file = tmp_path / "clients.html"
    file.write_text(pictures(experiment, *look(experiment, Given())), encoding="utf-8")
    watched = Watched(browser, viewport={"width": 375, "height": 700})
    page = watched.open(file.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    cut = """[...document.querySelectorAll('.view:not([hidden]) svg text')].filter(text =>
        text.getBoundingClientRect().right > text.closest('svg').getBoundingClientRect().right + 1).map(text => text.textContent)"""
    assert page.evaluate(cut) == []
    legend = (
        "[...document.querySelectorAll('#figure-class-shares .role-legend-label text')].map(text => text.textContent)"
    )
    assert page.evaluate(legend) == list("0123456789")
    labels = """[...document.querySelectorAll('#figure-class-shares .view:not([hidden]) .role-axis-label text')].filter(text =>
        /^[0-9]+$/.test(text.textContent) && text.getAttribute('opacity') !== '0').map(text => {
            const box = text.getBoundingClientRect(); return (box.left + box.right) / 2; })"""
    places = page.evaluate(labels)
    gaps = [after - before for before, after in itertools.pairwise(places)]
    assert len(gaps) >= 4
    assert max(gaps) - min(gaps) < 2, "numbers of clients stand at even distances"
    page.locator('#figure-class-shares .switch input[value="1"]').check(force=True)
    page.evaluate("fedcohort.drawAll()")
    for kind in ("svg", "csv"):
        with page.expect_download() as download:
            page.locator(f'#figure-class-shares [data-save="{kind}"]').click()
        text = Path(download.value.path()).read_text(encoding="utf-8")
        if kind == "svg":
            assert download.value.suggested_filename == "class-shares-pies.svg", "it was class-shares.1.svg"
            words = {
                "".join(node.itertext())
                for node in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}text")
            }
            assert len([word for word in words if word.startswith("client ")]) == 20
            assert "var(" not in text
        else:
            assert len({row["client"] for row in csv.DictReader(text.splitlines())}) == 20
    assert watched.complaints == []
    page.close()


def test_hostile_names_do_no_harm(browser: Any, tmp_path: Path) -> None:
    hostile(tmp_path / "runs")
    file = tmp_path / "report.html"
    file.write_text(report(gather(find_runs([tmp_path / "runs"]))), encoding="utf-8")
    watched = Watched(browser)
    page = watched.open(file.as_uri())
    assert page.evaluate("window.hurt") is None
    assert watched.complaints == []
    assert watched.empty_charts() == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 1200
    assert page.locator("h1").inner_text() == "<script>window.hurt=1</script>"
    page.close()


def test_the_live_page_follows_and_comes_back(browser: Any, runs: Path, tmp_path: Path) -> None:
    source = find_runs([runs])[0].path
    target = tmp_path / "runs" / "one"
    shutil.copytree(source, target)
    cut(target, 3)
    server = serve(tmp_path / "runs", 0)
    port, token = server.server_port, server.live.token
    watch(server)
    watched = Watched(browser)
    watched.page.add_init_script(SHORT_WAITS)
    page = watched.open(server.address)
    drawn = "fedcohort.data.accuracy_rounds.length"
    assert page.evaluate(drawn) == 3
    page.locator('#figure-accuracy .switch input[value="2"]').check(force=True)
    shutil.copy(source / "run.sqlite", target / "run.sqlite")
    page.wait_for_function(f"{drawn} === 8", timeout=15000)
    assert page.locator('#figure-accuracy .switch input[value="2"]').is_checked(), "what was chosen stays"
    assert watched.complaints == []
    cut(target, 5)
    page.wait_for_function(f"{drawn} === 5", timeout=15000)
    assert "stopped" not in page.locator("#status").inner_text()
    os.utime(target / "run.sqlite", (then := time.time() - 200, then))
    quiet = "No new round of 'uniform' (seed 0) for 3 minutes. If the command that plays it was stopped, start it again"
    page.wait_for_function(f"document.querySelector('#status.quiet')?.innerText.includes({quiet!r})", timeout=9000)
    shutil.copy(source / "run.sqlite", target / "run.sqlite")
    page.wait_for_function(f"{drawn} === 8", timeout=15000)
    page.wait_for_function("!document.getElementById('status').innerText.includes('No new round')", timeout=9000)
    server.live.token = "another"
    page.wait_for_function("document.getElementById('status').innerText.includes('another address')", timeout=20000)
    server.shutdown()
    server.server_close()
    page.wait_for_function("document.getElementById('status').innerText.includes('No connection')", timeout=15000)
    assert page.locator("#status.lost").count() == 1
    assert "finished runs, use fedcohort report" in page.locator("#status").inner_text()
    server = serve(tmp_path / "runs", port, token=token)
    watch(server)
    page.wait_for_selector("#status:not(.lost)", timeout=20000)
    cut(target, 6)
    page.wait_for_function(f"{drawn} === 6", timeout=15000)
    assert watched.empty_charts() == []
    server.shutdown()
    server.server_close()
    page.close()


@pytest.mark.slow
def test_the_live_page_of_several_seeds_follows_and_keeps_what_was_chosen(
    browser: Any, runs: Path, tmp_path: Path
) -> None:
    """The switch of seeds stands outside of all figures: looking for its figure ended every renewal after the first."""
    sources = [run.path for run in find_runs([runs]) if run.meta["label"] == "uniform"][:2]
    for path in sources:
        shutil.copytree(path, tmp_path / path.name)
    target = tmp_path / sources[1].name
    cut(target, 3)
    server = serve(tmp_path, 0)
    watch(server)
    watched = Watched(browser)
    watched.page.add_init_script(SHORT_WAITS)
    page = watched.open(server.address)
    assert "It is too early to say" in page.locator(".answers").inner_text()
    assert page.locator(".health").inner_text().startswith("Health: no problem so far")
    page.locator('.controls input[name="seed"][value="1"]').check(force=True)
    page.locator('.contents a[href="#cost"]').click()
    page.wait_for_function("location.hash.includes('at=cost')")
    page.locator("details.columns").first.locator("summary").click()
    page.evaluate("window.scrollTo(0, 0)")
    shutil.copy(sources[1] / "run.sqlite", target / "run.sqlite")
    page.wait_for_function("!document.querySelector('.overall')", timeout=15000)
    page.evaluate("fedcohort.drawAll()")
    assert watched.empty_charts() == []
    assert page.locator('.controls input[name="seed"][value="1"]').is_checked()
    assert "Connected" in page.locator("#status").inner_text()
    assert "too early" not in page.locator(".answers").inner_text()
    assert page.evaluate("window.scrollY") == 0, "the page stays where its reader is"
    assert page.locator("details[open]").count() == 1
    assert page.locator("details.columns").first.get_attribute("open") is not None
    assert watched.complaints == []
    server.shutdown()
    server.server_close()
    page.close()


SHORT_WAITS = (
    "const wait = setTimeout; window.setTimeout = (f, ms, ...rest) => wait(f, ms < 1000 ? ms : ms / 10, ...rest)"
)
"""The page waits seconds before it asks again; here a tenth of them."""


def watch(server: Any) -> None:
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()


def cut(path: Path, last: int) -> None:
    """A run that has played so many rounds."""
    with sqlite3.connect(path / "run.sqlite") as database:
        for table in SEALED:
            database.execute(f"DELETE FROM {table} WHERE round > ?", (last,))
        database.execute("UPDATE meta SET value = 'running' WHERE key = 'status'")
        seal_again(database)
    database.close()
