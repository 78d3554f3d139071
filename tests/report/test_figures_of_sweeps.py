"""Figures for papers about a sweep: files named by the point, the same order of rows and the same values everywhere."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import fedcohort
from fedcohort.report.charts.sweeps import studies
from fedcohort.report.data.report_data import Story, find_runs, gather
from fedcohort.report.figures.chart_style import paper
from fedcohort.report.figures.figure import Figure
from fedcohort.report.figures.file_names import distinct, file_name, of_rows
from fedcohort.report.figures.paper_figures import CAPTIONS, composed, draw, export
from fedcohort.report.page_sections import about_single_rows, figures
from tests.experiments import UCB, small
from tests.report.headline.test_headline import runs_of
from tests.report.test_figures_of_many_rows import SVG, inside

ALPHAS = (0.1, 1.0, 10.0)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Two strategies at each of three clients' skews and two learning rates."""
    folder = tmp_path_factory.mktemp("sweep")
    sweep = {"federation.partition.alpha": list(ALPHAS), "training.lr": [0.05, 1.0]}
    rows = [{"label": "UCB", "selection": UCB}]
    partition = {"name": "dirichlet_class", "alpha": 1.0, "min_size": 0}
    federation = {"clients": 6, "partition": partition}
    fedcohort.compare(small(rounds=2, seeds=2, variants=rows, sweep=sweep, federation=federation), runs=folder)
    return gather(find_runs([folder]))


@pytest.fixture(scope="module")
def drawn(story: Story) -> dict[str, Figure]:
    return {figure.key: figure for figure in figures(story, paper(1))}


def words(figure: Figure, role: str, view: int = 0) -> list[str]:
    """The texts of a role in the drawing of a view."""
    root = ET.fromstring(draw(composed(figure, figure.views[view], paper(1)), "svg"))
    return ["".join(text.itertext()) for text in inside(root, role, "text")]


def test_figures_of_federations_are_named_by_their_points(drawn: dict[str, Figure], tmp_path: Path) -> None:
    """They were called sizes, sizes-2 and sizes-3."""
    own = {key: figure for key, figure in drawn.items() if "sizes" in figure.names}
    assert list(own) == [f"sizes-alpha-{alpha}" for alpha in ALPHAS], "points with the same clients share a figure"
    for alpha, figure in zip(ALPHAS, own.values(), strict=True):
        assert figure.note.endswith(f"Clients at alpha={alpha}.")
    assert {"accuracy-alpha-0.1-lr-0.05", "accuracy-alpha-10.0-lr-1.0", "terms-ucb-alpha-0.1-lr-1.0"} <= set(drawn)
    files = export([*own.values(), drawn["terms-ucb-alpha-0.1-lr-1.0"]], tmp_path, "svg", paper(1))
    assert [file.name for file in files] == [*(f"{key}.svg" for key in own), "terms-ucb-alpha-0.1-lr-1.0.svg"]


def test_names_of_files_are_readable_and_distinct() -> None:
    assert file_name("alpha=0.1, sizes=lognormal") == "alpha-0.1-sizes-lognormal"
    assert file_name("lr=-0.5") != file_name("lr=0.5")
    assert file_name("power-of-choice, d=10.") == "power-of-choice-d-10"
    assert file_name("α", "row") == "row"
    names = distinct(["a", "a", "a-2", "A".lower()])
    assert len(set(names)) == len(names)
    assert of_rows(["UCB, c=0.1", "ucb, c=0.1"], points=True) == {
        "UCB, c=0.1": "ucb-c-0.1",
        "ucb, c=0.1": "ucb-c-0.1-2",
    }
    assert of_rows(["UCB, c=0.1"], points=False) == {"UCB, c=0.1": "ucb-c-0-1"}


def test_figures_of_the_same_name_are_all_written(drawn: dict[str, Figure], tmp_path: Path) -> None:
    files = export([drawn["wall"], drawn["wall"]], tmp_path, "svg", paper(1), note="All of them.")
    assert [file.name for file in files] == ["wall.svg", "wall-2.svg"]
    assert (tmp_path / CAPTIONS).read_text(encoding="utf-8").endswith("\n\nAll figures\nAll of them.\n")


