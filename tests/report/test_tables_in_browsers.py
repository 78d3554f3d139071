"""Tables of the page in a browser: numbers of every size have one format and stand in line, and marks explain themselves."""

from pathlib import Path
from typing import Any

import pytest

from fedcohort.record import ClientRow
from fedcohort.report.data.report_data import gather
from fedcohort.report.page import page as report
from tests.records import exchange, played, written
from tests.repetitions import slow_after
from tests.report.headline.test_headline import runs_of
from tests.report.pages import Page
from tests.report.test_browser import Watched, browser, pytestmark

__all__ = ["browser", "pytestmark"]

EDGES = """field => [...document.querySelectorAll(`.sheet td[data-field=${field}]`)].filter(cell => cell.dataset.value).map(cell => {
    const text = cell.firstChild, range = document.createRange(), point = text.data.indexOf('.');
    range.setStart(text, 0);
    range.setEnd(text, point < 0 ? text.length : point);
    return [text.data, Math.round(range.getBoundingClientRect().right)]; })"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tables")
    measured: list[dict[str, Any]] = [
        {"loss": 0.3125, "duration": 12.25}, {"loss": 3.0, "duration": 1234567.5}, {"loss": 1.5e5, "duration": 999.5},
        {"loss": 1.755e30, "duration": 1000.0},
    ]  # fmt: skip
    clients = [ClientRow(i, "admitted", num_samples=10 * 10**i, **values) for i, values in enumerate(measured)]
    runs = [
        written(folder / "a", [played(1, clients)], federation={"clients": 4}),
        written(folder / "b", [played(1, clients)], label="own", selection="round_robin", federation={"clients": 4}),
    ]
    (folder / "page.html").write_text(report(gather(runs)), encoding="utf-8")
    return (folder / "page.html").as_uri()


@pytest.mark.slow
def test_numbers_of_clients_have_one_format_and_stand_in_line(browser: Any, file: str) -> None:
    """Seven digits were kept, and then ".00" written after them; a huge loss gave its column decimals."""
    watched = Watched(browser)
    page = watched.open(file)
    loss, time = page.evaluate(EDGES, "loss"), page.evaluate(EDGES, "time")
    assert [text for text, _ in loss] == ["0.3125", "3.0000", "150,000", "1.755e+30"]
    assert [text for text, _ in time] == ["12.25", "1,234,568", "999.50", "1,000"]
    assert len({right for _, right in loss[:3]}) == 1, "digits before the point stand below each other"
    assert len({right for _, right in time}) == 1
    assert [text for text, _ in page.evaluate(EDGES, "samples")] == ["10", "100", "1,000", "10,000"]
    assert watched.complaints == []
    page.close()


@pytest.mark.slow
def test_a_row_with_an_own_design_says_so_in_words(browser: Any, file: str) -> None:
    watched = Watched(browser)
    page = watched.open(file)
    marks = page.locator("#results .ours")
    assert marks.all_inner_texts() == ["own version"]
    assert marks.get_attribute("title").startswith("round_robin: an own design or reading of its source")
    words = page.locator("#result .note").first.inner_text()
    assert '"Own version" marks rows with a part that is an own design' in words
    page.close()


@pytest.mark.parametrize("alphas", slow_after(0, [[0.1, 1.0], [0.1]]))
def test_results_fit_their_place_on_a_usual_screen(browser: Any, tmp_path: Path, alphas: list[float]) -> None:
    """The last column was cut by a few pixels, which looked like a number without its unit."""
    runs = []
    for alpha in alphas:
        of_point = {"partition": {"name": "dirichlet_class", "alpha": alpha, "min_size": 1}, "clients": 12}
        for label, shift in (("uniform", 0.0), ("a rather long name", 0.1), ("select-by-loss", 0.05)):
            rows = [0.5 + alpha / 10 + shift + seed / 100 for seed in range(3)]
            name = label if len(alphas) == 1 else f"{label}, alpha={alpha}"
            selection = "uniform" if label == "uniform" else {"name": "ucb" if shift == 0.1 else "select_by_loss"}
            costs = [exchange(2_300_000, 100_000)]
            runs += runs_of(tmp_path / str(alpha), name, rows, costs, selection=selection, federation=of_point)
    (tmp_path / "page.html").write_text(report(gather(runs)), encoding="utf-8")
    page = Watched(browser, viewport={"width": 1280, "height": 900}).open((tmp_path / "page.html").as_uri())
    beyond = "(s => s.scrollWidth - s.clientWidth)(document.querySelector('#results').closest('.scroll'))"
    assert page.locator("#results").count() == 1
    assert page.evaluate(beyond) <= 0
    page.close()


def test_intervals_stand_below_differences_where_numbers_of_seeds_take_their_place(tmp_path: Path) -> None:
    """With "(4/5)" in three columns, the wall time was cut at 1,200 pixels."""
    rows = {"uniform": [0.5, 0.52, 0.54], "ucb": [0.55, 0.57, 0.4]}
    for target, some in ((0.5, True), (0.3, False)):
        measures = {"target_accuracy": target}
        runs = [
            run
            for name, row in rows.items()
            for run in runs_of(tmp_path / str(target), name, row, selection=name, measures=measures)
        ]
        shown = Page(report(gather(runs)))
        (table,) = [found for tag, found in shown.tags if tag == "table" and found.get("id") == "results"]
        assert (table.get("class") == "wide") == some
        assert "uniform seeds 0, 1, 2 " in shown.prose, "it was the seed of several"
