"""Panels that are compared have equal axes, ticks of rounds and clients are whole, and captions describe what is drawn."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from fedcohort.record import ClientRow, Run
from fedcohort.report.charts.accuracy import accuracy
from fedcohort.report.charts.client_reports import reported
from fedcohort.report.charts.client_traits import sizes
from fedcohort.report.charts.cost import cost
from fedcohort.report.charts.line_axes import Axes, ending_at_ticks
from fedcohort.report.charts.selection_counts import selections
from fedcohort.report.charts.selection_raster import raster
from fedcohort.report.charts.shown_clients import Clients
from fedcohort.report.data.report_data import Reading, gather
from fedcohort.report.figures.chart_style import PAGE, paper
from fedcohort.report.figures.figure import Figure
from fedcohort.report.figures.paper_figures import composed, draw
from fedcohort.report.figures.shortened_names import short
from fedcohort.report.page_sections import figures
from tests.experiments import UCB
from tests.records import exchange, played, written

SVG = "{http://www.w3.org/2000/svg}"


def run(folder: Path, label: str, picks: list[list[int]], clients: int, seed: int = 0, **values: Any) -> Run:
    """A run that selects ``picks[t]`` in round t."""
    federation = {"clients": clients, "partition": "iid"}
    rounds = [played(t, chosen, test_accuracy=0.3 + t / 20) for t, chosen in enumerate(picks, start=1)]
    return written(folder / f"{label}{seed}", rounds, label=label, seed=seed, federation=federation, **values)


def uneven(folder: Path, clients: int, seeds: int = 1) -> list[Run]:
    """One strategy that selects clients in turn, and one that always selects the same two."""
    return [
        one
        for seed in range(seeds)
        for one in (
            run(folder, "turns", [[2 * t, 2 * t + 1] for t in range(3)], clients, seed),
            run(folder, "same", [[0, 1]] * 3, clients, seed, selection=UCB),
        )
    ]


def domains(figure: Figure, channel: str) -> set[str]:
    """The explicit domains of an axis over all panels."""
    found = set()
    for panel in figure.views[0].panels:
        for layer in panel.chart.to_dict(validate=False)["layer"]:
            scale = layer["encoding"].get(channel, {}).get("scale")
            if scale is not None:
                found.add(json.dumps(scale["domain"]))
    return found


@pytest.mark.parametrize(
    ("clients", "channels"), [(8, {"y": "[0, 3.0]"}), (100, {"x": "[-0.5, 3.5]", "y": "[0, 98.0]"})]
)
def test_panels_of_selections_have_equal_axes(tmp_path: Path, clients: int, channels: dict[str, str]) -> None:
    figure = selections(gather(uneven(tmp_path, clients)), PAGE)
    assert figure is not None
    for channel, domain in channels.items():
        assert domains(figure, channel) == {domain}


def test_titles_name_the_seed_that_they_are_about(tmp_path: Path) -> None:
    """The table beside the panels has the mean over seeds, and the page can show single clients of other seeds."""
    one, two = (
        [figure for figure in figures(gather(uneven(tmp_path / str(seeds), 8, seeds)), PAGE) if figure.seed is not None]
        for seeds in (1, 2)
    )
    first = next(figure for figure in one if figure.key == "selections")
    assert [panel.title for panel in first.views[0].panels] == [
        "turns · Jain's index 0.750",
        "same · Jain's index 0.250",
    ]
    assert first.title == "How often each client was selected"
    chosen = [figure for figure in two if figure.key == "selections"]
    assert [figure.title for figure in chosen] == [
        f"How often each client was selected, seed {seed}" for seed in (0, 1)
    ]
    assert "Bars and indices are those of seed 0; tables show means over seeds." in chosen[0].note
    assert all(figure.title.endswith(f", seed {figure.seed}") for figure in two)
    assert {figure.key for figure in two} >= {"selections", "raster"}


@pytest.mark.parametrize(("top", "end"), [(1.05, 2.0), (4.2, 5.0), (10.5, 12.0), (52.5, 60.0)])
def test_axes_of_numbers_of_clients_end_at_a_whole_number(top: float, end: float) -> None:
    """With steps of 1, 2, 5 or 10, at most about five of them; an axis of shares up to 2.1 ends at 2.5."""
    assert ending_at_ticks(Axes("round", "clients", [0.0, top], whole=True)).span == [0.0, end]
    assert ending_at_ticks(Axes("round", "share", [0.0, 2.1])).span == [0.0, 2.5]


@pytest.mark.parametrize(
    ("samples", "bars"),
    [
        ([3, 3, 4, 7], [(2.5, 3.5, 2), (3.5, 4.5, 1), (6.5, 7.5, 1)]),  # one for each number of samples
        ([0, 99, 100, 1199], [(0, 100, 2), (100, 200, 1), (1100, 1200, 1)]),  # twelve bars have room for 0 to 1,199
        ([0, 99, 100, 1200], [(0, 101, 3), (1111, 1212, 1)]),
    ],
    ids=["small", "full", "one more"],
)
def test_histograms_of_sizes_have_a_dozen_bars_for_few_clients(
    samples: list[int], bars: list[tuple[float, float, int]]
) -> None:
    figure = sizes(Clients(0, [], {"samples": np.array(samples)}), PAGE)
    drawn = figure.data["sizes"]
    assert list(zip(drawn["left"], drawn["right"], drawn["clients"], strict=True)) == bars


def test_ticks_of_three_rounds_are_one_two_three(tmp_path: Path) -> None:
    figure = accuracy(gather(uneven(tmp_path, 8)), paper(2))
    assert figure is not None
    svg = ElementTree.fromstring(draw(composed(figure, figure.views[0], paper(2)), "svg"))
    axes = [group for group in svg.iter(f"{SVG}g") if "role-axis-label" in (group.get("class") or "")]
    texts = [["".join(text.itertext()) for text in group.iter(f"{SVG}text")] for group in axes]
    assert ["1", "2", "3"] in texts


@pytest.mark.parametrize(("clients", "drawn"), [(5, True), (100, False)])
def test_captions_speak_of_single_clients_only_where_they_are_drawn(tmp_path: Path, clients: int, drawn: bool) -> None:
    rng = np.random.default_rng(0)
    rounds = [
        played(t, [ClientRow(i, "admitted", reports={"q_hat": float(rng.random())}) for i in range(clients)])
        for t in (1, 2, 3)
    ]
    one = written(tmp_path / "cp", rounds, federation={"clients": clients, "partition": "iid"})
    figure = reported("cp", Reading(one, "cp"), PAGE)
    assert figure is not None
    assert ("Thin lines: single clients." in figure.note) == drawn == ("reported_cp_0" in figure.data)
    assert figure.note.startswith("Thick line: mean" if drawn else "Line: mean")
    means, chart = figure.data["reported_cp_0_mean"]["value"], figure.views[0].panels[0].chart
    for layer in chart.to_dict(validate=False)["layer"]:
        highest = layer["encoding"]["y"]["scale"]["domain"][1]
        assert (highest < 1.2 * means.max()) == (not drawn), "the axis has no room for lines that are not drawn"


def test_captions_say_how_many_seeds_each_row_has(tmp_path: Path) -> None:
    """After a race, rows have different numbers of seeds."""
    rows = [run(tmp_path, "a", [[0]] * 3, 12, seed) for seed in range(6)]
    rows += [run(tmp_path, "b", [[0]] * 3, 12, seed, selection=UCB) for seed in range(4)]
    for runs, words in (
        (rows, "Mean over the seeds of each row, 4 to 6;"),
        (rows[:6], "Mean over 6 seeds;"),
        ([*rows[2:6], *rows[6:]], "Mean over the seeds of each row, 4;"),
    ):
        figure = accuracy(gather(runs), PAGE)
        assert figure is not None
        assert figure.note.startswith(words)


def test_the_threshold_lies_inside_its_chart(tmp_path: Path) -> None:
    """Quantiles far below the threshold: its line was drawn above the axis."""
    rounds = [played(t, [ClientRow(0, "admitted", reports={"q_hat": 0.1 / t})], note="q̂ ≤ 0.25") for t in (1, 2)]
    one = written(tmp_path / "cp", rounds, federation={"clients": 5, "partition": "iid"})
    figure = reported("cp", Reading(one, "cp"), PAGE)
    assert figure is not None
    assert figure.data["reported_cp_0_level"]["value"].tolist() == [0.25, 0.25]
    for layer in figure.views[0].panels[0].chart.to_dict(validate=False)["layer"]:
        low, high = layer["encoding"]["y"]["scale"]["domain"]
        assert low <= 0.05
        assert high > 0.25


def test_the_target_line_says_where_it_comes_from(tmp_path: Path) -> None:
    """Rows of 42% and 45%: the level of the results lies between the ends of the axis."""
    for measures, words in (({}, "target 42% (taken from the results)"), ({"target_accuracy": 0.4}, "target 40%")):
        lower = written(
            tmp_path / f"{len(measures)}b",
            [played(t, [0], test_accuracy=0.3 + t / 25) for t in (1, 2, 3)],
            label="b",
            measures=measures,
        )
        figure = accuracy(
            gather([run(tmp_path / str(len(measures)), "a", [[0]] * 3, 12, measures=measures), lower]), PAGE
        )
        assert figure is not None
        text = json.dumps(figure.views[0].panels[0].chart.to_dict(validate=False), ensure_ascii=False)
        assert f'"name": "{words}"' in text


@pytest.mark.parametrize(("target", "baseline"), [(0.4, "bottom"), (0.452, "top")])
def test_the_name_of_a_target_stays_inside_its_chart(tmp_path: Path, target: float, baseline: str) -> None:
    """Above a line near the upper end of the axis, it was cut."""
    figure = accuracy(gather([run(tmp_path, "a", [[0]] * 3, 12, measures={"target_accuracy": target})]), PAGE)
    assert figure is not None
    layers = figure.views[0].panels[0].chart.to_dict(validate=False)["layer"]
    assert {one["mark"]["baseline"] for one in layers if one["mark"].get("baseline")} == {baseline}


@pytest.mark.parametrize(
    ("values", "baseline", "align"),
    [
        ([0.41, 0.42, 0.41, 0.30, 0.2, 0.2], "bottom", "right"),
        ([0.41, 0.42, 0.2, 0.2, 0.42, 0.41], "top", "right"),  # a triangle stands at the left end
        ([0.30, 0.32, 0.41, 0.42, 0.42, 0.5], "bottom", "left"),
    ],
)
def test_the_name_of_a_target_stands_where_lines_leave_room(
    tmp_path: Path, values: list[float], baseline: str, align: str
) -> None:
    """Lines and bands ran through it, and it covered triangles: it moves to the other side of its line, or to the other end."""
    rounds = [played(t, [0], test_accuracy=value) for t, value in enumerate(values, start=1)]
    one = written(tmp_path / "a", rounds, measures={"target_accuracy": 0.4})
    figure = accuracy(gather([one]), PAGE)
    assert figure is not None
    layers = figure.views[0].panels[0].chart.to_dict(validate=False)["layer"]
    names = [one for one in layers if one["mark"].get("baseline")]
    assert {(one["mark"]["baseline"], one["mark"]["align"]) for one in names} == {(baseline, align)}
    assert names[0]["mark"]["strokeWidth"] >= 5, "on a ground of its own"


def test_long_names_are_cut_in_the_middle() -> None:
    names = [f"conformal participation, alpha=0.1, clients={m}" for m in (10, 20, 40)]
    cut = short(names)
    assert len(set(cut)) == 3
    assert all(len(name) <= 28 for name in cut)
    assert [name[-10:] for name in cut] == ["clients=10", "clients=20", "clients=40"]


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_few_rounds_and_counts_have_whole_ticks(rounds: int, tmp_path: Path) -> None:
    """Axes of one round had ticks at 0.5, 1.0 and 1.5, and those of client passes at 0, 1, 1, 2, 2, 3 and 3."""
    spent = [exchange(100, 100)]
    rows = [played(t, [0], ledger=spent, class_accuracy=[0.5, 0.6]) for t in range(1, rounds + 1)]
    story = gather([written(tmp_path / "run", rows, federation={"clients": 4})])
    for look in (PAGE, paper(1)):
        drawn = [selections(story, look), raster(story, look), cost(story, look)]
        figures = [figure for figure in drawn if figure is not None]
        assert len(figures) == 3
        for figure in figures:
            for view in figure.views:
                svg = ElementTree.fromstring(draw(composed(figure, view, look), "svg"))
                axes = [group for group in svg.iter(f"{SVG}g") if "role-axis-label" in (group.get("class") or "")]
                for group in axes:
                    texts = ["".join(text.itertext()) for text in group.iter(f"{SVG}text")]
                    assert not [text for text in texts if "." in text], (figure.key, view.name)
                    assert len(set(texts)) == len(texts), (figure.key, view.name)
