"""Figures for papers: files of the right size, legible in grey, for every chart of the report."""

import io
import re
import xml.etree.ElementTree as ET
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import fedcohort
from fedcohort.cli import cli
from fedcohort.report.charts.axes_and_legends import legend_columns as columns
from fedcohort.report.charts.score_functions import score_functions
from fedcohort.report.charts.sweeps import swept
from fedcohort.report.data.report_data import find_runs, gather
from fedcohort.report.figures.chart_style import CLASSES, DASHES, PAGE, PAGE_PARTS, STRATEGIES, SYMBOLS, WIDTHS, paper
from fedcohort.report.figures.figure import Panel, View
from fedcohort.report.figures.panel_rows import OWN_COLORS
from fedcohort.report.figures.paper_figures import _wrap_title, composed, converted, draw, drawn_to_width
from fedcohort.report.page_assets import DARK_CLASSES, DARK_STRATEGIES, LIGHT_CLASSES, LIGHT_STRATEGIES, style
from fedcohort.report.page_sections import figures
from tests.experiments import UCB, small
from tests.repetitions import slow_after

SVG = "{http://www.w3.org/2000/svg}"


def marks(svg: bytes) -> int:
    """Things that were drawn: paths and texts inside mark groups."""
    root = ET.fromstring(svg)
    groups = [g for g in root.iter(f"{SVG}g") if "role-mark" in (g.get("class") or "")]
    return sum(len([child for child in g if child.tag != f"{SVG}g"]) for g in groups)


@pytest.mark.parametrize("columns", slow_after(1, [1, 2]))
def test_every_figure_has_marks_and_fits_its_columns(runs: Path, columns: int) -> None:
    look = paper(columns)
    drawn = 0
    for figure in figures(gather(find_runs([runs])), look):
        view = figure.views[-1]
        svg = drawn_to_width(figure, view, look).encode()
        assert marks(svg) > 0, figure.key
        assert b"var(--" not in svg, f"{figure.key}: a colour of the page"
        root = ET.fromstring(svg)
        assert float(root.get("width") or 0) == WIDTHS[columns], figure.key
        scale = WIDTHS[columns] / float((root.get("viewBox") or "").split()[2])
        assert scale > 0.97, f"{figure.key}: scaled down by {scale}, so that its letters are small"
        drawn += 1
    assert drawn >= 16


@pytest.mark.parametrize("columns", [1, 2])
def test_the_command_writes_figures_over_one_or_two_columns(runs: Path, columns: int, tmp_path: Path) -> None:
    options = ["--columns", str(columns), "--only", "bars", "--format", "svg", "--output", str(tmp_path / "made")]
    result = CliRunner().invoke(cli, ["figures", str(runs), *options])
    assert result.exit_code == 0, result.output
    (file,) = (tmp_path / "made").glob("*.svg")
    assert float(ET.parse(file).getroot().get("width") or 0) == WIDTHS[columns]


@pytest.mark.parametrize("columns", ["0", "3", "two"])
def test_a_paper_has_one_or_two_columns(columns: str) -> None:
    result = CliRunner().invoke(cli, ["figures", "--columns", columns])
    assert result.exit_code == 2
    assert f"--columns {columns}: give 1 or 2" in result.stderr


@pytest.mark.parametrize("letter", ["\x00", "\x07", "\x1b", "\ufffe", "\ud800"])
def test_names_with_characters_that_an_svg_cannot_have_are_drawn(letter: str) -> None:
    """The program that draws would end this process."""
    axes = {"x": {"field": f"a{letter}", "type": "nominal"}, "y": {"field": "b", "type": "quantitative"}}
    values = [{f"a{letter}": f"x{letter}y", "b": 1}]
    drawn = draw({"data": {"values": values}, "mark": "bar", "encoding": axes}, "svg")
    assert [text for text in ET.fromstring(drawn).itertext() if re.fullmatch("x.y", text)]


