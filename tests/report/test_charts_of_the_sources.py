"""What the sources show beside accuracy over rounds is on the pages: tables of clients, classes and wall time, numbers in small heat
maps, the accuracy of each mini-batch, and deviations as charts of their own. In a real browser."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcohort.record import Portrait
from fedcohort.report.charts.batch_sizes import profiles
from fedcohort.report.charts.classes import COUNTED, class_counts, class_shares
from fedcohort.report.charts.shown_clients import Clients
from fedcohort.report.data.report_data import find_runs
from fedcohort.report.figures.chart_style import PAGE
from fedcohort.report.page import gallery
from fedcohort.study.profile.batch_size_profile import Profile, recommend
from tests.report.test_browser import Watched, browser, pytestmark
from tests.report.test_pointer import opened_file
from tests.study.profile.test_batch_size_profile import SIZES

__all__ = ["browser", "pytestmark"]

OVER_BATCHES = (0.1, 0.4, 0.6, 0.7)
DEVIATIONS = (0.0001, 0.0002, 0.0004, 0.0008)


@pytest.fixture(scope="module")
def shown(browser: Any, page_of_runs: Path) -> Iterator[Any]:
    """The page of three strategies."""
    for watched in opened_file(browser, page_of_runs):
        yield watched.page
        assert watched.complaints == []


@pytest.fixture(scope="module")
def profiled(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The page of four batch sizes with deviations, and with the accuracy of their mini-batches."""
    sizes = [
        dataclasses.replace(size, batch_accuracy=list(OVER_BATCHES[: 4 - i]), batch_seconds_sd=DEVIATIONS[i])
        for i, size in enumerate(SIZES)
    ]
    found = Profile("quickstart", 3, sizes, recommend(sizes))
    file = tmp_path_factory.mktemp("profile") / "profile.html"
    file.write_text(gallery("Batch sizes", "quickstart", found.advice, profiles(found, PAGE)), encoding="utf-8")
    watched = Watched(browser)
    yield watched.open(file.as_uri())
    assert watched.complaints == []
    watched.page.close()


def texts(page: Any, selector: str) -> list[str]:
    return list(page.evaluate(f"[...document.querySelectorAll(`{selector}`)].map(e => e.textContent.trim())"))


def test_each_client_has_its_rounds_accuracy_loss_and_time(shown: Any) -> None:
    heads = texts(shown, "#figure-client-table thead th")
    for name in (
        "rounds selected",
        "rounds admitted",
        "samples",
        "training accuracy, %",
        "training loss",
        "simulated time of a round",
    ):
        assert name in heads
    rows = shown.locator("#figure-client-table tbody tr")
    assert rows.count() == 12
    assert all(
        len(cells) == len(heads) for cells in [rows.nth(i).locator("th, td").all_inner_texts() for i in range(12)]
    )


def test_the_accuracy_of_each_class_is_a_number(shown: Any) -> None:
    assert texts(shown, "#classes thead th")[1:] == list("0123456789")
    cells = texts(shown, "#classes tbody td")
    assert len(cells) == 3 * 10
    assert all(0 <= int(text) <= 100 for text in cells)


def test_the_parts_of_wall_time_stand_side_by_side(shown: Any) -> None:
    heads = " ".join(texts(shown, "#wall thead th"))
    for part in ("training", "selection", "aggregation", "evaluation", "total", "recording", "each round"):
        assert part in heads
    assert shown.locator("#wall tbody tr").count() == 3
    assert "Wall time of all rounds, by part" in texts(shown, "#cost h3"), "its parts are not those of one round"
    with shown.expect_download() as download:
        shown.locator('#figure-tradeoff [data-save="csv"]').click()
    columns = Path(download.value.path()).read_text(encoding="utf-8").split("\n")[0].split(",")
    assert sorted(columns) == ["accuracy", "failed", "front", "high", "low", "strategy", "x"], (
        "none that only tells how to draw"
    )


def test_cells_of_a_small_heat_map_contain_their_counts(shown: Any, runs: Path) -> None:
    counts = find_runs([runs])[0].portrait.facts["counts"]
    drawn = texts(shown, "#figure-classes-of-clients .view:not([hidden]) .mark-text.role-mark text")
    assert sorted(drawn) == sorted(str(count) for count in counts.ravel() if count)


def test_the_legend_of_a_heat_map_ends_at_its_highest_cell(shown: Any, runs: Path) -> None:
    """It began with 0, which is no cell, and ended at 120 where cells said 138."""
    counts = find_runs([runs])[0].portrait.facts["counts"]
    levels = [
        int(text) for text in texts(shown, "#figure-classes-of-clients .view:not([hidden]) .role-legend-label text")
    ]
    assert levels == sorted(levels)
    assert (levels[0] > 0, levels[-1]) == (True, counts.max())


SEGMENTS = """key => { const found = {rect: [], arc: [], text: []};
    (function walk(item) {
        for (const {datum, y, height, ...one} of item.marktype in found ? item.items : []) if (datum && datum.client !== undefined)
            found[item.marktype].push({client: datum.client, class: datum.class, share: datum.share, y, height,
                text: one.text, ink: one.fill, angle: one.theta, begin: one.startAngle, end: one.endAngle});
        for (const inner of item.items || []) walk(inner);
    })(fedcohort.views.get(key).scenegraph().root);
    return found; }"""
