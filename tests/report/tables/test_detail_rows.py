"""Tables of details, marks of the best cells, means over seeds, and the progress of the live page."""

import math
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedcohort.core.words.formatted_values import UNTRIED
from fedcohort.record import ClientRow
from fedcohort.report import terminal
from fedcohort.report.charts.client_table import client_table
from fedcohort.report.charts.score_terms import untried
from fedcohort.report.data.report_data import find_runs, gather
from fedcohort.report.live.live_progress import Pace, Planned
from fedcohort.report.notes.worst_clients import ABOUT_ONE, about_worst, numbers_of_clients
from fedcohort.report.page import page
from fedcohort.report.tables.best_cells import mark_best
from fedcohort.report.tables.detail_rows import class_rows, wall_rows
from fedcohort.report.tables.table_rows import Cell
from fedcohort.report.terminal.measures_notes import about_rows
from fedcohort.study.comparison import Comparison, Row
from fedcohort.study.summary import over_seeds, summaries
from tests.records import exchange, played, written
from tests.report.pages import Page


def test_accuracy_of_each_class_is_the_mean_over_seeds(runs: Path) -> None:
    story = gather(find_runs([runs]))
    found = class_rows(story)
    assert found["classes"] == list("0123456789")
    own = [run for run in find_runs([runs]) if run.meta["label"] == "UCB"]
    last = np.mean([run.rounds["class_accuracy"].iloc[-1] for run in own], axis=0)
    row = next(row for row in found["rows"] if row["label"] == "UCB")
    assert [cell.value for cell in row["cells"]] == pytest.approx(last.tolist())


