"""Reports of large runs: aggregated, and small enough to send. ``benchmarks/report_scale.py`` measures their time."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from benchmarks.report_scale import STRATEGIES, large, make

from fedcohort.report.data.report_data import find_runs, gather
from fedcohort.report.page import page
from tests.report.pages import Page


def rows(data: Mapping[str, Any]) -> int:
    """Number of rows in all tables that charts draw."""
    return sum(len(table) if isinstance(table, list) else max(map(len, table.values())) for table in data.values())


@pytest.mark.slow
def test_a_thousand_clients_and_rounds(tmp_path: Path) -> None:
    large(tmp_path / "large", 1000, 1000, 100)
    text = page(gather(find_runs([tmp_path])))
    assert len(text.encode()) < 10e6
    found = Page(text)
    data = found.payload["data"]
    assert rows(data) <= 20_000, "of a million scored candidates"
    assert len(data["accuracy_rounds"]) <= 300
    assert len(data["raster"]) <= 120 * 60
    assert "17 clients × 9 rounds" in found.prose
    assert "Single clients: 60 of 1,000" in found.prose
    assert {(cell["x2"] - cell["x"], cell["y2"] - cell["y"]) for cell in data["raster_sample"]} == {(9, 1)}
    assert "Each point is the mean of 4 rounds" in found.prose
    cells = data["raster"]
    shares = sum(
        cell["share"] * (min(cell["x2"], 1000.5) - cell["x"]) * (min(cell["y2"], 999.5) - cell["y"]) for cell in cells
    )
    assert shares == pytest.approx(100 * 1000, rel=1e-6), "every selection is in one cell"


@pytest.mark.slow
def test_five_strategies_over_a_hundred_rounds(tmp_path: Path) -> None:
    make("comparison", tmp_path)
    text = page(gather(find_runs([tmp_path])))
    assert len(text.encode()) < 6e6
    found = Page(text)
    assert rows(found.payload["data"]) <= 120_000
    assert [row["strategy"] for row in found.cells["results"]] == list(STRATEGIES)
