"""Tables and notes in narrow terminals: nothing that is a number or a name is cut, and notes explain what is shown."""

import dataclasses
import io
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console
from rich.progress import Progress

import fedcohort
from fedcohort.cli import cli
from fedcohort.core.errors import UsageError
from fedcohort.core.words.formatted_values import count, in_words, number, percent, signed
from fedcohort.experiment import Cell
from fedcohort.experiment.given_objects import Given
from fedcohort.racing.raced_rows import candidates
from fedcohort.report import terminal
from fedcohort.report.data.report_data import gather
from fedcohort.report.data.runs_on_disk import find_runs
from fedcohort.report.terminal.all_measures import _tables_by_topic
from fedcohort.report.terminal.layout import LEAST_WIDTH, Column, fits, fitting_table
from fedcohort.report.terminal.progress import _Bar, _Course
from fedcohort.study.decisions.explain_decision import Asked, explain
from tests.experiments import small
from tests.records import played
from tests.report.conftest import runs
from tests.report.headline.test_headline import runs_of

__all__ = ["runs"]

CODES = ["clustered_similarity", "loss_proportional", "size"]


def text_of(columns: list[Column], width: int) -> list[str]:
    return terminal.as_text(fitting_table(columns, width)[0], width).splitlines()


def test_names_take_the_free_width_of_a_table() -> None:
    columns = [Column("strategy", CODES, left=True, widest=16), Column("bytes", ["1", "2", "3"])]
    assert [line.split() for line in text_of(columns, 40)[-3:]] == [[code, str(i + 1)] for i, code in enumerate(CODES)]


def test_names_are_shown_beside_columns_that_are_too_wide() -> None:
    """The column of the strategies vanished beside numbers of 35 digits."""
    columns = [Column("strategy", ["uniform", "lr big"], left=True, widest=20), Column("R²", ["1" * 60, "2"])]
    text = terminal.as_text(fitting_table(columns, 40)[0], width=40)
    assert [line.startswith(name) for line, name in zip(text.splitlines()[2:], ("uniform", "lr big"), strict=True)] == [
        True
    ] * 2


def test_only_as_many_columns_are_cut_as_is_needed() -> None:
    text = "\n".join(text_of([Column("long", ["x" * 40]), Column("short", ["y" * 14])], 40))
    assert "x…" in text
    assert "y" * 14 in text


def test_names_without_room_break_at_their_joints() -> None:
    columns = [Column("strategy", CODES, left=True, widest=16), Column("bytes", ["1", "2", "3"])]
    lines = text_of(columns, 23)
    assert max(map(len, lines)) <= 23
    assert [line.split()[0] for line in lines[-5:]] == ["clustered_", "similarity", "loss_", "proportional", "size"]


def test_names_of_rows_wrap_only_for_lack_of_room() -> None:
    """In the tables of `fedcohort measures` by topic, a third of the width was all that a name had, beside empty space."""
    name = "selection of the clients with the best data, of two thirds of all"
    cost = [("bytes", ["1 kB"] * 2), ("client passes", ["9"] * 2)]
    (wide,) = (terminal.as_text(table, 120).splitlines() for table in _tables_by_topic([name, "uniform"], [cost], 120))
    assert any(line.startswith(f"{name}  ") for line in wide)
    (narrow,) = (terminal.as_text(table, 60).splitlines() for table in _tables_by_topic([name, "uniform"], [cost], 60))
    assert max(map(len, narrow)) <= 60
    assert not any(name in line for line in narrow)


def test_two_columns_of_long_names_share_what_a_table_lacks() -> None:
    names = ["zalando-datasets/fashion_mnist"] * 2
    columns = [Column(str(i), names, left=True, widest=31) for i in range(2)]
    lines = text_of(columns, 48)
    assert max(map(len, lines)) <= 48
    assert lines[-2].split() == ["zalando-datasets/", "zalando-datasets/fashion_"]
    assert lines[-1].split() == ["fashion_mnist", "mnist"]


