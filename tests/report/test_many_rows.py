"""Pages with more rows than a legend can name, in a browser: the best lines are named, and tables scroll below their heads."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcohort
from fedcohort.report.data.report_data import find_runs, gather
from fedcohort.report.figures.panel_rows import NAMES
from fedcohort.report.page import page as report
from tests.experiments import UCB, small
from tests.records import exchange
from tests.report.headline.test_headline import runs_of
from tests.report.test_browser import Watched, browser
from tests.report.test_browser import pytestmark as needs_chromium

__all__ = ["browser"]

pytestmark = [needs_chromium, pytest.mark.slow]

ROWS = 26
CROWD = 38
LABELS = ["uniform", *(f"power-of-choice, d={d}, and momentum" for d in range(3, ROWS + 2))]
STROKES = """[...document.querySelectorAll('#figure-accuracy .view:not([hidden]) .mark-line path')]
    .map(path => Number(path.getAttribute('opacity') ?? 1))"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("many")
    runs = [
        run
        for i, label in enumerate(LABELS)
        for run in runs_of(
            folder,
            label,
            [0.5 + i / 100, 0.52 + i / 100],
            selection="uniform" if i == 0 else {"name": "powd", "d": 2 + i},
        )
    ]
    (folder / "page.html").write_text(report(gather(runs)), encoding="utf-8")
    return (folder / "page.html").as_uri()


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Most rows have nearly the same small cost, with accuracies that differ little; some cost many times as much."""
    folder = tmp_path_factory.mktemp("crowd")
    rng = np.random.default_rng(1)
    runs = [
        run
        for i in range(CROWD)
        for run in runs_of(
            folder,
            "uniform" if i == 0 else f"strategy-{i}",
            (0.55 + 0.1 * rng.random(3)).tolist(),
            [exchange(int(1000 * (40 if i > CROWD - 5 else 1) + 60 * i), 100)],
            selection="uniform" if i == 0 else {"name": "powd", "d": 3 + i},
        )
    ]
    (folder / "page.html").write_text(report(gather(runs)), encoding="utf-8")
    return (folder / "page.html").as_uri()


def test_the_reference_and_the_best_lines_are_named(browser: Any, file: str) -> None:
    watched = Watched(browser)
    page = watched.open(file)
    names = page.evaluate("fedcohort.data.accuracy_rounds_ends.name")
    shown = page.evaluate(
        "[...document.querySelectorAll('#figure-accuracy .view:not([hidden]) .mark-text text')].map(t => t.textContent)"
    )
    ends = [text for text in shown if text == "uniform" or "d=" in text]
    assert len(ends) == len(set(ends)) == NAMES, names
    assert "uniform" in ends
    assert all(any(f"d={d}" in text for text in ends) for d in range(ROWS - 4, ROWS + 2)), ends
    assert (
        "charts of lines draw the reference and the rows with the highest test accuracy stronger"
        in page.locator("main").inner_text()
    )
    before = page.evaluate(STROKES)
    assert sorted(set(before)) == [0.3, 1]
    assert before.count(1) == NAMES
    page.locator(".strategies .light", has_text="d=5,").click()
    page.wait_for_function(f"({STROKES}).filter(o => o === 1).length === 1")
    assert max(value for value in page.evaluate(STROKES) if value < 1) <= 0.12, "all others are much paler"
    lines = page.evaluate("""[...document.querySelectorAll('#figure-accuracy .view:not([hidden]) .mark-line path')]
        .map(path => [Number(path.getAttribute('opacity') ?? 1), Number(path.getAttribute('stroke-width'))])""")
    assert {width for opacity, width in lines if opacity == 1} == {3.5}, "the chosen line is thicker"
    assert {width for opacity, width in lines if opacity < 1} == {2}
    assert lines[-1] == [1, 3.5], "no other line is drawn over it"
    assert watched.complaints == []
    page.close()


def test_heads_of_long_tables_stay_while_they_scroll_and_paper_has_all_rows(browser: Any, file: str) -> None:
    watched = Watched(browser)
    page = watched.open(file)
    box = page.locator(".scroll.tall", has=page.locator("#results"))
    assert box.evaluate("box => box.clientHeight < box.scrollHeight && box.clientHeight <= 0.81 * innerHeight")
    box.evaluate("box => box.scrollTo(0, 500)")
    heads = "box => box.querySelector('thead th').getBoundingClientRect().top - box.getBoundingClientRect().top"
    assert abs(box.evaluate(heads)) <= 1
    lines = "[...document.querySelectorAll('#results .name')].map(name => name.getBoundingClientRect().height / 20)"
    assert max(page.evaluate(lines)) <= 2.2, "long names take two lines"
    page.set_viewport_size({"width": 703, "height": 1000})
    page.emulate_media(media="print")
    assert page.locator(".strategies").is_hidden(), "the table of results has the lines of all rows"
    assert page.locator("#results tbody tr:visible .swatch").count() == ROWS
    assert box.evaluate("box => box.scrollHeight <= box.clientHeight + 1")
    page.close()


def test_rows_have_one_line_on_paper_without_words_about_controls(browser: Any, crowd: str) -> None:
    """Each row took two lines, so that 100 rows took 54 sheets, which told readers to choose names and to point at rows."""
    page = Watched(browser).open(crowd)
    controls = ("Choose a name in the list above", "point at a row for its name")
    assert all(words in page.locator("main").inner_text() for words in controls)
    page.set_viewport_size({"width": 703, "height": 1000})
    page.emulate_media(media="print")
    height = (
        "table => Math.max(...[...table.querySelectorAll('tbody tr')].map(row => row.getBoundingClientRect().height))"
    )
    for table in ("results", "fairness", "ledger", "wall"):
        assert page.locator(f"#{table}").evaluate(height) < 20, f"{table}: two lines take more than 24 pixels"
        styles = "t => [getComputedStyle(t.tHead).display, getComputedStyle(t.tBodies[0].rows[0]).breakInside]"
        assert page.locator(f"#{table}").evaluate(styles) == ["table-header-group", "avoid"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 703
    said = page.locator("main").inner_text()
    assert not [words for words in (*controls, "list above", "Tooltips") if words in said]
    assert "where a name covers no other name or row. " in said
    page.close()


def test_long_tables_say_that_they_go_on_on_the_screen_only(browser: Any, file: str) -> None:
    watched = Watched(browser)
    page = watched.open(file)
    for table, lines in (("results", ROWS), ("fairness", ROWS), ("wall", ROWS)):
        box = page.locator(".scroll.tall", has=page.locator(f"#{table}"))
        said = box.locator("xpath=following-sibling::p[1]")
        assert said.inner_text() == f"The table has {lines} lines; scroll it to see all of them."
        assert "gradient" in box.evaluate("box => getComputedStyle(box).backgroundImage")
    page.emulate_media(media="print")
    assert page.locator(".goes-on:visible").count() == 0
    assert box.evaluate("box => getComputedStyle(box).backgroundImage") == "none"
    page.close()


def test_a_point_of_a_long_sweep_says_what_it_shows(browser: Any, tmp_path: Path) -> None:
    """The table of a point is short although the sweep is long, and strategies without a panel are not said to have no scores."""
    rates = [round(0.01 * i, 2) for i in range(1, 20)]
    experiment = small(rounds=2, seeds=1, variants=[{"label": "UCB", "selection": UCB}], sweep={"training.lr": rates})
    fedcohort.compare(experiment, runs=tmp_path / "runs")
    (tmp_path / "page.html").write_text(report(gather(find_runs([tmp_path / "runs"]))), encoding="utf-8")
    watched = Watched(browser)
    page = watched.open((tmp_path / "page.html").as_uri())
    assert page.locator("#results tbody tr:visible").count() == 2
    assert page.locator(".goes-on").count() > 0
    assert page.locator(".goes-on:visible").count() == 0
    said = page.locator("#reasons").inner_text()
    assert (
        "None of the rows with a panel scores its candidates. For the reasons of others, make a page of fewer rows."
        in said
    )
    assert watched.complaints == []
    page.close()


BOXES = """selector => [...document.querySelectorAll('#figure-tradeoff .view:not([hidden]) ' + selector)]
    .map(mark => [mark.textContent, mark.getBoundingClientRect()]).map(([text, b]) => [text, b.left, b.right, b.top, b.bottom])"""


def apart(one: list[Any], other: list[Any]) -> bool:
    """Whether two boxes of name, left, right, top and bottom do not cover each other by more than a pixel."""
    return bool(one[2] <= other[1] + 1 or other[2] <= one[1] + 1 or one[4] <= other[3] + 1 or other[4] <= one[3] + 1)


@pytest.mark.parametrize(
    ("log", "width"),
    [(False, 1200), (True, 375), (False, 640), (False, 375), (True, 640), (True, 1200)],
)
def test_names_beside_points_cover_no_name_and_no_point(browser: Any, crowd: str, width: int, log: bool) -> None:
    """With 38 rows, names stood on other points, and points at costs below 0."""
    watched = Watched(browser, viewport={"width": width, "height": 900})
    page = watched.open(f"{crowd}#log=1" if log else crowd)
    page.locator("#figure-tradeoff").scroll_into_view_if_needed()
    page.wait_for_selector("#figure-tradeoff .view:not([hidden]) .mark-symbol path")
    names = page.evaluate(BOXES, ".mark-text.role-mark text")
    names = [box for i, box in enumerate(names) if box not in names[:i]]  # each name is drawn on its own outline
    marks = page.evaluate(BOXES, ".mark-symbol path")
    assert len(marks) == CROWD
    assert len(names) >= (3 if width == 1200 else 1)
    for (i, one), other in itertools.product(enumerate(names), names):
        assert one is other or apart(one, other), (one, other)
        assert all(apart(one, mark) for mark in marks), names[i]
    axis = page.evaluate(BOXES, ".role-axis-domain line")
    left = min(box[1] for box in axis if box[2] - box[1] > 50)
    assert min((box[1] + box[2]) / 2 for box in marks) >= left - 1, "no cost is negative"
    assert "where a name covers no other name or row" in page.locator("#figure-tradeoff").inner_text()
    assert watched.complaints == []
    page.close()


FEW = {"md": 0.68, "uniform": 0.71, "ucb": 0.57, "divfl": 0.74, "oort": 0.65}


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Six rows, five of which have nearly the same cost."""
    folder = tmp_path_factory.mktemp("few")
    runs = [
        run
        for i, (label, accuracy) in enumerate(FEW.items())
        for run in runs_of(
            folder,
            label,
            [accuracy] * 2,
            [exchange(1000 + (100 if i else 0), 1000)],
            selection="uniform" if label == "uniform" else {"name": "powd", "d": 3 + i},
        )
    ]
    runs += runs_of(folder, "powd", [0.72] * 2, [exchange(3000, 1000)], selection=UCB)
    (folder / "page.html").write_text(report(gather(runs)), encoding="utf-8")
    return (folder / "page.html").as_uri()


