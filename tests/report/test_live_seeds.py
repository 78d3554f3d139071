"""The live page draws the single clients of one seed, those of others when a reader asks, and reads finished runs once."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fedcohort.record import Run
from fedcohort.report.data.report_data import find_runs
from fedcohort.report.live.live_server import Live, serve
from tests.report.pages import Page
from tests.report.test_browser import SHORT_WAITS, Watched, browser, cut, pytestmark, watch

__all__ = ["browser", "pytestmark"]

SEED = "document.querySelector('#figure-raster figcaption').innerText"


def seeds_of(text: str) -> set[str | None]:
    """The seeds whose single clients a page draws."""
    return {found.get("data-seed") for tag, found in Page(text).tags if tag == "figure"} - {None}


def test_one_seed_is_drawn_and_others_can_be_asked_for(runs: Path) -> None:
    live = Live(runs)
    first, second = live.page(None), live.page(None, 1)
    assert (seeds_of(first), seeds_of(second)) == ({"0"}, {"1"})
    assert live.page(None) is first, "it is not made again"
    assert all(live.page(None, seed) is first for seed in range(77, 87)), "seeds that no run has keep no pages"
    for text in (first, second):
        offered = [found for tag, found in Page(text).tags if tag == "input" and found.get("name") == "seed"]
        assert [found["value"] for found in offered] == ["0", "1", "2"]


def test_finished_runs_are_read_once(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for run in find_runs([runs]):
        shutil.copytree(run.path, tmp_path / run.path.name)
    going = find_runs([tmp_path])[0].path
    cut(going, 3)
    read: Counter[str] = Counter()
    clients: Any = Run.clients.fget  # type: ignore[attr-defined]

    def counted(run: Run) -> Any:
        read[run.path.name] += 1
        return clients(run)

    monkeypatch.setattr(Run, "clients", property(counted))
    live = Live(tmp_path)
    live.page(None)
    assert set(read.values()) == {1}
    cut(going, 2)
    assert "round 2 of 8" in live.page(None)
    assert read.pop(going.name) == 2
    assert set(read.values()) == {1}


@pytest.mark.slow
def test_a_reader_chooses_another_seed_while_runs_go_on(browser: Any, runs: Path, tmp_path: Path) -> None:
    for run in find_runs([runs]):
        shutil.copytree(run.path, tmp_path / run.path.name)
    going = find_runs([tmp_path])[0].path
    cut(going, 3)
    server = serve(tmp_path, 0)
    watch(server)
    watched = Watched(browser)
    watched.page.add_init_script(SHORT_WAITS)
    page = watched.open(server.address)
    assert "Seed 0." in page.evaluate(SEED)
    page.locator('.controls input[name="seed"][value="1"]').check(force=True)
    page.wait_for_function(f"{SEED}.includes('Seed 1.')", timeout=15000)
    page.evaluate("fedcohort.drawAll()")
    assert watched.empty_charts() == []
    assert "seed=1" in page.evaluate("location.hash")
    cut(going, 2)
    page.wait_for_function("document.querySelector('.overall').innerText.includes('round')", timeout=15000)
    assert page.locator('.controls input[name="seed"][value="1"]').is_checked()
    page.reload()
    page.wait_for_function(f"{SEED}.includes('Seed 1.')", timeout=15000)
    assert watched.complaints == []
    server.shutdown()
    server.server_close()
    page.close()