"""The parts of bars or of pies, and the texts on them."""


def test_classes_have_their_names_on_their_colors(shown: Any) -> None:
    """On a gray printer, ten classes could not be told apart."""
    drawn = shown.evaluate(SEGMENTS, "class-shares.0.0")
    named = {(text["client"], text["class"]): text for text in drawn["text"] if text["text"]}
    assert len(drawn["rect"]) > len(named) > 12
    for bar in drawn["rect"]:
        text = named.get((bar["client"], bar["class"]))
        assert (text is not None) == (bar["height"] >= 12), bar
        if text is not None:
            assert text["text"] == bar["class"]
            assert text["y"] == pytest.approx(bar["y"] + bar["height"] / 2)
            assert text["ink"] == f"var(--t{bar['class']})"
    shown.locator('#figure-class-shares .switch input[value="1"]').check(force=True)
    shown.evaluate("fedcohort.drawAll()")
    assert shown.locator("#figure-class-shares .view:not([hidden]).panels.small").count() == 1, "pies stand in rows"
    pies = [shown.evaluate(SEGMENTS, f"class-shares.1.{client}") for client in range(12)]
    for pie in pies:
        slices = {part["class"]: part for part in pie["arc"]}
        for text in pie["text"]:
            part = slices[text["class"]]
            assert text["angle"] == pytest.approx((part["begin"] + part["end"]) / 2)
            assert (text["text"] == text["class"]) == (text["share"] > 0.063), text
    shown.locator('#figure-class-shares .switch input[value="0"]').check(force=True)


@pytest.mark.parametrize(("clients", "classes"), [COUNTED, (COUNTED[0] + 1, 2), (2, COUNTED[1] + 1)])
def test_cells_of_a_large_heat_map_do_not(clients: int, classes: int) -> None:
    facts = {"samples": np.full(clients, classes), "counts": np.ones((clients, classes), dtype=np.int64)}
    found = Clients.of(Portrait(tuple(map(str, range(classes))), facts), 0, None)
    assert found is not None
    figure = class_counts(found, np.arange(clients), PAGE)
    assert figure is not None
    chart = json.dumps([view.panels[0].chart.to_dict(validate=False) for view in figure.views])
    assert ('"type": "text"' in chart) == ((clients, classes) == COUNTED)


def test_a_share_of_one_sample_is_not_zero_percent() -> None:
    """One sample of 225 was "0%" in cells and at the pointer, and 224 of 225 were "100%" beside another class."""
    facts = {"samples": np.array([225, 10]), "counts": np.array([[1, 224], [10, 0]])}
    found = Clients.of(Portrait(("a", "b"), facts), 0, None)
    assert found is not None
    figure = class_counts(found, np.arange(2), PAGE)
    assert figure is not None
    assert figure.data["class_counts"]["share_text"].tolist() == ["<1%", ">99%", "100%"]
    for view in figure.views:
        layers = view.panels[0].chart.to_dict(validate=False)["layer"]
        assert layers[0]["encoding"]["tooltip"][-1]["field"] == "share_text"
    assert layers[1]["encoding"]["text"]["field"] == "share_text", "the last view is that of shares"
    bars = class_shares(found, np.arange(2), PAGE)
    assert bars is not None
    assert bars.data["class_shares"]["share_text"].tolist() == ["<1%", ">99%", "100%"]
    for panel in (panel for view in bars.views for panel in view.panels if not panel.title.startswith("class")):
        shown = panel.chart.to_dict(validate=False)["layer"][0]["encoding"]["tooltip"]
        assert "share_text" in {line["field"] for line in shown}


def test_the_accuracy_of_each_mini_batch_is_a_line_for_each_batch_size(profiled: Any) -> None:
    figure = profiled.locator("#figure-batch-accuracy")
    assert "Accuracy per mini-batch" in figure.inner_text()
    lines = profiled.evaluate(
        "[...document.querySelectorAll('#figure-batch-accuracy .view:not([hidden]) .mark-line path')]"
        ".map(p => (p.getAttribute('d').match(/[ML]/g) || []).length)"
    )
    assert lines == [4, 3, 2, 1]
    data = profiled.evaluate("fedcohort.data.batch_accuracy.filter(r => r.size === '8').map(r => r.accuracy)")
    assert data == list(OVER_BATCHES)


def test_deviations_of_time_and_memory_are_charts_of_their_own(profiled: Any) -> None:
    assert profiled.locator("#figure-deviation .title").inner_text() == "Standard deviation"
    heights = (
        "[...document.querySelectorAll('#figure-deviation .view:not([hidden]) .mark-rect path')]"
        ".map(p => p.getBBox().height)"
    )
    for view, expected in enumerate(([1, 2, 4, 8], None, [1, 1, 1, 1])):
        profiled.locator(f'#figure-deviation .switch input[value="{view}"]').check(force=True)
        profiled.evaluate("fedcohort.drawAll()")
        bars = profiled.evaluate(heights)
        assert len(bars) == 4
        if expected is not None:
            assert [bar / bars[0] for bar in bars] == pytest.approx(expected, abs=0.05)