@pytest.mark.parametrize("width", [375, 1200])
def test_names_of_few_rows_with_nearly_the_same_cost_cover_no_point(browser: Any, few: str, width: int) -> None:
    """The name of a row stood on the point of the next one, although there was room on its other side."""
    watched = Watched(browser, viewport={"width": width, "height": 900})
    page = watched.open(few)
    names, marks = (page.evaluate(BOXES, part) for part in (".mark-text.role-mark text", ".mark-symbol path"))
    assert {name[0] for name in names} == {*FEW, "powd"}
    assert len(marks) == len(FEW) + 1
    for name in names:
        assert all(apart(name, mark) for mark in marks), name
    assert watched.complaints == []
    page.close()


LEADERS = """[...document.querySelectorAll('#figure-tradeoff .view:not([hidden]) .mark-rule.role-mark line')]
    .map(line => [line.getAttribute('x2'), line.getAttribute('y2'), getComputedStyle(line).stroke].map(part => part ?? '0'))"""


@pytest.mark.parametrize("log", [True, False])
def test_lines_to_names_do_not_look_like_intervals(browser: Any, crowd: str, log: bool) -> None:
    """They were vertical lines through the point in its color, as intervals are."""
    page = Watched(browser, viewport={"width": 375, "height": 900}).open(f"{crowd}#log=1" if log else crowd)
    rules = [(float(x), float(y), stroke) for x, y, stroke in page.evaluate(LEADERS)]
    soft = page.evaluate("getComputedStyle(document.querySelector('.note')).color")
    intervals, leaders = ([rule for rule in rules if (rule[2] == soft) == led] for led in (False, True))
    assert leaders
    assert len(intervals) == CROWD
    assert all(x == 0 for x, _, _ in intervals)
    assert all(10 <= abs(x) <= 20 and abs(y) > 10 for x, y, _ in leaders), leaders
    page.close()


