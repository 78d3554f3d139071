"""Lines of strategies: where their names stand, and what is drawn over other clocks than rounds."""

import itertools
import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedcohort.report.charts.accuracy import accuracy
from fedcohort.report.charts.accuracy_and_cost import accuracy_and_cost
from fedcohort.report.charts.axes_and_legends import LISTED, NAMED, color, rows_height
from fedcohort.report.charts.cost_caption import ALL_NAMED, FRONT_NAMED
from fedcohort.report.charts.line_ends import name_positions, names_at_ends
from fedcohort.report.charts.names_beside_ends import names_beside_ends
from fedcohort.report.charts.names_beside_points import BESIDE, LED, overlap
from fedcohort.report.charts.seen_ends import Edges
from fedcohort.report.charts.strategy_lines import LEADER, Axes, lines
from fedcohort.report.data.report_data import gather
from fedcohort.report.figures.chart_style import PAGE, Look, RowLooks, paper
from fedcohort.report.figures.figure import records, spec
from fedcohort.report.figures.panel_rows import NAMES
from fedcohort.report.figures.paper_figures import composed, draw
from fedcohort.report.figures.shortened_names import short
from fedcohort.report.page_sections import figures
from fedcohort.report.tables.table_rows import strategies
from tests.records import exchange
from tests.report.headline.test_headline import runs_of

UNIT = Axes("round", "accuracy", [0.0, 1.0])

APART = 1.25 * PAGE.size / PAGE.height
"""Of the height of a chart: what a name takes."""


def drawn(**lines: list[float]) -> pd.DataFrame:
    """What a chart draws of these means of rounds 1, 2, …"""
    frames = [
        pd.DataFrame({"strategy": name, "x": np.arange(1.0, len(means) + 1), "mean": means})
        for name, means in lines.items()
    ]
    return pd.concat(frames, ignore_index=True)


def test_names_stand_at_the_last_known_values() -> None:
    frame = drawn(a=[0.1, 0.2, 0.9], b=[0.8, 0.9, 0.1], c=[0.9, 0.5, np.nan], d=[0.3])
    positions = name_positions(frame, UNIT, PAGE).set_index("strategy")
    assert positions["y"].to_dict() == pytest.approx({"a": 0.9, "b": 0.1, "c": 0.5, "d": 0.3})
    assert set(positions["x"]) == {3.0}, "at the end of the longest line"
    assert all(positions["name"] == positions.index)


def test_names_that_would_cover_each_other_move_apart_in_their_order_and_stay_inside() -> None:
    middle = name_positions(drawn(a=[0.9, 0.5], b=[0.1, 0.5 + APART / 2]), UNIT, PAGE)
    at = middle.set_index("strategy")["y"]
    assert at["b"] - at["a"] == pytest.approx(APART)
    assert at.mean() == pytest.approx(0.5 + APART / 4), "each gives way by the same amount"
    above = name_positions(drawn(a=[0.0, 1.0], b=[0.0, 1.0]), UNIT, PAGE)["y"]
    assert sorted(above) == pytest.approx([1 - APART, 1.0])


def test_moved_names_have_a_line_to_the_end_of_theirs() -> None:
    """A name that was moved away stood at another value, and read as if it were that of its line."""
    frame = drawn(a=[0.1, 0.5], b=[0.1, 0.5], c=[0.1, 0.5], d=[0.1, 0.9])
    places = name_positions(frame, UNIT, PAGE).set_index("strategy")
    assert places["moved"].to_dict() == {"a": True, "b": False, "c": True, "d": False}
    assert places["end"].to_dict() == {"a": 0.5, "b": 0.5, "c": 0.5, "d": 0.9}
    chart, data = lines("same", frame.assign(low=np.nan, high=np.nan), list("abcd"), PAGE, UNIT)
    specification = spec(chart, PAGE.config()) | {"datasets": {name: records(rows) for name, rows in data.items()}}
    svg = ET.fromstring(draw({**specification, "width": 300}, "svg"))
    rules = [g for g in svg.iter("{http://www.w3.org/2000/svg}g") if "mark-rule" in (g.get("class") or "")]
    slanted = [line for g in rules for line in g if float(line.get("x2") or 0) and float(line.get("y2") or 0)]
    assert len(slanted) == 2
    assert {abs(float(line.get("x2") or 0)) for line in slanted} == {LEADER}


