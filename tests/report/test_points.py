"""Charts of a sweep show the clients of the chosen point, panels are titled by strategy, and names of reports are words."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcohort
from fedcohort.core.words.report_names import REPORTS
from fedcohort.record import Run
from fedcohort.report import page_sections
from fedcohort.report.charts.candidate_scores import candidates
from fedcohort.report.charts.client_accuracy import class_accuracy
from fedcohort.report.charts.cost import wall
from fedcohort.report.charts.selection_counts import selections
from fedcohort.report.charts.selection_raster import raster
from fedcohort.report.charts.sweeps import studies
from fedcohort.report.client_orders import client_orders
from fedcohort.report.data.report_data import Story, find_runs, gather
from fedcohort.report.figures.chart_style import PAGE, paper
from fedcohort.report.figures.figure import Figure
from fedcohort.report.headline.headline import answers
from fedcohort.report.page import page as report
from fedcohort.report.page_sections import Part, at_point, figures, parts
from fedcohort.report.tables.detail_rows import class_rows, wall_rows
from fedcohort.study.compare_existing_runs import side_by_side
from fedcohort.study.comparison import Comparison, Row
from fedcohort.study.summary import summaries
from tests.experiments import UCB, small
from tests.records import played, written
from tests.repetitions import slow_after
from tests.report.pages import Page
from tests.report.test_browser import browser, pytestmark
from tests.report.test_pointer import opened, visible

__all__ = ["browser"]

needs_browser = pytestmark
del pytestmark  # only some of these tests need a browser

CONFORMAL = {"name": "conformal", "alpha_cp": 0.5}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Two strategies at four points; points with the same concentration have the same clients."""
    folder = tmp_path_factory.mktemp("points") / "runs"
    sweep = {"federation.partition.alpha": [0.1, 1.0], "training.lr": [0.01, 0.1]}
    partition = {"name": "dirichlet_class", "alpha": 0.1, "min_size": 1}
    experiment = small(
        rounds=2,
        seeds=2,
        federation={"clients": 12, "partition": partition},
        variants=[{"label": "UCB", "selection": UCB}],
        sweep=sweep,
    )
    fedcohort.compare(experiment, runs=folder)
    return find_runs([folder])


@pytest.fixture(scope="module")
def on_page(swept: list[Run]) -> dict[str, list[Part]]:
    """The figures of the page by section."""
    return parts(gather(swept))


def counts_of(story: Story, point: int) -> np.ndarray:
    """Samples of each client and class in the first run at a point."""
    assert story.comparison is not None
    label = story.played[story.comparison.groups[point].rows[0]][0]
    reading = next(reading for name, readings in story.played if name == label for reading in readings)
    found: np.ndarray = reading.portrait.facts["counts"]
    return found


def test_each_point_has_figures_of_its_own_clients(swept: list[Run], on_page: dict[str, list[Part]]) -> None:
    story = gather(swept)
    assert story.federation_of_point == [0, 0, 1, 1]
    drawn = [figure for part in on_page["federation"] for figure in part.figures if figure.key == "classes-of-clients"]
    assert [(figure.place, figure.points) for figure in drawn] == [
        ("classes-of-clients", (0, 1)),
        ("classes-of-clients@0~1", (2, 3)),
        ("classes-of-clients@1", (0, 1)),
        ("classes-of-clients@1~1", (2, 3)),
    ]
    for figure, point in zip(drawn[:2], (0, 2), strict=True):
        (frame,) = (frame for frame in figure.data.values() if "samples" in frame)
        assert frame["samples"].sum() == counts_of(story, point).sum()
        assert sorted(frame["samples"][frame["samples"] > 0]) == sorted(
            counts_of(story, point)[counts_of(story, point) > 0]
        )
    assert drawn[0].note.endswith("Clients at alpha=0.1.")
    assert drawn[1].note.endswith("Clients at alpha=1.0.")


def test_clients_are_ordered_by_what_they_hold_at_the_point(swept: list[Run]) -> None:
    story = gather(swept)
    orders = client_orders(story, [0, 1])
    assert list(orders) == ["0", "0~1", "1", "1~1"]
    assert orders["0"]["size"] == counts_of(story, 0).sum(axis=1).tolist()
    assert orders["0~1"]["size"] == counts_of(story, 2).sum(axis=1).tolist()
    assert set(orders["0"]["times"]) == {label for label in story.labels if "alpha=0.1" in label}