def test_long_charts_are_printed_in_parts_with_the_same_axes(browser: Any, crowd: str) -> None:
    """Bars of 100 rows were made smaller until they fitted one sheet, with names that could not be read."""
    watched = Watched(browser, viewport={"width": 1200, "height": 900})
    page = watched.open(crowd)
    texts = """key => [...document.querySelectorAll(`#figure-${key} .view:not([hidden]) .chart svg`)].map(svg =>
        [...svg.querySelectorAll('.role-axis-label')].map(axis => [...axis.querySelectorAll('text')].map(text => text.textContent)))"""
    before = {key: page.evaluate(texts, key) for key in ("cost", "differences")}
    page.evaluate("fedcohort.sheet = 300")
    page.emulate_media(media="print")
    page.wait_for_function("document.querySelectorAll('#figure-cost .on-sheet svg').length > 1")
    page.evaluate("fedcohort.drawAll()")
    for key, ((*axes,),) in before.items():
        parts = page.evaluate(texts, key)
        assert len(parts) >= 3
        (names,) = [texts for texts in axes if "strategy-5" in texts]
        assert [name for part in parts for texts in part for name in texts if name in names] == names
        ends = page.evaluate(
            """key => [...document.querySelectorAll(`#figure-${key} .view:not([hidden]) .on-sheet .root > g > .background`)]
                .map(part => part.getBoundingClientRect()).map(box => [box.left, box.right])""",
            key,
        )
        assert len(ends) >= 3
        assert np.ptp(np.array(ends), axis=0).max() <= 1.5, "equal values stand below each other"
        scales = [[texts for texts in part if not set(texts) & set(names)] for part in parts]
        assert scales == [scales[0]] * len(parts)
        assert scales[0]
    broken = "[...document.querySelectorAll('.panel:has(.on-sheet)')].map(panel => getComputedStyle(panel).breakInside)"
    assert set(page.evaluate(broken)) == {"auto"}, "kept whole, a chart of many parts left the rest of a sheet empty"
    words = page.locator("#ledger td.words:last-child").first
    assert words.evaluate("cell => parseFloat(getComputedStyle(cell).paddingLeft)") >= 10, (
        "words stand apart from numbers"
    )
    page.emulate_media(media="screen")
    page.wait_for_function("document.querySelectorAll('#figure-cost .on-sheet').length === 0")
    page.evaluate("fedcohort.drawAll()")
    assert {key: page.evaluate(texts, key) for key in before} == before
    assert watched.complaints == []
    page.close()