def call(width: int, *arguments: object) -> str:
    result = CliRunner(env={"COLUMNS": str(width)}).invoke(cli, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_headings_with_commas_are_told_apart() -> None:
    """In "personal, worst tenth, best", a reader saw a column "worst tenth", which was shown."""
    assert terminal.layout.about_hidden(["best", "bytes"]) == "Hidden for lack of width: best, bytes."
    found = terminal.layout.about_hidden(["personal, worst tenth", "best"])
    assert found == "Hidden for lack of width: personal, worst tenth; best."


@pytest.mark.parametrize(("width", "below"), [(60, True), (120, False)])
def test_names_of_rows_have_room_beside_the_differences_of_a_measure(runs: Path, width: int, below: bool) -> None:
    """With 60 characters, names of strategies had three letters a line, and verdicts were cut."""
    printed = call(width, "compare", runs, "--measure", "simulated_time")
    lines = printed[printed.index("simulated_time: time of all rounds") : printed.index("Runs: ")].splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)
    assert any(line.startswith("uniform ") for line in lines)
    assert any(line.strip() == "baseline" for line in lines) == below


@pytest.mark.parametrize(("width", "hidden"), [(60, True), (80, False), (120, False)])
def test_quantiles_of_many_clients_are_not_cut(width: int, hidden: bool) -> None:
    """With 60 characters, most quantiles were "0.…"."""
    settings = ("--set", "federation.clients=40", "--set", "federation.partition='iid'")
    printed = call(width, "data", "describe", *settings)
    assert "…" not in printed
    assert max(map(len, printed.splitlines())) <= width
    assert ("quantile 25%, quantile 75%" in printed) == hidden


def test_data_sets_have_whole_names_or_break_at_joints() -> None:
    printed = call(60, "data", "list")
    assert [line.split() for line in printed.splitlines() if "fashion_mnist" in line][-1][:1] == ["fashion_mnist"]
    assert "zalando-datasets/" in printed


@pytest.mark.parametrize("width", [60, 80, 120])
def test_exchanges_are_readable_beside_long_questions(runs: Path, width: int) -> None:
    """With 60 characters, what clients disclose had five characters a line, and hidden columns were not named."""
    found = explain(next(run for run in find_runs([runs]) if run.meta["label"] == "UCB"), 3)
    asked = Asked(
        "Losses", 40, 52_000, 160, 20.0, "the losses of the current model on its training and on its held-out data"
    )
    long = dataclasses.replace(found, asked=[asked, *found.asked])
    printed = terminal.as_text(terminal.explanation(long, width), width)
    lines = printed.splitlines()
    assert max(map(len, lines)) <= width
    start = next(i for i, line in enumerate(lines) if line.startswith("exchange"))
    assert "" in lines[start : start + 10], "two exchanges take a few lines"
    assert ("passes" in lines[start]) != (
        "passes" in printed[printed.index("Hidden") :] if "Hidden" in printed else False
    )


@pytest.mark.parametrize("color", [{}, {"FORCE_COLOR": "1"}])
def test_lines_have_no_spaces_at_their_ends(runs: Path, monkeypatch: pytest.MonkeyPatch, color: dict[str, str]) -> None:
    """Wrapped notes kept the space before a line break, and cells of the last column those to its width."""
    for name, value in color.items():
        monkeypatch.setenv(name, value)
    one = next(run for run in find_runs([runs]) if run.meta["label"] == "UCB")
    for command in (["why", one.path, "--round", "3"], ["diagnose", runs], ["strategies", "ucb"]):
        printed = call(80, *command)
        assert ("\x1b[" in printed) == bool(color)
        plain = re.sub(r"\x1b\[[0-9;]*m", "", printed)
        assert plain.splitlines() == [line.rstrip() for line in plain.splitlines()]