def test_files_of_figures_have_different_names_and_whole_titles(swept: list[Run]) -> None:
    story = gather(swept)
    drawn = list(figures(story, paper(1)))
    keys = [figure.key for figure in drawn]
    assert len(keys) == len(set(keys))
    assert {"classes-of-clients-alpha-0.1", "classes-of-clients-alpha-1.0"} <= set(keys)
    rasters = [figure for figure in drawn if figure.key.startswith("raster")]
    assert {figure.key for figure in rasters} == {
        f"raster-alpha-{alpha}-lr-{rate}" for alpha in ("0.1", "1.0") for rate in ("0.01", "0.1")
    }
    for figure in rasters:
        assert titles([figure], figure.key) == {"uniform", "UCB"}
        assert figure.names == {figure.key, "raster"}


@pytest.mark.slow
def test_lines_of_a_sweep_in_papers_are_those_of_one_point(swept: list[Run]) -> None:
    """In one chart, the lines of a strategy at all points would look the same. The target is that of the table."""
    story = gather(swept)
    assert story.comparison is not None
    drawn = [figure for figure in figures(story, paper(1)) if figure.family == "accuracy"]
    assert len(drawn) == 4
    for figure, group in zip(drawn, story.comparison.groups, strict=True):
        assert figure.title == f"Test accuracy, {group.point}"
        frame = figure.data["accuracy_rounds"]
        assert set(frame["strategy"]) == {"uniform", "UCB"}
        last = frame[(frame["strategy"] == "UCB") & (frame["x"] == 2)]["mean"].item()
        row = next(i for i in group.rows if "UCB" in story.comparison.rows[i].label)
        assert last == pytest.approx(story.comparison.table["accuracy"][row], abs=1e-6)
    at = at_point(story, 1).comparison
    assert at is not None
    assert at.target == story.comparison.targets[1]
    (bars,) = [figure for figure in figures(story, paper(1)) if figure.key == "bars"]
    chart = bars.views[0].panels[0].chart.to_dict(validate=False)["layer"][0]["encoding"]
    colors = dict(zip(chart["color"]["scale"]["domain"], chart["color"]["scale"]["range"], strict=True))
    assert len(set(colors.values())) == 2, "a color for each strategy"


def test_panels_of_a_point_are_titled_by_strategy(on_page: dict[str, list[Part]]) -> None:
    drawn = [figure for part in on_page["participation"] for figure in part.figures]
    for key in ("selections", "raster", "class-accuracy"):
        assert titles(drawn, key) == {"uniform", "UCB"}


def titles(drawn: list[Figure], key: str) -> set[str]:
    """The titles of a figure's panels up to the index in them."""
    figure = next(figure for figure in drawn if figure.key == key)
    return {panel.title.partition(" ·")[0] for panel in figure.views[0].panels}


@needs_browser
@pytest.mark.slow
def test_the_page_shows_the_clients_of_the_chosen_point(browser: Any, swept: list[Run], tmp_path: Path) -> None:
    for watched in opened(browser, swept, tmp_path):
        page = watched.page
        assert visible(page, "#federation figure .title")[0] == "Clients × classes, seed 0"
        for point, place in (
            (0, "figure-classes-of-clients"),
            (1, "figure-classes-of-clients"),
            (3, "figure-classes-of-clients-seed-0-federation-1"),
        ):
            page.locator(f'.points input[value="{point}"]').check(force=True)
            page.evaluate("fedcohort.drawAll()")
            shown = page.evaluate(
                "[...document.querySelectorAll('#federation figure')].filter(f => f.offsetParent).map(f => f.id)"
            )
            assert shown[0] == place
            assert len([name for name in shown if name.startswith("figure-classes")]) == 1
            assert page.locator(f"#{place} .mark-rect path").count() > 0
        page.locator('.controls input[name="seed"][value="1"]').check(force=True)
        page.evaluate("fedcohort.drawAll()")
        assert page.locator("#figure-classes-of-clients-seed-1-federation-1").is_visible()
        assert page.locator("#figure-classes-of-clients-seed-0-federation-1").is_hidden()
        page.locator(".controls select").select_option("size")
        page.evaluate("fedcohort.drawAll()")
        sizes = page.evaluate("fedcohort.clients['1~1'].size")
        figure = "#figure-classes-of-clients-seed-1-federation-1 .view:not([hidden])"
        labels = page.evaluate(
            f"[...document.querySelectorAll(`{figure} [aria-label^='X-axis'] .role-axis-label text`)].map(t => t.textContent)"
        )
        clients = [int(text) for text in labels]
        assert len(clients) == 12
        assert [sizes[client] for client in clients] == sorted(sizes, reverse=True)
        assert watched.complaints == []