def test_results_fit_a_window_of_1100_pixels_and_show_that_they_scroll_in_narrower_ones(browser: Any, few: str) -> None:
    """With intervals and long numbers, the table ran past the edge, without a sign of it."""
    watched = Watched(browser, viewport={"width": 1100, "height": 900})
    page = watched.open(few)
    long = {
        "accuracy": "<strong>79.2</strong> <span class=sd>± 13.1</span>",
        "difference": "+10.7 <small>[−76.0, +24.0]</small>",
        "p_holm": "too few seeds",
        "time_to_target": "13,982 (1/2)",
        "bytes_to_target": "616 kB (1/2)",
    }
    page.evaluate(
        """long => { for (const [field, text] of Object.entries(long))
        document.querySelectorAll(`#results td[data-field=${field}]`).forEach(cell => { cell.innerHTML = text; }) }""",
        long,
    )
    box = page.locator(".scroll", has=page.locator("#results"))
    right = box.evaluate("box => box.querySelector('table').getBoundingClientRect().right")
    assert right <= 1100 - 24
    page.set_viewport_size({"width": 800, "height": 900})
    assert box.evaluate("box => box.scrollWidth > box.clientWidth")
    assert "90deg" in box.evaluate("box => getComputedStyle(box).backgroundImage")
    page.emulate_media(media="print")
    assert box.evaluate("box => getComputedStyle(box).backgroundImage") == "none"
    page.close()
