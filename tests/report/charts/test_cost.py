"""What a run cost, by kind of exchange and by part of a round."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import altair as alt
import pytest

from fedcohort.report.charts.cost import _bars, cost, wall
from fedcohort.report.data.report_data import gather
from fedcohort.report.figures.chart_style import PAGE, paper
from tests.records import exchange, played, written

PARTS = {"training": 16.0, "selection": 1.0, "aggregation": 2.0, "evaluation": 4.0, "recording": 8.0, "total": 32.0}


def test_seconds_of_wall_time_stand_with_their_parts(tmp_path: Path) -> None:
    """Sums over rounds, means over seeds: a run of two rounds, and one of a round that took four times as long."""
    long = {part: 4 * seconds for part, seconds in PARTS.items()}
    runs = [
        written(tmp_path / "0", [played(1, wall=PARTS), played(2, wall=PARTS)]),
        written(tmp_path / "1", [played(1, wall=long)], seed=1),
        written(tmp_path / "2", [played(1, wall=PARTS)], label="UCB"),
    ]
    figure = wall(gather(runs), PAGE)
    assert figure is not None
    shown = figure.data["wall"].set_index(["strategy", "part"])["seconds"].to_dict()
    parts = {part: seconds for part, seconds in PARTS.items() if part not in ("total", "recording")}
    assert shown == {("uniform", part): 3 * seconds for part, seconds in parts.items()} | {
        ("UCB", part): seconds for part, seconds in parts.items()
    }


def test_tooltips_of_short_times_have_digits(tmp_path: Path) -> None:
    """Bars of different lengths were all 0.0 s at the pointer."""
    short = {part: seconds / 1000 for part, seconds in PARTS.items()}
    figure = wall(gather([written(tmp_path / "0", [played(1, wall=short)])]), PAGE)
    assert figure is not None
    texts = figure.data["wall"].set_index("part")["seconds_text"]
    assert (texts["training"], texts["selection"]) == ("0.016 s", "0.001 s")


def test_bytes_and_passes_stand_with_their_kind_of_exchange(tmp_path: Path) -> None:
    """Sums over rounds, means over seeds, also over those in which there was no such exchange."""
    asked = [played(1, ledger=[exchange(100, 10), exchange(7, 1, "LocalLoss")]), played(2, ledger=[exchange(50, 5)])]
    runs = [written(tmp_path / "0", asked), written(tmp_path / "1", [played(1, ledger=[exchange(30, 3)])], seed=1)]
    figure = cost(gather(runs), PAGE)
    assert figure is not None
    columns = ["bytes_down", "bytes_up", "bytes", "passes", "messages"]
    shown = figure.data["ledger"].set_index("kind")[columns]
    assert list(shown.loc["training"]) == [90, 9, 99, 1.5, 3]
    assert list(shown.loc["LocalLoss"]) == pytest.approx([3.5, 0.5, 4, 0.5, 1])
    assert list(figure.data["ledger"]["exchange"]) == ["question about local loss", "training"]
    assert '"domain": ["training", "question about local loss"]' in json.dumps(
        figure.views[0].panels[0].chart.to_dict()
    )


def test_legends_have_whole_names() -> None:
    """Names of questions were cut to "question about gradi…"; a long one has a line of its own."""
    parts = ["training", "question about gradient norms", "question about local loss"]
    x = alt.X("value:Q")
    for names, columns in ((parts, 1), (["training", "selection"], 3)):
        drawn = _bars("costs", x, "kind", names, ["uniform"], PAGE, [])
        found = next(_all(drawn.to_dict(validate=False), "legend"))
        assert (found["columns"], found["labelLimit"]) == (columns, 0)


def _all(value: Any, key: str) -> Iterator[Any]:
    """All values of a key, at any depth."""
    if isinstance(value, dict):
        if isinstance(value.get(key), dict):
            yield value[key]
        for part in value.values():
            yield from _all(part, key)
    elif isinstance(value, list):
        for part in value:
            yield from _all(part, key)


@pytest.mark.parametrize(("columns", "side_by_side"), [(1, 1), (2, 2)])
def test_legends_of_costs_are_as_wide_as_the_bars(columns: int, side_by_side: int, tmp_path: Path) -> None:
    """Beside long names of rows, the right column of the legend was cut off."""
    ledger = [exchange(100, 100), exchange(10, 10, "LocalLoss"), exchange(10, 10, "Histogram")]
    run = written(tmp_path / "run", [played(1, [0], ledger=ledger)], label="a long name of a strategy")
    figure = cost(gather([run]), paper(columns))
    assert figure is not None
    chart: Any = figure.views[0].panels[0].chart.to_dict(validate=False)
    shown = chart["encoding"]["color"]["legend"]["columns"]
    assert shown == 1 if side_by_side == 1 else shown >= side_by_side