def test_columns_of_a_decision_are_explained_if_they_are_shown(runs: Path) -> None:
    found = explain(next(run for run in find_runs([runs]) if run.meta["label"] == "UCB"), 3)
    wide, narrow = (
        " ".join(terminal.as_text(terminal.explanation(found, width), width).split()) for width in (120, 50)
    )
    assert (
        "Score: what the strategy compared. Samples: training samples of the client. Steps: mini-batches that" in wide
    )
    assert (
        "Time: simulated time. Weight: share of the weights of all admitted updates. Loss and accuracy: on the" in wide
    )
    assert "an accuracy of 1 is 100%" in wide
    of_loss = explain(next(run for run in find_runs([runs]) if run.meta["label"] == "loss"), 3)
    printed = " ".join(terminal.as_text(terminal.explanation(of_loss, 140), 140).split())
    assert (
        "Loss: what the strategy knew before it selected. Loss in training and accuracy: on the client's own" in printed
    )
    assert "Score: what the strategy compared." in narrow
    assert "accuracy" in narrow[narrow.index("Hidden for lack of width") :]
    assert "Accuracy:" not in narrow
    assert "an accuracy of 1" not in narrow
    assert "and accuracy:" not in narrow
    numeric = terminal.as_text(terminal.explanation(dataclasses.replace(found, labels="numbers")))
    (heading,) = [line for line in numeric.splitlines() if line.startswith("client ")]
    assert heading.split().count("score") - heading.count("training score") == 1, "two columns had one name"
    about = "Loss and training score: on the client's own data during training; the score is 1 − mean squared error"
    assert about in " ".join(numeric.split())
    on_machines = terminal.as_text(terminal.explanation(dataclasses.replace(found, clock="wall")))
    assert "Time: seconds of wall time." in on_machines


def test_messages_of_declined_clients_are_explained(runs: Path) -> None:
    """Where all clients were declined, messages were half of those of a usual round, beside bytes that clients sent."""
    found = explain(next(run for run in find_runs([runs]) if run.meta["label"] == "UCB"), 3)
    about = "A client that the strategy declines sends no update; the numbers that it reports count as bytes only."
    assert about not in " ".join(terminal.as_text(terminal.explanation(found)).split())
    declined = [dataclasses.replace(each, status="declined") if each.selected else each for each in found.candidates]
    one = dataclasses.replace(found, candidates=declined, selected=1, admitted=1, available=1)
    printed = " ".join(terminal.as_text(terminal.explanation(one)).split())
    assert about in printed
    assert "Of 1 available client, " in printed
    assert "and 1 was selected; " in printed
    assert "and 1 was admitted." in printed


def test_many_selected_clients_leave_room_for_others(runs: Path) -> None:
    """With 30 selected clients or more, no other candidate was listed."""
    found = explain(next(run for run in find_runs([runs]) if run.meta["label"] == "UCB"), 3)
    (one, *_), other = found.candidates, next(each for each in found.candidates if not each.selected)
    many = [dataclasses.replace(one, client=i) for i in range(50)]
    many += [dataclasses.replace(other, client=i) for i in range(50, 99)]
    printed = terminal.as_text(terminal.explanation(dataclasses.replace(found, candidates=many)))
    listed = [line.split()[:2] for line in printed.splitlines() if line.split()[1:2] in (["yes"], ["–"])]
    assert [client for client, _ in listed] == [*map(str, range(20)), *map(str, range(50, 60))]
    assert "69 more candidates, 30 of them selected, are in the output of --json." in printed


def test_rounds_have_separators_of_thousands(runs: Path) -> None:
    """Round 759 of 3000 stood beside 3,000 rounds."""
    found = explain(next(run for run in find_runs([runs]) if run.meta["label"] == "UCB"), 3)
    many = dataclasses.replace(found, round=1759, rounds=3000)
    assert ": round 1,759 of 3,000" in terminal.as_text(terminal.explanation(many))
    assert "round 1,759 of 3,000" in repr(many)


def test_notes_of_a_diagnosis_are_about_columns_that_are_shown(runs: Path) -> None:
    narrow, wide = call(42, "diagnose", runs), call(120, "diagnose", runs)
    assert "Correlation: rank correlation" not in narrow
    assert "Gain" not in narrow
    assert "Prediction:" not in narrow
    assert "Correlation: rank correlation" in " ".join(wide.split())
    assert "–: in no round did both the scores and the outcomes" in " ".join(wide.split())
    hidden = " ".join(narrow[narrow.index("Hidden for lack of width") :].split())
    assert "%" not in hidden
    assert "loss" in hidden


