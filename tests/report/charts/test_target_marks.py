"""Lines over time and bytes, their target, and the marks where rows reached it, agree with the table."""

import itertools
import json
import math
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import fedcohort
from fedcohort.report.charts.accuracy import accuracy
from fedcohort.report.charts.axes_and_legends import NAMED
from fedcohort.report.data.report_data import gather
from fedcohort.report.figures.chart_style import PAGE, Look, paper
from fedcohort.report.figures.figure import Figure
from fedcohort.report.figures.paper_figures import composed, draw
from tests.records import exchange, played, written
from tests.report.pages import caption

RISING = {"fast": ([0.2, 0.4, 0.7, 0.6], 10.0), "slow": ([0.1, 0.3, 0.5, 0.8], 40.0)}
"""Accuracies of two seeds by round, and the time of a round: one ends at 40, the other at 160."""


def seeds(
    folder: Path, label: str = "uniform", *, rounds: int = 4, planned: int = 4, lost: float = 0.0
) -> list[fedcohort.Run]:
    """Two runs of a row; of the slow one, only some ``rounds`` of the ``planned`` ones have been played."""
    runs: list[fedcohort.Run] = []
    for seed, (values, each) in enumerate(RISING.values()):
        own = values[: rounds if seed else 4]
        rows = [
            played(t, [0, 1], test_accuracy=value - lost, simulated_time=t * each, ledger=[exchange(50, 50)])
            for t, value in enumerate(own, 1)
        ]
        selection = "uniform" if label == "uniform" else {"name": "powd", "d": 4}
        runs.append(
            written(folder / f"{label}{seed}", rows, label=label, seed=seed, rounds=planned, selection=selection)
        )
    return runs


def drawn(runs: Sequence[fedcohort.Run], look: Look = PAGE) -> Figure:
    figure = accuracy(gather(runs), look)
    assert figure is not None
    return figure


def test_a_line_over_time_ends_with_its_longest_seed_at_the_accuracy_of_the_table(tmp_path: Path) -> None:
    """The line ended at 40 with 35%, where the fast seed ended, far below the 70% of the table and below the target, 75%."""
    runs = seeds(tmp_path)
    figure, compared = drawn(runs), gather(runs).comparison
    assert compared is not None
    last = figure.data["accuracy_time"].iloc[-1]
    assert (last["x"], last["mean"]) == (160.0, pytest.approx(0.7))
    assert last["mean"] == pytest.approx(compared.table["accuracy"][0])
    frame = figure.data["accuracy_time"].set_index("x")
    assert (frame["seeds"] == 2).all(), "every point is a mean over all seeds"
    assert frame.loc[:40.0, "playing"].eq(2).all()
    assert frame.loc[40.1:, "playing"].eq(1).all()
    assert "A seed that has played all its rounds keeps its last value: lines are thin where" in caption(figure)
    assert "shortest seed" not in caption(figure)


def test_lines_are_thin_where_a_seed_has_ended(tmp_path: Path) -> None:
    figure = drawn(seeds(tmp_path))
    by_name = {view.name: view.panels[0].chart.to_dict(validate=False)["layer"] for view in figure.views}
    thin, thick = (
        [layer for layer in by_name["simulated time"] if layer["mark"].get("type") == "line" and
         (layer["mark"].get("strokeWidth") == 0.8) == is_thin]
        for is_thin in (True, False)
    )  # fmt: skip
    assert [len(thin), len(thick)] == [1, 1]
    assert {"filter": "datum.playing >= datum.seeds"} in thick[0]["transform"]
    assert {"filter": "datum.playing >= datum.seeds"} not in thin[0]["transform"]
    assert "datum.playing" not in json.dumps(by_name["bytes"]), "all seeds have the same bytes"


def test_a_line_over_time_ends_where_a_seed_that_goes_on_has_come_to(tmp_path: Path) -> None:
    """What a seed that is being played reaches later is not known."""
    figure = drawn(seeds(tmp_path, rounds=2))
    assert figure.data["accuracy_time"]["x"].max() == 80.0
    figure = drawn(seeds(tmp_path / "a", rounds=4, planned=9))
    assert figure.data["accuracy_time"]["x"].max() == 40.0
    assert "keeps its last value" not in figure.note