def test_names_of_lines_that_end_early_stand_at_their_own_ends() -> None:
    """At the edge, in the order of values of different rounds, a name stood beside the line of another row."""
    frame = drawn(a=[0.1, 0.5], b=[0.1, 0.5, 0.3, 0.5], c=[0.1, 0.4, 0.6, 0.9]).assign(low=np.nan, high=np.nan)
    ends = names_at_ends(frame, list("abc"), PAGE, UNIT)
    assert ends is not None
    ends = ends.set_index("strategy")
    assert ends["early"].to_dict() == {"a": True, "b": False, "c": False}
    assert ends["y"]["b"] == pytest.approx(0.5), "the name of another line at the edge does not move it"
    chart, data = lines("early", frame, list("abc"), PAGE, UNIT)
    places = data["early_names"]
    assert set(places["strategy"]) == {"a"}
    assert (set(places["x"]), set(places["height"])) == ({2.0}, {0.5})
    specification = spec(chart, PAGE.config()) | {"datasets": {name: records(rows) for name, rows in data.items()}}
    svg = ET.fromstring(draw({**specification, "width": 300}, "svg"))
    texts = {text.text: text for text in svg.iter("{http://www.w3.org/2000/svg}text") if text.text in list("abc")}
    at = {name: float((text.get("transform") or "").split("(")[1].split(",")[0]) for name, text in texts.items()}
    assert at["b"] == at["c"] == pytest.approx(300 + LEADER + 2)
    assert abs(at["a"] - 100) <= LED, "beside round 2 of 4"


def test_names_at_own_ends_cover_no_line_and_no_name() -> None:
    """Lines that end together, and one that goes on above them."""
    rows = {f"row {i}": [0.2, 0.3, 0.5 + i / 100] for i in range(4)}
    frame = drawn(**rows, longest=[0.25, 0.4, 0.6, 0.6, 0.6, 0.6])
    ends = names_at_ends(frame, [*rows, "longest"], PAGE, UNIT)
    assert ends is not None
    assert ends["early"].sum() == 4
    found = names_beside_ends(frame, ends, {"": Edges([1.0, 6.0], [0.0, 1.0])}, PAGE)
    assert found is not None
    for least, own in found.groupby("least"):
        pixel = 5 / max(int(str(least)), 300)  # of a chart from round 1 to round 6
        tall, width = APART, 0.6 * PAGE.size * len("row 0") * pixel
        boxes = []
        for row in own.to_dict("records"):
            away = (LED if row["far"] else BESIDE) * pixel
            left = row["x"] + away if row["right"] else row["x"] - away - width
            boxes.append((left, left + width, row["place"] - tall / 2 + 1e-9, row["place"] + tall / 2 - 1e-9))
        assert not any(overlap(one, other) for one, other in itertools.combinations(boxes, 2)), least
        for left, right, bottom, top in boxes:
            x = np.linspace(left, right, 50)
            for _, line in frame.groupby("strategy"):
                on = (x >= line["x"].min()) & (x <= line["x"].max())
                y = np.interp(x[on], line["x"], line["mean"])
                assert not ((y > bottom) & (y < top)).any(), least


def test_names_of_lines_that_end_together_need_no_own_places() -> None:
    frame = drawn(a=[0.1, 0.5], b=[0.1, 0.6]).assign(low=np.nan, high=np.nan)
    assert "same_names" not in lines("same", frame, list("ab"), PAGE, UNIT)[1]


def test_names_on_a_logarithmic_axis_are_apart_by_factors() -> None:
    axes = replace(UNIT, span=[0.01, 1e30], log=True)
    at = name_positions(drawn(a=[1.0, 2.0], b=[1.0, 3.0], c=[1.0, 1e29]), axes, PAGE).set_index("strategy")["y"]
    assert np.log10(at["b"] / at["a"]) == pytest.approx(32 * APART)
    assert at["a"] >= 0.01
    assert at["c"] == pytest.approx(1e29)


