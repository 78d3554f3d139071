"""Figures for papers with more rows than a legend can name: some rows are named and colored, the rest is gray, and captions say so."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from fedcohort.report.charts.means_and_bands import to_ticks
from fedcohort.report.data.report_data import Story, gather
from fedcohort.report.figures.chart_style import REST, UNCLEAR, paper
from fedcohort.report.figures.figure import Figure
from fedcohort.report.figures.panel_rows import NAMES
from fedcohort.report.figures.paper_figures import CAPTIONS, composed, draw, export
from fedcohort.report.page_sections import figures
from tests.records import exchange
from tests.report.headline.test_headline import runs_of

SVG = "{http://www.w3.org/2000/svg}"
ROWS = 38
BEST = {f"row-{i}" for i in range(ROWS - NAMES + 1, ROWS)}
"""The rows with the highest accuracy."""

CHEAP = "row-5"
"""A row with a low accuracy and the lowest cost, which is therefore on the front."""

pytestmark = pytest.mark.slow  # figures of many rows take some seconds


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Accuracies rise with the number of the row, to 84%; the best row costs most, which is 820 kB."""
    folder = tmp_path_factory.mktemp("many-rows")
    runs = [
        run
        for i in range(ROWS)
        for run in runs_of(
            folder,
            "uniform" if i == 0 else f"row-{i}",
            [0.47 + i / 100 + seed / 1000 for seed in range(2)],
            [exchange(820_000 if i == ROWS - 1 else 1000 if i == 5 else 400_000 - 1000 * i, 0)],
            selection="uniform" if i == 0 else {"name": "powd", "d": 3 + i},
        )
    ]
    return gather(runs)


@pytest.fixture(scope="module")
def drawn(story: Story) -> dict[str, tuple[Figure, ET.Element]]:
    """Each figure with the drawing of its last view, or of its first one if that shows bytes."""
    look = paper(1)
    found = {}
    for figure in figures(story, look):
        view = next((view for view in figure.views if "bytes" in view.name), figure.views[-1])
        found[figure.key] = figure, ET.fromstring(draw(composed(figure, view, look), "svg"))
    return found


def inside(root: ET.Element, role: str, tag: str) -> list[ET.Element]:
    """The elements of groups with a role."""
    return [
        mark
        for group in root.iter(f"{SVG}g")
        if role in (group.get("class") or "")
        for mark in group.iter(f"{SVG}{tag}")
    ]


def legend(root: ET.Element) -> dict[str, str]:
    """Names and colors of a legend."""
    names = ["".join(text.itertext()) for text in inside(root, "role-legend-label", "text")]
    colors = [path.get("stroke") or "" for path in inside(root, "role-legend-symbol", "path")]
    return dict(zip(names, colors, strict=True))


def middle(mark: ET.Element) -> tuple[float, float]:
    """Where a mark is moved to."""
    found = re.search(r"translate\(([-0-9.]+),([-0-9.]+)\)", mark.get("transform") or "")
    assert found is not None
    return float(found[1]), float(found[2])


@pytest.mark.parametrize("key", ["accuracy", "jain"])
def test_lines_of_the_reference_and_of_the_best_rows_are_named_and_colored(
    key: str, drawn: dict[str, tuple[Figure, ET.Element]]
) -> None:
    figure, root = drawn[key]
    named = legend(root)
    assert set(named) == {"uniform", *BEST}
    assert len(set(named.values())) == NAMES, "no color is used again"
    assert REST not in named.values()
    strokes = [path.get("stroke") for path in inside(root, "mark-line role-mark", "path")]
    strokes = [stroke for stroke in strokes if stroke == REST or stroke in named.values()]
    assert strokes == [REST] * (ROWS - NAMES) + strokes[ROWS - NAMES :], "the named ones are in front"
    assert set(strokes[ROWS - NAMES :]) == set(named.values())
    assert (
        "Colored: the reference and the 6 rows with the highest test accuracy. The other rows are gray." in figure.note
    )


