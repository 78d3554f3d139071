"""Curves over a swept number, and heat maps over two."""

import json
import math
import re
from pathlib import Path

import pytest

from fedcohort.record import Run
from fedcohort.report.charts.sweeps import STEP, studies
from fedcohort.report.data.report_data import gather
from fedcohort.report.figures.chart_style import PAGE, paper
from fedcohort.report.figures.paper_figures import composed, draw
from tests.experiments import UCB
from tests.report.headline.test_headline import runs_of

LONG = "a strategy with a name that is much too long for the legend of a chart, and for its lines, at any width"


def over_alpha(folder: Path) -> list[Run]:
    """Two strategies at two values of alpha, with two seeds each."""
    return [
        run
        for name in ("uniform", LONG)
        for alpha in (0.1, 1.0)
        for run in runs_of(
            folder,
            f"{name}, alpha={alpha}",
            [0.5, 0.6],
            federation={"clients": 4, "partition": {"name": "dirichlet_class", "alpha": alpha, "min_size": 1}},
            selection="uniform" if name == "uniform" else UCB,
        )
    ]


def test_tooltips_have_the_full_names_of_strategies(tmp_path: Path) -> None:
    (figure,) = studies(gather(over_alpha(tmp_path)), PAGE)
    assert LONG not in set(figure.data["levels"]["strategy"]), "it is shortened in the legend"
    assert set(figure.data["levels"]["name"]) == {"uniform", LONG}
    drawn = json.dumps(figure.views[0].panels[0].chart.to_dict())
    assert '{"field": "name", "title": "strategy", "type": "nominal"}' in drawn


def test_error_bars_of_strategies_stand_side_by_side(tmp_path: Path) -> None:
    """Those of equal means covered each other. Both are equally far from the tick of their value."""
    runs, look = over_alpha(tmp_path), paper(1)
    (figure,) = studies(gather(runs), look)
    svg = draw(composed(figure, figure.views[0], look), "svg").decode()
    ticks = [float(x) for x in re.findall(r'<line transform="translate\(([\d.]+),0\)" x2="0" y2="4"', svg)]
    assert len(ticks) == 2
    bars = [float(x) for x in re.findall(r'aria-roledescription="rule mark"[^>]*transform="translate\(([\d.]+),', svg)]
    dots = [float(x) for x in re.findall(r'aria-roledescription="point"[^>]*transform="translate\(([\d.]+),', svg)]
    assert sorted(bars) == pytest.approx(sorted(dots), abs=0.01)
    expected = [tick + side * STEP / 4 for tick in ticks for side in (-1, 1)]
    assert sorted(bars) == pytest.approx(expected, abs=0.51), "a paper has half of the distance"
    assert figure.note.endswith("Strategies stand side by side at each value.")
    (single,) = studies(gather([run for run in runs if run.meta["seed"] == "0"]), look)
    assert "xOffset" not in json.dumps(single.views[0].panels[0].chart.to_dict()), "there are no error bars"
    assert "side by side" not in single.note


def test_tooltips_of_heat_maps_have_the_full_names_of_strategies(tmp_path: Path) -> None:
    runs = [
        run
        for name in ("uniform", LONG)
        for alpha in (0.1, 1.0)
        for clients in (4, 5)
        for run in runs_of(
            tmp_path,
            f"{name}, alpha={alpha}, clients={clients}",
            [0.5, 0.6],
            federation={
                "clients": clients,
                "partition": {"name": "dirichlet_class", "alpha": alpha, "min_size": 1},
            },
            selection="uniform" if name == "uniform" else UCB,
        )
    ]
    look = paper(2)
    (figure,) = studies(gather(runs), look)
    assert [view.name for view in figure.views] == ["accuracy", "difference"]
    for view, names in zip(figure.views, ({"uniform", LONG}, {LONG}), strict=True):
        svg = draw(composed(figure, view, look), "svg").decode()
        cells = re.findall(r'aria-label="[^"]*strategy: ([^;"]*)[^"]*"[^>]*aria-roledescription="rect mark"', svg)
        assert len(cells) == 4 * len(names)
        assert set(cells) == names
        assert f">{LONG}<" not in svg, "panels have the short name"


def test_a_cell_of_a_heat_map_is_a_mean_over_further_settings(tmp_path: Path) -> None:
    """The caption spoke of seed 0 only, and of a cell with a row without a score the map had the mean of the others."""
    runs = [
        run
        for name in ("uniform", "b")
        for k in (2, 3)
        for epochs in (1, 2)
        for momentum in (0.0, 0.5)
        for run in runs_of(
            tmp_path,
            f"{name}, k={k}, epochs={epochs}, momentum={momentum}",
            [
                (math.nan if name == "b" and k == 3 and epochs == 2 and momentum else 0.1 * k)
                + 0.2 * epochs
                + momentum / 10
            ],
            selection={"name": "uniform", "k": k} if name == "uniform" else UCB | {"k": k},
            training={"epochs": epochs, "momentum": momentum},
        )
    ]
    (figure,) = studies(gather(runs), PAGE)
    for view in figure.views:
        assert (
            "for training.epochs × training.momentum. Each cell is a mean over the values of selection.k." in view.note
        )
    cells = figure.data["heat"].set_index(["strategy", "x", "y"])["accuracy"]
    assert cells["uniform", "1", "0.0"] == pytest.approx((0.2 + 0.3) / 2 + 0.2)
    assert cells["uniform", "2", "0.5"] == pytest.approx((0.2 + 0.3) / 2 + 0.4 + 0.05)
    assert math.isnan(cells["b", "2", "0.5"])
