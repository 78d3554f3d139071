"""A page of data that name their clients, in a browser: the table of clients and the rows of cells have the names."""

from collections.abc import Iterator
from typing import Any

import pytest

from fedcohort.report.data.report_data import gather
from fedcohort.report.page import page as report
from tests.report.test_browser import Watched, browser
from tests.report.test_browser import pytestmark as needs_chromium
from tests.study.test_client_names import NAMES, play

__all__ = ["browser"]

pytestmark = [needs_chromium, pytest.mark.slow]


@pytest.fixture(scope="module")
def opened(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("names")
    run = play(folder / "runs", measures={"clients_every": 1})
    (folder / "page.html").write_text(report(gather([run])), encoding="utf-8")
    watched = Watched(browser)
    yield watched.open((folder / "page.html").as_uri())
    assert watched.complaints == []
    watched.page.close()


def texts(opened: Any, figure: str) -> list[str]:
    """The texts of a figure's first chart, once it is drawn."""
    chart = opened.locator(f"[data-figure='{figure}'] .chart").first
    chart.scroll_into_view_if_needed()
    chart.locator("text").first.wait_for()
    return list(chart.locator("text").all_text_contents())


def names(opened: Any) -> list[str]:
    return list(opened.locator(".sheet tbody td.words").all_text_contents())


def test_the_table_of_clients_is_sorted_by_name_like_a_text(opened: Any) -> None:
    head = opened.locator(".sheet thead th").nth(1)
    assert head.inner_text().strip() == "name"
    assert names(opened) == NAMES
    for expected in (NAMES, NAMES[::-1]):  # from A to Z, and back
        head.get_by_role("button").click()
        assert names(opened) == expected


@pytest.mark.parametrize("figure", ["selections", "raster", "classes-of-clients"])
def test_axes_have_the_names(opened: Any, figure: str) -> None:
    assert len(set(NAMES) & set(texts(opened, figure))) >= 3


def test_another_order_keeps_the_names(opened: Any) -> None:
    opened.locator('.controls [name="order"]').select_option("size")
    opened.evaluate("fedcohort.ready")
    assert set(NAMES) & set(texts(opened, "raster"))