def legend(labels: list[str], look: Look) -> Any:
    encoding: Any = color(labels, look).to_dict()
    return encoding["legend"]


def test_many_lines_have_a_legend_beside_them_and_long_names_stay_distinct() -> None:
    labels = [f"strategy {i}" for i in range(NAMED + 1)]
    assert legend(labels[:NAMED], PAGE) is None
    assert legend(labels, PAGE)["orient"] == "right"
    assert legend([f"strategy {i}" for i in range(LISTED + 1)], PAGE) is None, "it would take the room of the chart"
    in_groups = replace(PAGE, rows=RowLooks(groups=(tuple(labels[:5]), tuple(labels[5:]))))
    assert legend(labels, in_groups) is None, "the page shows one point at a time"
    names = [f"power-of-choice, d={d}, k=5, alpha=0.05, rounds=100, and more" for d in (10, 20, 30)]
    shown = short(names)
    assert [f"d={d}" in name for d, name in zip((10, 20, 30), shown, strict=True)] == [True] * 3
    assert max(map(len, shown)) <= 28
    assert short(["the same name of a strategy, twice"] * 2)[1].endswith("(2)")


@pytest.mark.parametrize("rows", [NAMED, NAMED + 1])
def test_bands_of_many_lines_are_left_out_and_the_caption_says_so(rows: int, tmp_path: Path) -> None:
    """Bands of 38 strategies cover all lines."""
    runs = [
        run
        for i in range(rows)
        for run in runs_of(tmp_path, f"row {i}", [0.5 + i / 100, 0.52], selection={"name": "powd", "d": 3 + i})
    ]
    figure = accuracy(gather(runs), PAGE)
    assert figure is not None
    chart = figure.views[0].panels[0].chart.to_dict(validate=False)
    assert ('"type": "area"' in json.dumps(chart)) == (rows <= NAMED)
    assert ("standard deviation are left out" in figure.note) == (rows > NAMED)
    y = [layer["encoding"]["y"] for layer in chart["layer"] if layer["encoding"].get("y", {}).get("field") == "mean"]
    spans = {tuple(each["scale"]["domain"]) for each in y}
    every = pd.concat([table for name, table in figure.data.items() if {"mean", "low", "high"} <= {*table}])
    highest = every["mean" if rows > NAMED else "high"].max()
    assert [top for _, top in spans] == pytest.approx([highest], rel=0.05), "no room for bands that are not drawn"
    assert every["high"].max() > 1.05 * every["mean"].max()


def test_names_of_many_points_are_those_of_the_front_and_of_the_reference(tmp_path: Path) -> None:
    runs = [
        run
        for i in range(ALL_NAMED + 2)
        for run in runs_of(
            tmp_path,
            f"row {i}",
            [0.5 - i / 100],
            [exchange(100 + i, 100)],
            selection={"name": "powd", "d": 3 + i} if i != 3 else "uniform",
        )
    ]
    figure = accuracy_and_cost(gather(runs), PAGE)
    assert figure is not None
    table = figure.data["tradeoff_bytes"]
    assert table[table["named"]]["strategy"].tolist() == ["row 0", "row 3"]
    assert "point at a row for its name" in figure.note


