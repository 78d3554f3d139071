"""Notes below tables and charts say what numbers beside each other cannot show, and colors follow verdicts."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.table import Table
from rich.text import Text

from fedcohort.record import Run, writing
from fedcohort.report import terminal
from fedcohort.report.charts.accuracy import accuracy, differences
from fedcohort.report.charts.accuracy_and_cost import accuracy_and_cost
from fedcohort.report.data.report_data import gather
from fedcohort.report.figures.chart_style import PAGE, STRATEGIES, paper
from fedcohort.report.figures.paper_figures import composed, draw
from fedcohort.report.notebook import comparison_in_notebook
from fedcohort.report.notes.comparison_notes import about_federations
from fedcohort.report.notes.cost_notes import HIDDEN_BYTES, NO_TIME, TWO_DOWNLOADS
from fedcohort.report.page import page
from fedcohort.report.tables.paper_tables import to_latex
from fedcohort.study.compare_existing_runs import read
from fedcohort.study.comparison import Comparison
from tests.experiments import UCB, small
from tests.records import exchange, played, written
from tests.report.headline.test_headline import BETTER, FIRST, runs_of
from tests.report.pages import Page, headline


def compared(folder: Path, seeds: int) -> Comparison:
    """A row that is 10 points or more better than uniform selection under each seed."""
    runs = [
        *runs_of(folder, "uniform", FIRST[:seeds]),
        *runs_of(folder, "mine", BETTER[:seeds], selection=UCB),
    ]
    return read([run.path for run in runs], partial=True)


def color(found: Comparison) -> str:
    """The color of the difference of the second row in the terminal."""
    (table,) = (part for part in terminal.comparison(found, 200).renderables if isinstance(part, Table))
    cell = list(table.columns[2].cells)[1]
    assert isinstance(cell, Text)
    assert cell.plain.startswith("+1")
    return str(cell.style)


@pytest.mark.parametrize(
    ("seeds", "verdict", "shown"), [(2, "too few seeds", ""), (3, "not clear", ""), (8, "better", "green")]
)
def test_a_difference_is_colored_only_if_its_verdict_is_clear(
    seeds: int, verdict: str, shown: str, tmp_path: Path
) -> None:
    found = compared(tmp_path, seeds)
    assert found.table["difference_low"][1] > 0, "the interval excludes 0"
    assert found.table["verdict"][1] == verdict
    assert color(found) == shown


@pytest.mark.parametrize(("seeds", "clear"), [(3, False), (8, True)])
def test_intervals_of_the_chart_are_colored_only_if_their_verdict_is_clear(
    seeds: int, clear: bool, tmp_path: Path
) -> None:
    """The interval excludes 0 in both cases; with three seeds, p cannot be small enough."""
    runs = [run for row in compared(tmp_path, seeds).rows for run in row.runs.values()]
    look = paper(1)
    figure = differences(gather(runs), look)
    assert figure is not None
    assert (figure.data["differences"]["low"] > 0).all()
    svg = draw(composed(figure, figure.views[0], look), "svg").decode()
    own, gray = (svg.lower().count(f'="{shade.lower()}"') for shade in (STRATEGIES[1], look.soft))
    marks = seeds + 2  # a circle for each seed, the interval, and the diamond
    assert own == (marks if clear else 0)
    assert gray >= (0 if clear else marks)
    assert "Colored: clear after correction" in figure.note
    assert "Gray: not clear" in figure.note


def test_an_interval_without_0_beside_an_unclear_verdict_is_explained(tmp_path: Path) -> None:
    explained = "it can exclude 0 although the verdict is not clear."
    unclear, clear = compared(tmp_path / "three", 3), compared(tmp_path / "eight", 8)
    texts = [" ".join(terminal.as_text(terminal.comparison(found)).split()) for found in (unclear, clear)]
    assert [explained in text for text in texts] == [True, False]
    assert all("Its 95% interval is that of Student's t" in text and "corrected" not in text for text in texts), (
        "it is one"
    )
    runs = [run for row in unclear.rows for run in row.runs.values()]
    assert explained in Page(page(gather(runs))).prose


@pytest.mark.parametrize("asks", [True, False])
def test_simulated_time_without_answers_to_questions_is_named_everywhere(asks: bool, tmp_path: Path) -> None:
    """A strategy that asks clients is not billed for it on the clock; its times beside others would mislead without a word."""
    spent = [exchange(100, 100), *([exchange(200, 8, "LocalLoss")] if asks else [])]
    runs = [*runs_of(tmp_path, "uniform", FIRST), *runs_of(tmp_path, "mine", BETTER, spent, selection=UCB)]
    story = gather(runs)
    figures = [accuracy(story, PAGE), accuracy_and_cost(story, PAGE)]
    places = [
        *headline(story),
        " ".join(terminal.as_text(terminal.comparison(read([run.path for run in runs], partial=True))).split()),
        *[view.note for figure in figures if figure is not None for view in figure.views],
    ]
    assert sum(NO_TIME in place for place in places) == (4 if asks else 0)
    prose = Page(page(story)).prose
    assert (NO_TIME in prose) == asks
    below_results = prose[prose.index("Jain's index tells how evenly") :].partition(" SVG")[0]
    assert (TWO_DOWNLOADS in below_results) == asks, "bytes stand in this table, too"


def test_one_row_of_another_federation_that_is_not_named_is_in_the_singular() -> None:
    experiments = [small(federation={"clients": m}).single(0) for m in range(5, 10)]
    rows = [SimpleNamespace(label=f"m={each.federation.clients}", experiment=each, runs={}) for each in experiments]
    found: Any = SimpleNamespace(rows=rows, references=[0] * 5)
    assert about_federations(found).startswith(
        "'m=6', 'm=7', 'm=8' and 1 more row differ from the reference in clients"
    )


def test_samples_that_are_taken_from_the_clients_make_another_federation(tmp_path: Path) -> None:
    """Public samples of a holdout are fewer samples of the clients; those of another data set leave the clients as they are."""

    def said(public: dict[str, Any]) -> str:
        folder = tmp_path / public["name"]
        runs = [
            *runs_of(folder, "uniform", FIRST[:2]),
            *runs_of(folder, "UCB", BETTER[:2], selection=UCB, public=public),
        ]
        return about_federations(read([run.path for run in runs], partial=True))

    assert said({"name": "holdout", "share": 0.5}).startswith("'UCB' differs from the reference in clients, data or")
    assert said({"name": "mnist"}) == ""


@pytest.mark.parametrize(("data", "differs"), [("abc", False), ("abc+of the public samples", False), ("def", True)])
def test_a_row_with_other_data_under_the_same_settings_is_named(tmp_path: Path, data: str, differs: bool) -> None:
    """Arrays that are given in Python have no settings; only the fingerprints in the records tell them apart."""
    runs = [
        *runs_of(tmp_path, "uniform", FIRST[:2], facts={"data": "abc"}),
        *runs_of(tmp_path, "UCB", BETTER[:2], selection=UCB, facts={"data": data}),
    ]
    said = about_federations(read([run.path for run in runs], partial=True))
    assert said.startswith("'UCB' differs from the reference in clients, data or") == differs
    assert bool(said) == differs


@pytest.mark.parametrize(
    ("clock", "clients", "differs"),
    [("wall", "Bern, Thun", False), ("wall", "Bern, Zug", True), ("simulated", "", True)],
)
def test_real_clients_are_others_than_those_of_a_simulation(
    tmp_path: Path, clock: str, clients: str, differs: bool
) -> None:
    """The settings of a deployment and of its simulation are the same, and so are the server's data."""
    site = {"data": "abc", "clock": "wall", "clients": "Bern, Thun"}
    runs = [
        *runs_of(tmp_path, "uniform", FIRST[:2], facts=site),
        *runs_of(tmp_path, "UCB", BETTER[:2], selection=UCB, facts=site | {"clock": clock, "clients": clients}),
    ]
    said = about_federations(read([run.path for run in runs], partial=True))
    assert said.startswith("'UCB' differs from the reference in clients, data or") == differs
    assert bool(said) == differs


