"""Reports of large runs: aggregated, small enough to send, and made in seconds: of the processor, so that a busy machine may wait."""

import time
from pathlib import Path

import pytest
from benchmarks.report_scale import STRATEGIES, large, make

from fedcohort.report.page import page
from fedcohort.report.page_assets import scripts
from fedcohort.report.read_runs import find_runs, gather
from tests.report.pages import Page


@pytest.mark.slow
def test_a_thousand_clients_and_rounds(tmp_path: Path) -> None:
    large(tmp_path / "large", 1000, 1000, 100)
    scripts()
    start = time.process_time()
    text = page(gather(find_runs([tmp_path])))
    assert time.process_time() - start < 20
    assert len(text.encode()) < 10e6
    found = Page(text)
    data = found.payload["data"]
    assert len(data["accuracy_rounds"]) <= 300
    assert len(data["raster"]) <= 120 * 60
    assert "17 clients × 9 rounds" in found.prose
    assert "Each point over rounds is the mean of 4 rounds" in found.prose
    cells = data["raster"]
    shares = sum(
        cell["share"] * (min(cell["x2"], 1000.5) - cell["x"]) * (min(cell["y2"], 999.5) - cell["y"]) for cell in cells
    )
    assert shares == pytest.approx(100 * 1000, rel=1e-6), "every selection is in one cell"


@pytest.mark.slow
def test_five_strategies_over_a_hundred_rounds(tmp_path: Path) -> None:
    make("comparison", tmp_path)
    scripts()
    start = time.process_time()
    text = page(gather(find_runs([tmp_path])))
    assert time.process_time() - start < 5
    assert len(text.encode()) < 6e6
    assert [row["strategy"] for row in Page(text).cells["results"]] == list(STRATEGIES)