def test_a_class_without_test_samples_has_no_accuracy_and_gives_no_warning(tmp_path: Path) -> None:
    """NumPy warned of the mean of an empty slice."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        found = class_rows(gather([written(tmp_path / "run", [played(1, [0], class_accuracy=[0.25, math.nan])])]))
    ((row,), cells) = found["rows"], found["rows"][0]["cells"]
    assert row["label"] == "uniform"
    assert [cell.value for cell in cells] == pytest.approx([0.25, math.nan], nan_ok=True)


def test_wall_time_is_that_of_the_record(runs: Path) -> None:
    row = wall_rows(gather(find_runs([runs])))[0]
    own = [run for run in find_runs([runs]) if run.meta["label"] == "uniform"]
    assert row["cells"][0]["cell"].value == pytest.approx(np.mean([run.wall["training"].sum() for run in own]))
    assert row["each"].value == pytest.approx(1e3 * row["cells"][4]["cell"].value / 8)
    assert row["cells"][4]["cell"].value == pytest.approx(np.mean([run.wall["total"].sum() for run in own]))
    assert row["cells"][5]["cell"].value == pytest.approx(np.mean([run.wall["recording"].sum() for run in own]))


def test_numbers_of_a_column_of_wall_time_have_the_same_decimals(tmp_path: Path) -> None:
    """0.00994 stood above 0.0126."""
    own = []
    for name, seconds in (("uniform", 0.00994), ("mine", 0.0126)):
        parts = {"selection": seconds, "training": 1234.5, "aggregation": 0.0, "evaluation": 0.0, "recording": 0.0}
        parts["total"] = sum(parts.values())
        own.append(written(tmp_path / name, [played(1, [0], wall=parts)], label=name))
    rows = wall_rows(gather(own))
    shown = [[row["cells"][i]["cell"].text for row in rows] for i in range(3)]
    assert shown == [["1,234", "1,234"], ["0.0099", "0.0126"], ["0", "0"]]


def test_only_parts_that_took_no_time_are_0_percent(tmp_path: Path) -> None:
    """A part of 0.2% of the total was 0%."""
    parts = {
        "selection": 0.01,
        "training": 4.98,
        "aggregation": 0.01,
        "evaluation": 0.0,
        "recording": 0.0,
        "total": 5.0,
    }
    (row,) = wall_rows(gather([written(tmp_path / "a", [played(1, [0], wall=parts)])]))
    assert [cell["share"] for cell in row["cells"] if cell["share"]] == [">99%", "<1%", "<1%", "0%"]


def test_the_table_of_clients_has_means_over_their_rounds(runs: Path) -> None:
    story = gather(find_runs([runs])).at_seed(1)
    figure = client_table(story)
    assert figure is not None
    frame = figure.data["client_table"]
    run = next(r for r in find_runs([runs]) if r.meta["label"] == "loss" and r.meta["seed"] == "1")
    own = run.clients[run.clients["client"] == 3]
    row = frame[(frame["strategy"] == "loss") & (frame["client"] == 3)].iloc[0]
    assert row["selected"] == len(own)
    if len(own):
        assert row["accuracy"] == pytest.approx(100 * own["accuracy"].mean(), abs=0.05)
        assert row["loss"] == pytest.approx(own["loss"].mean(), abs=5e-5)
    assert len(frame) == 36
    assert frame["samples"].tolist() == 3 * run.portrait.facts["samples"].tolist(), "also of clients never selected"


def test_times_in_the_table_of_clients_are_those_of_rounds_in_which_they_trained(tmp_path: Path) -> None:
    """The mean of 3 and 5 time units was 6 with the 10 units of a round in which the client was late."""
    status = ("admitted", "late", "declined", "failed")
    rounds = [
        played(t, [ClientRow(0, state, duration=time)])
        for t, (state, time) in enumerate(zip(status, (3.0, 10.0, 5.0, 2.0), strict=True), 1)
    ]
    figure = client_table(gather([written(tmp_path / "run", rounds)]))
    assert figure is not None
    assert figure.data["client_table"].loc[0, "time"] == 4
    assert figure.sheet["accuracy"] == "training accuracy, %"
    assert (
        "Training accuracy, training loss and time are means over the rounds in which the client trained" in figure.note
    )


def cell(value: float) -> Cell:
    return Cell(f"{value:.1f}", value)


def test_best_cells_are_marked_within_a_point() -> None:
    rows = [
        {"point": 0, "a": cell(0.5), "b": cell(2.0)},
        {"point": 0, "a": cell(0.7), "b": cell(1.0)},
        {"point": 1, "a": cell(0.6), "b": cell(math.inf)},
        {"point": 1, "a": cell(0.6), "b": cell(3.0)},
    ]
    mark_best(rows, ["a"], ["b"])
    assert [row["best"] for row in rows] == [set(), {"a", "b"}, set(), set()]
    rows[1]["partial"] = ("b",)
    mark_best([*rows[:2], {"point": 0, "a": cell(0.1), "b": cell(3.0)}], ["a"], ["b"])
    assert [row["best"] for row in rows[:2]] == [{"b"}, {"a"}], (
        "a mean over the seeds that reached the target is not compared"
    )


def test_rows_that_show_the_same_number_are_marked_alike() -> None:
    """A question of 24 bytes among 616 kB took the mark from a row that shows the same number as the marked ones."""
    rows = [{"a": cell(value)} for value in (0.70, 0.71, 0.5)]
    mark_best(rows, lowest=["a"])
    assert [bool(row["best"]) for row in rows] == [False, False, True]
    mark_best(rows, highest=["a"])
    assert [bool(row["best"]) for row in rows] == [True, True, False]
    rows = [{"a": cell(value)} for value in (0.70, 0.71)]
    mark_best(rows, highest=["a"])
    assert not any(row["best"] for row in rows), "all show the same"


def test_scores_of_clients_never_selected_are_untried() -> None:
    frame = pd.DataFrame({"score": [240432.0, 2.5, 50000.0], "bonus": [240432.0, 2.0, 1.0]})
    assert untried(frame).tolist() == [True, False, False]
    assert not untried(frame.drop(columns="bonus")).any(), "a large score without a bonus is a score"
    assert UNTRIED < 1e5


@pytest.mark.parametrize(
    ("clients", "note"),
    [
        (1, ""),
        (5, "Of at most 10 clients, the worst tenth is one client."),
        (12, "Of 12 clients that were measured, the worst tenth is 2 clients."),
        (20, ""),
    ],
)
def test_notes_below_all_measures_say_how_many_clients_the_worst_tenth_is(
    clients: int, note: str, tmp_path: Path
) -> None:
    """It was "Of at most 10 clients, the worst tenth is one client", also of 12 clients and of one."""
    accuracies = np.linspace(0.2, 0.9, clients)
    rounds = [played(1, [0], client_accuracy=accuracies)]
    run = written(tmp_path / "run", rounds, federation={"clients": clients}, selection={"name": "all"})
    notes = about_rows(Comparison("x", (Row("a", run.described, {0: run}),)))
    assert [text for text in notes if "worst tenth" in text] == ([note] if note else [])


def test_clients_without_data_are_no_part_of_the_worst_tenth(tmp_path: Path) -> None:
    """Of 15 clients, 4 had no data under one seed and 9 under another: "Of 15 clients with data, the worst tenth is 2 clients"."""
    for without, note in (
        ((4, 4), " Of 11 clients that were measured, the worst tenth is 2 clients."),
        ((4, 9), f" {ABOUT_ONE}"),
    ):
        runs = {}
        for seed, number in enumerate(without):
            accuracies = np.array([math.nan] * number + [0.5] * (15 - number))
            rounds = [played(1, [0], client_accuracy=accuracies, ledger=[exchange(9, 9)])]
            folder, settings = tmp_path / f"{without}" / f"{seed}", {"clients": 15}
            runs[seed] = written(folder, rounds, seed=seed, federation=settings, selection={"name": "all"})
        compared = Comparison("x", (Row("uniform", runs[0].described, runs),))
        assert about_worst(numbers_of_clients(compared)) == note
        text = page(gather(list(runs.values())))
        assert note.strip() in Page(text).prose
        assert "Of 15 clients" not in text


def test_measures_are_means_over_seeds(runs: Path) -> None:
    own = [run for run in find_runs([runs]) if run.meta["label"] == "UCB"]
    several = summaries(own, 0.99)
    mean = over_seeds(several)
    assert (mean.seeds, mean.reached) == (3, 0)
    assert mean.mean.accuracy == pytest.approx(np.mean([one.accuracy for one in several]))
    assert mean.mean.rounds_to_target == math.inf
    assert mean.mean.selected.jain == pytest.approx(np.mean([one.selected.jain for one in several]))
    text = terminal.as_text(terminal.summaries(["UCB, seeds 0 to 2"], [mean]), 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "Means over seeds" in text
    assert about_worst([5, 20]) == " Of at most 10 clients, the worst tenth is one client."
    assert about_worst([15, 15]) == " Of 15 clients that were measured, the worst tenth is 2 clients.", (
        "that is 13% of them"
    )
    assert about_worst([20]) == ""
    wide = terminal.as_text(terminal.summaries([f"row {i}" for i in range(9)], [mean] * 9), 100)
    assert all(f"row {i}" in wide for i in range(9)), "columns that do not fit follow below"
    assert max(map(len, wide.splitlines())) <= 100


@pytest.mark.parametrize("width", [60, 80, 100, 140])
@pytest.mark.parametrize("rows", [2, 5, 18])
def test_measures_fit_the_width_with_rows_as_columns_or_as_lines_of_tables_by_topic(
    runs: Path, rows: int, width: int
) -> None:
    """At 80 columns, each of 18 rows had a table of 30 lines of its own: no measure could be compared."""
    mean = over_seeds(summaries([run for run in find_runs([runs]) if run.meta["label"] == "UCB"], 0.99))
    names = [f"powd, d={i}" for i in range(rows)]
    text = terminal.as_text(terminal.summaries(names, [mean] * rows, width=width, seeds="seeds 0 to 2"), width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert "Means over seeds 0 to 2;" in " ".join(text.split())
    tables = [line for line in lines if set(line.strip()) == {"─"}]
    assert "…" not in text
    side_by_side: dict[int, dict[int, int]] = {
        2: dict.fromkeys((60, 80, 100, 140), 1),
        5: {60: 3, 80: 2, 100: 2, 140: 1},
        18: {140: 3},
    }
    number = side_by_side[rows].get(width, 0)
    if number:
        assert len(tables) == number
        bars = [i for i, line in enumerate(lines) if line in tables]
        begins = [0, *(max(j for j in range(bar) if not lines[j].strip()) for bar in bars[1:])]
        named = " ".join(" ".join(lines[begin:bar]) for begin, bar in zip(begins, bars, strict=True)).split()
        assert sorted(named) == sorted(["measure"] * number + " ".join(names).split())
        assert text.count("0.9") % rows == 0
        return
    assert "measure" not in lines[0] + lines[1]
    starts = [i for i, line in enumerate(lines) if line.startswith("powd, d=0")]
    assert len(starts) == len(tables), "every table has all rows"
    for start in starts:
        assert [" ".join(line.split()[:2]) for line in lines[start : start + rows]] == names
    assert len(lines) <= 12 * (rows + 7)
    heads = " ".join(" ".join(lines).split())
    assert {"rounds", "to", "it", "Gini", "coverage", "admitted", "forgetting"} <= set(heads.split())
    assert "personal" not in heads, "measures that no row has are left out"


def test_progress_over_all_runs_and_the_time_left(runs: Path) -> None:
    now = iter([0.0, 10.0, 20.0])
    pace = Pace("small", Planned(1000, 12), lambda: next(now))
    found = find_runs([runs])
    begun = 8 * (len(found) - 1)
    assert pace.overall("small", found[1:])["words"] == (
        f"{begun} of 1,000 rounds of all 12 runs. Runs: 8 finished, 0 under way, 4 not begun."
    )
    second = pace.overall("small", found)
    assert (second["done"], second["total"]) == (begun + 8, 1000)
    left = (1000 - begun - 8) * 10 / 8
    assert second["words"].endswith(
        f", {int(left // 60)}:{round(left % 60):02d} left at this pace. Runs: 9 finished, 0 under way, 3 not begun."
    )
    assert pace.overall("other", found) == {}, "all runs that have begun are finished"


def test_a_race_has_at_most_the_rounds_of_all_its_rows(runs: Path) -> None:
    """It ends when it is decided, and dropped rows get no more seeds, so that the time left is a limit."""
    now = iter([0.0, 10.0])
    pace = Pace("small", Planned(1000, 12, at_most=True), lambda: next(now))
    found = find_runs([runs])
    pace.overall("small", found[1:])
    assert (
        pace.overall("small", found)["words"]
        == "72 of at most 1,000 rounds of at most 12 runs, at most 19:20 left at this pace. "
        "Runs: 9 finished, 0 under way, at most 3 not begun."
    )
