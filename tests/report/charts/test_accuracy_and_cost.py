"""Accuracy against cost: which strategies are on the front, and with which interval."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from fedcohort import measures
from fedcohort.report.charts.accuracy_and_cost import HEIGHT, accuracy_and_cost, front
from fedcohort.report.charts.cost_caption import ALL_NAMED
from fedcohort.report.charts.names_beside_points import WIDTHS
from fedcohort.report.data.report_data import gather
from fedcohort.report.figures.chart_style import PAGE, paper
from fedcohort.report.figures.paper_figures import composed, draw, drawn_to_width
from tests.experiments import UCB
from tests.records import exchange
from tests.report.headline.test_headline import runs_of

CHEAP, DEAR = [exchange(10, 10)], [exchange(100, 100)]


def test_the_front() -> None:
    assert front([0.8, 0.9, 0.7], [1.0, 2.0, 1.0]) == [True, True, False]
    assert front([0.8, 0.8], [1.0, 1.0]) == [True, True], "equal rows beat neither of the two"
    assert front([0.8, 0.8, 0.8], [1.0, 2.0, 0.5]) == [False, False, True]


def test_points_have_costs_accuracies_and_intervals(tmp_path: Path) -> None:
    high, low = [0.8, 0.82, 0.81], [0.5, 0.52, 0.51]
    runs = [
        *runs_of(tmp_path, "uniform", low, CHEAP),
        *runs_of(tmp_path, "best", high, DEAR, selection=UCB),
        *runs_of(tmp_path, "beaten", [0.4, 0.5, 0.6], DEAR, selection={"name": "powd", "d": 4}),
    ]
    figure = accuracy_and_cost(gather(runs), PAGE)
    assert figure is not None
    assert [view.name for view in figure.views] == [
        "bytes sent and received",
        "client passes",
        "simulated time of all rounds",
    ]
    rows = figure.data["tradeoff_bytes"].set_index("strategy")
    assert rows["x"].tolist() == [20, 200, 200]
    assert rows["front"].tolist() == [True, True, False]
    interval = measures.paired_interval(high, [0.0] * 3)
    assert list(rows.loc["best", ["accuracy", "low", "high"]]) == pytest.approx(list(interval))
    assert figure.data["tradeoff_client_passes"]["front"].tolist() == [False, True, False], "equal passes"
    svg = draw(composed(figure, figure.views[0], paper(1)), "svg").decode()
    assert all(f">{name}<" in svg for name in ("uniform", "best", "beaten"))
    assert svg.count('fill-opacity="0"') == 1
    for told in ("uniform: 51.0, 20 B", "best: 81.0, 200 B", "beaten: 50.0, 200 B"):
        assert svg.count(f'aria-label="{told}"') == 1, "the place beside another row was read as the cost"
    assert "low:" not in svg


def test_there_is_no_front_of_rows_with_different_seeds(tmp_path: Path) -> None:
    """Means over different seeds can differ by their seeds alone; the chart filled the best ones all the same."""
    runs = [
        *runs_of(tmp_path, "uniform", [0.5, 0.52, 0.51], CHEAP),
        *runs_of(tmp_path, "fewer", [0.8, 0.82], DEAR, selection=UCB),
    ]
    figure = accuracy_and_cost(gather(runs), PAGE)
    assert figure is not None
    for name in ("tradeoff_bytes", "tradeoff_client_passes", "tradeoff_simulated_time"):
        assert not figure.data[name]["front"].any()
        assert set(figure.data[name]["standing"]) == {"unknown: rows have different seeds"}
    assert "Rows have different seeds, so that their means are not compared. All points are hollow." in figure.note
    assert "Filled" not in figure.note
    assert figure.data["tradeoff_bytes"]["low"].isna().tolist() == [False, True], "two seeds give no interval"


def test_a_point_without_an_interval_does_not_borrow_that_of_its_neighbor(tmp_path: Path) -> None:
    """Rows with the same cost stand so near that a point can lie on the line of the other: the line has a gap there."""
    runs = [
        *runs_of(tmp_path, "uniform", [0.4, 0.5, 0.6]),
        *runs_of(tmp_path, "alone", [0.45, 0.55], selection=UCB),
    ]
    figure = accuracy_and_cost(gather(runs), PAGE)
    assert figure is not None
    layers = figure.views[0].panels[0].chart.to_dict(validate=False)["layer"]
    kinds = [
        "interval" if layer["encoding"].get("y2", {}).get("field") == "high"
        else "gap" if layer["mark"].get("color") == PAGE.ground and layer["mark"]["type"] == "point"
        else layer["mark"]["type"]
        for layer in layers
    ]  # fmt: skip
    assert kinds.index("interval") < kinds.index("gap") < kinds.index("point"), "over intervals, and behind points"
    assert layers[kinds.index("gap")]["transform"][-1] == {"filter": "!isValid(datum.low)"}
    assert "Lines of other rows have a gap at these points." in figure.note


def test_the_caption_says_why_two_seeds_have_no_interval(tmp_path: Path) -> None:
    """They have one in the table and in the chart of differences."""
    runs = [*runs_of(tmp_path, "uniform", [0.5, 0.52]), *runs_of(tmp_path, "mine", [0.6] * 2, selection=UCB)]
    figure = accuracy_and_cost(gather(runs), PAGE)
    assert figure is not None
    assert figure.note.endswith(
        " Without intervals: that of two seeds is 9 standard deviations long on each side, and would flatten the chart."
    )
    one = accuracy_and_cost(gather([runs[0], runs[2]]), PAGE)
    assert one is not None
    assert "interval" not in one.note


def test_names_on_both_sides_do_not_cover_each_other_on_a_phone(tmp_path: Path) -> None:
    """A name of the left half is written to the right, one of the right half to the left: they meet in the middle."""
    runs = [
        *runs_of(tmp_path, "uniform selection", [0.8] * 3, [exchange(45, 45)]),
        *runs_of(tmp_path, "power-of-choice", [0.8] * 3, DEAR, selection=UCB),
        *runs_of(tmp_path, "low", [0.2] * 3, CHEAP, selection={"name": "powd", "d": 4}),
    ]
    figure = accuracy_and_cost(gather(runs), PAGE)
    assert figure is not None
    low, high = figure.views[0].panels[0].chart.to_dict(validate=False)["layer"][0]["encoding"]["y"]["scale"]["domain"]
    places = figure.data["tradeoff_bytes_names"]
    rows = places[(places["log"] == 0) & (places["least"] == WIDTHS[1])].set_index("strategy")
    assert set(rows.index) == {"uniform selection", "power-of-choice", "low"}, "all of few rows have a name"
    distance = (rows["name_y"]["power-of-choice"] - rows["name_y"]["uniform selection"]) / (high - low) * HEIGHT
    outward = rows["right"]["power-of-choice"] and not rows["right"]["uniform selection"]
    assert abs(distance) >= PAGE.size or outward
    assert rows["name_y"]["low"] == pytest.approx(0.2), "no other name is near"


@pytest.mark.parametrize("rows", [ALL_NAMED, ALL_NAMED + 4])
def test_names_far_from_the_points_of_many_rows_are_led_to_them(rows: int, tmp_path: Path) -> None:
    """The names of seven points at the top of the chart stood below each other, far from the points."""
    runs = [
        run
        for i in range(rows)
        for run in runs_of(
            tmp_path,
            "uniform" if i == 0 else f"power-of-choice, d={i}",
            [0.9 + i / 1000] * 2,
            [exchange(10000 + i, 100)],
            selection="uniform" if i == 0 else {"name": "powd", "d": 3 + i},
        )
    ]
    figure = accuracy_and_cost(gather(runs), PAGE)
    assert figure is not None
    layers = figure.views[0].panels[0].chart.to_dict(validate=False)["layer"]
    (leader,) = [layer for layer in layers if layer["encoding"].get("y2", {}).get("field") == "name_y"]
    assert leader["mark"]["color"] == PAGE.soft, "intervals have the colors of rows"
    assert "color" not in leader["encoding"]
    assert leader["mark"]["strokeWidth"] < 1


def test_the_caption_names_rows_without_an_interval_beside_rows_that_have_one(tmp_path: Path) -> None:
    """Points without a vertical line looked like sure ones."""
    runs = [
        *runs_of(tmp_path, "uniform", [0.5, 0.52, 0.51]),
        *runs_of(tmp_path, "two, or less", [0.6] * 2, selection=UCB),
    ]
    figure = accuracy_and_cost(gather(runs), PAGE)
    assert figure is not None
    assert figure.note.endswith(
        " Without an interval, with fewer than 3 seeds (that of two seeds is 9 standard deviations long on each side, and would "
        "flatten the chart): 'two, or less'. Lines of other rows have a gap at these points."
    )
    sure = accuracy_and_cost(gather([*runs[:3], *runs_of(tmp_path, "mine", [0.6] * 3, selection=UCB)]), PAGE)
    assert sure is not None
    assert "Without an interval" not in sure.note
    many = [
        run
        for i in range(9)
        for run in runs_of(tmp_path / "many", f"d={i}", [0.5] * 2, selection={"name": "powd", "d": 3 + i})
    ]
    figure = accuracy_and_cost(gather([*runs[:3], *many]), PAGE)
    assert figure is not None
    assert "chart): 'd=0', 'd=1', 'd=2', 'd=3', 'd=4', 'd=5' and 3 more rows." in figure.note


def test_costs_begin_at_0(tmp_path: Path) -> None:
    """Costs that differ by 1% are drawn 1% apart, not over the whole width."""
    runs = [
        *runs_of(tmp_path, "uniform", [0.5] * 3, [exchange(100, 98)]),
        *runs_of(tmp_path, "mine", [0.6] * 3, [exchange(100, 100)], selection=UCB),
    ]
    figure = accuracy_and_cost(gather(runs), PAGE)
    assert figure is not None
    for view in figure.views:
        low, high = view.panels[0].chart.to_dict(validate=False)["layer"][0]["encoding"]["x"]["scale"]["domain"]
        assert low == 0
        assert high > 0


def test_one_row_has_no_trade_off(tmp_path: Path) -> None:
    assert accuracy_and_cost(gather(runs_of(tmp_path, "uniform", [0.5])), PAGE) is None


def test_rows_are_drawn_near_their_costs_and_in_their_order(tmp_path: Path) -> None:
    """A chain of costs was drawn over 6% of an axis that an expensive row makes long: 8 times a cost, and in another order."""
    costs = [*(100 + 4 * i for i in range(12)), 5000]
    runs = [
        run
        for i, cost in enumerate(costs)
        for run in runs_of(
            tmp_path,
            "uniform" if i == 0 else f"power-of-choice, d={i}",
            [0.5 + i / 100] * 2,
            [exchange(cost, 0)],
            selection="uniform" if i == 0 else {"name": "powd", "d": 3 + i},
        )
    ]
    figure = accuracy_and_cost(gather(runs), PAGE)
    assert figure is not None
    shown = figure.data["tradeoff_bytes"].sort_values(["x", "at"])
    assert (shown["at"].diff().dropna() >= 0).all()
    assert ((shown["at"] - shown["x"]).abs() <= 0.025 * shown["x"].max()).all()
    assert shown["at"].nunique() == len(costs), "no interval covers another"


@pytest.mark.parametrize("columns", [1, 2])
def test_rows_with_the_same_cost_can_be_told_apart_in_papers(columns: int, tmp_path: Path) -> None:
    """They were as near as on the page, which is wider: symbols covered symbols, and intervals."""
    runs = [
        run
        for name in ("uniform", "ucb", "powd")
        for run in runs_of(tmp_path, name, [0.5, 0.51, 0.52], [exchange(100, 0)])
    ]
    figure = accuracy_and_cost(gather(runs), paper(columns))
    assert figure is not None
    svg = drawn_to_width(figure, figure.views[0], paper(columns))
    places = sorted(float(x) for x in re.findall(r'aria-roledescription="point" transform="translate\(([0-9.]+)', svg))
    assert len(places) == 3
    assert min(b - a for a, b in pairwise(places)) >= 6, "a symbol is 7 points wide"
    assert places[2] - places[0] <= 0.12 * (paper(columns).width or 0)