def test_points_on_the_front_are_named_too_and_none_is_beyond_the_last_tick(
    drawn: dict[str, tuple[Figure, ET.Element]],
) -> None:
    figure, root = drawn["tradeoff"]
    named = legend(root)
    assert {"uniform", CHEAP, *BEST} <= set(named)
    assert len(set(named.values())) == len(named)
    points = inside(root, "mark-symbol role-mark", "path")
    assert len(points) == ROWS
    grays = [point for point in points if point.get("stroke") == REST]
    assert len(grays) == ROWS - len(named)
    assert all(float(point.get("fill-opacity") or 1) == 0 for point in grays), "a row on the front has its name"
    assert "and the rows that are filled, at most the 13 best of them. The other rows are gray." in figure.note
    ticks = [middle(mark) for mark in inside(root, "role-axis-tick", "line")]
    assert max(x for x, _ in map(middle, points)) <= max(x for x, _ in ticks)
    labels = {"".join(text.itertext()) for text in inside(root, "role-axis-label", "text")}
    assert {"1M", "100%"} & labels, labels


def test_marks_of_differences_are_gray_unless_they_are_clear(drawn: dict[str, tuple[Figure, ET.Element]]) -> None:
    """They were almost black, and the caption called them gray."""
    figure, root = drawn["differences"]
    marks = inside(root, "mark-symbol role-mark", "path")
    assert len(marks) == (ROWS - 1) * 3, "a mean and two seeds"
    assert {mark.get("stroke") or mark.get("fill") for mark in marks} == {UNCLEAR}
    assert "Colored or black: clear after correction" in figure.note


def test_bars_have_the_same_colors(drawn: dict[str, tuple[Figure, ET.Element]]) -> None:
    figure, root = drawn["bars"]
    fills = [path.get("fill") for path in inside(root, "mark-rect role-mark", "path")]
    assert fills.count(REST) == ROWS - NAMES
    assert set(fills) - {REST} == set(legend(drawn["accuracy"][1]).values())
    assert figure.note.endswith("The other rows are gray.")


@pytest.mark.parametrize("key", ["cost", "bars"])
def test_no_bar_is_beyond_the_last_tick(key: str, drawn: dict[str, tuple[Figure, ET.Element]]) -> None:
    _, root = drawn[key]
    ends = [
        float(start) + float(width)
        for path in inside(root, "mark-rect role-mark", "path")
        for start, width in re.findall(r"^M([0-9.]+),[0-9.]+h([0-9.]+)v", path.get("d") or "")
    ]
    assert len(ends) >= ROWS
    assert max(ends) <= max(middle(mark)[0] for mark in inside(root, "role-axis-tick", "line")) + 0.5


def test_the_file_of_captions_says_which_rows_are_colored(story: Story, tmp_path: Path) -> None:
    look = paper(1)
    chosen = [figure for figure in figures(story, look) if figure.key in ("accuracy", "tradeoff", "bars")]
    files = export(chosen, tmp_path, "svg", look)
    parts = (tmp_path / CAPTIONS).read_text(encoding="utf-8").split("\n\n")
    assert len(parts) == len(files) == 7
    assert all("Colored: the reference" in part and "The other rows are gray." in part for part in parts)


def test_axes_end_at_ticks() -> None:
    assert to_ticks([0.0, 820_000.0], 4) == [0.0, 1_000_000.0]
    assert to_ticks([0.0, 1.0], 5) == [0.0, 1.0]
    assert to_ticks([0.927, 0.993], 5) == [0.92, 1.0]
    rng = np.random.default_rng(0)
    for low, size in rng.uniform(0.0, 100.0, (50, 2)).tolist():
        ends = to_ticks([low, low + size + 0.01], 5)
        assert ends[0] <= low
        assert ends[1] >= low + size
        assert to_ticks(ends, 5) == ends