@pytest.mark.slow
def test_a_row_with_other_clients_than_its_reference_is_named_everywhere(tmp_path: Path) -> None:
    """A variant can change the federation; the terminal, the page and notebooks say it alike."""
    runs = [
        *runs_of(tmp_path, "uniform", FIRST),
        *runs_of(tmp_path, "UCB", BETTER, selection=UCB),
        *runs_of(tmp_path, "fewer clients", BETTER, federation={"clients": 5}),
    ]
    found = read([run.path for run in runs], partial=True)
    said = "'fewer clients' differs from the reference in clients, data or systems: the difference is not due to the strategy alone."
    places = [
        " ".join(terminal.as_text(terminal.comparison(found)).split()),
        Page(page(gather(runs))).prose,
        str(comparison_in_notebook(found)["text/plain"]),
        str(comparison_in_notebook(found)["text/html"]).replace("&#x27;", "'"),
    ]
    assert [said in place for place in places] == [True, True, False, True], (
        "plain text is the one line of a comparison"
    )
    assert said in to_latex(found)


@pytest.mark.slow
def test_rows_that_were_planned_with_different_numbers_of_rounds_are_named_everywhere(tmp_path: Path) -> None:
    """Only `fedcohort measures` said so. Unfinished runs that are compared over the same rounds need no such note."""

    def runs(*lengths: int, finished: bool = True) -> list[Run]:
        own: list[Run] = []
        for label, length in zip(("uniform", "longer"), lengths, strict=True):
            path = tmp_path / f"{label}-{len(list(tmp_path.iterdir()))}"
            choice = "uniform" if label == "uniform" else UCB
            run = written(path, [played(t, [0, 1]) for t in range(1, length + 1)], label=label, selection=choice)
            if finished:
                with writing(run) as writer:
                    writer.finish({})
            own.append(run)
        return own

    different = runs(2, 3)
    found = read([run.path for run in different])
    said = "Rows were planned with different numbers of rounds ('uniform' 2 and 'longer' 3): differences in what is measured"
    places = [
        " ".join(terminal.as_text(terminal.comparison(found)).split()),
        Page(page(gather(different))).prose,
        str(comparison_in_notebook(found)["text/html"]).replace("&#x27;", "'"),
        to_latex(found),
    ]
    assert [said in place for place in places] == [True] * 4
    for alike in (
        read([run.path for run in runs(2, 2)]),
        read([one.path for one in runs(2, 3, finished=False)], partial=True),
    ):
        assert "were planned" not in terminal.as_text(terminal.comparison(alike))


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_notes_explain_only_the_columns_that_are_there(width: int, tmp_path: Path) -> None:
    spent = [exchange(100, 100), exchange(200, 8, "LocalLoss")]
    runs = [*runs_of(tmp_path, "uniform", FIRST), *runs_of(tmp_path, "mine", BETTER, spent, selection=UCB)]
    text = " ".join(
        terminal.as_text(terminal.comparison(read([run.path for run in runs], partial=True), width)).split()
    )
    hidden = text.partition("Hidden for lack of width: ")[2].rstrip(".").split(", ")
    notes = {
        "Jain": "Jain's index: 1 is even",
        "bytes": TWO_DOWNLOADS,
        "time": f"Simulated time: the fastest possible client needs 1 unit per sample and round. {'' if 'Jain' in hidden else 'Jain'}",
    }
    for column, note in notes.items():
        gone = any(name == column or (column == "time" and name.startswith("time to")) for name in hidden)
        assert (note.strip() in text) != gone, column
    assert (NO_TIME in text) == (notes["time"].strip() in text)
    assert (f"{NO_TIME} {HIDDEN_BYTES}" in text) == (NO_TIME in text and "bytes" in hidden)
    if width == 80:
        assert HIDDEN_BYTES in text


def test_rows_that_share_one_seed_are_said_to_have_no_interval(tmp_path: Path) -> None:
    several, one = [0.5, 0.52, 0.54], [0.5]
    runs = [
        *runs_of(tmp_path, "uniform", several),
        *runs_of(tmp_path, "mine", several),
        *runs_of(tmp_path, "short", one),
    ]

    def said(rows: list[Run]) -> str:
        figure = differences(gather(rows), PAGE)
        assert figure is not None
        return figure.note

    assert "Without a line: only one seed shared, which gives no interval." in said(runs)
    assert "Without a line" not in said(runs[:6])
    assert said([runs[0], runs[3]]).startswith("Each row shares one seed with its reference.")