def test_lines_have_a_legend_with_dashes(runs: Path) -> None:
    look = paper(1)
    figure = next(f for f in figures(gather(find_runs([runs])), look) if f.key == "accuracy")
    root = ET.fromstring(draw(composed(figure, figure.views[0], look), "svg"))
    words = {"".join(text.itertext()) for text in root.iter(f"{SVG}text")}
    assert {"uniform", "UCB", "loss", "test accuracy", "round"} <= words
    dashes = {path.get("stroke-dasharray") for path in root.iter(f"{SVG}path") if path.get("stroke-dasharray")}
    assert len(dashes) >= 2
    legend = next(group for group in root.iter(f"{SVG}g") if "role-legend" in (group.get("class") or "").split())
    swatches = [path.get("d") or "" for path in legend.iter(f"{SVG}path") if path.get("stroke-dasharray")]
    ends = [[float(part.split(",")[0]) for part in re.findall(r"[-0-9.]+,0", path)] for path in swatches]
    assert len(ends) == 3
    assert all(right - left >= 1.5 * max(map(sum, DASHES)) for left, right in ends), "a whole pattern of dashes"


def luminance_of(color: str) -> float:
    """The relative luminance of a color, 1 for white."""
    linear = np.power([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)], 2.2)
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def lab(color: str) -> np.ndarray:
    """A color in CIELAB, in which distances are about as large as they look."""
    own = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(own <= 0.04045, own / 12.92, ((own + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = np.cbrt(to_xyz @ linear / np.array([0.9505, 1, 1.089]))
    found: np.ndarray = np.array([116 * xyz[1] - 16, 500 * (xyz[0] - xyz[1]), 200 * (xyz[1] - xyz[2])])
    return found


@pytest.mark.parametrize("colors", [STRATEGIES, LIGHT_STRATEGIES, DARK_STRATEGIES])
def test_no_two_strategies_have_nearly_the_same_color(colors: tuple[str, ...]) -> None:
    """Of six rows, the first and the sixth were both blue, at a distance of 11."""
    distances = [float(np.linalg.norm(lab(a) - lab(b))) for a, b in combinations(colors, 2)]
    assert len(distances) == 28
    assert min(distances) >= 24


VISIONS = {
    "all": np.eye(3),
    "protanopia": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "deuteranopia": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "tritanopia": np.array([[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]]),
}
"""What is left of linear red, green and blue (Machado, Oliveira and Fernandes 2009, severity 1)."""


def as_seen(color: str, vision: str) -> str:
    """The color that readers with normal color vision see as others see this one."""
    own = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(own <= 0.04045, own / 12.92, ((own + 0.055) / 1.055) ** 2.4)
    seen = np.clip(VISIONS[vision] @ linear, 0, 1)
    coded = np.where(seen <= 0.0031308, 12.92 * seen, 1.055 * seen ** (1 / 2.4) - 0.055)
    return "#" + "".join(f"{round(255 * part):02X}" for part in coded)


@pytest.mark.parametrize(("colors", "ground"), [(LIGHT_CLASSES, "#FFFFFF"), (DARK_CLASSES, "#14181D")])
def test_colors_of_classes_are_seen_on_the_page_and_told_apart(colors: tuple[str, ...], ground: str) -> None:
    """The sky blue, sand and gray of the scheme for papers had a contrast of less than 2 to a white page."""
    levels = [(luminance_of(color) + 0.05) / (luminance_of(ground) + 0.05) for color in colors]
    assert min(max(level, 1 / level) for level in levels) >= 3
    for vision in VISIONS:
        seen = [lab(as_seen(color, vision)) for color in colors]
        distances = [float(np.linalg.norm(a - b)) for a, b in combinations(seen, 2)]
        assert min(distances) >= 11, vision
    assert len(set(colors)) == len(CLASSES) == 10


@pytest.mark.parametrize(
    ("heat", "cold", "colors"), [("#17508F", "#B3530A", LIGHT_CLASSES), ("#7DB8F0", "#F0A05C", DARK_CLASSES)]
)
def test_parts_of_bars_on_the_page_are_told_apart_in_grey(heat: str, cold: str, colors: tuple[str, ...]) -> None:
    assert f"--heat:{heat.lower()};--cold:{cold.lower()}" in style()
    assert PAGE.parts(9) == ["var(--heat)", "var(--cold)", *(f"var(--c{i})" for i in PAGE_PARTS)]
    levels = [luminance_of(color) + 0.05 for color in (cold, *(colors[i] for i in PAGE_PARTS))]
    assert min(max(a / b, b / a) for a, b in pairwise(levels)) > 1.4


def test_strategies_are_told_apart_in_grey_and_by_shape() -> None:
    """Neighbours in the list differ in dash and symbol, and no two of the first five have the same lightness and dash."""
    assert len({tuple(d) for d in DASHES}) == len(STRATEGIES) == len(set(SYMBOLS))
    luminance = np.array([luminance_of(color) for color in STRATEGIES])
    contrast = 1.05 / (luminance + 0.05)
    assert (contrast >= 2.9).all(), "thin lines vanish on white"
    look = paper()
    assert len({tuple(d) for d in look.dashes(8)}) == 8
    assert len(set(look.colors(OWN_COLORS))) == OWN_COLORS, "lines of one color cannot be told apart where they cross"
    assert all(luminance_of(color) < 0.31 for color in look.colors(OWN_COLORS))
    pairs = [(look.colors(16)[i], tuple(look.dashes(16)[i])) for i in range(16)]
    assert len(set(pairs)) == 16


@pytest.mark.parametrize(
    ("format_", "start", "option"),
    [("pdf", b"%PDF", "--out"), ("png", b"\x89PNG", "-o"), ("svg", b"<svg", "--output")],
)
def test_the_command_writes_files(runs: Path, tmp_path: Path, format_: str, start: bytes, option: str) -> None:
    where = ["figures", str(runs), "--format", format_, option, str(tmp_path / "made"), "--only", "accuracy"]
    result = CliRunner().invoke(cli, where)
    assert result.exit_code == 0, result.output
    *files, captions = sorted((tmp_path / "made").iterdir(), key=lambda file: (file.suffix == ".txt", file))
    assert [file.stem for file in files] == ["accuracy-bytes", "accuracy-rounds", "accuracy-simulated-time"]
    assert all(file.read_bytes().startswith(start) for file in files)
    assert all(str(file) in result.output for file in [*files, captions])
    parts = captions.read_text(encoding="utf-8").split("\n\n")
    assert sorted(part.splitlines()[0] for part in parts) == [file.name for file in files]
    assert "Test accuracy, rounds. Mean over seeds 0, 1, 2; the band is ± one standard deviation." in parts[0]


def test_captions_have_the_full_names_of_shortened_rows(tmp_path: Path) -> None:
    ends = ("all the training data", "one mini-batch")
    long = [f"power-of-choice with the loss on {end} of each client" for end in ends]
    rows = [{"label": label, "selection": name} for label, name in zip(long, ("powd", "cpowd"), strict=True)]
    swept: dict[str, Any]
    for name, swept in (("plain", {}), ("swept", {"federation.clients": [4, 5]})):
        fedcohort.compare(small(rounds=1, variants=rows, sweep=swept), runs=tmp_path / name)
        story = gather(find_runs([tmp_path / name]))
        shortened = [label for label in (*story.labels, *story.row_looks.names.values()) if "…" in label]
        assert len(set(shortened)) >= 2
        where = ["figures", str(tmp_path / name), "--format", "svg", "--only", "wall", "--only", "bars"]
        result = CliRunner().invoke(cli, [*where, "-o", str(tmp_path / f"{name}-figures")])
        assert result.exit_code == 0, result.output
        text = (tmp_path / f"{name}-figures" / "captions.txt").read_text(encoding="utf-8")
        assert "the table above" not in text
        names = dict(line.split(": ", 1) for line in text.split("Shortened names\n")[1].splitlines())
        assert set(shortened) == set(names)
        assert all(any(label in name for label in long) for name in names.values())
        assert len(set(names.values())) == len(names)


def test_titles_of_panels_break_at_underscores() -> None:
    chart: dict[str, Any] = {"title": {"text": "clustered_similarity · Jain's index 0.614"}, "width": 60}
    _wrap_title(chart, paper())
    lines = chart["title"]["text"]
    assert lines[0] == "clustered_"
    assert "".join(lines).replace(" ", "") == "clustered_similarity·Jain'sindex0.614"


def test_a_figure_that_is_not_there(runs: Path) -> None:
    result = CliRunner().invoke(cli, ["figures", str(runs), "--only", "acuracy"])
    assert result.exit_code == 2
    assert "did you mean 'accuracy'" in result.output


def test_figures_of_single_strategies_are_chosen_together(tmp_path: Path) -> None:
    """Only the name with the strategy was known, and with many strategies, the message did not list it."""
    rows = [{"label": label, "selection": {"name": "ucb", "c": c}} for label, c in (("low", 0.1), ("high", 2.0))]
    compared = fedcohort.compare(small(rounds=3, variants=rows, data={"validation": 0.1}), runs=tmp_path / "runs")
    files = compared.figures(tmp_path / "figures", suffix="svg", only=["terms"])
    assert [file.name for file in files] == ["terms-low.svg", "terms-high.svg"]
    (alone,) = compared.figures(tmp_path / "one", suffix="svg", only=["terms-high"])
    assert alone.name == "terms-high.svg"


def sweep(folder: Path, **grid: Any) -> Any:
    rows = [{"label": "UCB", "selection": UCB}]
    fedcohort.compare(small(rounds=2, variants=rows, sweep=grid), runs=folder)
    return gather(find_runs([folder]))


def test_a_sweep_of_one_number_is_a_curve_and_of_two_a_heat_map(tmp_path: Path) -> None:
    one = sweep(tmp_path / "one", **{"selection.k": [2, 4]})
    found = swept(one)
    assert found is not None
    assert found.keys == ["selection.k"]
    assert found.frame["strategy"].tolist() == ["uniform", "uniform", "UCB", "UCB"]
    assert found.frame["selection.k"].tolist() == [2, 4, 2, 4]
    two = sweep(tmp_path / "two", **{"selection.k": [2, 4], "training.lr": [0.02, 0.1]})
    look = paper()
    heat = next(f for f in figures(two, look) if f.key == "heat")
    assert [view.name for view in heat.views] == ["accuracy", "difference"]
    table = {(row["strategy"], row["x"], row["y"]): row["accuracy"] for _, row in heat.data["heat"].iterrows()}
    gaps = heat.data["heat_difference"]
    for _, row in gaps.iterrows():
        expected = table["UCB", row["x"], row["y"]] - table["uniform", row["x"], row["y"]]
        assert row["accuracy"] == pytest.approx(expected)
    assert len(gaps) == 4
    for figure in [heat, next(f for f in figures(one, look) if f.key == "levels")]:
        for view in figure.views:
            assert marks(draw(composed(figure, view, look), "svg")) >= 4


def test_score_functions_meet_the_threshold_where_the_thesis_says() -> None:
    figure = score_functions(paper())
    assert figure.data["scores_met"]["f"].round(6).tolist() == [0.75, 0.346574, 0.554931]
    assert marks(draw(composed(figure, figure.views[0], paper()), "svg")) > 0


def test_legends_use_the_width_and_stay_inside() -> None:
    look = paper(1)
    assert columns(["uniform", "UCB"], look) == 2
    assert columns(["uniform", "UCB", "Oort", "FLASH", "conformal participation"], look) == 2
    assert columns(["a name of forty characters, more or less"] * 3, look) == 1


def test_parts_of_bars_are_told_apart_in_grey() -> None:
    """Neighbours among the first five differ in lightness by more than a tenth of the way from black to white."""
    linear = [[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in paper().parts(5)]
    grey = [float(np.dot([0.2126, 0.7152, 0.0722], np.power(c, 2.2)) ** (1 / 2.2)) for c in linear]
    assert min(abs(a - b) for i, a in enumerate(grey) for b in grey[:i]) > 0.08
    assert min(abs(a - b) for a, b in pairwise(grey)) > 0.1


def test_a_single_panel_keeps_its_title() -> None:
    figure = score_functions(paper())
    (panel,) = figure.views[0].panels
    titled = View("scores", [Panel(panel.chart, "uniform · Jain 0.9")])
    assert composed(figure, titled, paper())["title"]["text"] == "uniform · Jain 0.9"


def test_a_pdf_is_as_wide_as_a_column() -> None:
    look = paper(1)
    figure = score_functions(look)
    pdf = converted(drawn_to_width(figure, figure.views[0], look), "pdf")
    found = re.search(rb"/MediaBox ?\[([0-9. ]+)\]", pdf)
    assert found is not None
    assert float(found[1].split()[2]) == pytest.approx(252, abs=0.01)


def test_a_png_is_white_up_to_its_edges(runs: Path) -> None:
    """What filled the column beside pies was transparent, and black in a dark viewer."""
    look = paper(2)
    drawn = {figure.key: figure for figure in figures(gather(find_runs([runs])), look)}
    for figure in (drawn["class-shares"], drawn["selections"], score_functions(look)):
        for view in figure.views:
            content = converted(drawn_to_width(figure, view, look), "png", 1)
            opened = Image.open(io.BytesIO(content))
            assert opened.info["dpi"] == pytest.approx((72, 72), abs=0.1)
            image = opened.convert("RGBA")
            assert image.getchannel("A").getextrema() == (255, 255)
            assert image.getpixel((image.width - 1, image.height - 1)) == (255, 255, 255, 255)


def test_a_png_has_the_width_of_the_other_formats(runs: Path) -> None:
    look = paper(1)
    figure = next(figure for figure in figures(gather(find_runs([runs])), look) if figure.key == "selections")
    svg = drawn_to_width(figure, figure.views[0], look)
    small, large = (Image.open(io.BytesIO(converted(svg, "png", pixels))) for pixels in (1, 4))
    assert large.width == pytest.approx(4 * small.width, abs=4)
    points = [image.width / image.info["dpi"][0] * 72 for image in (small, large)]
    assert points == pytest.approx([252, 252], abs=1.5)


def test_hollow_points_and_seeds_can_be_seen_in_papers(runs: Path) -> None:
    """Lines as wide as on the page closed the small symbols of papers."""
    look = paper(2)
    drawn = {figure.key: figure for figure in figures(gather(find_runs([runs])), look)}
    figure = drawn["tradeoff"]
    for view in figure.views:
        hollow = re.findall(r'<path [^>]*fill-opacity="0"[^>]*>', draw(composed(figure, view, look), "svg").decode())
        assert all('stroke-width="1"' in mark for mark in hollow)
    figure = drawn["differences"]
    svg = draw(composed(figure, figure.views[0], look), "svg").decode()
    assert 'stroke-width="2.5"' not in svg
    assert 'stroke-width="1.2"' in svg


def test_the_accuracy_of_the_worst_clients_is_named_on_its_axis(runs: Path) -> None:
    """The worst tenth and the mean of all clients are figures of their own in papers, with the same axis title until now."""
    look = paper(1)
    (figure,) = [one for one in figures(gather(find_runs([runs])), look) if one.key == "client-accuracy"]
    said = [draw(composed(figure, view, look), "svg").decode() for view in figure.views]
    assert "accuracy, worst tenth of the clients<" in said[0]
    assert "accuracy, mean of all clients<" in said[1]


def test_file_names_name_the_strategy(runs: Path) -> None:
    keys = {figure.key for figure in figures(gather(find_runs([runs])), paper(1))}
    assert {"terms-ucb", "map-ucb", "terms-loss"} <= keys


def test_long_titles_of_panels_are_broken_into_lines() -> None:
    figure = score_functions(paper())
    (panel,) = figure.views[0].panels
    long = Panel(panel.chart, "conformal participation, alpha=0.1, theta=0.25, and more · Jain's index 0.833")
    lines = composed(figure, View("scores", [long, long]), paper())["concat"][0]["title"]["text"]
    assert len(lines) > 1
    assert max(map(len, lines)) <= 27


def test_the_legend_of_score_functions_has_their_dashes() -> None:
    """It had the dots of the chart, with the dashes around them, which looked like blots."""
    figure = score_functions(paper())
    line = figure.views[0].panels[0].chart.to_dict(validate=False)["layer"][1]
    assert [line["encoding"][channel]["legend"]["symbolType"] for channel in ("color", "strokeDash")] == ["stroke"] * 2