@pytest.mark.parametrize("key", ["bars", "cost", "wall", "differences"])
def test_rows_have_the_order_of_the_table(key: str, story: Story, drawn: dict[str, Figure]) -> None:
    """Some were ordered by strategy, and others by point."""
    assert story.comparison is not None
    table = [story.comparison.rows[i].label for i in story.comparison.in_groups]
    assert table[:3] == ["uniform, alpha=0.1, lr=0.05", "UCB, alpha=0.1, lr=0.05", "uniform, alpha=0.1, lr=1.0"]
    references = {story.comparison.rows[group.reference].label for group in story.comparison.groups}
    shown = [word for word in words(drawn[key], "role-axis-label") if word in table]
    assert shown == [label for label in table if key != "differences" or label not in references]


@pytest.mark.parametrize("key", ["bars", "wall", "differences"])
def test_every_tick_beside_long_names_has_its_label(key: str, drawn: dict[str, Figure]) -> None:
    """Differences had labels at -30, -10, 10 and 30, and none at 0."""
    root = ET.fromstring(draw(composed(drawn[key], drawn[key].views[0], paper(1)), "svg"))
    axes = [group for group in root.iter(f"{SVG}g") if (group.get("aria-label") or "").startswith("X-axis")]
    texts = [text for axis in axes for text in inside(axis, "role-axis-label", "text")]
    assert len(texts) >= 3
    assert all(float(text.get("opacity") or 1) == 1 for text in texts)
    assert {"0", "0%"} & {"".join(text.itertext()) for text in texts}


def test_settings_are_written_as_in_names_of_rows(drawn: dict[str, Figure]) -> None:
    """Heat maps wrote 1 and 10 where labels have 1.0 and 10.0."""
    for view in (0, 1):
        assert set(words(drawn["heat"], "role-axis-label", view)) == {"0.1", "1.0", "10.0", "0.05"}


def test_curves_over_settings_have_their_values_at_a_logarithmic_axis(tmp_path: Path) -> None:
    """At a linear axis, 0.1 and 1.0 were at the same place, and 10.0 was 1e+1."""
    runs = [
        run
        for i in range(13)
        for alpha in (0.1, 10.0)
        for run in runs_of(
            tmp_path,
            f"{'uniform' if i == 0 else f'row-{i}'}, alpha={alpha}",
            [0.5 + i / 100],
            federation={"clients": 4, "partition": {"name": "dirichlet_class", "alpha": alpha, "min_size": 1}},
            selection="uniform" if i == 0 else {"name": "powd", "d": 3 + i},
        )
    ]
    (figure,) = studies(gather(runs), paper(1))
    assert [word for word in words(figure, "role-axis-label") if "%" not in word] == ["0.1", "10.0"]
    assert "federation.partition.alpha (log)" in words(figure, "role-axis-title")
    assert words(figure, "role-legend-label") == ["uniform", *(f"row-{i}" for i in range(7, 13))]
    assert figure.note.endswith(
        "Colored: the reference and, of the other strategies, the 6 with the highest mean of test accuracy over all values. The rest "
        "is gray."
    )
    root = ET.fromstring(draw(composed(figure, figure.views[0], paper(1)), "svg"))
    symbols = inside(root, "role-legend-symbol", "path")
    assert len(symbols) == 7
    assert not any(symbol.get("stroke-dasharray") for symbol in symbols), "dashes made squares and triangles ragged"
    seeds = [0.5, 0.6]
    others = runs_of(
        tmp_path / "more",
        "more, alpha=0.1",
        seeds,
        federation={"clients": 4, "partition": {"name": "dirichlet_class", "alpha": 0.1, "min_size": 1}},
        selection={"name": "powd", "d": 40},
    )
    (figure,) = studies(gather([*runs, *others]), paper(1))
    assert "the highest mean of test accuracy over their own seeds over all values" in figure.note


def test_captions_at_a_point_say_what_marks_mean(story: Story, drawn: dict[str, Figure]) -> None:
    """They were empty, since rows have other names there."""
    assert "A cell is a client that was selected; all of these were admitted." in drawn["raster-alpha-0.1-lr-0.05"].note
    assert about_single_rows(story) == "", "all rows have panels"