def test_notes_of_a_race_are_about_columns_that_are_shown(tmp_path: Path) -> None:
    race = (
        "race",
        "--set",
        "rounds=1",
        "--strategy",
        "uniform",
        "--strategy",
        "clustered_similarity",
        "--max-seeds",
        2,
    )
    printed = call(40, *race, "--runs", tmp_path, "--quiet")
    assert "Hidden for lack of width: seeds, difference [any time]." in " ".join(printed.split())
    assert "Difference:" not in printed
    assert "∞" not in printed


@pytest.mark.parametrize("target", [0.5, 0.9])
def test_costs_of_a_target_that_no_row_reaches_make_room(tmp_path: Path, target: float) -> None:
    """Two columns of "∞" hid the best accuracies and the bytes."""
    both = [
        one
        for label, selection in (("uniform", "uniform"), ("loss", {"name": "select_by_loss"}))
        for one in runs_of(
            tmp_path, label, [0.6, 0.61, 0.62], selection=selection, measures={"target_accuracy": target}
        )
    ]
    compared = gather(both).comparison
    assert compared is not None
    narrow, wide = (terminal.as_text(terminal.comparison(compared, width), width) for width in (75, 160))
    hidden = " ".join(narrow.partition("Hidden for lack of width:")[2].split())
    assert ("bytes" in hidden, "rounds to" in hidden) == ((True, False) if target == 0.5 else (False, True))
    assert ("∞" in wide) == (target == 0.9), "wide terminals show all columns"


def test_a_rounded_zero_has_no_sign_unless_it_is_a_difference() -> None:
    """A correlation of −0.003 was −0, and browsers write 0."""
    assert (percent(-0.003, 0), count(-0.4), number(-0.0), percent(-0.03, 0)) == ("0", "0", "0", "−3")
    assert signed(-0.0004) == "−0.0"


