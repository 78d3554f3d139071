"""Tables of the page in a browser: numbers of every size have one format and stand in line, and marks explain themselves."""

from typing import Any

import pytest

from fedcohort.record import ClientRow
from fedcohort.report.page import page as report
from fedcohort.report.report_data import gather
from tests.records import played, written
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


def test_a_row_with_an_own_design_says_so_in_words(browser: Any, file: str) -> None:
    watched = Watched(browser)
    page = watched.open(file)
    marks = page.locator("#results .ours")
    assert marks.all_inner_texts() == ["not published"]
    assert marks.get_attribute("title").startswith("round_robin: an own design or reading of its source")
    words = page.locator("#result .note").first.inner_text()
    assert '"Not published" marks rows with a part that is an own design' in words
    page.close()
