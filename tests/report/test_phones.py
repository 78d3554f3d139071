"""Pages in a window as narrow as a phone: names of lines, tooltips, the verdict, and charts on paper."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedcohort.report.data.report_data import gather
from fedcohort.report.page import page as report
from tests.experiments import UCB
from tests.records import played, written
from tests.report.headline.test_headline import runs_of
from tests.report.test_browser import Watched, browser
from tests.report.test_browser import pytestmark as needs_chromium

__all__ = ["browser"]

pytestmark = [needs_chromium, pytest.mark.slow]  # some seconds in a browser

PHONE = {"viewport": {"width": 375, "height": 700}, "has_touch": True}
SHOWN = "#figure-accuracy .view:not([hidden])"
LISTED = f"[...document.querySelectorAll('{SHOWN} .names span')].filter(s => s.offsetParent).map(s => s.textContent)"
CHART = f"{SHOWN} .chart svg"


@pytest.fixture(scope="module")
def file(page_of_runs: Path) -> str:
    return page_of_runs.as_uri()


@pytest.fixture(scope="module")
def phone(browser: Any, file: str) -> Iterator[Any]:
    watched = Watched(browser, **PHONE)
    yield watched.open(file)
    assert watched.complaints == []
    watched.page.close()


def test_lines_have_names_below_the_chart_in_the_order_of_their_ends(phone: Any) -> None:
    ends = phone.evaluate("fedcohort.data.accuracy_rounds_ends")
    in_order = [row["strategy"] for row in sorted(ends, key=lambda row: -row["y"])]
    assert len(in_order) == 3
    assert phone.evaluate(LISTED) == in_order
    phone.locator('.strategies input[value="UCB"]').uncheck()
    assert phone.evaluate(LISTED) == [name for name in in_order if name != "UCB"]
    phone.locator('.strategies input[value="UCB"]').check()
    phone.locator(f"{SHOWN} .names button", has_text="UCB").click()
    assert phone.evaluate("fedcohort.dimmed").count("uniform") == 1, "names highlight their lines"
    phone.locator(f"{SHOWN} .names button", has_text="UCB").click()


def test_names_of_lines_that_end_at_different_rounds_are_listed_in_the_order_of_the_rows(
    browser: Any, tmp_path: Path
) -> None:
    """The values of different rounds are no order."""
    runs = [
        written(
            tmp_path / label,
            [played(t, [0], test_accuracy=0.5 + t / 20) for t in range(1, last + 1)],
            label=label,
            selection=selection,
        )
        for label, last, selection in (("uniform", 3, "uniform"), ("longer", 8, UCB))
    ]
    (tmp_path / "page.html").write_text(report(gather(runs)), encoding="utf-8")
    page = Watched(browser, **PHONE).open((tmp_path / "page.html").as_uri())
    assert page.evaluate(LISTED) == ["uniform", "longer"]
    page.close()


CUT = """[...document.querySelectorAll('.role-legend-label text')].filter(text => {
  const box = text.getBoundingClientRect(), chart = text.closest('svg').getBoundingClientRect();
  return box.width && box.right > chart.right + 1;
}).map(text => text.textContent)"""
"""The names in legends that are cut at the right end of their chart."""


def test_legends_wrap_at_once_when_the_window_becomes_narrower(browser: Any, file: str) -> None:
    """Until charts were drawn again, the legend of class shares was cut after class 7."""
    page = Watched(browser).open(file)
    assert page.locator("#figure-class-shares .role-legend-label text").count() == 10
    page.set_viewport_size(PHONE["viewport"])
    page.evaluate("new Promise(done => setTimeout(done, 100))")
    assert page.evaluate(CUT) == []
    page.evaluate("new Promise(done => setTimeout(done, 400)).then(() => fedcohort.drawAll())")
    assert page.evaluate(CUT) == [], "the same after they were drawn again"
    page.close()


def test_legends_of_terms_are_not_cut(browser: Any, tmp_path: Path) -> None:
    """Charts of five terms had one line of names, of which phones showed two and a half."""
    names = ["training loss", "validation loss", "duration", "reward", "exploration"]
    rows = []
    for t in (1, 2, 3):
        own = [{name: 0.1 * (i + t + c) for i, name in enumerate(names)} for c in range(3)]
        shared = {f"state of {name}": 0.5 * t + i for i, name in enumerate(names)}
        decisions = [(c, c == 0, sum(own[c].values()), own[c] | shared) for c in range(3)]
        rows.append(played(t, [0], decisions=decisions))
    run = written(tmp_path / "run", rows, label="oort", selection={"name": "oort"}, federation={"clients": 12})
    (tmp_path / "page.html").write_text(report(gather([run])), encoding="utf-8")
    page = Watched(browser, **PHONE).open((tmp_path / "page.html").as_uri())
    page.evaluate("fedcohort.drawAll()")
    listed = (
        page.locator('figure[data-figure^="terms-"], figure[data-figure^="state-"]')
        .locator(".role-legend-label text")
        .count()
    )
    assert listed == 10
    assert page.evaluate(CUT) == []
    page.close()


@pytest.mark.slow
def test_shortened_names_on_axes_are_not_cut_again(browser: Any, tmp_path: Path) -> None:
    """Rows of 2, 4 and 6 clients were all "pow…choice, one batch, …": names shortened to 25 letters had room for 24."""
    labels = [f"power-of-choice{of}, {k} clients" for of in ("", ", one batch", ", remembered") for k in (2, 4, 6)]
    runs = [
        run
        for i, label in enumerate(["uniform", *labels])
        for run in runs_of(tmp_path, label, [0.5, 0.51 + i / 50], selection={"name": "powd", "k": 2, "d": 2 + i})
    ]
    (tmp_path / "page.html").write_text(report(gather(runs, reference="uniform")), encoding="utf-8")
    page = Watched(browser, **PHONE).open((tmp_path / "page.html").as_uri())
    page.evaluate("fedcohort.drawAll()")
    shown = page.evaluate(
        """[...document.querySelectorAll('#figure-differences .role-axis-label text')].map(text => text.textContent)"""
    )
    named = [text for text in shown if "pow" in text]
    assert len(named) == len(set(named)) == len(labels), named
    cut = """[...document.querySelectorAll('#figure-differences .role-axis-title text')].filter(text =>
        text.getBoundingClientRect().right > text.closest('svg').getBoundingClientRect().right + 0.5).length"""
    assert page.evaluate(cut) == 0, "the title of the axis is not cut"
    page.close()


def test_wide_charts_have_names_at_the_lines_or_below_logarithmic_axes(browser: Any, file: str) -> None:
    page = Watched(browser).open(file)
    assert page.evaluate(LISTED) == []
    page.locator('.controls input[name="log"]').check()
    page.evaluate("fedcohort.drawAll()")
    has_log = "'y' in fedcohort.charts['loss.0.0'].usermeta.log"
    shown = page.locator("#figure-loss .view:not([hidden]) .names span").count()
    assert shown == (3 if page.evaluate(has_log) else 0)
    page.close()


@pytest.mark.slow
def test_the_name_of_the_target_is_short_on_phones(browser: Any, phone: Any, file: str) -> None:
    """It covered the lines over two thirds of the chart."""
    words = (
        f"[...document.querySelectorAll('{CHART} text')].map(t => t.textContent).filter(t => t.startsWith('target'))"
    )
    wide = Watched(browser).open(file)
    (name,) = set(wide.evaluate(words))
    assert name.endswith(" (taken from the results)")
    assert set(phone.evaluate(words)) == {name.removesuffix(" (taken from the results)")}
    wide.close()


@pytest.mark.parametrize("share", [0.15, 0.5, 0.9])
def test_tooltips_stay_inside_the_window(phone: Any, share: float) -> None:
    chart = phone.locator(CHART).first
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    for moved in (share, share + 0.02):
        phone.mouse.move(box["x"] + moved * box["width"], box["y"] + 0.4 * box["height"])
    tooltip = phone.locator("#vg-tooltip-element.visible")
    tooltip.wait_for(timeout=5000)
    place = tooltip.bounding_box()
    assert place["x"] >= 0
    assert place["x"] + place["width"] <= 375
    phone.mouse.move(2, 2)


def test_the_verdict_is_inside_the_window(phone: Any) -> None:
    right = "[...document.querySelectorAll('#results .verdict')].map(cell => cell.getBoundingClientRect().right)"
    assert len(phone.evaluate(right)) == 3
    assert max(phone.evaluate(right)) <= 375
    verdicts = phone.locator("#results td.verdict").all_text_contents()
    assert any(verdict.startswith("not\u00a0clear, ") for verdict in verdicts), "in two lines, not in three"


def test_long_headings_of_the_table_of_fairness_have_room(phone: Any) -> None:
    """The head was six lines high, since the last heading had a narrow column in a table that scrolls anyway."""
    lines = "h => Math.round(h.getBoundingClientRect().height / parseFloat(getComputedStyle(h).lineHeight))"
    assert phone.locator("#fairness thead th").last.evaluate("h => h.innerText.length") > 35
    assert phone.locator("#fairness thead th").last.evaluate(lines) <= 4


def test_names_of_rows_stay_while_a_table_scrolls_sideways(phone: Any) -> None:
    """Numbers on the right had no names beside them."""
    box = phone.locator(".scroll", has=phone.locator("#results"))
    box.scroll_into_view_if_needed()
    box.evaluate("box => box.scrollTo(300, 0)")
    name = box.locator("tbody .name").first
    place = name.bounding_box()
    assert 0 <= place["x"] < 60
    on_top = "([x, y]) => document.elementFromPoint(x, y).closest('tr, th').querySelector('.name, .sort')?.textContent"
    assert phone.evaluate(on_top, [place["x"] + 4, place["y"] + 4]) == name.inner_text(), "no number stands over it"
    box.evaluate("box => box.scrollTo(0, 0)")


def test_charts_printed_from_a_phone_fill_the_sheet(browser: Any, file: str) -> None:
    watched = Watched(browser, **PHONE)
    page = watched.open(file)
    width = f"document.querySelector('{CHART}').viewBox.baseVal.width"
    before = page.evaluate(width)
    page.evaluate(f"""window.wide = 0;
        new MutationObserver(() => {{ if (document.querySelector('{CHART}')) window.wide = Math.max(window.wide, {width}); }})
            .observe(document.querySelector('#figure-accuracy'), {{childList: true, subtree: true}})""")
    assert "hold Shift" not in page.locator("footer").inner_text(), "a phone has no such key"
    page.pdf(format="A4")
    assert before < 375
    assert page.evaluate("window.wide") > 1000
    page.wait_for_function(f"{width} === {before}", timeout=10_000)  # the screen has its own charts again
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    assert watched.complaints == []
    page.close()
