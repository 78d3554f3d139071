"""Figures for papers that are longer than a page are written in parts, which show every row and every panel once."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from fedcohort.report.data.report_data import Story, gather
from fedcohort.report.figures.chart_style import paper
from fedcohort.report.figures.figure_parts import TALLEST, parts
from fedcohort.report.figures.paper_figures import CAPTIONS, composed, drawn_in_parts, export
from fedcohort.report.page_sections import figures
from tests.records import exchange
from tests.report.headline.test_headline import runs_of

pytestmark = pytest.mark.slow

SVG = "{http://www.w3.org/2000/svg}"
ROWS = 64


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder = tmp_path_factory.mktemp("long")
    runs = [
        run
        for i in range(ROWS)
        for run in runs_of(
            folder,
            "uniform" if i == 0 else f"row-{i}",
            [0.1 + i / 100 + seed / 1000 for seed in range(2)],
            [exchange(400_000 - 1000 * i, 0)],
            selection="uniform" if i == 0 else {"name": "powd", "d": 3 + i},
        )
    ]
    return gather(runs)


def words(svg: str) -> list[str]:
    return ["".join(text.itertext()) for text in ET.fromstring(svg).iter(f"{SVG}text")]


def size(svg: str) -> tuple[float, float]:
    root = ET.fromstring(svg)
    return float(root.get("width") or 0), float(root.get("height") or 0)


def test_no_figure_is_longer_than_a_page_and_parts_have_every_row_once(story: Story) -> None:
    """Bars and differences of 100 rows were 1,100 points high, and panels of 38 rows 1,000: a page has about 670."""
    look, names = paper(1), ["uniform", *(f"row-{i}" for i in range(1, ROWS))]
    split = {}
    for figure in figures(story, look):
        split[figure.key] = drawn = drawn_in_parts(figure, figure.views[0], look)
        assert all(high <= TALLEST for _, high in map(size, drawn)), figure.key
        assert all(wide == look.width for wide, _ in map(size, drawn)), figure.key
    assert len(split["bars"]) == len(split["cost"]) == 2
    for key, rows in (("bars", names), ("differences", names[1:]), ("cost", names)):
        shown = [word for svg in split[key] for word in words(svg) if word in names]
        assert shown == rows, f"{key}: every row once, in order"
        ticks = [[word for word in words(svg) if re.fullmatch(r"[−\d.]+[%kM]?", word)] for svg in split[key]]
        assert ticks[0] == ticks[1] != [], f"{key}: parts have the same axis"
    assert len(split["selections"]) > 1


def test_equal_values_stand_at_the_same_place_in_all_parts(tmp_path: Path) -> None:
    """Parts without long names had wider bars for the same values, at the same axis."""
    names = ["uniform", *(f"row-{i}" if i < 30 else f"a row with a long name {i}" for i in range(1, ROWS))]
    runs = [
        run
        for i, name in enumerate(names)
        for run in runs_of(tmp_path, name, [0.5, 0.51], selection="uniform" if i == 0 else {"name": "powd", "d": 3 + i})
    ]
    look = paper(1)
    for figure in figures(gather(runs), look):
        if figure.key in ("bars", "differences", "cost"):
            drawn = drawn_in_parts(figure, figure.views[0], look)
            assert len(drawn) == 2
            places = [re.findall(r"translate\(([0-9.]+),", svg)[0] for svg in drawn]
            assert places[0] == places[1], figure.key
            wide = [
                re.findall(
                    r'class="background"[^>]* d="M0.5,0.5h([0-9.]+)v|class="background"[^>]* d="M0,0h([1-9][0-9.]*)v',
                    svg,
                )[0]
                for svg in drawn
            ]
            assert wide[0] == wide[1], figure.key


def test_files_and_captions_number_the_parts(story: Story, tmp_path: Path) -> None:
    """Captions of parts counted the panels of all parts only."""
    chosen = [figure for figure in figures(story, paper(1)) if figure.key in ("bars", "accuracy", "selections")]
    files = [file.name for file in export(chosen, tmp_path, "svg", paper(1))]
    assert [name for name in files if "part" in name] == [
        *("selections-part-1.svg", "selections-part-2.svg"),
        *("bars-part-1.svg", "bars-part-2.svg"),
    ]
    captions = (tmp_path / CAPTIONS).read_text(encoding="utf-8")
    assert "bars-part-1.svg\nFinal accuracy, part 1 of 2, rows 1 to 32 of 64. Test accuracy" in captions
    assert "bars-part-2.svg\nFinal accuracy, part 2 of 2, rows 33 to 64 of 64. Test accuracy" in captions
    panels = [
        (int(end), int(most))
        for end, most in re.findall(r"client was selected, seed 0, part . of 2, panels \d+ to (\d+) of (\d+)", captions)
    ]
    drawn = [(tmp_path / f"selections-part-{part}.svg").read_text(encoding="utf-8") for part in (1, 2)]
    titles = [svg.count("Jain's index") for svg in drawn]
    assert panels == [(titles[0], sum(titles)), (sum(titles), sum(titles))]


def test_short_figures_stay_whole_and_charts_without_rows_are_made_smaller(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = paper(1)
    lines = next(figure for figure in figures(story, look) if figure.key == "accuracy")
    specification = composed(lines, lines.views[0], look)
    assert parts(specification, 300) == [specification]
    assert parts(specification, 900) == [specification]
    monkeypatch.setattr("fedcohort.report.figures.paper_figures.TALLEST", 100)
    (small,) = drawn_in_parts(lines, lines.views[0], look)
    wide, high = size(small)
    assert high == 100
    assert wide < 252