@needs_browser
@pytest.mark.slow
def test_a_strategy_without_figures_of_a_seed_has_no_empty_heading(browser: Any, runs: Path, tmp_path: Path) -> None:
    for watched in opened(browser, find_runs([runs]), tmp_path):
        page = watched.page
        page.evaluate(
            """[...document.querySelectorAll('.part-of')].filter(p => p.dataset.strategy === 'UCB')
            .forEach(p => p.querySelectorAll('figure[data-seed="1"]').forEach(f => f.remove()))"""
        )
        page.locator('.controls input[name="seed"][value="1"]').check(force=True)
        assert "UCB" not in visible(page, "#reasons h3.part")
        page.locator('.controls input[name="seed"][value="0"]').check(force=True)
        assert "UCB" in visible(page, "#reasons h3.part")


def test_shares_of_wall_time_add_up_to_at_most_the_total(runs: Path) -> None:
    story = gather(find_runs([runs]))
    for row in wall_rows(story):
        *spent, total, recording = [entry["cell"].value for entry in row["cells"]]
        assert sum(spent) <= total * 1.001
        assert [bool(entry["share"]) for entry in row["cells"]] == [True, True, True, True, False, False]
        assert recording > 0
    drawn = wall(story, PAGE)
    assert drawn is not None
    assert set(drawn.data["wall"]["part"]) == {"training", "selection", "aggregation", "evaluation"}


def test_what_clients_disclose_is_said_in_words(tmp_path: Path) -> None:
    federation = {"clients": 6, "partition": "iid", "holdout": 0.3}
    experiment = small(
        rounds=2, seeds=1, federation=federation, variants=[{"label": "conformal", "selection": CONFORMAL}]
    )
    fedcohort.compare(experiment, runs=tmp_path / "runs")
    shown = Page(report(gather(find_runs([tmp_path / "runs"]))))
    rows = shown.prose
    assert "so recording is not part of the total" in rows
    assert "its conformal quantile" in rows
    for name in set(REPORTS) - {"accuracy", "loss", "samples", "steps", "epochs", "calibration", "done"}:
        assert f" {name}" not in rows
    assert "share of work done" not in rows


def test_a_hundred_candidates_have_a_row_each(runs: Path, tmp_path: Path) -> None:
    federation = {"clients": 100, "partition": "iid"}
    fedcohort.compare(small(rounds=3, seeds=1, federation=federation, selection=UCB), runs=tmp_path / "runs")
    (reading,) = gather(find_runs([tmp_path / "runs"])).first
    figure = candidates("ucb", reading, reading.decisions(), [], PAGE)
    assert figure is not None
    (frame,) = figure.data.values()
    assert sorted(set(frame["client"])) == list(range(100))
    assert "A dot is a client that was selected." in figure.note
    assert "1 rounds" not in figure.note


@pytest.mark.parametrize("rounds", slow_after(1, [240, 100]))
def test_scores_of_many_clients_are_those_of_single_clients(tmp_path: Path, rounds: int) -> None:
    """Means over blocks of 17 clients are all near one half: the map was pale, whatever the strategy did."""
    rng = np.random.default_rng(0)
    score = rng.random(1000).round(6)  # of a client, in every round
    written_rounds = [
        played(t, [7], decisions=[(i, i == 7, float(score[i]), {}) for i in range(1000)]) for t in range(1, rounds + 1)
    ]
    run = written(tmp_path / "a", written_rounds, federation={"clients": 1000}, selection=UCB)
    reading = gather([run]).first[0]
    figure = candidates("ucb", reading, reading.decisions(), [], PAGE)
    assert figure is not None
    (frame,) = figure.data.values()
    assert frame.groupby("place")["client"].nunique().tolist() == [1] * 60, "a row is one client"
    assert set(frame.loc[frame["place"] == 0, "client"]) == {7}, "the most often selected first"
    expected = [float(np.mean(score <= score[client])) for client in frame["client"]]
    assert frame["rank"].to_numpy() == pytest.approx(expected, abs=1e-3)
    assert frame["rank"].min() < 0.1
    assert frame["rank"].max() > 0.9
    assert "Single clients: 60 of 1,000 clients, at even intervals" in figure.note
    assert ("A dot is a client that was selected." in figure.note) == (rounds == 100)
    assert ("A cell is the mean over 1 client × 2 rounds" in figure.note) == (rounds == 240)


