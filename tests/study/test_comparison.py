"""Rows side by side: what the table says, worked out again by hand, and what is run for it."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import fedcohort
from fedcohort import measures
from fedcohort.core.errors import UsageError
from fedcohort.record import ClientRow, Run, create_run
from fedcohort.report import terminal
from fedcohort.report.data.report_data import gather
from fedcohort.report.notebook import comparison_in_notebook
from fedcohort.report.page import page
from fedcohort.report.tables.paper_tables import to_latex
from fedcohort.study.compare_existing_runs import read
from fedcohort.study.comparison import Comparison, Row, Target
from fedcohort.study.measured_values import result
from fedcohort.study.run_measures import bytes_per_round
from fedcohort.study.summary import over_seeds
from tests.experiments import IID, UCB, blobs, small
from tests.records import exchange, played, written

ROWS = [{"label": "UCB", "selection": UCB}, {"label": "everybody [all]", "selection": {"name": "all"}}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compared")


@pytest.fixture(scope="module")
def compared(folder: Path) -> fedcohort.Comparison:
    return fedcohort.compare(small(rounds=4, seeds=2, variants=ROWS), runs=folder)


def test_rows_stand_in_the_order_of_the_file_and_have_every_seed(compared: fedcohort.Comparison) -> None:
    assert compared.table["label"].tolist() == ["uniform", "UCB", "everybody [all]"]
    assert compared.table["selection"].tolist() == ["uniform", "ucb", "all"]
    assert [sorted(row.runs) for row in compared.rows] == [[0, 1]] * 3
    assert compared.table["seeds"].tolist() == [2, 2, 2]


def test_the_numbers_are_those_of_the_runs(compared: fedcohort.Comparison) -> None:
    for row, said in zip(compared.rows, compared.table.to_dict("records"), strict=True):
        runs = [row.runs[0], row.runs[1]]
        final = [float(run.rounds["test_accuracy"].iloc[-1]) for run in runs]
        assert said["accuracy"] == pytest.approx(np.mean(final))
        assert said["accuracy_sd"] == pytest.approx(np.std(final, ddof=1))
        assert said["best_accuracy"] == pytest.approx(np.mean([run.rounds["test_accuracy"].max() for run in runs]))
        assert said["bytes"] == np.mean([run.ledger[["bytes_down", "bytes_up"]].sum().sum() for run in runs])
        assert said["client_passes"] == pytest.approx(np.mean([run.ledger["passes"].sum() for run in runs]))
        assert said["wall_seconds"] == pytest.approx(np.mean([run.wall["total"].sum() for run in runs]))
        assert said["simulated_time"] == pytest.approx(np.mean([run.rounds["simulated_time"].max() for run in runs]))
        counts = [np.bincount(run.clients["client"], minlength=12) for run in runs]
        assert said["jain"] == pytest.approx(np.mean([measures.jain(x) for x in counts]))


def test_differences_are_paired_with_the_first_row(compared: fedcohort.Comparison) -> None:
    first, ucb = compared.results["uniform"], compared.results["UCB"]
    table = compared.table.set_index("label")
    mean, low, high = measures.paired_interval([run.accuracy for run in ucb], [run.accuracy for run in first])
    by_hand = (mean, max(low, -1.0), min(high, 1.0))
    assert tuple(table.loc["UCB", ["difference", "difference_low", "difference_high"]]) == pytest.approx(by_hand)
    assert table.loc["uniform", "difference"] == 0.0


def test_chance_is_that_of_as_many_clients(compared: fedcohort.Comparison) -> None:
    chance = compared.table.set_index("label")["jain_random"]
    assert chance["uniform"] == chance["UCB"] == pytest.approx(measures.jain_random(12, 3, 4).mean)
    assert chance["everybody [all]"] == 1.0


def test_the_default_target_is_reached_by_every_row_on_average(compared: fedcohort.Comparison) -> None:
    lowest = compared.table["best_accuracy"].min()
    assert lowest - 0.01 < compared.target.accuracy <= lowest
    assert compared.target.accuracy == round(compared.target.accuracy, 2)
    assert (
        compared.target.chosen == "taken from these results, a level that the mean best accuracy of every row reaches"
    )
    assert f"Target accuracy {100 * compared.target.accuracy:g}%: taken from these results" in " ".join(
        str(compared).split()
    )
    assert (compared.table["reached"] > 0).all()
    assert compared.table["rounds_to_target"].between(1, 4).all()
    for row, said in zip(compared.rows, compared.table.to_dict("records"), strict=True):
        needed = [
            measures.rounds_to(run.rounds["test_accuracy"], compared.target.accuracy) for run in row.runs.values()
        ]
        assert said["rounds_to_target"] == np.mean([n for n in needed if n < math.inf])


def test_a_target_that_nobody_reaches(folder: Path, compared: fedcohort.Comparison) -> None:
    high = fedcohort.compare(
        small(rounds=4, seeds=2, variants=ROWS, measures={"target_accuracy": 0.99}), runs=folder, progress=refuse
    )
    assert high.target == Target(0.99, "measures.target_accuracy")
    assert high.table["reached"].tolist() == [0, 0, 0]
    assert high.table[["rounds_to_target", "time_to_target", "bytes_to_target"]].isna().all(axis=None)
    assert "∞: no seed reached it" in terminal.as_text(high)


def test_finished_runs_are_not_repeated(folder: Path, compared: fedcohort.Comparison) -> None:
    again = fedcohort.compare(small(rounds=4, seeds=2, variants=ROWS), runs=folder, progress=refuse)
    assert again.to_json() == compared.to_json()


def test_only_what_is_missing_is_run(folder: Path, compared: fedcohort.Comparison) -> None:
    played = []
    fedcohort.compare(
        small(rounds=4, seeds=3, variants=ROWS[:1]),
        runs=folder,
        progress=lambda cell, row: played.append((cell.label, cell.seed)),
    )
    assert sorted(set(played)) == [("UCB", 2), ("uniform", 2)]


def test_one_seed_has_no_interval(folder: Path, compared: fedcohort.Comparison) -> None:
    one = fedcohort.compare(small(rounds=4, seeds=1, variants=ROWS), runs=folder, progress=refuse)
    assert one.table[["accuracy_sd", "difference_low", "difference_high"]].isna().all(axis=None)
    assert "[–]" not in str(one)
    assert re.search(r"[+−]\d+\.\d +too few seeds", str(one)), "a difference alone"
    assert "±" not in str(one)


def test_rounds_have_one_line_each(compared: fedcohort.Comparison) -> None:
    rounds = compared.rounds
    assert len(rounds) == 3 * 2 * 4
    assert rounds.columns[:3].tolist() == ["label", "seed", "round"]
    assert not rounds.duplicated(["label", "seed", "round"]).any()


def test_without_a_validation_set_there_is_no_early_stop(tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=1, data={"validation": 0.0}), runs=tmp_path)
    assert math.isnan(result(run).early_stop_accuracy)
    assert result(run).to_json()["early_stop_accuracy"] is None


def test_json_has_no_nan(folder: Path, compared: fedcohort.Comparison) -> None:
    one = fedcohort.compare(small(rounds=4, seeds=1, variants=ROWS), runs=folder)
    said = json.loads(json.dumps(one.to_json(), allow_nan=False))
    assert said["rows"][1]["difference_low"] is None
    assert Path(said["rows"][1]["runs"][0]["path"]).is_dir()


# --- records written by hand ------------------------------------------------------------------------------------------------


def row(label: str, *runs: Run) -> Row:
    """A row of runs under the seeds 0, 1, …"""
    return Row(label, runs[0].described, dict(enumerate(runs)))


def test_early_stopping_has_the_patience_of_the_experiment(tmp_path: Path) -> None:
    """Validation 0.5, 0.4, 0.9: with a patience of one round, training stops after the second, and the first is the best."""
    rounds = [
        played(t, validation_accuracy=validated, test_accuracy=tested)
        for t, validated, tested in ((1, 0.5, 0.1), (2, 0.4, 0.2), (3, 0.9, 0.3))
    ]
    for patience, expected in ((1, 0.1), (2, 0.3)):
        run = written(tmp_path / str(patience), rounds, measures={"patience": patience})
        assert result(run).early_stop_accuracy == expected
        assert run.summary().early_stop_accuracy == expected


def test_views_say_which_number_early_stop_is(tmp_path: Path) -> None:
    """Labels said "the round with the best validation accuracy", which here is round 3."""
    rounds = [
        played(t, validation_accuracy=validated, test_accuracy=tested)
        for t, validated, tested in ((1, 0.5, 0.1), (2, 0.4, 0.2), (3, 0.9, 0.3))
    ]
    run = written(tmp_path / "run", rounds, measures={"patience": 1})
    words = (
        "the round with the best validation accuracy before early stopping (measures.patience) would have ended the run"
    )
    assert words in page(gather([run]))
    assert "early stop, by validation accuracy 10.0" in " ".join(
        terminal.as_text(terminal.summaries(["a"], [over_seeds([run.summary()])])).split()
    )


def test_updates_and_diverged_updates_are_counted(tmp_path: Path) -> None:
    """Updates of late and failed clients did not arrive; all selected clients counted."""
    first = [ClientRow(0, "admitted"), ClientRow(1, "diverged"), ClientRow(2, "failed"), ClientRow(3, "failed")]
    second = [ClientRow(4, "diverged"), ClientRow(5, "late"), ClientRow(6, "late"), ClientRow(7, "late")]
    third = [ClientRow(8, "declined"), ClientRow(9, "admitted"), ClientRow(10, "failed"), ClientRow(11, "admitted")]
    run = written(tmp_path / "a", [played(1, first), played(2, second), played(3, third)])
    found = result(run)
    assert (found.updates, found.diverged) == (6, 2)
    table = Comparison("a", (row("a", run, written(tmp_path / "b", [played(1, [0])])),)).table
    assert table[["updates", "diverged"]].to_numpy().tolist() == [[3.5, 1.0]]


def test_rows_with_other_numbers_of_seeds_say_how_many(tmp_path: Path) -> None:
    """In the terminal, in LaTeX and in notebooks; not if all rows have the same number."""

    def runs(label: str, accuracies: list[float]) -> Row:
        made = [
            written(tmp_path / f"{label}{i}", [played(1, [0], test_accuracy=value)], label=label, seed=i)
            for i, value in enumerate(accuracies)
        ]
        return Row(label, made[0].described, dict(enumerate(made)))

    one, two = runs("one", [0.5]), runs("two", [0.5, 0.52])
    compared = Comparison("a", (one, two))
    for text in (terminal.as_text(terminal.comparison(compared)), str(comparison_in_notebook(compared))):
        assert "50.0 (1 seed)" in text
        assert "51.0 ± 1.4 (2 seeds)" in text
    assert r"51.0 $\pm$ 1.4 (2 seeds)" in to_latex(compared)
    assert "(2 seeds)" not in terminal.as_text(terminal.comparison(Comparison("a", (two,))))


def test_rows_with_diverged_updates_have_no_say_in_the_target_unless_all_have(tmp_path: Path) -> None:
    """Means of best accuracies 0.917, 0.5 and 0.864; an update of the second diverged, under one of its two seeds."""
    well = [ClientRow(0, "admitted")]
    diverged = [*well, ClientRow(1, "diverged")]

    def runs(label: str, *seeds: tuple[float, list[ClientRow]]) -> Row:
        return row(
            label,
            *(
                written(tmp_path / f"{label}{i}", [played(1, clients, test_accuracy=accuracy)])
                for i, (accuracy, clients) in enumerate(seeds)
            ),
        )

    first, third = runs("first", (0.927, well), (0.907, well)), runs("third", (0.874, well), (0.854, well))
    second, fourth = runs("second", (0.4, diverged), (0.6, well)), runs("fourth", (0.45, diverged))
    assert Comparison("a", (first, second, third)).target.accuracy == 0.86
    assert Comparison("a", (first, second)).target.accuracy == 0.91
    assert Comparison("a", (second, fourth)).target.accuracy == 0.45


def test_costs_of_a_target_are_means_over_the_seeds_that_reached_it(tmp_path: Path) -> None:
    """The first seed reaches 0.6 in round 1, the second in round 4, after a round without any exchange; the third never."""
    per_round = [[exchange(100, 10)], [], [exchange(200, 20), exchange(3000, 300, "LocalLoss")], [exchange(7, 5)]]
    runs = [
        written(
            tmp_path / str(seed),
            [
                played(t, ledger=ledger, test_accuracy=accuracy, simulated_time=10.0 * t)
                for t, (ledger, accuracy) in enumerate(zip(per_round, accuracies, strict=True), start=1)
            ],
            measures={"target_accuracy": 0.6},
        )
        for seed, accuracies in enumerate([(0.7, 0.1, 0.1, 0.1), (0.1, 0.2, 0.3, 0.6), (0.1, 0.1, 0.1, 0.59)])
    ]
    compared = Comparison("a", (row("a", *runs), row("b", runs[2], runs[1]), row("c", runs[2])))
    names = ["rounds_to_target", "time_to_target", "bytes_to_target", "reached"]
    a, b, c = compared.table[names].to_numpy().tolist()
    assert a == [2.5, 25.0, (110 + 3642) / 2, 2]
    assert b == [4.0, 40.0, 3642, 1]
    assert np.isnan(c[:3]).all()
    assert c[3] == 0


# --- run directories ---------------------------------------------------------------------------------------------------------


def test_directories_are_sorted_into_rows(compared: fedcohort.Comparison) -> None:
    paths = [run.path for row in compared.rows for run in row.runs.values()]
    back_again = read(paths[::-1])
    assert [row.label for row in back_again.rows] == ["everybody [all]", "UCB", "uniform"]
    back = back_again.table.set_index("label").drop(
        columns=["difference", "difference_low", "difference_high", "verdict"]
    )
    there = compared.table.set_index("label")[back.columns]
    assert back.loc[there.index].equals(there)


def test_equal_labels_are_told_apart(tmp_path: Path) -> None:
    paths = []
    for name, k in (("few", 2), ("many", 4), ("many", 5)):
        run = fedcohort.run(small(name=name, rounds=1, selection={"k": k}), runs=tmp_path)
        paths.append(run.path)
    compared = read(paths)
    assert [row.label for row in compared.rows] == ["few: uniform", "many: uniform (k=4)", "many: uniform (k=5)"]
    assert len(compared.groups) == 1  # these are no points of a sweep


def test_equal_labels_are_told_apart_by_what_is_measured_if_nothing_else_does(tmp_path: Path) -> None:
    paths = [
        fedcohort.run(small(rounds=rounds, measures={"clients_every": every}), runs=tmp_path).path
        for rounds, every in ((1, 0), (1, 1), (2, 0))
    ]
    assert [row.label for row in read(paths).rows] == [
        f"small: uniform (rounds={rounds}, clients_every={every})" for rounds, every in ((1, 0), (1, 1), (2, 0))
    ]
    assert [row.label for row in read([paths[1], paths[2]]).rows] == [
        "small: uniform (rounds=1)",
        "small: uniform (rounds=2)",
    ]


def test_rows_that_differ_in_many_settings_or_in_none_are_numbered(tmp_path: Path) -> None:
    many: list[dict[str, Any]] = [
        {"rounds": 1, "training": {"lr": 0.1, "epochs": 1}, "selection": {"k": 2}},
        {"rounds": 2, "training": {"lr": 0.2, "epochs": 2}, "selection": {"k": 3}},
    ]
    paths = [fedcohort.run(small(**settings), runs=tmp_path / "many").path for settings in many]
    assert [row.label for row in read(paths).rows] == ["small: uniform (1)", "small: uniform (2)"]
    given = [
        fedcohort.run(small(rounds=1, **IID), data=blobs(size), runs=tmp_path / "data").path for size in (240, 300)
    ]
    assert [row.label for row in read(given).rows] == ["small: uniform (1)", "small: uniform (2)"]
    few: list[dict[str, Any]] = [
        {"rounds": 1, "training": {"lr": 0.1}},
        {"rounds": 2, "training": {"lr": 0.1}},
        {"rounds": 1},
    ]
    paths = [fedcohort.run(small(**settings), runs=tmp_path / "few").path for settings in few]
    lr = fedcohort.Experiment().training.lr
    assert [row.label for row in read(paths).rows] == [
        "small: uniform (rounds=1, lr=0.1)",
        "small: uniform (rounds=2, lr=0.1)",
        f"small: uniform (rounds=1, lr={lr})",
    ]


def test_rows_without_a_common_seed_have_no_difference(tmp_path: Path) -> None:
    runs = [
        fedcohort.run(small(rounds=1, seed=seed, selection=name), runs=tmp_path)
        for seed, name in ((0, "uniform"), (1, "all"))
    ]
    table = read([run.path for run in runs]).table
    assert table["difference"].isna().tolist() == [False, True]


def test_the_same_run_twice_is_refused(compared: fedcohort.Comparison) -> None:
    path = compared.rows[0].runs[0].path
    with pytest.raises(UsageError, match="'uniform' under seed 0; give only one of them"):
        read([path, path])


def test_unfinished_runs_are_refused(tmp_path: Path) -> None:
    def stop(cell: Any, row: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(small(), runs=tmp_path, progress=stop)
    (path,) = tmp_path.iterdir()
    with pytest.raises(UsageError, match="stopped after round 1 of 6; finish it first, with `fedcohort run"):
        read([path])


def test_nothing_to_read_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one"):
        read([])


def test_a_run_without_rounds_has_no_result(tmp_path: Path) -> None:
    run = create_run(tmp_path / "empty", small().to_toml(), {"label": "uniform", "data": ""})
    with pytest.raises(UsageError, match="no finished round"):
        result(run)


# --- how it looks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_the_table_fits(compared: fedcohort.Comparison, width: int) -> None:
    text = terminal.as_text(compared, width)
    assert max(map(len, text.splitlines())) <= width
    assert "Test accuracy after the last round" in text
    assert "…" not in text


def test_wide_terminals_show_everything(compared: fedcohort.Comparison) -> None:
    text = terminal.as_text(compared, 140)
    assert "Hidden for lack of width" not in text
    for heading in ("best", "early", "rounds", "time", "Jain", "bytes", "passes", "wall"):
        assert heading in text


def test_narrow_terminals_say_what_they_leave_out(compared: fedcohort.Comparison) -> None:
    assert "Hidden for lack of width: best, early stop" in " ".join(terminal.as_text(compared, 80).split())


def test_labels_are_not_markup(compared: fedcohort.Comparison) -> None:
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    console.print(compared)
    assert "everybody [all]" in console.export_text()
    assert "everybody [all]" in str(compared)


def refuse(cell: Any, row: Any) -> None:
    raise AssertionError(f"{cell.label}, seed {cell.seed} was run again")


def test_chance_is_told_once_for_rows_that_have_it_in_common(tmp_path: Path) -> None:
    variants = [{"label": "everybody", "selection": "all"}, {"label": "b", "selection": "round_robin"}]
    text = str(fedcohort.compare(small(rounds=1, variants=variants), runs=tmp_path))
    assert "uniform chance gives 0.250 ('everybody' 1.000) on average." in " ".join(text.split())


def test_bytes_of_rounds_that_were_played_after_the_table_was_read_do_not_count() -> None:
    ledger = pd.DataFrame({"round": [1, 1, 3, 4], "bytes_down": [1, 2, 4, 8], "bytes_up": [10, 20, 40, 80]})
    assert bytes_per_round(ledger, pd.Index([1, 2, 3])).tolist() == [33.0, 0.0, 44.0]
    assert bytes_per_round(ledger[:0], pd.Index([1, 2])).tolist() == [0.0, 0.0]
    assert bytes_per_round(ledger, pd.Index([], dtype="int64")).tolist() == []


def test_a_row_has_its_first_run_under_any_seed(tmp_path: Path) -> None:
    """``rows[0].runs[0]`` is the run under seed 0, which an experiment that begins with seed 5 has not."""
    compared = fedcohort.compare(small(rounds=1, seed=5, seeds=2), runs=tmp_path)
    (row,) = compared.rows
    assert list(row.runs) == [5, 6]
    assert row.run.path == row.runs[5].path


def test_a_row_that_cannot_have_so_many_clients_is_refused_before_any_row_is_run(tmp_path: Path) -> None:
    """It was refused when it began, after the runs of all rows before it."""
    many = small(federation={"clients": 2_001}, variants=[{"label": "by update", "selection": "clustered_similarity"}])
    message = r"row 'by update': selection.name = 'clustered_similarity': 2,001 clients; it compares all pairs"
    with pytest.raises(UsageError, match=message):
        fedcohort.compare(many, runs=tmp_path)
    settings = {"name": "size", "importance": [1.0, 2.0, 3.0]}
    with pytest.raises(UsageError, match=r"selection.importance: 3 numbers for 12 clients"):
        fedcohort.compare(small(variants=[{"label": "by hand", "selection": settings}]), runs=tmp_path)
    assert list(tmp_path.iterdir()) == []