def test_marks_on_the_target_stand_where_the_table_says_that_it_was_reached(tmp_path: Path) -> None:
    """The target is 65%, the mean best accuracy of 'low' rounded down: reached by one of its seeds, and by both of the other row."""
    runs = [*seeds(tmp_path), *seeds(tmp_path, "low", lost=0.1)]
    figure, compared = drawn(runs), gather(runs).comparison
    assert compared is not None
    table = compared.table
    assert table["target_accuracy"].tolist() == [0.65, 0.65]
    assert table["reached"].tolist() == [2, 1]
    for name, cost in (("rounds", "rounds"), ("time", "time"), ("bytes", "bytes")):
        marks = figure.data[f"accuracy_{name}_reached"]
        assert marks["x"].tolist() == table[f"{cost}_to_target"].tolist()
        assert marks["level"].tolist() == [0.65, 0.65]
        assert marks["all"].tolist() == [True, False]
        assert marks["seeds"].tolist() == ["2 of 2", "1 of 2"]
    assert figure.data["accuracy_time_reached"]["x"].tolist() == [(30 + 160) / 2, 160]
    assert figure.data["accuracy_bytes_reached"]["x_text"].tolist() == ["350 B", "400 B"]
    assert figure.views[0].note.endswith(
        "Triangle: when the row reached the target, as in the table, the mean over the seeds that did; hollow if not all seeds did. "
        "A line of means can stay below the target although seeds reach it, each in another round."
    )
    svg = draw(composed(drawn(runs, paper(1)), drawn(runs, paper(1)).views[1], paper(1)), "svg").decode()
    assert svg.count("target reached at simulated time") == 2


def test_there_are_no_marks_without_a_target_on_the_chart_or_for_many_lines(tmp_path: Path) -> None:
    unknown = written(tmp_path / "one", [played(1, [0], test_accuracy=0.5), played(2, [0], test_accuracy=0.9)])
    alone = drawn([unknown])
    assert alone.data["accuracy_rounds_reached"]["x"].tolist() == [2.0]
    assert alone.views[0].note.count("Triangle: when the row reached the target, as in the table.") == 1
    constant = written(tmp_path / "two", [played(t, [0], test_accuracy=0.0) for t in (1, 2)])
    assert not [name for name in drawn([constant]).data if name.endswith("_reached")]
    many = [run for i in range(NAMED + 1) for run in seeds(tmp_path / str(i), f"row {i}")]
    crowded = drawn(many, replace(PAGE, rows=gather(many).row_looks))
    assert not [name for name in crowded.data if name.endswith("_reached")]
    assert "Triangle" not in caption(crowded)


def test_a_target_of_100_percent_is_on_the_chart(tmp_path: Path) -> None:
    """The axis ends at 100%: the chart had neither the line of the target nor marks where rows reached it."""
    run = written(tmp_path / "run", [played(1, [0], test_accuracy=0.5), played(2, [0], test_accuracy=1.0)])
    figure = drawn([run])
    assert figure.data["accuracy_rounds_reached"]["level"].tolist() == [1.0]
    assert "target 100% (taken from the results)" in json.dumps(figure.views[0].panels[0].chart.to_dict(validate=False))


REACHED = {"uniform": 3, "powd": 3, "third": 3, "late": 8, "later": 8, "early": 1}
"""The round in which each row reaches the target."""


@pytest.mark.parametrize("look", [PAGE, paper(1), paper(2)], ids=["page", "one column", "two columns"])
def test_triangles_of_rows_that_reach_the_target_together_are_all_seen(tmp_path: Path, look: Look) -> None:
    """They covered each other, and those of the last round were cut in half."""
    runs = []
    for i, (label, reached) in enumerate(REACHED.items()):
        rounds = [
            played(t, [0, 1], test_accuracy=0.7 if t >= reached else 0.1 + 0.01 * i, simulated_time=t + 0.001 * i)
            for t in range(1, 9)
        ]
        selection = {"name": "powd", "d": 3 + i} if i else "uniform"
        measures = {"target_accuracy": 0.6}
        runs.append(written(tmp_path / label, rounds, label=label, selection=selection, measures=measures))
    figure = drawn(runs, look)
    for view in figure.views[:2]:
        svg = ET.fromstring(draw({**composed(figure, view, look), "width": look.width or 600}, "svg"))
        parents = {child: parent for parent in svg.iter() for child in parent}
        marks = [mark for mark in svg.iter() if "target reached at" in mark.get("aria-label", "")]
        places = [tuple(map(float, re.findall(r"[\d.]+", mark.get("transform", "")))) for mark in marks]
        assert len(places) == len(REACHED)
        least = 8 if look.page else 5
        for one, other in itertools.combinations(places, 2):
            assert math.dist(one, other) >= least, (view.name, places)
        assert sorted(Counter(round(x) for x, _ in places).values()) == [1, 2, 3], "triangles stand at their own rounds"
        assert not [mark for mark in marks if parents[mark].get("clip-path")]
        assert "Triangles that would cover each other stand under each other." in view.note
    for target in figure.data["accuracy_rounds_reached"].groupby("x")["tip"].max():
        assert target == pytest.approx(0.6), "the first one is at the target"