def test_measures_and_comparisons_have_the_same_target(runs: Path) -> None:
    found = find_runs([runs])
    compared = Comparison("runs", side_by_side(found)).target.accuracy
    assert {one.target for one in summaries(found)} == {compared}


def test_names_in_the_chart_of_costs_have_a_ground_behind_them(on_page: dict[str, list[Part]]) -> None:
    drawn = on_page["result"][0].figures
    chart = (
        next(figure for figure in drawn if figure.key == "tradeoff").views[0].panels[0].chart.to_dict(validate=False)
    )
    kinds = [(layer["mark"]["type"], layer["mark"].get("stroke")) for layer in chart["layer"]]
    assert kinds == [
        ("rule", None), ("text", PAGE.ground), ("text", PAGE.ground), ("rule", None), ("point", None), ("text", None), ("text", None),
    ]  # fmt: skip


def test_panels_have_the_axes_of_their_own_point(tmp_path: Path) -> None:
    """Next to a point with 100 clients, the bars of four clients were a histogram as high as a hair."""
    experiment = small(
        rounds=2,
        seeds=1,
        federation={"clients": 4, "partition": "iid"},
        variants=[{"label": "UCB", "selection": UCB}],
        sweep={"federation.clients": [4, 100]},
    )
    fedcohort.compare(experiment, runs=tmp_path / "runs")
    story = gather(find_runs([tmp_path / "runs"]))
    figure = selections(story, replace(PAGE, rows=story.row_looks))
    assert figure is not None
    heights = {}
    for panel in figure.views[0].panels:
        y_axes = [layer["encoding"].get("y") for layer in panel.chart.to_dict(validate=False)["layer"]]
        (title,) = {y["title"] for y in y_axes if y and y.get("title")}
        heights[panel.strategy] = (title, max(y["scale"]["domain"][1] for y in y_axes if y and "scale" in y))
    assert {heights[label] for label in heights if "clients=4" in str(label)} == {("times selected", 2.0)}
    for label in (label for label in heights if "clients=100" in str(label)):
        assert heights[label][0] == "clients"
        assert heights[label][1] > 90
    few, many = figure.at_points
    assert few.startswith("Gray: the range that contains 90% of the clients")
    assert many.startswith("Bars: number of clients by how often")
    cells = raster(story, replace(PAGE, rows=story.row_looks))
    assert cells is not None
    assert [words.startswith("A cell is") for words in cells.at_points] == [True, True]
    assert cells.note == "Seed 0."
    on_paper = selections(story, paper())
    assert on_paper is not None
    assert on_paper.note.startswith("Up to 60 clients: Gray: the range")
    assert " of 4 clients a round" in on_paper.note
    assert " of 100 clients a round" in on_paper.note


def test_panels_that_are_shown_together_have_as_many_rounds(tmp_path: Path) -> None:
    """The panels of an unfinished run were as wide as those of a finished one, with a wider cell for each round."""
    runs = [
        written(tmp_path / label, [played(t, [0, 1]) for t in range(1, rounds + 1)], label=label)
        for label, rounds in (("whole", 6), ("half", 3))
    ]
    story = gather(runs)
    for figure in (raster(story, PAGE), class_accuracy(story, PAGE)):
        assert figure is not None
        charts = [panel.chart.to_dict(validate=False) for panel in figure.views[0].panels]
        assert [chart["encoding"]["x"]["scale"]["domain"] for chart in charts] == [[0.5, 6.5], [0.5, 6.5]]


def test_heat_maps_of_a_sweep_have_the_same_axes_where_a_strategy_lacks_a_point(tmp_path: Path) -> None:
    cells = [
        ("uniform", 4, 0.1),
        ("uniform", 4, 0.5),
        ("mine", 4, 0.1),
        ("mine", 4, 0.5),
        ("mine", 5, 0.1),
        ("mine", 5, 0.5),
    ]
    runs = [
        written(
            tmp_path / f"{name}{clients}{rate}",
            [played(1, [0, 1])],
            label=f"{name}, clients={clients}, lr={rate}",
            federation={"clients": clients},
            training={"lr": rate},
            selection="uniform" if name == "uniform" else UCB,
        )
        for name, clients, rate in cells
    ]
    (figure,) = studies(gather(runs), PAGE)
    for panel in figure.views[0].panels:
        encoding = panel.chart.to_dict(validate=False)["layer"][0]["encoding"]
        axes = [encoding[axis]["scale"]["domain"] for axis in "xy"]
        assert sorted(map(len, axes)) == [2, 2]


