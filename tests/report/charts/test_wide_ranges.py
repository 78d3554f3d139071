"""Charts of numbers that differ by orders of magnitude, as where one row diverges, and charts that are longer than the screen."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedcohort
from fedcohort.report.charts.accuracy import accuracy, differences
from fedcohort.report.charts.accuracy_and_cost import accuracy_and_cost
from fedcohort.report.charts.axes_and_legends import DENSE
from fedcohort.report.charts.final_accuracy import bars
from fedcohort.report.charts.loss import loss
from fedcohort.report.charts.means_and_bands import domain, span_of
from fedcohort.report.data.cached_run import CachedRun
from fedcohort.report.data.report_data import Story, gather
from fedcohort.report.figures.chart_style import PAGE, Look, paper
from fedcohort.report.figures.paper_figures import composed, draw, drawn_in_parts
from tests.records import played, written
from tests.repetitions import slow_after
from tests.report.headline.test_headline import runs_of

SOUND = [2.3, 1.4, 0.9, 0.7, 0.6]
DIVERGING = [2.3, 40.0, 3e5, 1e12, 1.755e30]


def table(**rows: list[float]) -> pd.DataFrame:
    frames = [
        pd.DataFrame({"strategy": name, "x": np.arange(len(own)), "mean": own, "low": np.nan, "high": np.nan})
        for name, own in rows.items()
    ]
    return pd.concat(frames, ignore_index=True)


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ({"a": SOUND}, "linear"),
        ({"a": SOUND, "b": [2.3, 2.3, 2.3, 2.3, 2.3]}, "linear"),
        ({"a": SOUND, "b": DIVERGING}, "cut"),
        ({"a": SOUND, "b": SOUND, "c": [2.3, 50.0, 50.0, 50.0, 50.0]}, "logarithmic"),
        ({"a": [2.3, 1.4, 900.0, 0.7, 0.6]}, "logarithmic"),
        ({"a": [-1.0, 0.5, 0.7], "b": [1.0, 1e9, 1e9]}, "linear"),
        ({"a": [0.0, 0.0, 0.0]}, "linear"),
        ({"a": SOUND, "b": [2.3, 1e5, np.inf, np.inf, np.inf]}, "cut"),
    ],
)
def test_no_axis_flattens_most_rows(rows: dict[str, list[float]], kind: str) -> None:
    span = span_of(table(**rows))
    low, high = span.ends
    assert {"logarithmic": span.log, "cut": span.beyond is not None, "linear": not span.log and not span.beyond}[kind]
    if kind != "linear":
        assert 0 < low < high < np.inf
        seen = [np.ptp(np.log(own) if span.log else own) for own in rows.values()]
        whole = np.log(high / low) if span.log else high - low
        assert np.median(seen) > 0.2 * whole
    if kind == "cut":
        bands = span.without_bands(table(**rows).assign(low=0.0, high=1e31))
        assert set(bands.loc[bands["high"].notna(), "strategy"]) == {"a", "b"}, "the first mean of b is on the axis"
        assert bands["high"].notna().sum() == 6
        assert span.beyond is not None
        assert span.beyond > 10 * high


def losses(folder: Path, **rows: list[float]) -> Story:
    runs: list[fedcohort.Run] = []
    for number, (label, values) in enumerate(rows.items()):
        rounds = [played(t, [0, 1], test_loss=value, train_loss=1.0 / t) for t, value in enumerate(values, 1)]
        selection: Any = "uniform" if number == 0 else {"name": "powd", "d": 3 + number}
        runs.append(written(folder / label, rounds, label=label, selection=selection))
    return gather(runs)


def test_points_beyond_the_axis_do_not_lengthen_the_figure(tmp_path: Path) -> None:
    """Lines of one round are drawn as points; one far above the axis made the drawing 10¹⁰ points long."""
    look = paper(1)
    figure = loss(losses(tmp_path, sound=[2.3], other=[1e20]), look)
    assert figure is not None
    (svg,) = drawn_in_parts(figure, figure.views[0], look)
    height = re.search(r'<svg[^>]* height="([^"]+)"', svg)
    assert height is not None
    assert float(height[1]) < 2 * look.height


def test_a_diverging_row_does_not_flatten_the_losses_of_the_others(tmp_path: Path) -> None:
    look = paper(1)
    cut, log, usual = (
        loss(losses(tmp_path / str(i), sound=SOUND, other=other), look)
        for i, other in enumerate((DIVERGING, [2.3, 9.0, 30.0, 50.0, 50.0], SOUND[::-1]))
    )
    assert cut is not None
    assert log is not None
    assert usual is not None
    assert (
        "The axis of the test loss ends at 2.38, where lines leave the chart: the highest mean is 1.75e+30, of 'other'."
        in cut.views[0].note
    )
    assert "The axis of the test loss is logarithmic" in log.views[0].note
    assert "axis" not in usual.note + usual.views[0].note
    svgs = [draw(composed(figure, figure.views[0], look), "svg").decode() for figure in (cut, log, usual)]
    assert ["test loss (log)" in svg for svg in svgs] == [False, True, False]
    assert "e+30" not in svgs[0]


def test_names_of_lines_that_leave_the_chart_stand_at_its_end(tmp_path: Path) -> None:
    figure = loss(losses(tmp_path, sound=SOUND, diverging=DIVERGING), PAGE)
    assert figure is not None
    ends = figure.data["test_loss_ends"].set_index("strategy")
    assert ends["name"].to_dict() == {"sound": "sound", "diverging": "diverging ↑"}
    assert ends["y"].to_dict() == pytest.approx({"sound": 0.6, "diverging": 2.385}, rel=0.01)


def test_an_infinite_loss_is_named(tmp_path: Path) -> None:
    figure = loss(losses(tmp_path, sound=SOUND, infinite=[2.3, 1e9, np.inf, np.inf, np.inf]), PAGE)
    assert figure is not None
    assert figure.views[0].note.endswith(
        "Lines end (×) where the test loss is infinite or not a number under a seed: 'infinite' from round 3 on (seed 0). "
        "Where a line leaves the chart before, its × stands at the edge."
    )


def test_the_axis_of_r_squared_ends_where_most_rows_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CachedRun, "labels", "numbers")
    for low, cut in ((-2.5, ""), (-1e9, "The axis ends at −1: the lowest mean is −1e+09, of 'b'.")):
        runs = []
        for label, values in {"a": [0.1, 0.2, 0.4, 0.5], "b": [0.1, 0.2, 0.1, low]}.items():
            rounds = [played(t, [0], test_accuracy=value) for t, value in enumerate(values, 1)]
            runs.append(written(tmp_path / f"{label}{low}", rounds, label=label, selection={"name": "powd", "d": 4}))
        figure = accuracy(gather(runs), paper(1))
        assert figure is not None
        assert (cut in figure.note) if cut else ("The axis ends" not in figure.note)
        span = figure.views[0].panels[0].chart.to_dict(validate=False)["layer"][0]["encoding"]["y"]["scale"]["domain"]
        assert span[0] == (-1 if cut else -3), "the tick below the lowest value"


@pytest.mark.parametrize("rows", slow_after(1, [DENSE, DENSE + 6]))
def test_long_charts_have_their_axis_at_both_ends(rows: int, tmp_path: Path) -> None:
    runs = [run for i in range(rows) for run in runs_of(
        tmp_path, f"row {i}", [0.5 + i / 100, 0.52, 0.6], selection={"name": "powd", "d": 3 + i} if i else "uniform",
    )]  # fmt: skip
    story, look = gather(runs), paper(2)
    for figure in (differences(story, look), bars(story, look)):
        assert figure is not None
        svg = draw(composed(figure, figure.views[0], look), "svg").decode()
        assert len(re.findall(r'aria-label="X-axis', svg)) == (2 if rows > DENSE else 1), figure.key


def test_an_axis_that_ends_is_logarithmic_if_the_rows_below_its_end_differ_widely() -> None:
    """Of a hundred rows, some rose to ten times the others for a few rounds, and flattened them although the axis was cut."""
    rows = {"a": [0.9, 0.3, 0.1], "b": [0.8, 0.3, 0.1], "c": [1.0, 8.0, 0.1], "d": [2.0, 1e9, 1e20]}
    span = span_of(table(**rows))
    assert span.log
    assert span.ends == pytest.approx([0.1 / 1.2, 8.0 * 1.2])
    assert span.beyond == 1e20
    bands = span.without_bands(table(**rows).assign(low=-1.0, high=5.0))
    assert bands["low"].min() == pytest.approx(0.1 / 1.2), "a logarithmic axis has no place for numbers below 0"


def test_ticks_of_logarithmic_axes_are_round_numbers(tmp_path: Path) -> None:
    """They were 0.4, 0.8, 3, 7, 20, 60 and 100."""
    figure = loss(losses(tmp_path, sound=SOUND, other=[2.3, 9.0, 30.0, 50.0, 50.0]), PAGE)
    assert figure is not None
    layers = figure.views[0].panels[0].chart.to_dict(validate=False)["layer"]
    (ticks,) = {
        tuple(layer["encoding"]["y"]["axis"]["values"]) for layer in layers if "axis" in layer["encoding"].get("y", {})
    }
    assert ticks == (1.0, 3.0, 10.0, 30.0)


def test_values_that_hardly_differ_are_drawn_as_a_constant() -> None:
    """A loss of 2.3025 in every round was magnified until names needed ten screens."""
    low, high = domain([2.30251, 2.30252, 2.30251])
    assert low < 2.2
    assert high > 2.4
    assert domain([0.0, 0.0]) == [-0.05, 0.05]
    assert domain([0.5, 0.6]) == pytest.approx([0.495, 0.605])


NUMBER = r"-?[0-9.]+(?:e[+-]?[0-9]+)?"

LOW = {"a": [0.4, 0.5, 0.6], "b": [0.45, 0.5, 0.55], "c": [-1e18, 0.3, -2e18]}


@pytest.mark.parametrize("look", [PAGE, paper(1)], ids=["page", "paper"])
def test_rows_that_diverge_do_not_flatten_differences_bars_and_costs(
    look: Look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The axes went down to the lowest R², beside which all others had the same place, with 20 digits at their ticks."""
    monkeypatch.setattr(CachedRun, "labels", "numbers")
    story = gather([run for i, (label, scores) in enumerate(LOW.items()) for run in runs_of(
        tmp_path, label, scores, selection={"name": "powd", "d": 3 + i},
    )])  # fmt: skip
    ends = "The axis ends at −1: the lowest mean is −1e+18, of 'c'."
    beyond = "The axis is that of the other differences: 'c' (−1e+18) is far below it."
    for chart, sentence in ((bars, ends), (accuracy_and_cost, ends), (differences, beyond)):
        figure = chart(story, look)
        assert figure is not None
        assert sentence in figure.note
        svg = draw(composed(figure, figure.views[0], look), "svg").decode()
        assert max(map(len, re.findall(r">([^<]*)</text>", svg))) < 40, "ticks have few digits"
        places = [float(number) for path in re.findall(r' d="([^"]*)"', svg) for number in re.findall(NUMBER, path)]
        assert max(map(abs, places)) < 1e4, f"{figure.key}: programs that draw SVG leave out such marks"


def test_rows_that_all_diverge_are_shown_on_one_axis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CachedRun, "labels", "numbers")
    scores = {"a": [0.4, 0.5, 0.6], "b": [-1e9, -2e9, -1e9], "c": [-1e9, -2e9, -3e9]}
    story = gather([run for i, (label, own) in enumerate(scores.items()) for run in runs_of(
        tmp_path, label, own, selection={"name": "powd", "d": 3 + i},
    )])  # fmt: skip
    for chart in (bars, accuracy_and_cost, differences):
        figure = chart(story, paper(1))
        assert figure is not None
        assert "The axis" not in figure.note