@pytest.mark.slow
def test_many_rows_with_the_same_cost_are_drawn_at_this_cost(tmp_path: Path) -> None:
    """A hundred rows side by side were drawn from less than half of their cost to one and a half of it, all with a name."""
    rows = [(f"row {i}", [0.5] * 3, 100) for i in range(40)] + [("dear", [0.6] * 3, 160), ("uniform", [0.4] * 3, 100)]
    runs = [
        run
        for i, (label, accuracies, spent) in enumerate(rows)
        for run in runs_of(
            tmp_path,
            label,
            accuracies,
            [exchange(spent, 0)],
            selection="uniform" if label == "uniform" else {"name": "powd", "d": 3 + i},
        )
    ]
    figure = accuracy_and_cost(gather(runs), PAGE)
    assert figure is not None
    table = figure.data["tradeoff_bytes"].set_index("strategy")
    same = table[table["x"] == 100]
    assert same["at"].max() - same["at"].min() <= 0.061 * 160
    assert same["at"].nunique() == 41
    named = table[table["named"]]
    assert {"uniform", "dear"} < set(named.index)
    drawn = {figure.key: figure for figure in figures(gather(runs), paper(1))}
    for key in ("accuracy", "tradeoff"):
        svg = draw(composed(drawn[key], drawn[key].views[0], paper(1)), "svg").decode()
        assert "entries<" not in svg, "the legend has a name for each of its rows"
        colored = drawn[key].note.partition("Colored: ")[2]
        assert colored.startswith("the reference")
        named_rows = sum(f">row {i}<" in svg for i in range(40))
        assert all(f">{name}<" in svg for name in ("uniform", "dear"))
        assert named_rows == NAMES - 2 if key == "accuracy" else NAMES - 2 < named_rows <= LISTED - 2
        assert drawn[key].note.endswith("name every row.")
    assert "Panels: 12 of 42 rows" in drawn["selections"].note
    svg = draw(composed(drawn["bars"], drawn["bars"].views[0], paper(1)), "svg").decode()
    assert all(f">row {i}<" in svg for i in range(40))
    assert len(named) == FRONT_NAMED + 1


def test_bars_of_many_rows_are_low() -> None:
    """A hundred bars of the usual height would be three screens high."""
    names = [f"row {i}" for i in range(100)]
    assert rows_height(34, names[:20], PAGE) == 20 * 34
    assert rows_height(34, names, PAGE) <= 100 * 20
    assert rows_height(34, names, PAGE) >= 100 * 1.25 * PAGE.size, "names do not cover each other"


def test_names_that_differ_in_one_word_show_it_at_each_point_of_a_sweep(tmp_path: Path) -> None:
    """'power of choice with many candidates' and '… with few candidates' were both cut to 'power of choice w…candidates'."""
    few, many = (f"power of choice with {word} candidates" for word in ("few", "many"))
    runs = [
        run
        for number, name in enumerate(("uniform", few, many))
        for alpha in (0.1, 1.0)
        for run in runs_of(
            tmp_path,
            f"{name}, alpha={alpha}",
            [0.5 + number / 100, 0.52],
            federation={"clients": 4, "partition": {"name": "dirichlet_class", "alpha": alpha, "min_size": 1}},
            selection={"name": "powd", "d": 3 + number} if number else "uniform",
        )
    ]
    story = gather(runs)
    ends = set(story.row_looks.names.values())
    assert ends == {"uniform", "power of choice with few…", "power of choice with many…"}
    assert {row["shown"] for row in strategies(story)} == {"uniform", few, many}, "legend and tables have whole names"
    figure = accuracy(story, replace(PAGE, rows=story.row_looks))
    assert figure is not None
    assert set(figure.data["accuracy_rounds_ends"]["name"]) == ends


def test_shortened_names_are_never_equal() -> None:
    names = [
        f"power of choice with {m} candidates, alpha={a}, clients={c}"
        for m in ("few", "many")
        for a in (0.05, 1.0, 100.0)
        for c in (10, 100)
    ]
    for limit in (16, 28, 34):
        assert len(set(short(names, limit))) == len(names)
    assert short(names, 34)[0] == "power…few…alpha=0.05, clients=10"


def test_names_are_cut_between_words() -> None:
    """'power-of-choice, d=2, lr=0.01, batch size 8' was cut to 'power-of-c… batch' on phones, and to 'power-of-…d=2, batc…'."""
    many = [
        f"power-of-choice, d={d}, lr={lr}, batch size {b}" for d in range(2, 11) for lr in (0.01, 1.0) for b in (8, 32)
    ]
    for limit, first in ((34, "power…d=2, lr=0.01, batch size 8"), (20, "pow…d=2, lr=0.01…size 8")):
        cut = short(many, limit)
        assert cut[0] == first
        assert len(set(cut)) == len(many)
        assert max(map(len, cut)) <= limit + len(" (10)")
    assert short(["UCB with an exploration of 1.60", "UCB with an exploration of 2.10"]) == [
        "UCB…exploration of 1.60",
        "UCB…exploration of 2.10",
    ]
    assert short(["x" * 40], 20) == ["x" * 19 + "…"], "a word that is too long ends with an ellipsis"