def test_names_in_a_sentence() -> None:
    assert [in_words(["a", "b", "c"][:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]


def test_a_race_without_strategies_names_the_reasons() -> None:
    with pytest.raises(UsageError) as error:
        candidates(small(), Given(), over={"selection.k": [0]})
    assert str(error.value) == (
        "strategies: none of 38 can race: selection.k = 0: should be at least 1 (uniform and 31 more); "
        "federation.holdout = 0: 'conformal' needs a held-out part of each client's data; use a value above 0, such as 0.2 "
        "(conformal and 5 more)"
    )
    with pytest.raises(UsageError) as error:
        candidates(small(federation={"holdout": 0.2}), Given(), over={"training.zz": [4]})
    assert str(error.value).startswith("training.zz: unknown key"), "the reason that all have is told once"


def test_a_dumb_terminal_has_its_own_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich takes any dumb terminal for one of 80 characters, also if ``COLUMNS`` says otherwise."""
    for name, value in {"TERM": "dumb", "FORCE_COLOR": "1", "COLUMNS": "60"}.items():
        monkeypatch.setenv(name, value)
    found = terminal.screen()
    assert found.is_dumb_terminal
    assert found.width == 60


def test_likeness_of_a_twin_is_not_cut(tmp_path: Path) -> None:
    """With 60 characters, ranges and states were cut: "1.5 · 2.5 …", "mat…"."""
    (tmp_path / "clients.csv").write_text("client,samples,seconds\na,100,1.5\nb,60,3\nc,200,2\nd,80,9\n")
    settings = ("--max-seeds", 2, "--set", "rounds=1", "--runs", tmp_path / "runs", "--quiet")
    printed = call(60, "advise", tmp_path / "clients.csv", "--strategy", "uniform", "--strategy", "ucb", *settings)
    assert "…" not in printed
    assert "matched" in printed
    assert "Hidden for lack of width: largest difference." in printed


def test_weights_of_a_decision_are_in_percent_and_other_numbers_are_not(tmp_path: Path) -> None:
    """Weights are in proportion to samples: those of 71 of 294 samples are 24.1%."""
    found = explain(fedcohort.run(small(rounds=1), runs=tmp_path), 1)
    lines = [line.split() for line in terminal.as_text(terminal.explanation(found, 140), 140).splitlines()]
    shown = [line for line in lines if line[3:4] == ["admitted"]]
    samples = [int(line[4]) for line in shown]
    assert len(shown) == 3
    assert [line[7] for line in shown] == [f"{100 * own / sum(samples):.1f}" for own in samples]
    assert [float(line[5]) for line in shown] == [one.outcome["steps"] for one in found.candidates if one.outcome]


@pytest.mark.parametrize(
    ("width", "name", "facts"),
    [
        (120, "a label of 20 letters", "run 1/2 · round 2/4 · test 50.0% · sim. time 2 · 0:30 left"),
        (80, "a label of …", "round 2/4 · test 50.0% · sim 2 · 0:30 left"),
    ],
)
def test_the_progress_bar_shows_the_round_and_the_time_left(width: int, name: str, facts: str) -> None:
    """Two runs of four rounds, of 5 s each after the first: six rounds are left."""
    cells = [Cell("a label of 20 letters", seed, small(rounds=4, seed=seed)) for seed in (3, 4)]
    bar = Progress(console=Console(file=io.StringIO(), width=width))
    shown = _Bar(_Course(cells, iter([100.0, 105.0]).__next__), bar)
    shown(cells[0], played(1))
    assert "left" not in bar.tasks[0].fields["facts"]
    shown(cells[0], played(2))
    (task,) = bar.tasks
    assert (task.description, task.completed, task.total) == (f"{name}, seed 3", 2, 8)
    assert task.fields["facts"] == facts


def test_cells_of_two_lines_keep_both() -> None:
    """The verdict in the second line vanished where the interval in the first one was cut."""
    columns = [
        Column("strategy", ["UCB"], left=True, widest=16),
        Column("accuracy", ["26.2 ± 10.3"]),
        Column("difference", ["+1.4 [−27.6, +30.3]\nnot clear, 1"]),
    ]
    text = terminal.as_text(fitting_table(columns, 32)[0], width=32)
    assert "…" in text
    assert "not clear, 1" in text


def test_very_narrow_terminals_show_the_names_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    assert terminal.screen().width == LEAST_WIDTH
    monkeypatch.setenv("COLUMNS", "70")
    assert terminal.screen().width == 70


def test_differences_are_whole_in_very_narrow_terminals(tmp_path: Path) -> None:
    """With 40 characters, intervals and deviations were "−0.5 [−4.8, +…" and "0.393 ± 0.0…", and names had seven letters a line."""
    first = [0.393, 0.401, 0.35, 0.42, 0.41]
    found = [
        *runs_of(tmp_path, "uniform", first),
        *runs_of(tmp_path, "power-of-choice", [0.9 - value for value in first], selection={"name": "powd", "d": 4}),
    ]
    compared = gather(found).comparison
    assert compared is not None
    text = terminal.as_text(terminal.comparison(compared, 40), 40)
    table = text[: text.index("Test accuracy after")].splitlines()
    assert max(map(len, table)) <= 40
    assert "…" not in text
    lines = [line.split("  ")[-1].strip() for line in table if line.strip()]
    start = next(i for i, line in enumerate(lines) if "+11.0" in line)
    assert re.fullmatch(r"\[.*, .*\]", lines[start + 1])
    assert lines[start + 2].startswith("not clear, ")
    wide = terminal.as_text(terminal.comparison(compared, 60), 60)
    assert re.search(r"\+11\.0 \[.*, .*\]", wide), "one line, where it has room"


def test_columns_fit_if_nothing_of_those_that_are_never_hidden_is_cut() -> None:
    columns = [Column("strategy", ["explodes"], left=True, widest=16), Column("R²", ["1" * 40])]
    assert not fits(columns, 40)
    assert fits([columns[0], Column("R²", ["1" * 27])], 40)