def test_rows_of_a_point_with_the_same_name_keep_their_numbers(tmp_path: Path) -> None:
    """A file was changed and compared again: its old and new rows had one name and one color."""
    runs = [
        written(
            tmp_path / f"{alpha}{size}",
            [played(1, [0, 1])],
            label=f"uniform, alpha={alpha}",
            federation={"clients": 4, "partition": {"name": "dirichlet_class", "alpha": alpha, "min_size": size}},
        )
        for alpha in (0.1, 1.0)
        for size in (0, 1)
    ]
    rows = tuple(
        Row(f"uniform, alpha={alpha} ({number})", run.described, {0: run})
        for run, (alpha, number) in zip(runs, [(0.1, 1), (0.1, 2), (1.0, 1), (1.0, 2)], strict=True)
    )
    compared = Comparison("changed", rows)
    assert [group.rows for group in compared.groups] == [(0, 1), (2, 3)]
    assert compared.names_without_settings == ["uniform (1)", "uniform (2)", "uniform (1)", "uniform (2)"]


def test_runs_with_other_classes_share_a_page(tmp_path: Path) -> None:
    """Ten digits, and tumors of two kinds: each panel has the classes of its own run, and there is no table of all of them."""
    tumors = {"data": {"name": "breast_cancer"}, "model": {"name": "logistic"}}
    clients = {"clients": 4, "partition": "iid"}
    for name, settings in (("digits", {"sweep": {"training.lr": [0.01, 0.1]}}), ("tumors", tumors)):
        fedcohort.compare(small(name=name, rounds=1, seeds=1, federation=clients, **settings), runs=tmp_path)
    story = gather(find_runs([tmp_path]))
    figure = class_accuracy(story, PAGE)
    assert figure is not None
    (view,) = figure.views
    assert len(view.panels) == 3
    frame = figure.data["class_accuracy"]
    assert frame.groupby("strategy")["class"].nunique().to_dict() == {"uniform": 2} | {
        f"uniform, lr={lr}": 10 for lr in (0.01, 0.1)
    }
    assert class_rows(story) == {}
    assert "Accuracy of each class" in report(story)
    (sentence,) = (text for text in map(str, answers(story)) if "At digits" in text)
    assert "'uniform, lr=" in sentence, "the point is the experiment, and does not name the setting"


@pytest.fixture(scope="module")
def page_of_sweep(swept: list[Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page of points") / "page.html"
    path.write_text(report(gather(swept)), encoding="utf-8")
    return path


def test_the_page_says_which_point_it_shows_and_what_points_share(swept: list[Run], page_of_sweep: Path) -> None:
    """It opened at the first point, with axes of all points, without a word."""
    page = Page(page_of_sweep.read_text("utf-8"))
    assert (
        "The page shows one point of the sweep at a time, at first alpha=0.1, lr=0.01. Lines and differences have"
        in page.prose
    )
    assert "so that they can be compared; each federation has its own target." in page.prose
    same = [run for run in swept if "alpha=0.1" in run.meta["label"]]
    assert "so that they can be compared; all points have the same target, " in Page(report(gather(same))).prose
    single = [run for run in same if "lr=0.1" in run.meta["label"]]
    assert "at a time" not in Page(report(gather(single))).prose


@needs_browser
@pytest.mark.slow
def test_lines_have_the_same_axes_at_all_points(browser: Any, page_of_sweep: Path) -> None:
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.goto(page_of_sweep.as_uri())
    page.evaluate("fedcohort.ready")
    texts = (
        "[...document.querySelectorAll('#figure-%s .view:not([hidden]) .role-axis-label text')].map(t => t.textContent)"
    )
    before = [page.evaluate(texts % key) for key in ("accuracy", "loss")]
    page.locator('.points input[value="3"]').check(force=True)
    page.evaluate("fedcohort.drawAll()")
    assert [page.evaluate(texts % key) for key in ("accuracy", "loss")] == before
    assert all(before)
    page.close()


def test_captions_of_federations_go_by_the_number_of_their_points_not_by_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A point whose own name has the words "other point" was called one of several points of the sweep."""
    story = gather([written(tmp_path / "a", [played(1, [0])])])
    figure = Figure("sizes", "Sizes", "12 clients.", [])
    named = [("file=an other point", 0), ("alpha=1 and 2 other points", 2)]
    monkeypatch.setattr(page_sections, "_federation_names", lambda _: named)
    notes = [page_sections._at_points(story, figure, number, PAGE).note for number in (0, 1)]
    assert notes == [
        "12 clients. Clients at file=an other point.",
        "12 clients. Clients at alpha=1 and 2 other points of the sweep.",
    ]
